"""What a look at a data set's files tells before anything that takes time starts: that there is nothing to read."""

from __future__ import annotations

import gzip
import lzma
import os
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO

from sparkdl_bench.nearest import cut, listed

_PARQUET = b"PAR1"
_TEXTS = ("csv", "libsvm")
# So much white space at a file's beginning is left to the run.
_HEAD_BYTES = 1 << 16
# Of a folder with more files none of the first of which is Parquet the run finds out.
_MOST_FILES = 1000
# The file that a folder of this source begins with.
_FIRST_FILE = {"idx": "train-images-idx3-ubyte", "cifar10": "data_batch_1.bin"}
_PACKED = ("", ".gz", ".xz")


def fault(source: str, path: Path, named: str, *, header: bool = False) -> str | None:
    """What keeps a source from reading rows at a path of this host, as a sentence or two; None where nothing shows.

    Args:
        source: `data.source` of the run.
        path: a file or folder that is there.
        named: what the message calls it, such as `'rows.csv'`.
        header: whether the first line of each text file names the columns.
    """
    try:
        if source == "parquet":
            return _parquet(path, named)
        if source in _TEXTS:
            return _text(path, named, 2 if header else 1)
        if source in _FIRST_FILE and path.is_dir():
            return _folder_of(_FIRST_FILE[source], source, path, named)
    except OSError as error:
        return f"{named} cannot be read: {error.strerror or error}. Check its name and your permissions."
    return None


def _parquet(path: Path, named: str) -> str | None:
    if path.is_file():
        said = _not_parquet(path)
        return f"{named} {said}. Name a Parquet file, or a folder that holds some." if said else None
    files = list(islice(_files_below(path), _MOST_FILES))
    if not files:
        return (
            f"The folder {named} holds no file, and so no Parquet. Look at what should have written it, or name "
            "another folder."
        )
    if len(files) == _MOST_FILES or any(_not_parquet(file) is None for file in files):
        return None
    names = [cut(str(file.relative_to(path))) for file in files]
    return f"The folder {named} holds no Parquet file: {listed(names, 3)}. Name a folder whose files are Parquet."


def _not_parquet(file: Path) -> str | None:
    """What is wrong with a file, or None where it may be Parquet: both ends of one hold the same four bytes."""
    size = file.stat().st_size
    if size == 0:
        return "is an empty file (0 bytes)"
    with file.open("rb") as content:
        head = content.read(len(_PARQUET))
        content.seek(-min(size, len(_PARQUET)), os.SEEK_END)
        tail = content.read()
    if head in (_PARQUET, b"PARE"):  # the second where the footer is encrypted
        return None if tail in (_PARQUET, b"PARE") else "is a Parquet file that was not written to its end"
    return "is no Parquet file: it does not begin with PAR1"


def _text(path: Path, named: str, least: int) -> str | None:
    """Args: least: lines that a file with a row has."""
    if path.is_file():
        lines = _lines(path, least)
        if lines >= least:
            return None
        said = "has no row below the names of its columns" if lines else "is empty: no line of it holds anything"
        return f"{named} {said}. Name a file that holds rows."
    files = list(islice((each for each in sorted(path.iterdir()) if each.is_file() and not _hidden(each)), _MOST_FILES))
    if not files:
        return f"The folder {named} holds no file. Name a file, or a folder that holds some."
    if len(files) == _MOST_FILES or not all(_lines(file, least) < least for file in files):
        return None
    return (
        f"The folder {named} holds no file with rows: {listed([cut(each.name) for each in files], 3)}. Name one that "
        "does."
    )


def _lines(file: Path, enough: int) -> int:
    """Lines at a file's beginning that are not blank, `enough` where they may be more. Damage is the run's to name."""
    if file.stat().st_size == 0:
        return 0
    try:
        with _opened(file) as content:
            head = content.read(_HEAD_BYTES)
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error):
        return enough
    if len(head) == _HEAD_BYTES:
        return enough
    return sum(1 for line in head.removeprefix(b"\xef\xbb\xbf").splitlines() if line.strip())


def _opened(file: Path) -> IO[bytes]:
    """As runs do: what is packed is told by the content."""
    with file.open("rb") as content:
        head = content.read(6)
    if head.startswith(b"\x1f\x8b"):
        return gzip.open(file)  # type: ignore[return-value]
    return lzma.open(file) if head == b"\xfd7zXZ\x00" else file.open("rb")


def _folder_of(first: str, source: str, path: Path, named: str) -> str | None:
    names = sorted(each.name for each in path.iterdir() if not _hidden(each))
    if any(first + ending in names for ending in _PACKED):
        return None
    held = listed([cut(name) for name in names], 5) if names else "nothing"
    return f"The folder {named} has no file '{first}' (nor .gz), with which a set of {source} begins. It holds {held}."


def _files_below(folder: Path) -> Iterator[Path]:
    """As Spark finds them: in sub-folders, too, and nothing that is hidden."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _hidden(Path(name)))
        yield from (Path(place, name) for name in sorted(files) if not _hidden(Path(name)))


def _hidden(path: Path) -> bool:
    return path.name.startswith(("_", "."))
