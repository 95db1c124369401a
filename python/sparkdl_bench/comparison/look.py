"""Looks at somebody's data: which source reads them, their classes and values, and what was taken for what.

Files on this host are looked at here, in one pass and without Spark; tables (Parquet, DataFrames) by Spark.
"""

from __future__ import annotations

import csv
import gzip
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sparkdl_bench import helper_process
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.nearest import listed, suggestion

LABELS = ("label", "class", "target", "y", "category", "species")
MOST_CLASSES = 1000
_IMAGES = (".png", ".jpg", ".jpeg")
_LARGEST_SIDE = 32
_TABLE_PROGRAM = "sparkdl_bench.comparison.look_table"


@dataclass(frozen=True)
class Look:
    """What data are.

    Attributes:
        settings: the `data` keys of a run that reads them.
        shape: of one row.
        rows: training and test rows together; 0 where nobody has counted them.
        told: one line for people: what was found, and what was taken for what.
    """

    settings: Mapping[str, str]
    shape: tuple[int, ...]
    classes: int
    rows: int
    told: str


def look(data: str, label: str | None = None) -> Look:
    """What lies at a path of this host, or the embedded set of that name.

    Raises:
        ConfigurationError: nothing is there, nothing that can be read, or the label cannot be told.
    """
    if data == "digits":
        return Look(
            {"data.source": "digits"}, (1, 8, 8), 10, 1797, "digits: 1,797 embedded images of 1×8×8, 10 classes"
        )
    path = Path(data)
    if not path.exists():
        raise ConfigurationError(_nothing(data, path))
    found = _of_folder(path, label) if path.is_dir() else _of_file(path, label)
    if found is None:
        raise ConfigurationError(
            f"'{data}' has no data that its file names show. Valid: a folder of IDX files (MNIST), of "
            "CIFAR-10's binary batches, of one sub-folder of JPEG or PNG images per class, of Parquet files; or a "
            "file .csv, .tsv, .libsvm, .svm or .parquet. Other data: a run file (`sparkdl-bench init`) with "
            "`sparkdl-bench compare`."
        )
    return found


def _nothing(data: str, path: Path) -> str:
    beside = sorted(each.name for each in path.parent.iterdir()) if path.parent.is_dir() else []
    if path.name == data:
        beside.append("digits")
    near = f" {suggestion(path.name, beside)}" if beside else ""
    return f"There is no file or folder '{data}'.{near} Give a path of this host, or digits for the embedded set."


def _of_folder(path: Path, label: str | None) -> Look | None:
    names = sorted(each.name for each in path.iterdir() if not each.name.startswith((".", "_")))
    if any(name.startswith("train-images-idx3-ubyte") for name in names):
        return _idx(path)
    if any(name.startswith("data_batch_1.bin") for name in names):
        settings = {"data.source": "cifar10", "data.path": str(path.resolve())}
        return Look(settings, (3, 32, 32), 10, 0, f"CIFAR-10 in {path}: images of 3×32×32, 10 classes")
    if any(name.endswith(".parquet") for name in names):
        return _table(path, label)
    classes = [path / name for name in names if (path / name).is_dir()]
    if len(classes) > 1:
        return _images(path, classes)
    files = [path / name for name in names if _kind(path / name)]
    if not files:
        return None
    inner = _of_file(files[0], label)
    if inner is None or len(files) == 1:
        return inner
    raise ConfigurationError(
        f"'{path}' holds {len(files)} files that could be a set: {listed([each.name for each in files], 5)}. Name one "
        "of them."
    )


def _of_file(path: Path, label: str | None) -> Look | None:
    kind = _kind(path)
    if kind == "parquet":
        return _table(path, label)
    if kind == "libsvm":
        return _libsvm(path)
    return _csv(path, label) if kind == "csv" else None


