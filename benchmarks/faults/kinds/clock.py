"""Clock steps: the time of day of a run's JVMs jumps, as when a host's clock is set (libfaketime).

Of its JVMs alone: from Python 3.11 on `time.sleep` fails under libfaketime where that leaves the monotonic clock alone.
So a folder like JAVA_HOME, whose `java` sets the library's variables, takes its place.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from faults.kind import Kind, Scene
from faults.ways import Way

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

    def suits(self, way: Way) -> bool:
        return way.engine != "numpy" and way.transport != "mpi"  # JVMs start Python there

    @contextmanager
    def around(self, scene: Scene) -> Iterator[None]:
        file = scene.folder / _FILE
        file.write_text("+0\n", encoding="utf-8")
        variables = {
            "LD_PRELOAD": os.environ[LIBRARY],
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_CACHE_DURATION": "1",  # seconds until a process looks into the file again
            # A step of the time of day leaves the clock alone by which processes wait, and the files' times.
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # With it waits for that clock go by the other one, and a JVM waits ten times as long.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
            "NO_FAKE_STAT": "1",
            "FAKETIME_DISABLE_SHM": "1",
        }
        scene.environment["JAVA_HOME"] = str(java_with(variables, scene.folder / "java"))
        yield

    def inflict(self, scene: Scene) -> str:
        moment = scene.await_moment(with_session=True)
        seconds = self._sign * scene.chance.choice([3, 90, 3600, 86_400 * 40])
        (scene.folder / _FILE).write_text(f"{seconds:+d}\n", encoding="utf-8")
        return f"{moment}, by {seconds:+d} s"


def java_with(variables: Mapping[str, str], home: Path) -> Path:
    """Makes `home`: this machine's Java, whose processes get these variables."""
    known = os.environ.get("JAVA_HOME")
    real = Path(known) if known else Path(shutil.which("java") or "java").resolve().parents[1]
    (home / "bin").mkdir(parents=True)
    for each in (*real.iterdir(), *(real / "bin").iterdir()):
        if each.name not in ("bin", "java"):
            (home / each.relative_to(real)).symlink_to(each)
    java = home / "bin" / "java"
    words = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    java.write_text(f'#!/bin/sh\n{" ".join(words)} exec {shlex.quote(str(real / "bin" / "java"))} "$@"\n')
    java.chmod(0o755)
    return home


KINDS: list[Kind] = [
    _Step("clock-forward", "The time of day jumps forward.", 1),
    _Step("clock-back", "The time of day jumps back.", -1),
]
