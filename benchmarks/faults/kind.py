"""What a kind of fault is, and where it is found: each file of `kinds/` has one or a small family of them."""

from __future__ import annotations

import importlib
import os
import pkgutil
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults import kinds
from faults.law import Expectation
from faults.training import Training, natives, newest_checkpoint, variables
from faults.ways import Way
from sparkdl_bench.bench.visits import CountedSet

_MOST_PAUSE_S = 0.4
# Of the moments with a checkpoint: later ones may come too late on a quick machine.
_MOST_CHECKPOINTS = 3
_DECODED = CountedSet(width=64, classes=10)


@dataclass
class Scene:
    """One fault's stage: its folders, what the training gets beside its way, and the training.

    Attributes:
        chance: all that is drawn for this fault.
        settings: keys of the run.
        spark: properties of its session.
        environment: variables of its processes.
        prefix: words before its command.
    """

    folder: Path
    way: Way
    chance: random.Random
    limit_s: float = 120.0
    settings: dict[str, Any] = field(default_factory=dict)
    spark: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()
    trainings: list[Training] = field(default_factory=list)

    def __post_init__(self) -> None:
        for each in (self.temporary, self.local, self.checkpoints, self.results):
            each.mkdir(parents=True, exist_ok=True)
        own = {"checkpoint.dir": self.checkpoints.as_uri(), "engine.cache": natives(), **self._data()}
        self.settings = {**own, **self.settings}
        self.spark = {"spark.local.dir": str(self.local), **self.spark}
        self.environment = {**variables(self.temporary), **self.environment}

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    @property
    def local(self) -> Path:
        """Spark's scratch space."""
        return self.folder / "local"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def decoded(self) -> Path:
        return self.folder / "decoded"

    @property
    def training(self) -> Training:
        """The one that is disturbed."""
        return self.trainings[0]

    def _data(self) -> dict[str, Any]:
        if not self.way.decoded:
            return {}
        written = _DECODED.write_libsvm(self.folder / "set")
        return {**written, "data.classes": _DECODED.classes + 1, "data.cache_dir": str(self.decoded), "epochs": 400}

    def start(self, **more: Any) -> Training:
        return self._start("first", {"results": str(self.results), **more})

    def resume(self) -> Training | None:
        """Starts the run that goes on from the first one's checkpoints; None where there is no whole one."""
        if not newest_checkpoint(self.checkpoints):
            return None
        results = self.folder / "results-resumed"
        return self._start("resumed", {"results": str(results), "resume": self.checkpoints.as_uri()})

    def _start(self, name: str, more: Mapping[str, Any]) -> Training:
        settings, environment = {**self.settings, **more}, self.environment
        started = Training(self.folder / name, self.way, settings, self.spark, environment, self.prefix, self.limit_s)
        self.trainings.append(started)
        return started

    def await_moment(self, with_session: bool = False) -> str:
        """Waits for a moment of the training that chance chooses; says which it was.

        Args:
            with_session: moments while the session starts, too.

        Raises:
            EndedEarlyError: the run was over before.
        """
        choices = ["connected", *(f"checkpoint {count}" for count in range(1, _MOST_CHECKPOINTS + 1))]
        chosen = self.chance.choice([*choices, "start"] if with_session else choices)
        pause = self.chance.uniform(0, _MOST_PAUSE_S)
        if chosen == "start":
            pause *= 20
        elif chosen == "connected":
            self.training.await_training()
        else:
            self.training.await_checkpoint(int(chosen.split()[1]), self.checkpoints)
        until = time.monotonic() + pause
        self.training.wait(lambda: time.monotonic() >= until)
        return f"{pause * 1000:.0f} ms after {chosen}"


class Kind(ABC):
    """A kind of fault.

    Attributes:
        name: as `--kinds` has it.
        doc: one sentence.
    """

    name: str
    doc: str

    def obstacle(self) -> str | None:
        """Why this machine or user cannot have it; None where it can."""
        return None

    def suits(self, way: Way) -> bool:  # noqa: ARG002 (most suit all)
        return True

    def expectation(self, weights: str) -> Expectation:
        """What the law demands, given the undisturbed run's weights."""
        return Expectation(weights)

    @contextmanager
    def around(self, scene: Scene) -> Iterator[None]:  # noqa: ARG002 (most need nothing)
        """What must be there while the trainings run, such as a small disk; before the first one starts."""
        yield

    @abstractmethod
    def inflict(self, scene: Scene) -> str:
        """Does it to the running training; says when.

        Raises:
            EndedEarlyError: the run was over before.
        """

    def heal(self, scene: Scene) -> None:  # noqa: B027 (most need nothing)
        """Ends what lasts, before another run goes on from the checkpoints."""


def needs_root() -> str | None:
    return None if os.geteuid() == 0 else "it needs root"


def find() -> dict[str, Kind]:
    """All kinds, by name, in the order of their names."""
    found: list[Kind] = []
    for module in pkgutil.iter_modules(kinds.__path__):
        loaded = importlib.import_module(f"{kinds.__name__}.{module.name}")
        found += loaded.KINDS
    return {each.name: each for each in sorted(found, key=lambda each: each.name)}