def _kind(path: Path) -> str | None:
    name = path.name.removesuffix(".gz")
    kinds = {"csv": (".csv", ".tsv"), "libsvm": (".libsvm", ".svm", ".svmlight"), "parquet": (".parquet",)}
    return next((kind for kind, endings in kinds.items() if name.endswith(endings)), None)


@contextmanager
def _text(path: Path) -> Iterator[IO[str]]:
    opener = gzip.open if path.name.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8-sig", newline="") as text:
        try:
            yield text
        except (UnicodeDecodeError, OSError, csv.Error) as error:
            raise ConfigurationError(f"'{path}' cannot be read as text: {error}.") from error


def _idx(path: Path) -> Look:
    found = {each.name.partition(".")[0]: each for each in sorted(path.iterdir())}
    images = found["train-images-idx3-ubyte"]
    opener = gzip.open if images.name.endswith(".gz") else open
    with opener(images, "rb") as file:
        head = file.read(16)
    if len(head) < 16 or head[:4] != b"\x00\x00\x08\x03":
        raise ConfigurationError(f"'{images}' does not begin as an IDX file of images does. Fetch it again.")
    rows, height, width = struct.unpack(">III", head[4:])
    settings = {"data.source": "idx", "data.path": str(path.resolve())}
    told = f"IDX files in {path}: {rows:,} training images of 1×{height}×{width}, 10 classes"
    return Look(settings, (1, height, width), 10, rows, told)


def _images(path: Path, classes: Sequence[Path]) -> Look | None:
    files = [file for folder in classes for file in folder.iterdir() if file.suffix.lower() in _IMAGES]
    if not files:
        return None
    size = _png_size(files[0]) or (_LARGEST_SIDE, _LARGEST_SIDE)
    height, width = (min(side, _LARGEST_SIDE) for side in size)
    settings = {"data.source": "images", "data.path": str(path.resolve()), "data.shape": f"3,{height},{width}"}
    told = f"{len(files):,} images in {len(classes)} folders of {path}, resized to 3×{height}×{width}"
    return Look(settings, (3, height, width), len(classes), len(files), told)


def _png_size(file: Path) -> tuple[int, int] | None:
    """Height and width of a PNG image; other images are resized in any case."""
    with file.open("rb") as image:
        head = image.read(24)
    if len(head) < 24 or head[:8] != b"\x89PNG\r\n\x1a\n":
        return None
    width, height = struct.unpack(">II", head[16:24])
    return height, width


def _libsvm(path: Path) -> Look:
    labels: set[str] = set()
    highest = rows = 0
    with _text(path) as lines:
        for line in lines:
            words = line.partition("#")[0].split()
            if not words:
                continue
            labels.add(words[0])
            rows += 1
            for word in words[1:]:
                index = word.partition(":")[0]
                highest = max(highest, int(index) if index.isdigit() else 0)
            _refuse_many(labels, str(path), "the first word of each line")
    settings = {"data.source": "libsvm", "data.path": str(path.resolve()), **_classes(labels)}
    if not labels or not highest:
        raise ConfigurationError(f"'{path}' has no line of the form `label index:value …`.")
    told = f"LIBSVM file {path}: {rows:,} rows of {highest} values, {len(labels)} classes"
    return Look(settings, (highest,), len(labels), rows, told)


def _csv(path: Path, label: str | None) -> Look:
    with _text(path) as text:
        head = text.readline()
        delimiter = max(",;\t|", key=head.count)
        first = next(csv.reader([head], delimiter=delimiter), [])
        names = [name.strip() for name in first]
        has_header = bool(names) and not any(_is_number(name) for name in names)
        place = _place(label, names if has_header else [], len(names), str(path))
        labels: set[str] = set()
        rows = 0
        for row in csv.reader(text if has_header else _chain(head, text), delimiter=delimiter):
            if len(row) <= place:
                continue
            labels.add(row[place].strip())
            rows += 1
            _refuse_many(labels, str(path), f"the column {names[place] if has_header else place}")
    if len(names) < 2 or not rows:
        raise ConfigurationError(f"'{path}' has no rows of two or more columns.")
    settings = {
        "data.source": "csv",
        "data.path": str(path.resolve()),
        "data.header": "true" if has_header else "false",
        "data.label": names[place] if has_header else str(place),
        "data.delimiter": "tab" if delimiter == "\t" else delimiter,
        "data.normalize": "standard",
        **_classes(labels),
    }
    column = f"'{names[place]}'" if has_header else f"number {place}"
    told = f"CSV file {path}: {rows:,} rows of {len(names) - 1} values; label: column {column}, {len(labels)} classes"
    return Look(settings, (len(names) - 1,), len(labels), rows, told)


