"""Clock steps: the time of day of all processes of a run jumps, as when a host's clock is set (libfaketime)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from faults.kind import Kind, Scene

LIBRARY = "SPARKDL_FAKETIME"
_FILE = "faketime"


class _Step(Kind):
    def __init__(self, name: str, doc: str, sign: int) -> None:
        self.name, self.doc, self._sign = name, doc, sign

    def obstacle(self) -> str | None:
        library = os.environ.get(LIBRARY)
        if not library:
            return (
                f"{LIBRARY} does not name libfaketime's library (of Debian's package libfaketime: libfaketimeMT.so.1)"
            )
        return None if Path(library).is_file() else f"{LIBRARY} names '{library}', which is no file"

    @contextmanager
    def around(self, scene: Scene) -> Iterator[None]:
        file = scene.folder / _FILE
        file.write_text("+0\n", encoding="utf-8")
        scene.environment |= {
            "LD_PRELOAD": os.environ[LIBRARY],
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_CACHE_DURATION": "1",  # seconds until a process looks into the file again
            # A step of the time of day leaves the clock alone by which processes wait, and the files' times.
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
            "FAKETIME_DISABLE_SHM": "1",
        }
        yield

    def inflict(self, scene: Scene) -> str:
        moment = scene.await_moment(with_session=True)
        seconds = self._sign * scene.chance.choice([3, 90, 3600, 86_400 * 40])
        (scene.folder / _FILE).write_text(f"{seconds:+d}\n", encoding="utf-8")
        return f"{moment}, by {seconds:+d} s"


KINDS: list[Kind] = [
    _Step("clock-forward", "The time of day jumps forward.", 1),
    _Step("clock-back", "The time of day jumps back.", -1),
]
