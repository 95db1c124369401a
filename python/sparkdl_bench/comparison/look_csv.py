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
from sparkdl_bench.nearest import cut, listed, suggestion

# Of so many rows each value is looked at: a column of words shows in the first, and the run names a single bad value.
_LOOKED_AT_ROWS = 1000

_MOST_SHOWN = 20
_ENCODE = (
    "Words become numbers with StringIndexer and OneHotEncoder of pyspark.ml.feature; give the DataFrame to "
    "sparkdl_bench.compare or Trainer."
)

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


def delimiter_of(head: str) -> str:
    """What divides the columns of a text that begins with this line."""
    return max(",;\t|", key=head.count)


def look(path: Path, label: str | None) -> Found:
    """What a file of delimited text holds. Columns of words are left out, as those of a table are, and named.

    Raises:
        ConfigurationError: no rows, no such label, no classes, or no column of numbers.
    """
    with text(path) as lines:
        head = lines.readline()
        delimiter = delimiter_of(head)
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
        words = _Words(len(names))
        rows = 0
        for row in csv.reader(lines if has_header else _chain(head, lines), delimiter=delimiter):
            if len(row) <= place:
                continue
            if rows < _LOOKED_AT_ROWS:
                words.see(row)
            found.add(row[place].strip())
            rows += 1
            labels.refuse_many(found, where)
    if not rows:
        raise ConfigurationError(f"'{path}' has no rows below the names of its columns.")
    values, others = words.divided(place)

    def named(number: int) -> str:
        return f"'{names[number]}'" if has_header else f"number {number}"

    if not values:
        raise ConfigurationError(
            f"Beside the label's column {column} no column of '{path}' holds numbers: "
            f"{listed([f'{named(each)} ({words.example(each)!r}, …)' for each in others], 6)}. {_ENCODE} If one of "
            "these is the label, name it with --label."
        )
    chosen = [names[each] for each in values] if has_header and _are_unique(names) else [str(each) for each in values]
    settings = {
        "data.source": "csv",
        "data.path": str(path.resolve()),
        "data.header": "true" if has_header else "false",
        "data.label": names[place] if has_header else str(place),
        "data.delimiter": "tab" if delimiter == "\t" else delimiter,
        "data.normalize": "standard",
        **({"data.columns": ",".join(chosen)} if others else {}),
        **labels.keys(found, where),
    }
    told = f"CSV file {path}: {rows:,} rows of {len(values)} values; label: column {column}, {len(found)} classes"
    if others:
        shown = [f"{named(each)} ({words.example(each)!r}, …)" for each in others]
        told += f"; left out, because they hold words: {listed(shown, _MOST_SHOWN)}"
    return settings, (len(values),), len(found), rows, told


def _chain(head: str, lines: Iterable[str]) -> Iterator[str]:
    yield head
    yield from lines


class _Words:
    """Which columns hold words. Empty values count for nothing, and a few words among numbers, such as ?, do not make a
    column of words: rows with such values can be left out, and the run says how.
    """

    def __init__(self, columns: int) -> None:
        self._numbers = [0] * columns
        self._words = [0] * columns
        self._examples = [""] * columns

    def see(self, row: Sequence[str]) -> None:
        for number, value in enumerate(row[: len(self._words)]):
            if not value.strip():
                continue
            if labels.is_number(value):
                self._numbers[number] += 1
            else:
                self._words[number] += 1
                self._examples[number] = self._examples[number] or value.strip()

    def example(self, column: int) -> str:
        """The first word of a column."""
        return cut(self._examples[column])

    def divided(self, label: int) -> tuple[list[int], list[int]]:
        """The columns of numbers and those of words, by number, without the label's."""
        others = [each for each in range(len(self._words)) if each != label]
        words = [each for each in others if self._words[each] > self._numbers[each]]
        return [each for each in others if each not in words], words


def _are_unique(names: Sequence[str]) -> bool:
    """Whether a list of names, separated by commas, says which columns are meant."""
    return len(set(names)) == len(names) and all(name and "," not in name for name in names)


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
