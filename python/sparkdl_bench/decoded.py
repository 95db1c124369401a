"""The decoded copies of data sets on this machine: which there are, and removing them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from sparkdl_bench.errors import ConfigurationError

_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class DecodedCopy:
    """One folder of decoded rows.

    Attributes:
        source: the data source that was decoded.
        rows: how many rows it holds; 0 where decoding was cut off.
        bytes: what it takes on disk.
        made: when it was finished.
        whole: False where decoding was cut off, so that nothing can use it.
    """

    folder: Path
    source: str
    rows: int
    bytes: int
    made: datetime
    whole: bool


def default_folder() -> Path:
    """Where sessions with a local master keep their copies when `data.cache_dir` is not set."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "sparkdl-bench" / "data"


def copies(folder: Path | None = None) -> list[DecodedCopy]:
    """All copies in a folder of this machine, the newest first; none where the folder is not there."""
    base = folder or default_folder()
    if not base.is_dir():
        return []
    found = [_copy(path) for path in base.iterdir() if path.is_dir() and _is_copy(path)]
    return sorted(found, key=lambda copy: copy.made, reverse=True)


def remove(chosen: Iterable[DecodedCopy]) -> int:
    """Deletes these copies; returns how many bytes that freed. A run that reads one of them now may fail."""
    freed = 0
    for copy in chosen:
        try:
            shutil.rmtree(copy.folder)
        except FileNotFoundError:
            continue  # the end of its session was quicker
        except OSError as error:
            raise ConfigurationError(
                f"The decoded copy '{copy.folder}' cannot be removed: {error.strerror}. Remove it by hand, or as the "
                "user whose it is."
            ) from error
        freed += copy.bytes
    return freed


def _is_copy(path: Path) -> bool:
    """A session writes `<source>-<identity>`, and while it decodes `.<source>-…`, which holds parts alone."""
    return (path / _MANIFEST).is_file() or (path.name.startswith(".") and "-" in path.name)


def _copy(path: Path) -> DecodedCopy:
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    manifest = path / _MANIFEST
    try:
        facts = json.loads(manifest.read_text(encoding="utf-8"))
        source, rows, whole = str(facts["source"]), sum(int(part["rows"]) for part in facts["parts"]), True
        made = manifest.stat().st_mtime
    except (OSError, ValueError, KeyError, TypeError):
        source, rows, whole = path.name.lstrip(".").split("-")[0], 0, False
        made = path.stat().st_mtime
    return DecodedCopy(path, source, rows, size, datetime.fromtimestamp(made, timezone.utc), whole)
