"""Files that are there whole or not at all, and JSON with a schema number."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from sparkdl_bench.errors import ConfigurationError, WriteError

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]


_FULL = (errno.ENOSPC, errno.EDQUOT)


def replace_text(path: Path, text: str) -> None:
    """Writes a file so that a reader sees the old content or the new, never a part, also after a kill.

    Raises:
        WriteError: it cannot be written; the file that was there before is there still.
    """
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives the name of a file to write, which becomes `path` at the end, synced. Where that fails, nothing is left.

    Folders are made where they are not there.

    Raises:
        WriteError: it cannot be written.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise WriteError(unwritten(str(path), error)) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def written(log: IO[bytes]) -> str:
    """What another process has written so far to an open file that it shares with this one; its position stays."""
    parts = []
    at = 0
    while part := os.pread(log.fileno(), 1 << 20, at):
        parts.append(part)
        at += len(part)
    return b"".join(parts).decode("utf-8", errors="replace")


def is_full(error: OSError) -> bool:
    """Whether a disk or quota has no room left."""
    return error.errno in _FULL


def unwritten(place: str, error: OSError) -> str:
    """The paragraph for a file that could not be written."""
    said = error.strerror or str(error)
    if is_full(error):
        return (
            f"'{place}' cannot be written, because its disk or quota is full ({said}). Make room there, or name a "
            "folder on another disk. What was there before is unchanged."
        )
    return f"'{place}' cannot be written: {said}. Check the folder and your permissions, or name another folder."


def load_json(
    path: Path,
    schema: int,
    upgrades: Mapping[int, Upgrade],
    what: str,
    *,
    remedy: str = "",
    unnumbered: int | None = None,
) -> dict[str, Any]:
    """A JSON object with a `schema` number, brought to `schema` by `upgrades[n]`, which makes n + 1 of n.

    Args:
        path: the file.
        schema: the newest that can be read.
        upgrades: by the number that they begin with.
        what: names such a file in messages.
        remedy: a sentence that says what to give instead of a file that cannot be read.
        unnumbered: the schema of an object that has no number; None: such a one is refused.

    Raises:
        ConfigurationError: it is no such file, or newer than this version.
    """
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        said = f"'{path}' is not {what}: it cannot be read: {error.strerror or error}."
        raise ConfigurationError(f"{said} {remedy}".strip()) from error
    except (ValueError, RecursionError) as error:  # the latter: nested too deeply
        raise ConfigurationError(
            f"'{path}' is not {what}: its content is not JSON: {error}. It was damaged, or is another program's."
        ) from error
    return brought_up(content, path, schema, upgrades, what, unnumbered=unnumbered)


def brought_up(
    content: object,
    path: Path,
    schema: int,
    upgrades: Mapping[int, Upgrade],
    what: str,
    *,
    unnumbered: int | None = None,
) -> dict[str, Any]:
    """What a file holds, brought to `schema`; as `load_json`, of a file that is read already."""
    if not isinstance(content, dict):
        raise ConfigurationError(
            f"'{path}' is not {what}: it holds a {type(content).__name__}; it must be a JSON object."
        )
    found = content.get("schema", unnumbered)
    if type(found) is not int or found < min(upgrades, default=schema):
        raise ConfigurationError(
            f"'{path}' is not {what}: no version has written the schema {found!r}. It was damaged, or is another "
            "program's."
        )
    if found > schema:
        raise ConfigurationError(
            f"'{path}' has schema {found}, and this sparkdl-bench reads up to {schema}. Use a newer one "
            "(docs/upgrading.md)."
        )
    brought: dict[str, Any] = content
    for number in range(found, schema):
        brought = upgrades[number](brought)
    return brought
