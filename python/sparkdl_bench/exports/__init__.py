"""Trained models in files of other programs, and weights from such files. One file a format, found by scanning."""

from __future__ import annotations

import importlib
import pkgutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.files import replacing
from sparkdl_bench.models import ModelSpec
from sparkdl_bench.nearest import suggestion
from sparkdl_bench.saved import SavedModel, Weights, load, write_arrays

INITIAL_WEIGHTS = "model.initial_weights"
_SHOWN = 5


@dataclass(frozen=True)
class ExportFormat:
    """A file format by name.

    Attributes:
        suffixes: of its files, with the dot; the first one is the usual.
        write: of (spec, model, path) writes the file; `model.input` says how rows become the model's.
        read: of a path gives every array of weights in the file by its name, fp32. Damage is a `DamagedError`.
    """

    name: str
    doc: str
    suffixes: tuple[str, ...]
    write: Callable[[ModelSpec, SavedModel, Path], None]
    read: Callable[[Path], Weights]


class DamagedError(ValueError):
    """A file is none of its format, or asks for more than it holds; the text says what is wrong."""


def discover() -> dict[str, ExportFormat]:
    """Every format by name. Importing a format's file needs no optional package; reading and writing may."""
    names = (each.name for each in pkgutil.iter_modules(__path__) if not each.name.startswith("_"))
    found = (importlib.import_module(f"{__name__}.{name}").FORMAT for name in names)
    return {each.name: each for each in found}


def find(path: Path, name: str | None = None) -> ExportFormat:
    """The format of that name, or else the one of the path's suffix."""
    formats = discover()
    if name is not None:
        if name.replace("_", "-") in formats:
            return formats[name.replace("_", "-")]
        raise ConfigurationError(
            f"There is no format '{name}'.{suggestion(name, sorted(formats))} Valid: {', '.join(sorted(formats))}."
        )
    chosen = [each for each in formats.values() if path.suffix.lower() in each.suffixes]
    if not chosen:
        suffixes = "; ".join(f"{', '.join(each.suffixes)} ({each.name})" for each in formats.values())
        raise ConfigurationError(
            f"The suffix of '{path}' names no format. Valid suffixes: {suffixes}. Rename the file, or name its format."
        )
    return chosen[0]


def write(model: SavedModel, spec: ModelSpec, path: Path, name: str | None = None) -> None:
    """Writes the model to a file, whole or not at all; `name` of a format goes before the path's suffix.

    Raises:
        ConfigurationError: no such format, or a package that is not installed.
        WriteError: the file cannot be written.
    """
    chosen = find(path, name)
    with replacing(path) as partial:
        chosen.write(spec, model, partial)


def load_weights(path: str | Path, format: str | None = None) -> Weights:  # noqa: A002 (as users write it)
    """The arrays of weights in a file by their names, fp32, by whatever program. Nothing in the file is executed.

    Args:
        path: of a file of safetensors (`.safetensors`), a state_dict of PyTorch (`.pt`, `.pth`), a file of ONNX
            (`.onnx`: its initialisers) or an archive of NumPy (`.npz`); or the folder of a saved model.
        format: `safetensors`, `state-dict`, `onnx` or `npz`, where the suffix does not say it.

    Raises:
        ConfigurationError: there is no such file, it is damaged, or the package that reads it is not installed.
    """
    path = Path(path)
    if path.is_dir() and format is None:
        return load(path).weights
    chosen = find(path, format)
    if not path.is_file():
        raise ConfigurationError(f"There is no file '{path}'. Give a file of weights: {', '.join(chosen.suffixes)}.")
    try:
        return chosen.read(path)
    except (OSError, DamagedError) as error:
        raise ConfigurationError(
            f"'{path}' cannot be read as {chosen.name}: {error}. Give a whole file of that format, or name another "
            "format."
        ) from error


@contextmanager
def for_jvm(settings: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """The settings of a run as its JVM can read them: `model.initial_weights` names a folder or an archive of NumPy.

    Files of other formats are read here, into an archive that lies in a temporary folder until the block ends.
    """
    given = settings.get(INITIAL_WEIGHTS, "")
    if not given or Path(given).suffix.lower() == ".npz" or Path(given).is_dir():
        yield settings
        return
    weights = load_weights(given)
    with tempfile.TemporaryDirectory(prefix="sparkdl-bench-weights-") as folder:
        archive = Path(folder) / f"{Path(given).name}.npz"
        write_arrays(archive, weights)
        yield {**settings, INITIAL_WEIGHTS: str(archive)}


def fitting(spec: ModelSpec, weights: Mapping[str, npt.NDArray[np.float32]], origin: str) -> Weights:
    """The weights that a model starts from, in its layout's order, where all names and shapes are the model's.

    Args:
        origin: where the weights come from, for messages.

    Raises:
        ConfigurationError: an array is missing, of another shape, holds NaN or infinite values, or is one too many.
    """
    wanted = {place.name: tuple(place.shape) for place in (*spec.parameters, *spec.statistics)}
    missing = [name for name in wanted if name not in weights]
    extra = [name for name in weights if name not in wanted]
    wrong = [name for name in wanted if name in weights and weights[name].shape != wanted[name]]
    told = []
    if missing:
        told.append(f"{_some(missing)} of the model {'is' if len(missing) == 1 else 'are'} not there")
    if extra:
        told.append(f"the model has no {_some(extra)}")
    told += [f"'{name}' has the shape {weights[name].shape}, and the model's has {wanted[name]}" for name in wrong[:1]]
    if not told:
        wild = [name for name in wanted if not np.isfinite(weights[name]).all()]
        told = [f"{_some(wild)} {'holds' if len(wild) == 1 else 'hold'} NaN or infinite values"] if wild else []
    if told:
        raise ConfigurationError(
            f"The weights of {origin} do not fit the model {spec.name}: {'; '.join(told)}. Names and shapes must be "
            f"those that `sparkdl-bench list model {spec.name} --json` prints, such as '{next(iter(wanted), '')}'."
        )
    return {name: np.asarray(weights[name], np.float32) for name in wanted}


def library(name: str, extra: str, purpose: str) -> Any:
    """An optional package's module, by its full name."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ConfigurationError(
            f"{purpose} needs the package {package}, which is not installed here ({error}). Install the "
            f"extra into this Python: python -m pip install 'sparkdl-bench[{extra}]'."
        ) from error


def is_counter(name: str) -> bool:
    """Whether it is PyTorch's count of the batches that a batch normalisation has seen, which our models lack."""
    return name.rpartition(".")[2] == "num_batches_tracked"


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(f"'{name}'" for name in listed[:_SHOWN]) + more
