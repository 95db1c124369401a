"""Files that are there whole or not at all, and JSON with a schema number."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sparkdl_bench.errors import ConfigurationError

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]


def replace_text(path: Path, text: str) -> None:
    """Writes a file so that a reader sees the old content or the new, never a part, also after a kill."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def load_json(path: Path, schema: int, upgrades: Mapping[int, Upgrade], what: str) -> dict[str, Any]:
    """A JSON object with a `schema` number, brought to `schema` by `upgrades[n]`, which makes n + 1 of n.

    Raises:
        ConfigurationError: it is no such file, or newer than this version.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found = int(content["schema"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"'{path}' is not {what}: {error!r}.") from error
    if found > schema:
        raise ConfigurationError(
            f"'{path}' has schema {found}, and this sparkdl-bench reads up to {schema}. Use a newer one."
        )
    for number in range(found, schema):
        content = upgrades[number](content)
    return content
