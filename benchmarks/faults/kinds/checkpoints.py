"""A run that is killed whole and whose newest checkpoint is damaged before another run is to go on from there."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from faults.kind import Kind, Scene
from faults.law import Expectation
from faults.training import newest_checkpoint


class _Damaged(Kind):
    def __init__(self, name: str, doc: str, damage: Callable[[Path, random.Random], None]) -> None:
        self.name, self.doc, self._damage = name, doc, damage

    def expectation(self, weights: str) -> Expectation:
        return Expectation(weights, whole_killed=True, summary=False, may_refuse=True)

    def inflict(self, scene: Scene) -> str:
        count = scene.chance.choice([1, 2, 3])
        scene.training.await_checkpoint(count, scene.checkpoints)
        scene.training.kill()
        newest = newest_checkpoint(scene.checkpoints)
        (folder,) = (each for each in scene.checkpoints.glob("step-*") if int(each.name[len("step-") :]) == newest)
        self._damage(folder, scene.chance)
        return f"after checkpoint {count}, of step {newest}"


def _ranks(folder: Path) -> list[Path]:
    """The values of the ranks."""
    return sorted(each for each in folder.glob("rank-*") if each.suffix != ".json" and not each.name.startswith("."))


def flip(file: Path, chance: random.Random) -> None:
    """Changes one bit of one byte of it."""
    content = bytearray(file.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    file.write_bytes(content)


def _flip(folder: Path, chance: random.Random) -> None:
    flip(chance.choice([*_ranks(folder), folder / "manifest.json"]), chance)


def _truncate(folder: Path, chance: random.Random) -> None:
    file = chance.choice(_ranks(folder))
    content = file.read_bytes()
    file.write_bytes(content[: chance.randrange(len(content))])


def _swap(folder: Path, chance: random.Random) -> None:  # noqa: ARG001 (an interface's)
    one, other = _ranks(folder)[:2]
    for suffix in ("", ".json"):
        left, right = Path(f"{one}{suffix}"), Path(f"{other}{suffix}")
        contents = left.read_bytes(), right.read_bytes()
        left.write_bytes(contents[1])
        right.write_bytes(contents[0])


def _without_manifest(folder: Path, chance: random.Random) -> None:  # noqa: ARG001 (an interface's)
    (folder / "manifest.json").unlink()


KINDS: list[Kind] = [
    _Damaged("checkpoint-flipped", "One bit of the newest checkpoint is another one.", _flip),
    _Damaged("checkpoint-truncated", "A rank's file of the newest checkpoint is cut.", _truncate),
    _Damaged("checkpoint-swapped", "Two ranks' files of the newest checkpoint have changed places.", _swap),
    _Damaged("checkpoint-without-manifest", "The newest checkpoint has lost its manifest.", _without_manifest),
]
