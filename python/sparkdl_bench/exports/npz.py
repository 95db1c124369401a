"""NumPy's archive of arrays, by the names of the weights: what `weights.npz` of a saved model is. Needs NumPy alone."""

from __future__ import annotations

from pathlib import Path

from sparkdl_bench import saved
from sparkdl_bench.exports import DamagedError, ExportFormat
from sparkdl_bench.models import ModelSpec


def _write(spec: ModelSpec, model: saved.SavedModel, path: Path) -> None:  # noqa: ARG001 (every format's signature)
    saved.write_arrays(path, model.weights)


def _read(path: Path) -> saved.Weights:
    try:
        return saved.read_arrays(path)
    except saved.DAMAGED as error:
        raise DamagedError(str(error)) from error


FORMAT = ExportFormat("npz", "NumPy's archive of arrays: the weights alone", (".npz",), _write, _read)
