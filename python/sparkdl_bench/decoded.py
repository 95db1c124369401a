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

from sparkdl_bench.errors import ConfigurationError

_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# As Materializer.scala names them: the source, and a fingerprint of files and keys or a number of chance; and while
# they are being written.
_NAME = re.compile(rf"[a-z][a-z0-9-]*-(?:[0-9a-f]{{24}}|{_UUID})|\.[a-z][a-z0-9-]*-(?:[0-9a-f]{{24}}|{_UUID})-{_UUID}")
_MANIFEST = "manifest.json"


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


def folder() -> Path:
    """Where runs with a local master keep them by themselves."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "sparkdl-bench" / "data"


def copies(where: Path) -> list[Copy]:
    """Those that runs have left there, the oldest first. What has another name is somebody else's, and no copy."""
    if not where.is_dir():
        return []
    found = [_copy(each) for each in where.iterdir() if _NAME.fullmatch(each.name) and _is_folder(each)]
    return sorted(found, key=lambda copy: -copy.age_s)


def _is_folder(path: Path) -> bool:
    """Of its own: what a link leads to is not deleted with it."""
    return path.is_dir() and not path.is_symlink()


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
    try:
        parts = json.loads(manifest.read_text(encoding="utf-8"))["parts"]
        return sum(int(part["rows"]) for part in parts)
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
