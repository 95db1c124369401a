"""Looks at delimited text: its columns, which of them is the label, and whether the others hold numbers."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from sparkdl_bench.comparison import labels
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.nearest import listed, suggestion

# Of so many rows each value is looked at: a column of words shows in the first, and the run names a single bad value.
_LOOKED_AT_ROWS = 1000

# Settings, shape, classes, rows, and the line for people: what a `Look` is made of.
Found = tuple[dict[str, str], tuple[int, ...], int, int, str]


@contextmanager
def text(path: Path) -> Iterator[IO[str]]:
    """The file's lines; what cannot be read as UTF-8 is a ConfigurationError."""
    opener = gzip.open if path.name.endswith(".gz") else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as lines:
            yield lines
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"'{path}' is no text in UTF-8 (byte {error.start} is 0x{error.object[error.start]:02x}). Convert it, for "
            f"example with iconv -f UTF-16 -t UTF-8 '{path}'."
        ) from error
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise ConfigurationError(f"'{path}' cannot be read as text: {error}.") from error


def look(path: Path, label: str | None) -> Found:
    """What a file of delimited text holds.

    Raises:
        ConfigurationError: no rows, no such label, no classes, or columns of words.
    """
    with text(path) as lines:
        head = lines.readline()
        delimiter = max(",;\t|", key=head.count)
        names = [name.strip() for name in next(csv.reader([head], delimiter=delimiter), [])]
        if not any(names):
            raise ConfigurationError(f"'{path}' is empty, or its first line is. The first line names the columns.")
        if len(names) < 2:
            raise ConfigurationError(
                f"'{path}' has one column, {names[0]!r}, and a row needs a label and at least one number beside it, "
                "divided by a comma, a semicolon, a tab or |."
            )
        has_header = not any(labels.is_number(name) for name in names)
        place = _place(label, names if has_header else [], len(names), str(path))
        column = f"'{names[place]}'" if has_header else f"number {place}"
        where = f"The label's column {column} of '{path}'"
        found: set[str] = set()
        rows = 0
        for row in csv.reader(lines if has_header else _chain(head, lines), delimiter=delimiter):
            if len(row) <= place:
                continue
            if rows < _LOOKED_AT_ROWS:
                _refuse_words(row, place, names if has_header else [], str(path))
            found.add(row[place].strip())
            rows += 1
            labels.refuse_many(found, where)
    if not rows:
        raise ConfigurationError(f"'{path}' has no rows below the names of its columns.")
    settings = {
        "data.source": "csv",
        "data.path": str(path.resolve()),
        "data.header": "true" if has_header else "false",
        "data.label": names[place] if has_header else str(place),
        "data.delimiter": "tab" if delimiter == "\t" else delimiter,
        "data.normalize": "standard",
        **labels.keys(found, where),
    }
    told = f"CSV file {path}: {rows:,} rows of {len(names) - 1} values; label: column {column}, {len(found)} classes"
    return settings, (len(names) - 1,), len(found), rows, told


def _chain(head: str, lines: Iterable[str]) -> Iterator[str]:
    yield head
    yield from lines


def _refuse_words(row: Sequence[str], place: int, names: Sequence[str], where: str) -> None:
    """An empty value or NaN passes: such rows can be left out, and the run says how."""
    for number, value in enumerate(row):
        if number != place and value.strip() and not labels.is_number(value):
            column = f"'{names[number]}'" if number < len(names) else f"number {number}"
            raise ConfigurationError(
                f"Column {column} of '{where}' holds '{value[:40]}', and values must be numbers. Remove the column, "
                "replace its words by numbers, or read the file into a DataFrame and choose columns there: "
                "sparkdl_bench.compare(frame.drop(…)). If it is the label, name it with --label."
            )


def _place(label: str | None, names: Sequence[str], count: int, where: str) -> int:
    """The number of the label's column: the one that is named, one that has a usual name, or the last."""
    if label is not None and re.fullmatch("-?[0-9]{1,9}", label) and -count <= int(label) < count:
        return int(label) % count
    if label is not None:
        if label in names:
            return names.index(label)
        valid = (
            f"{suggestion(label, names)} Columns: {listed(names)}."
            if names
            else f" Columns have numbers 0 to {count - 1}."
        )
        raise ConfigurationError(f"'{where}' has no column '{label}'.{valid} Name the label's with --label.")
    lower = [name.lower() for name in names]
    return next((lower.index(usual) for usual in labels.NAMES if usual in lower), count - 1)
