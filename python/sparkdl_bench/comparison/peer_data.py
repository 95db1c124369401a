"""The rows of a run as a file that a peer can read: the same training and test rows, as fp32, changed as the run's."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import numpy.typing as npt

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.jarfiles import find_jars
from sparkdl_bench.models import initializers

Rows = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
_DIGITS = "sparkdlbench/digits.txt"
_DIGITS_WIDTH = 64
_CIFAR_WIDTH = 3 * 32 * 32
_GZIP = b"\x1f\x8b"
_XZ = b"\xfd7zXZ\x00"


def file_name(settings: Mapping[str, str]) -> str:
    """Different for different rows."""
    chosen = [settings.get(key, "") for key in ("data.source", "data.path", "data.scale")]
    identity = repr([*chosen, _share(settings), settings.get("data.normalize", "none")])
    return f"{chosen[0] or 'digits'}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}.npz"


def check(settings: Mapping[str, str]) -> None:
    """Raises a ConfigurationError where peers cannot train on the run's rows."""
    if _source(settings) not in _SOURCES:
        raise ConfigurationError(
            f"Peers can train on {', '.join(_SOURCES)}, and data.source is '{_source(settings)}'. Leave the peers out "
            "of the comparison, or take one of those."
        )
    _share(settings)


def _source(settings: Mapping[str, str]) -> str:
    return settings.get("data.source", "digits")


def _share(settings: Mapping[str, str]) -> float:
    text = settings.get("data.share", "1")
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ConfigurationError(
            f"Configuration key 'data.share' has the value '{text}', which is not valid. Valid: a number above 0, at "
            "most 1. Set it in the run file, or in [set] or [matrix] of the comparison file."
        )
    return share


