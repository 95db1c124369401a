"""The decoded copies of data sets that runs have left on this machine (docs/reference/data.md)."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.nearest import cut

_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# As Materializer.scala names them: the source, and a fingerprint of files and keys or a number of chance; and while
# they are being written.
_NAME = re.compile(rf"[a-z][a-z0-9-]*-(?:[0-9a-f]{{24}}|{_UUID})|\.[a-z][a-z0-9-]*-(?:[0-9a-f]{{24}}|{_UUID})-{_UUID}")
_MANIFEST = "manifest.json"
_PART = re.compile(r"part-\d+-\d+")
# Of Hadoop's local file system.
_CHECKSUM = re.compile(r"\..+\.crc")
# A folder without a manifest that was written to within this time may be one that a run is about to fill.
_FILLING_S = 3600.0


@dataclass(frozen=True)
class Copy:
    """One folder of decoded rows.

    Attributes:
        age_s: seconds since a run made it, or last read it where the file system tells.
        rows: of training and test; None where the folder is not complete.
    """

    path: Path
    size_bytes: int
    age_s: float
    rows: int | None

    @property
    def may_be_filling(self) -> bool:
        """Whether a run may be writing it now."""
        return self.rows is None and self.age_s < _FILLING_S


def folder() -> Path:
    """Where runs with a local master keep them by themselves."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "sparkdl-bench" / "data"


def copies(where: Path) -> list[Copy]:
    """Those that runs have left there, the oldest first; what else is there, `others` tells."""
    return sorted(
        (_copy(each) for each in _entries(where) if _foreign(each) is None),
        key=lambda copy: -copy.age_s,
    )


def others(where: Path) -> list[tuple[str, str]]:
    """What else is there, by name: the name, and why it is no copy that runs have left."""
    return [(each.name, why) for each in _entries(where) if (why := _foreign(each))]


def _entries(where: Path) -> list[Path]:
    return sorted(where.iterdir()) if where.is_dir() else []


def _foreign(path: Path) -> str | None:
    """Why something is no decoded copy, by its name and by all that it holds; None where it is one.

    The folder may be anybody's (`data.cache_dir`), so a name alone is not enough to delete what bears it.
    """
    if path.is_symlink():
        return "a link"  # what it leads to is not deleted with it
    if not path.is_dir():
        return "a file"
    named = _NAME.fullmatch(path.name) is not None
    manifest = path / _MANIFEST
    try:
        if not named:
            return "a decoded copy under a name that no run gave it" if _parts(manifest) else "no decoded copy"
        parts = _parts(manifest)
        if parts is None and manifest.exists():
            return f"its {_MANIFEST} is none of ours"
        held = sorted(each for each in path.iterdir() if not _CHECKSUM.fullmatch(each.name))
        strange = [each for each in held if not _is_ours(each, parts)]
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    return f"it holds '{cut(strange[0].name)}', which no run wrote" if strange else None


def _is_ours(file: Path, parts: set[str] | None) -> bool:
    """Args: parts: by the manifest, None where the folder is not complete."""
    if file.is_symlink() or not file.is_file():
        return False
    return file.name == _MANIFEST or (_PART.fullmatch(file.name) is not None if parts is None else file.name in parts)


def clean(found: Sequence[Copy], where: Path) -> int:
    """Deletes copies; returns the bytes that are free again. A run that has one open goes on: its rows are in memory or
    mapped."""
    for copy in found:
        if copy.path.parent != where:
            raise ConfigurationError(f"'{copy.path}' is not in '{where}', so it is not deleted.")
        try:
            shutil.rmtree(copy.path)
        except FileNotFoundError:
            continue  # a run or another clean was faster
        except OSError as error:
            raise ConfigurationError(
                f"'{copy.path}' cannot be deleted: {error.strerror}. Its owner can, or delete it by hand."
            ) from error
    return sum(copy.size_bytes for copy in found)


def _copy(path: Path) -> Copy:
    size, newest = 0, path.stat().st_mtime
    for file in path.rglob("*"):
        try:
            facts = file.stat()
        except FileNotFoundError:
            continue
        size += facts.st_size
        newest = max(newest, facts.st_mtime)
    return Copy(path, size, max(0.0, time.time() - newest), _rows(path / _MANIFEST))


def _rows(manifest: Path) -> int | None:
    content = _content(manifest)
    return None if content is None else sum(int(part["rows"]) for part in content["parts"])


def _parts(manifest: Path) -> set[str] | None:
    """The files of rows that a manifest lists; None where there is none of ours."""
    content = _content(manifest)
    return None if content is None else {str(part["file"]) for part in content["parts"]}


def _content(manifest: Path) -> dict[str, Any] | None:
    """As RowsManifest writes it, in whichever version."""
    try:
        content = json.loads(manifest.read_text(encoding="utf-8"))
        ours = isinstance(content["schema"], int) and isinstance(content["source"], str)
        for part in content["parts"]:
            ours = ours and int(part["rows"]) >= 0 and isinstance(part["file"], str)
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return content if ours else None