def _chain(head: str, text: Iterable[str]) -> Iterator[str]:
    yield head
    yield from text


def _place(label: str | None, names: Sequence[str], count: int, where: str) -> int:
    """The number of the label's column: the one that is named, one that has a usual name, or the last."""
    if label is not None and label.lstrip("-").isdigit() and -count <= int(label) < count:
        return int(label) % count
    if label is not None:
        if label in names:
            return names.index(label)
        valid = (
            f"{suggestion(label, names)} Columns: {listed(names)}."
            if names
            else f"Columns have numbers 0 to {count - 1}."
        )
        raise ConfigurationError(f"'{where}' has no column '{label}'. {valid} Name the label's with --label.")
    lower = [name.lower() for name in names]
    return next((lower.index(usual) for usual in LABELS if usual in lower), count - 1)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _refuse_many(labels: set[str], where: str, column: str) -> None:
    if len(labels) > MOST_CLASSES:
        raise ConfigurationError(
            f"{column[0].upper()}{column[1:]} of '{where}' holds more than {MOST_CLASSES} different values, so it is "
            "no class. Name the label's column with --label. Values to be predicted as numbers (regression) are not "
            "supported."
        )


def _classes(labels: Iterable[str]) -> dict[str, str]:
    """The keys that say which labels there are: their count where they are 0, 1, …, else their names."""
    named = sorted({str(label) for label in labels})
    numbers = {float(each) for each in named if _is_number(each)}
    if len(numbers) == len(named) and numbers == set(range(len(named))):
        return {"data.classes": str(max(2, len(named)))}
    if len(numbers) == len(named):
        named.sort(key=float)
    wrong = [name for name in named if "," in name or not name.strip()]
    if wrong:
        raise ConfigurationError(
            f"The label {wrong[0]!r} cannot be a class: names of classes are not empty and hold no comma. Rename it "
            "in the data."
        )
    return {"data.label_names": ",".join(named)}


def _table(path: Path, label: str | None) -> Look:
    """A folder or a file of Parquet, looked at by a Spark session in a process of its own."""
    question = {"path": str(path.resolve()), "label": label}
    found = helper_process.ask(_TABLE_PROGRAM, question, "table", failed=f"'{path}' could not be read: ")
    if "error" in found:
        raise ConfigurationError(found["error"])
    settings = {"data.source": "parquet", "data.path": str(path.resolve()), **found["settings"]}
    return Look(settings, tuple(found["shape"]), found["classes"], found["rows"], f"Parquet in {path}: {found['told']}")


def of_labels(labels: Sequence[object], where: str) -> dict[str, str]:
    """The keys of the labels that a table's column holds.

    Raises:
        ConfigurationError: they are no classes.
    """
    if any(label is None for label in labels):
        raise ConfigurationError(f"{where} holds nulls. Leave those rows out: frame.dropna(subset=[…]).")
    texts = {re.sub(r"\.0$", "", str(label)) for label in labels}
    _refuse_many(texts, where, "its values")
    if any(isinstance(label, float) and label != int(label) for label in labels):
        raise ConfigurationError(
            f"{where} holds fractional numbers, so it is not a class label. Regression is not supported; name a column "
            "of classes as the label."
        )
    return _classes(texts)
