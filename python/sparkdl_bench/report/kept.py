"""The records behind a report that is kept: one compressed file, of which every form of it can be made again."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparkdl_bench.comparison import store
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.files import brought_up, replacing

RECORDS = "records.json.gz"
SCHEMA = 1
_WHAT = "a file of records that `sparkdl-bench report --format folder` writes"
# Of the text. A comparison of two hundred runs of 10,000 steps has 30 MB.
_LARGEST = 1 << 30


def write(path: Path, comparisons: Sequence[Mapping[str, Any]], net: Sequence[Mapping[str, Any]]) -> None:
    """Writes the file; the same contents are the same bytes.

    Args:
        comparisons: each with its `content` as in plan.json, its `records`, and the target accuracy that was `asked`.
        net: rows of `sparkdl-bench net --json`.
    """
    text = json.dumps({"schema": SCHEMA, "comparisons": comparisons, "net": net}, ensure_ascii=False)
    with replacing(path) as partial:
        partial.write_bytes(gzip.compress(text.encode(), mtime=0))


def read(path: Path) -> dict[str, Any]:
    """What `write` was given, brought to what this version reads.

    Raises:
        ConfigurationError: it is no such file, damaged, or newer than this version.
    """
    try:
        with gzip.open(path) as file:
            text = file.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise ValueError(f"it holds more than {_LARGEST:,} bytes")
        content = json.loads(text)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise ConfigurationError(f"'{path}' is not {_WHAT}: {error!r}.") from error
    found = brought_up(content, path, SCHEMA, {}, _WHAT)
    try:
        return {"net": list(found["net"]), "comparisons": [_comparison(each, path) for each in found["comparisons"]]}
    except (KeyError, TypeError) as error:
        raise ConfigurationError(f"'{path}' is not {_WHAT}: {error!r}.") from error


def _comparison(described: Mapping[str, Any], path: Path) -> dict[str, Any]:
    records = [brought_up(record, path, store.SCHEMA, store.UPGRADES, _WHAT) for record in described["records"]]
    return {"content": described["content"], "asked": described["asked"], "records": records}
