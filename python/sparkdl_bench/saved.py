"""A trained model on disk: `model.json` (the layer specification), `weights.npz` (an array per parameter) and
`input.json` (how rows become the model's)."""

from __future__ import annotations

import json
import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkdl_bench.errors import ConfigurationError, WriteError
from sparkdl_bench.files import replace_text, replacing, unwritten

# The files of a folder in which a PyTorch module was saved (`torch.trained`): the first one says that it is one.
OF_A_MODULE = ("torch.json", "module.pt2")
# The files of a folder that `save` wrote.
OF_A_NET = ("model.json", "weights.npz", "input.json")

# Deflate makes at most 1032 bytes of one.
_MOST_INFLATED = 1100

# What damaged files end in: JSON that is nested too deeply and archives that are encrypted or packed in an unknown way
# in a RuntimeError, headers of arrays that make no sense in one of Python's own parser, the rest in those of formats.
DAMAGED = (
    *(OSError, ValueError, EOFError, RuntimeError, TypeError, KeyError, OverflowError),
    *(SyntaxError, tokenize.TokenError, struct.error, zlib.error, lzma.LZMAError, zipfile.BadZipFile),
)

Weights = dict[str, npt.NDArray[np.float32]]


@dataclass(frozen=True)
class SavedModel:
    """What `save` wrote: the layer specification, and the weights by parameter name (`fc1.weight`: [out, in]).

    Attributes:
        input: how rows become the model's: their `shape`, the `columns` of a table, the `factor` from stored values to
            features, `subtract` and `multiply` for each value, the side `crop` of the window in the centre (0: all),
            the `labels` of class 0, 1, …, and `binary`, whether outputs are the scores of answers, no or yes; empty
            where an older version saved the model.
    """

    specification: dict[str, Any]
    weights: Weights
    input: dict[str, Any] = field(default_factory=dict)


def save(
    folder: Path,
    specification: Mapping[str, Any],
    weights: Mapping[str, npt.NDArray[np.float32]],
    rows: Mapping[str, Any] | None = None,
) -> None:
    """Writes the model's files into `folder`, which is made where it is not there; `rows` is `SavedModel.input`.

    A model that was there before is replaced, also one of a PyTorch module.
    """
    with replacing(folder / "weights.npz") as partial:
        write_arrays(partial, weights)
    if rows:
        replace_text(folder / "input.json", json.dumps(rows) + "\n")
    else:
        (folder / "input.json").unlink(missing_ok=True)  # of a model that was here before
    replace_text(folder / "model.json", json.dumps(specification, indent=2) + "\n")
    remove(folder, OF_A_MODULE)


def remove(folder: Path, names: Sequence[str]) -> None:
    """Removes the files of a model of the other kind, which `load_model` would read in place of the new one.

    Raises:
        WriteError: one cannot be removed.
    """
    for name in names:
        try:
            (folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise WriteError(unwritten(str(folder / name), error)) from error


def write_arrays(path: Path, weights: Mapping[str, npt.NDArray[np.float32]]) -> None:
    """As `numpy.savez`; that of NumPy 1 leaves the archive open on a full disk, and it complains when collected."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in weights.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


def load(folder: str | Path) -> SavedModel:
    """Reads what `save` wrote. A folder without it is a ConfigurationError."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ConfigurationError(
            f"There is no folder '{folder}'. A saved model is a folder with model.json and weights.npz, as "
            "FitResult.save(folder) writes it, or `model` in the results folder of `sparkdl-bench run`."
        )
    try:
        specification = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        about = folder / "input.json"
        rows = json.loads(about.read_text(encoding="utf-8")) if about.exists() else {}
        if not isinstance(specification, dict) or not isinstance(rows, dict):
            raise ValueError("model.json and input.json must each hold one JSON object")
        weights = read_arrays(folder / "weights.npz")
    except DAMAGED as error:
        raise ConfigurationError(
            f"'{folder}' holds no saved model: {error}. A saved model is a folder with model.json and weights.npz, as "
            "FitResult.save(folder) writes it."
        ) from error
    return SavedModel(specification, weights, rows)


def read_arrays(path: Path) -> Weights:
    """The arrays of an archive, by name. One that is damaged raises one of `DAMAGED`, before memory is taken for it."""
    _check_sizes(path)
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _check_sizes(path: Path) -> None:
    """Raises ValueError where an array's header asks for other memory than the archive's bytes fill."""
    with zipfile.ZipFile(path) as archive:
        total, most = sum(member.file_size for member in archive.infolist()), _MOST_INFLATED * path.stat().st_size
        if total > most:  # entries may share bytes
            raise ValueError(f"{path.name} says that its {path.stat().st_size} bytes hold {total}")
        for member in archive.infolist():
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(file)
                held = member.file_size - file.tell()
            wanted = math.prod(shape) * dtype.itemsize
            if dtype != np.dtype("<f4"):
                raise ValueError(
                    f"{member.filename} holds values of {dtype}, and weights are fp32, float32 in little-endian order: "
                    "write it with array.astype('<f4')"
                )
            if min(shape, default=0) < 0 or wanted != held:
                raise ValueError(
                    f"{member.filename} says that it has {shape} values of {dtype}, "
                    f"{wanted} bytes, and there are {held}"
                )
            if member.file_size > _MOST_INFLATED * max(1, member.compress_size):
                raise ValueError(f"{member.filename} says that {member.compress_size} bytes hold {member.file_size}")


def split(flat: npt.NDArray[np.float32], layout: Sequence[Mapping[str, Any]]) -> Weights:
    """The parameters in a flat buffer, each a copy in its shape.

    Args:
        flat: all values, fp32.
        layout: `name`, `shape` and `offset` (in values) of each parameter.
    """
    weights: Weights = {}
    for parameter in layout:
        shape = tuple(int(size) for size in parameter["shape"])
        offset = int(parameter["offset"])
        length = int(np.prod(shape))
        if offset + length > flat.size:
            raise ValueError(f"{parameter['name']} ends at value {offset + length}, and there are {flat.size} values")
        weights[str(parameter["name"])] = flat[offset : offset + length].reshape(shape).copy()
    return weights
