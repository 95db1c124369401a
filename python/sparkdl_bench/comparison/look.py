"""Looks at somebody's data: which source reads them, their classes and values, and what was taken for what.

Files on this host are looked at here, in one pass and without Spark; tables (Parquet, DataFrames) by Spark.
"""

from __future__ import annotations

import gzip
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparkdl_bench import datafiles, helper_process
from sparkdl_bench.comparison import labels, look_csv
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.nearest import listed, near_file

_IMAGES = (".png", ".jpg", ".jpeg")
_LARGEST_SIDE = 32
# Of LIBSVM. What is none the run refuses by its line.
_INDEX = re.compile("[0-9]{1,10}")
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
            f"{_unknown(data, path)} Valid: a folder of IDX files (MNIST), of CIFAR-10's binary batches, of one "
            "sub-folder of JPEG or PNG images per class, of Parquet files; or a file .csv, .tsv, .libsvm, .svm or "
            ".parquet. Other data: a run file (`sparkdl-bench init`) with `sparkdl-bench compare`."
        )
    return found


def _unknown(data: str, path: Path) -> str:
    if not path.is_dir():
        return f"What '{data}' holds cannot be told by its name."
    empty = next(path.iterdir(), None) is None
    return f"The folder '{data}' {'is empty' if empty else 'holds no files whose names show what they are'}."


def _nothing(data: str, path: Path) -> str:
    near = near_file(path, ["digits"] if path.name == data else [])
    return f"There is no file or folder '{data}'.{near} Give a path of this host, or digits for the embedded set."


def _of_folder(path: Path, label: str | None) -> Look | None:
    names = sorted(each.name for each in path.iterdir() if not each.name.startswith((".", "_")))
    if any(name.partition(".")[0] == "train-images-idx3-ubyte" for name in names):
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
    return Look(*look_csv.look(path, label)) if kind == "csv" else None


def _kind(path: Path) -> str | None:
    name = path.name.removesuffix(".gz")
    kinds = {"csv": (".csv", ".tsv"), "libsvm": (".libsvm", ".svm", ".svmlight"), "parquet": (".parquet",)}
    return next((kind for kind, endings in kinds.items() if name.endswith(endings)), None)


def _idx(path: Path) -> Look:
    found = {each.name.partition(".")[0]: each for each in sorted(path.iterdir())}
    images = found["train-images-idx3-ubyte"]
    opener = gzip.open if images.name.endswith(".gz") else open
    try:
        with opener(images, "rb") as file:
            head = file.read(16)
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigurationError(f"'{images}' cannot be read: {error}. Fetch it again.") from error
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
    found: set[str] = set()
    highest = rows = 0
    with look_csv.text(path) as lines:
        for line in lines:
            words = line.partition("#")[0].split()
            if not words:
                continue
            found.add(words[0])
            rows += 1
            for word in words[1:]:
                index = word.partition(":")[0]
                highest = max(highest, int(index) if _INDEX.fullmatch(index) else 0)
            labels.refuse_many(found, f"The first word of each line of '{path}'")
    if not found or not highest:
        raise ConfigurationError(f"'{path}' has no line of the form `label index:value …`.")
    of_labels = labels.keys(found, f"The first word of each line of '{path}'")
    settings = {"data.source": "libsvm", "data.path": str(path.resolve()), **of_labels}
    told = f"LIBSVM file {path}: {rows:,} rows of {highest} values, {len(found)} classes"
    return Look(settings, (highest,), len(found), rows, told)


def _table(path: Path, label: str | None) -> Look:
    """A folder or a file of Parquet, looked at by a Spark session in a process of its own. That takes seconds, so what
    holds none is refused first."""
    if said := datafiles.fault("parquet", path, f"'{path}'"):
        raise ConfigurationError(said)
    question = {"path": str(path.resolve()), "label": label}
    found = helper_process.ask(_TABLE_PROGRAM, question, "table", failed=f"'{path}' could not be read: ")
    if "error" in found:
        raise ConfigurationError(found["error"])
    settings = {"data.source": "parquet", "data.path": str(path.resolve()), **found["settings"]}
    return Look(settings, tuple(found["shape"]), found["classes"], found["rows"], f"Parquet in {path}: {found['told']}")
