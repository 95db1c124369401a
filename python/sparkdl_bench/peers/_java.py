"""The Java that a peer needs: found on this host, or refused by name."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sparkdl_bench.errors import ConfigurationError

_TIMEOUT_S = 30.0
# Where Linux distributions and macOS keep theirs.
_PLACES = ("/usr/lib/jvm/*", "/usr/java/*", "/opt/java/*", "/Library/Java/JavaVirtualMachines/*/Contents/Home")


@dataclass(frozen=True)
class Java:
    """Feature releases that a peer was seen to work with, the first and the last."""

    oldest: int
    newest: int

    def __str__(self) -> str:
        return f"Java {self.oldest}" + ("" if self.newest == self.oldest else f" to {self.newest}")

    def home(self) -> Path:
        """The folder of the first that will do: JAVA_HOME's, the PATH's, then the usual places'.

        Raises:
            ConfigurationError: none will; the message names what there is.
        """
        found = {folder: release for folder in _folders() if (release := release_of(folder)) is not None}
        for folder, release in found.items():
            if self.oldest <= release <= self.newest:
                return folder
        there = ", ".join(f"{release} ({folder})" for folder, release in found.items()) or "none"
        raise ConfigurationError(
            f"This peer needs {self}, and the JDKs and JREs that were found on this host are: {there}. Install such a "
            "Java, or set JAVA_HOME to its folder, and try again."
        )


def _folders() -> Iterator[Path]:
    """Each once, in the order in which they are preferred."""
    on_path = shutil.which("java")
    named = os.environ.get("JAVA_HOME")
    places = [Path(named)] if named else []
    places += [Path(on_path).resolve().parents[1]] if on_path else []
    for pattern in _PLACES:
        places += sorted(Path("/").glob(pattern.lstrip("/")))
    yield from dict.fromkeys(place.resolve() for place in places if (place / "bin" / "java").is_file())


@cache
def release_of(folder: Path) -> int | None:
    """17 of a Java 17; None where it does not say."""
    try:
        said = (folder / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        said = _asked(folder)
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', said)
    return int(found.group(1)) if found else None


def _asked(folder: Path) -> str:
    command = [str(folder / "bin" / "java"), "-version"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S).stderr  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return ""
