"""A trained model on disk: `model.json` (the layer specification) beside `weights.npz` (an array per parameter)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkdl_bench.errors import ConfigurationError

Weights = dict[str, npt.NDArray[np.float32]]


@dataclass(frozen=True)
class SavedModel:
    """What `save` wrote: the layer specification, and the weights by parameter name (`fc1.weight`: [out, in])."""

    specification: dict[str, Any]
    weights: Weights


def save(folder: Path, specification: Mapping[str, Any], weights: Mapping[str, npt.NDArray[np.float32]]) -> None:
    """Writes `model.json` and `weights.npz` into `folder`, which is made where it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.json").write_text(json.dumps(specification, indent=2) + "\n", encoding="utf-8")
    arrays: dict[str, Any] = dict(weights)
    np.savez(folder / "weights.npz", **arrays)


def load(folder: str | Path) -> SavedModel:
    """Reads what `save` wrote. A folder without it is a ConfigurationError."""
    folder = Path(folder)
    try:
        specification = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        with np.load(folder / "weights.npz") as archive:
            weights = {name: archive[name] for name in archive.files}
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"'{folder}' holds no saved model: {error}. A saved model is a folder with model.json and weights.npz, as "
            "FitResult.save(folder) writes it."
        ) from error
    return SavedModel(specification, weights)


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
