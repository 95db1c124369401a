"""Strangers at every listening port of the run, from the session's start to the run's end."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from faults.kind import Kind, Scene
from faults.strangers import MANNERS, Strangers, listening
from faults.training import EndedEarlyError


class _AtThePorts(Kind):
    def __init__(self, name: str, doc: str, manner: str) -> None:
        self.name, self.doc, self._manner = name, doc, manner
        self._strangers: Strangers | None = None

    @contextmanager
    def around(self, scene: Scene) -> Iterator[None]:
        try:
            yield
        finally:
            self.heal(scene)

    def inflict(self, scene: Scene) -> str:
        training = scene.training
        chance = random.Random(scene.chance.random())  # noqa: S311 (no secrets)
        self._strangers = Strangers(lambda: listening(training.processes()), [MANNERS[self._manner]], chance)
        self._strangers.start()
        # Over with the run.
        with suppress(EndedEarlyError):
            training.wait(lambda: False)
        self._strangers.stop()
        visits = self._strangers.visits
        return f"all the time, {sum(visits.values())} connections to {len(visits)} ports"

    def heal(self, scene: Scene) -> None:  # noqa: ARG002 (an interface's)
        if self._strangers:
            self._strangers.stop()
            self._strangers = None


KINDS: list[Kind] = [
    _AtThePorts("strangers-knock", "Strangers connect and close.", "knock"),
    _AtThePorts("strangers-noise", "Strangers send random bytes.", "noise"),
    _AtThePorts("strangers-half", "Strangers begin a handshake and say no more.", "half"),
    _AtThePorts("strangers-drip", "Strangers send a byte now and then.", "drip"),
]
