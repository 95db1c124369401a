"""The rows of a run as a file that a peer can read: the same training and test rows, as fp32."""

from __future__ import annotations

import gzip
import hashlib
import math
from collections.abc import Mapping
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
_GZIP = b"\x1f\x8b"


def file_name(settings: Mapping[str, str]) -> str:
    """Different for different rows."""
    chosen = [settings.get(key, "") for key in ("data.source", "data.path", "data.scale")]
    identity = repr([*chosen, _share(settings)])
    return f"{chosen[0] or 'digits'}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}.npz"


def check(settings: Mapping[str, str]) -> None:
    """Raises a ConfigurationError where peers cannot train on the run's rows."""
    if _source(settings) not in ("digits", "idx"):
        raise ConfigurationError(
            f"Peers can train on digits and idx, and data.source is '{_source(settings)}'. Leave the peers out of the "
            "comparison, or take one of those."
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
    if _source(settings) == "digits":
        sets = _digits()
    else:
        scale = settings.get("data.scale", "auto")
        sets = _idx(Path(settings.get("data.path", "")), 1 / 255 if scale == "auto" else float(scale))
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial.npz")
    x_train, y_train, x_test, y_test = sets
    if (share := _share(settings)) < 1:
        taken = taken_rows(len(y_train), share)
        x_train, y_train = x_train[taken], y_train[taken]
    np.savez(partial, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    partial.replace(path)


def _digits() -> tuple[Rows, Labels, Rows, Labels]:
    """As the data source `digits` cuts them: every fifth row tests, pixels 0..16 become 0..1."""
    import pyspark

    with ZipFile(find_jars(pyspark.__version__, natives=False).thin) as jar:
        text = jar.read(_DIGITS).decode("ascii")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    pixels = [[int(character, 17) for character in line[:_DIGITS_WIDTH]] for line in lines]
    x = np.asarray(pixels, dtype=np.float32) / 16
    y = np.asarray([int(line[_DIGITS_WIDTH + 1 :]) for line in lines], dtype=np.int64)
    test = np.arange(len(y)) % 5 == 4
    return x[~test], y[~test], x[test], y[test]


def _idx(folder: Path, scale: float) -> tuple[Rows, Labels, Rows, Labels]:
    def images(name: str) -> Rows:
        values = _read_idx(folder, f"{name}-images-idx3-ubyte")
        rows: Rows = values.reshape(len(values), -1).astype(np.float32) * np.float32(scale)
        return rows

    def labels(name: str) -> Labels:
        return _read_idx(folder, f"{name}-labels-idx1-ubyte").astype(np.int64)

    return images("train"), labels("train"), images("t10k"), labels("t10k")


def _read_idx(folder: Path, name: str) -> npt.NDArray[np.uint8]:
    found = [folder / each for each in (name, f"{name}.gz") if (folder / each).is_file()]
    if not found:
        raise ConfigurationError(
            f"'{folder}' holds neither {name} nor {name}.gz, which the peers train on. They read local folders only; "
            "set data.path to one."
        )
    content = found[0].read_bytes()
    if content.startswith(_GZIP):
        content = gzip.decompress(content)
    dimensions = content[3]
    shape = [int.from_bytes(content[4 + 4 * i : 8 + 4 * i], "big") for i in range(dimensions)]
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
