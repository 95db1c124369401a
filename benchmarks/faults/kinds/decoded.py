"""Decoded rows that were damaged on the disk between two runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from faults.kind import Kind, Scene
from faults.kinds.checkpoints import flip
from faults.law import Expectation
from faults.ways import Way
from sparkdl_bench.errors import RunFailedError


class _Damaged(Kind):
    def __init__(self, name: str, doc: str, damage: Callable[[Path, random.Random], None]) -> None:
        self.name, self.doc, self._damage = name, doc, damage

    def suits(self, way: Way) -> bool:
        return way.decoded

    def expectation(self, weights: str) -> Expectation:
        # Rows that are read late may be met by a run that goes on from a checkpoint; they are damaged still.
        return Expectation(weights, may_refuse=True)

    @contextmanager
    def around(self, scene: Scene) -> Iterator[None]:
        """Another run decodes the rows first."""
        decoding = scene.start(**{"epochs": 1, "checkpoint.every": 1_000_000, "checkpoint.dir": ""})
        try:
            ended = decoding.end()
        finally:
            decoding.stop()
        if ended.status != 0:
            raise RunFailedError(f"The rows were not decoded, before any fault: {ended.said[-500:]}")
        scene.trainings.clear()
        for each in scene.results.iterdir():
            each.rename(scene.folder / f"decoding-{each.name}")
        parts = [each for each in scene.decoded.rglob("*") if each.is_file() and _is_part(each)]
        self._damage(scene.chance.choice(sorted(parts)), scene.chance)
        yield

    def inflict(self, scene: Scene) -> str:  # noqa: ARG002 (an interface's)
        return "before the start"


def _is_part(file: Path) -> bool:
    return not file.name.startswith((".", "_")) and file.suffix != ".json" and file.stat().st_size > 0


def _truncate(file: Path, chance: random.Random) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: chance.randrange(len(content))])


KINDS: list[Kind] = [
    _Damaged("decoded-flipped", "One bit of the decoded rows is another one.", flip),
    _Damaged("decoded-truncated", "A file of the decoded rows is cut.", _truncate),
]
