"""Processes that stand still for a while (SIGSTOP, SIGCONT): shorter than a rank's timeout, and beyond it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

import psutil

from faults.kind import Kind, Scene
from faults.training import EndedEarlyError, Training


class _Stop(Kind):
    def __init__(
        self,
        name: str,
        doc: str,
        victims: Callable[[Training], Sequence[psutil.Process]],
        seconds: tuple[float, float],
    ) -> None:
        self.name, self.doc, self._victims, self._seconds = name, doc, victims, seconds

    def inflict(self, scene: Scene) -> str:
        moment = scene.await_moment()
        victims = self._victims(scene.training)
        if not victims:
            raise EndedEarlyError("Its victim had ended.")
        victim = scene.chance.choice(victims)
        seconds = scene.chance.uniform(*self._seconds)
        until = time.monotonic() + seconds
        with contextlib.suppress(psutil.NoSuchProcess):  # Spark may kill an executor that does not answer
            victim.suspend()
            try:
                scene.training.wait(lambda: time.monotonic() >= until)
            except EndedEarlyError:
                pass  # the run has ended without it
            finally:
                victim.resume()
        return f"{moment}, for {seconds:.1f} s"


KINDS: list[Kind] = [
    _Stop(
        "executor-stopped-shortly",
        "An executor stands still for less than `timeout`.",
        Training.executors,
        (0.5, 3.0),
    ),
    _Stop(
        "executor-stopped-beyond",
        "An executor stands still beyond `timeout`, or beyond `spark.network.timeout` too.",
        Training.executors,
        (8.0, 20.0),
    ),
    _Stop("driver-stopped", "The driver's JVM stands still for a while.", Training.drivers, (2.0, 10.0)),
]