def taken_rows(rows: int, share: float) -> list[int]:
    """The ids of the training rows that a run with `data.share` trains on, as `TakenRows`."""
    count = max(1, math.floor(rows * share + 0.5))
    starts = [stretch * rows // count for stretch in range(count + 1)]
    return [
        start + ((initializers.mix(stretch) >> 32) * (end - start) >> 32)
        for stretch, (start, end) in enumerate(pairwise(starts))
    ]


def export(settings: Mapping[str, str], path: Path) -> None:
    """Writes x_train, y_train, x_test, y_test of a run's data to a .npz file; does nothing where it is there."""
    if path.is_file():
        return
    check(settings)
    scale = settings.get("data.scale", "auto")
    sets = _SOURCES[_source(settings)](settings, 1 / 255 if scale == "auto" else float(scale))
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial.npz")
    x_train, y_train = sets.x_train, sets.y_train
    if (share := _share(settings)) < 1:
        taken = taken_rows(len(y_train), share)
        x_train, y_train = x_train[taken], y_train[taken]
    x_test = sets.x_test
    if (mode := settings.get("data.normalize", "none")) != "none":
        subtract, factor = normalization(mode, x_train, sets.shape)
        x_train, x_test = (x_train - subtract) * factor, (x_test - subtract) * factor
    np.savez(partial, x_train=x_train, y_train=y_train, x_test=x_test, y_test=sets.y_test, shape=np.asarray(sets.shape))
    partial.replace(path)


def normalization(mode: str, x: Rows, shape: tuple[int, ...]) -> tuple[Rows, Rows]:
    """What is subtracted from each value of a row and what the difference is multiplied by, as `Normalization` has it.

    Args:
        mode: `mean`, `standard`, `minmax` or `channel`.
        x: the training rows.
    """
    if mode == "minmax":
        low, span = x.min(axis=0), x.max(axis=0) - x.min(axis=0)
        return low, np.where(span > 0, 1 / np.where(span > 0, span, 1), 1).astype(np.float32)
    # About the first row, so that large means cost no digits; in pieces, as a set in fp64 may be larger than memory.
    sums, squares = np.zeros(x.shape[1]), np.zeros(x.shape[1])
    for first in range(0, len(x), 4096):
        differences = x[first : first + 4096].astype(np.float64) - x[0]
        sums += differences.sum(axis=0)
        squares += np.square(differences).sum(axis=0)
    mean = x[0] + sums / len(x)
    square = np.maximum(0, squares / len(x) - (sums / len(x)) ** 2) + mean**2
    if mode == "channel":
        per_channel = max(1, math.prod(shape) // shape[0])
        mean, square = (np.repeat(each.reshape(-1, per_channel).mean(axis=1), per_channel) for each in (mean, square))
    deviation = np.sqrt(np.maximum(0, square - mean**2))
    factor = np.ones_like(deviation)
    if mode != "mean":
        factor = np.where(deviation > 0, 1 / np.where(deviation > 0, deviation, 1), 1)
    return mean.astype(np.float32), factor.astype(np.float32)


@dataclass(frozen=True)
class Sets:
    """x: rows × values, scaled; `shape` is a row's."""

    x_train: Rows
    y_train: Labels
    x_test: Rows
    y_test: Labels
    shape: tuple[int, ...]


def _digits(_settings: Mapping[str, str], _scale: float) -> Sets:
    """As the data source `digits` cuts them: every fifth row tests, pixels 0..16 become 0..1."""
    import pyspark

    with ZipFile(find_jars(pyspark.__version__, natives=False).thin) as jar:
        text = jar.read(_DIGITS).decode("ascii")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    pixels = [[int(character, 17) for character in line[:_DIGITS_WIDTH]] for line in lines]
    x = np.asarray(pixels, dtype=np.float32) / 16
    y = np.asarray([int(line[_DIGITS_WIDTH + 1 :]) for line in lines], dtype=np.int64)
    test = np.arange(len(y)) % 5 == 4
    return Sets(x[~test], y[~test], x[test], y[test], (1, 8, 8))


def _idx(settings: Mapping[str, str], scale: float) -> Sets:
    folder = Path(settings.get("data.path", ""))
    shape: list[int] = []

    def images(name: str) -> Rows:
        values = _read_idx(folder, f"{name}-images-idx3-ubyte")
        shape[:] = [1, *values.shape[1:]]
        rows: Rows = values.reshape(len(values), -1).astype(np.float32) * np.float32(scale)
        return rows

    def labels(name: str) -> Labels:
        return _read_idx(folder, f"{name}-labels-idx1-ubyte").astype(np.int64)

    train = images("train"), labels("train")
    return Sets(*train, images("t10k"), labels("t10k"), tuple(shape))


def _cifar10(settings: Mapping[str, str], scale: float) -> Sets:
    folder = Path(settings.get("data.path", ""))

    def batches(names: Sequence[str]) -> tuple[Rows, Labels]:
        found = [content for name in names if (content := _opened(folder, name, ("", ".gz", ".xz"))) is not None]
        if not found:
            raise ConfigurationError(
                f"'{folder}' holds no {names[0]}, also not with .gz or .xz, which the peers train on. They read local "
                "folders only; set data.path to one."
            )
        records = np.frombuffer(b"".join(found), np.uint8).reshape(-1, 1 + _CIFAR_WIDTH)
        return records[:, 1:].astype(np.float32) * np.float32(scale), records[:, 0].astype(np.int64)

    train = batches([f"data_batch_{batch}.bin" for batch in range(1, 6)])
    return Sets(*train, *batches(["test_batch.bin"]), (3, 32, 32))


def _read_idx(folder: Path, name: str) -> npt.NDArray[np.uint8]:
    content = _opened(folder, name, ("", ".gz"))
    if content is None:
        raise ConfigurationError(
            f"'{folder}' holds neither {name} nor {name}.gz, which the peers train on. They read local folders only; "
            "set data.path to one."
        )
    dimensions = content[3]
    shape = [int.from_bytes(content[4 + 4 * i : 8 + 4 * i], "big") for i in range(dimensions)]
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def _opened(folder: Path, name: str, endings: Sequence[str]) -> bytes | None:
    """A file's bytes, whatever it is compressed with; None where no file of that name is there."""
    file = next((folder / f"{name}{end}" for end in endings if (folder / f"{name}{end}").is_file()), None)
    if file is None:
        return None
    content = file.read_bytes()
    if content.startswith(_GZIP):
        return gzip.decompress(content)
    return lzma.decompress(content) if content.startswith(_XZ) else content


_SOURCES: Mapping[str, Callable[[Mapping[str, str], float], Sets]] = {
    "digits": _digits,
    "idx": _idx,
    "cifar10": _cifar10,
}
