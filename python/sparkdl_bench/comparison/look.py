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
from sparkdl_bench.nearest import cut, listed, near_file

_IMAGES = (".png", ".jpg", ".jpeg")
_LARGEST_SIDE = 32
_IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
# data.classes where nobody sets it.
_USUAL_CLASSES = 10
# Of LIBSVM. Wrong values the run refuses by their line.
_INDEX = re.compile("0*[1-9][0-9]{0,9}")
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
    absent = [name for name in _IDX_FILES if name not in found]
    if absent:
        raise ConfigurationError(
            f"The folder '{path}' has no file '{absent[0]}' (nor .gz). An IDX data set is {', '.join(_IDX_FILES)}, "
            "each as it is or with .gz. Fetch what is missing, or name another folder."
        )
    head = _content(found[_IDX_FILES[0]], 16)
    if len(head) < 16 or head[:4] != b"\x00\x00\x08\x03":
        raise ConfigurationError(
            f"'{found[_IDX_FILES[0]]}' does not begin as an IDX file of images does. Fetch it again."
        )
    rows, height, width = struct.unpack(">III", head[4:])
    # The labels follow a head of eight bytes.
    highest = max(max(_content(found[name])[8:], default=0) for name in _IDX_FILES if "labels" in name)
    classes = max(_USUAL_CLASSES, highest + 1)
    settings = {"data.source": "idx", "data.path": str(path.resolve())}
    if classes > _USUAL_CLASSES:
        settings["data.classes"] = str(classes)
    told = f"IDX files in {path}: {rows:,} training images of 1×{height}×{width}, {classes} classes"
    return Look(settings, (1, height, width), classes, rows, told)


def _content(file: Path, size: int = -1) -> bytes:
    opener = gzip.open if file.name.endswith(".gz") else open
    try:
        with opener(file, "rb") as content:
            return bytes(content.read(size))
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigurationError(f"'{file}' cannot be read: {error}. Fetch it again.") from error


def _images(path: Path, classes: Sequence[Path]) -> Look | None:
    there = [file for folder in classes for file in sorted(folder.iterdir()) if not file.name.startswith((".", "_"))]
    files = [file for file in there if file.suffix.lower() in _IMAGES]
    if not files:
        return None
    other = next((file for file in there if file not in set(files) and file.is_file() and not _is_image(file)), None)
    if other is not None:
        raise ConfigurationError(
            f"'{other}' is neither a JPEG nor a PNG image, and a run would end at it. Move it out of the folder of its "
            "class: each file there is an image."
        )
    size = _png_size(files[0]) or (_LARGEST_SIDE, _LARGEST_SIDE)
    height, width = (min(side, _LARGEST_SIDE) for side in size)
    settings = {"data.source": "images", "data.path": str(path.resolve()), "data.shape": f"3,{height},{width}"}
    told = f"{len(files):,} images in {len(classes)} folders of {path}, resized to 3×{height}×{width}"
    return Look(settings, (3, height, width), len(classes), len(files), told)


def _is_image(file: Path) -> bool:
    with file.open("rb") as content:
        return content.read(4).startswith((b"\xff\xd8\xff", b"\x89PNG"))


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
        for number, line in enumerate(lines, start=1):
            words = line.partition("#")[0].split()
            if not words:
                continue
            found.add(words[0])
            rows += 1
            for word in words[1:]:
                index = word.partition(":")[0]
                if not _INDEX.fullmatch(index):
                    raise ConfigurationError(_no_index(path, number, word))
                highest = max(highest, int(index))
            labels.refuse_many(found, f"The first word of each line of '{path}'")
    if not found or not highest:
        raise ConfigurationError(f"'{path}' has no line of the form `label index:value …`.")
    of_labels = labels.keys(found, f"The first word of each line of '{path}'")
    settings = {"data.source": "libsvm", "data.path": str(path.resolve()), **of_labels}
    told = f"LIBSVM file {path}: {rows:,} rows of {highest} values, {len(found)} classes"
    return Look(settings, (highest,), len(found), rows, told)


def _no_index(path: Path, line: int, word: str) -> str:
    remedy = (
        "Indices begin with 1 here: add 1 to each."
        if word.startswith("0:")
        else "Take such words out."
        if word.startswith("qid:")
        else "Fix the file."
    )
    return (
        f"Line {line} of '{path}' holds '{cut(word)}', which is no index:value with an index from 1 on, and a run "
        f"would end at it. {remedy}"
    )


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
