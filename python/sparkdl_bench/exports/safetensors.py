"""safetensors: the weights by name, and the model's layers and preprocessing as JSON in the file's metadata.

Reading executes nothing; the library checks the header's size and every array's place before it reads one.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from sparkdl_bench.exports import DamagedError, ExportFormat, is_counter, library
from sparkdl_bench.models import ModelSpec
from sparkdl_bench.saved import SavedModel, Weights

_FLOATS = ("F16", "F32", "F64")


def _write(spec: ModelSpec, model: SavedModel, path: Path) -> None:  # noqa: ARG001 (every format's signature)
    numpy = library("safetensors.numpy", "safetensors", "Writing safetensors")
    # One entry: the library writes several in an order of chance.
    about = {"sparkdl_bench": json.dumps({"model": model.specification, "input": model.input})}
    arrays = {name: np.ascontiguousarray(array, np.float32) for name, array in model.weights.items()}
    path.write_bytes(numpy.save(arrays, metadata=about))


def _read(path: Path) -> Weights:
    module = library("safetensors", "safetensors", "Reading safetensors")
    weights: Weights = {}
    try:
        with module.safe_open(path, framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118 (no mapping)
                if is_counter(name):
                    continue
                kind = file.get_slice(name).get_dtype()
                if kind not in _FLOATS:
                    raise DamagedError(f"'{name}' is of type {kind}, and weights are {', '.join(_FLOATS)}")
                weights[name] = file.get_tensor(name).astype(np.float32)
    except (module.SafetensorError, ValueError) as error:
        raise DamagedError(str(error)) from error
    return weights


FORMAT = ExportFormat(
    "safetensors", "safetensors: weights, with layers and preprocessing as metadata", (".safetensors",), _write, _read
)
