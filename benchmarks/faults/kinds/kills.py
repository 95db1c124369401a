"""Processes killed with SIGKILL: an executor, the driver's JVM, the command itself, an engine's Python, all at once."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Sequence

import psutil

from faults.kind import Kind, Scene
from faults.law import Expectation
from faults.training import EndedEarlyError, Training
from faults.ways import Way


class _Kill(Kind):
    def __init__(self, name: str, doc: str, victims: Callable[[Training], Sequence[psutil.Process]]) -> None:
        self.name, self.doc, self._victims = name, doc, victims

    def inflict(self, scene: Scene) -> str:
        moment = scene.await_moment()
        victims = self._victims(scene.training)
        if not victims:
            raise EndedEarlyError("Its victim had ended.")
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            scene.chance.choice(victims).send_signal(signal.SIGKILL)
        return moment


class _KillEngine(_Kill):
    def suits(self, way: Way) -> bool:
        return way.engine != "libtorch"


class _KillParent(Kind):
    name = "parent-killed"
    doc = "SIGKILL to the command: its JVM ends the run and says so in its summary."

    def expectation(self, weights: str) -> Expectation:
        return Expectation(weights, parent_killed=True)

    def inflict(self, scene: Scene) -> str:
        moment = scene.await_moment()
        os.kill(scene.training.process.pid, signal.SIGKILL)
        return moment


class _KillAll(Kind):
    name = "all-killed"
    doc = "SIGKILL to all processes of the run at once, as when a host loses its power."

    def expectation(self, weights: str) -> Expectation:
        return Expectation(weights, whole_killed=True, summary=False)

    def inflict(self, scene: Scene) -> str:
        moment = scene.await_moment(with_session=True)
        scene.training.kill()
        return moment


KINDS: list[Kind] = [
    _Kill("executor-killed", "SIGKILL to an executor's JVM.", Training.executors),
    _Kill("driver-killed", "SIGKILL to the driver's JVM; the command still writes the summary.", Training.drivers),
    _KillEngine("engine-killed", "SIGKILL to a Python process that computes for a rank.", Training.engines),
    _KillParent(),
    _KillAll(),
]
