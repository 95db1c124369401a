"""MLflow: trained models as its flavour `sparkdl_bench`, which serves through `pyfunc`. Needs the extra `mlflow`.

    with mlflow.start_run():
        sparkdl_bench.mlflow.log_model(fitted.model(), name="digits")
    served = mlflow.pyfunc.load_model("models:/…")
    served.predict(rows)

Serving starts no Spark: a perceptron is computed by NumPy, other nets by ONNX Runtime.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.prediction import Model
from sparkdl_bench.prediction import load_model as read_model
from sparkdl_bench.version import __version__

try:
    import mlflow
    import pandas
    from mlflow.models import Model as Logged
    from mlflow.models import ModelSignature
    from mlflow.models.utils import _save_example
    from mlflow.types import ColSpec, DataType, Schema, TensorSpec
    from mlflow.types.schema import Array
    from mlflow.utils.environment import _PythonEnv
except ImportError as error:
    raise ConfigurationError(
        f"sparkdl_bench.mlflow needs MLflow and pandas ({error}). Install them with "
        "`pip install 'sparkdl-bench[mlflow]'`, on the serving machine as well."
    ) from error

FLAVOR_NAME = "sparkdl_bench"
_DATA = "model"


def get_default_pip_requirements(model: Model | None = None) -> list[str]:
    """What a machine needs to serve `model`; without one: any model."""
    if _is_module(model):
        return [f"sparkdl-bench[mlflow,torch]=={__version__}"]
    found = [f"sparkdl-bench[mlflow]=={__version__}"]
    return found if model is not None and model.needs_numpy_alone else [*found, "onnx", "onnxruntime"]


def save_model(
    model: Model,
    path: str | Path,
    mlflow_model: Logged | None = None,
    signature: ModelSignature | None = None,
    input_example: Any = None,
    pip_requirements: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Writes a model to a folder that `mlflow.pyfunc.load_model` and `load_model` read.

    Args:
        model: what `FitResult.model()` or the `net` of a Spark ML model gives.
        path: a folder that is not there yet, or empty.
        mlflow_model: what is logged; MLflow gives it.
        signature: columns in and out; None: those of the training, or an array of rows × the row's shape.
        input_example: rows that MLflow keeps beside the model.
        pip_requirements: in place of `get_default_pip_requirements(model)`.
        metadata: of the model, as MLflow keeps it.

    Raises:
        ConfigurationError: `model` is none of ours; the folder holds something.
    """
    if not isinstance(model, Model) and not _is_module(model):
        raise ConfigurationError(
            f"model is a {type(model).__name__}. Give the sparkdl_bench.Model: fitted.model() of a Trainer's result, "
            "or `net` of a model of Spark ML's."
        )
    folder = Path(path)
    if folder.exists() and any(folder.iterdir()):
        raise ConfigurationError(f"The folder '{folder}' holds something already. Name one that is not there yet.")
    folder.mkdir(parents=True, exist_ok=True)
    logged = Logged() if mlflow_model is None else mlflow_model
    logged.signature = signature or _signature(model)
    if input_example is not None:
        _save_example(logged, input_example, str(folder))
    if metadata is not None:
        logged.metadata = dict(metadata)
    model.save(folder / _DATA)
    needed = list(get_default_pip_requirements(model) if pip_requirements is None else pip_requirements)
    (folder / "requirements.txt").write_text("\n".join(needed) + "\n", encoding="utf-8")
    environment: Any = _PythonEnv
    environment(dependencies=["-r requirements.txt"]).to_yaml(str(folder / "python_env.yaml"))
    mlflow.pyfunc.add_to_model(logged, loader_module=__name__, data=_DATA, python_env="python_env.yaml")
    logged.add_flavor(FLAVOR_NAME, data=_DATA, sparkdl_bench_version=__version__)
    logged.save(str(folder / "MLmodel"))


def log_model(
    model: Model, name: str = "model", registered_model_name: str | None = None, **keywords: Any
) -> mlflow.models.model.ModelInfo:
    """Logs a model to MLflow's active run, or to one of its own, and registers it where a name is given.

    Args:
        model: as in `save_model`, which takes the other keywords.
        name: what the model is called in the run.
        registered_model_name: under which MLflow's registry gets a new version.

    Returns:
        what MLflow says of it; `model_uri` is what `load_model` takes.
    """
    logged: mlflow.models.model.ModelInfo = Logged.log(
        artifact_path=None,
        name=name,
        flavor=sys.modules[__name__],
        registered_model_name=registered_model_name,
        model=model,
        **keywords,
    )
    return logged


def load_model(model_uri: str, dst_path: str | None = None) -> Model:
    """The model that was logged or saved, as it was: `transform` and `export` included.

    Args:
        model_uri: `models:/…`, `runs:/…`, or a folder.
        dst_path: where MLflow puts what it downloads.
    """
    folder = Path(mlflow.artifacts.download_artifacts(artifact_uri=model_uri, dst_path=dst_path))
    flavors = Logged.load(str(folder)).flavors
    if FLAVOR_NAME not in flavors:
        raise ConfigurationError(
            f"'{model_uri}' has the flavours {', '.join(sorted(flavors))} and not {FLAVOR_NAME}: "
            "sparkdl_bench.mlflow.log_model did not log it. mlflow.pyfunc.load_model serves any."
        )
    return read_model(folder / str(flavors[FLAVOR_NAME]["data"]))


def _is_module(model: object) -> bool:
    """Whether it is a `sparkdl_bench.torch.ModuleModel`; PyTorch is not loaded to find out."""
    trained = sys.modules.get("sparkdl_bench.torch.trained")
    return trained is not None and isinstance(model, trained.ModuleModel)


def _load_pyfunc(path: str) -> _Served:
    """As MLflow calls it."""
    return _Served(read_model(path))


class _Served:
    """What `pyfunc` asks: rows in, a DataFrame out."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> pandas.DataFrame:
        """Column `prediction` (a number, the class's name or number, or a list of each label's 1 or 0) and, of
        classes and labels, `probability`, a list each.
        """
        del params
        labels, probabilities = self._model.predict(_rows(model_input, self._model))
        if self._model.is_regression:
            return pandas.DataFrame({"prediction": labels})
        return pandas.DataFrame({"prediction": labels.tolist(), "probability": probabilities.tolist()})


def _rows(given: Any, model: Model) -> Any:
    """An array of rows; of a DataFrame the columns of the training, one of lists, or as many as a row has values."""
    if not isinstance(given, pandas.DataFrame):
        return given
    names = [name for name in model.columns if name in given.columns]
    chosen = given[names] if names and len(names) == len(model.columns) else given
    if chosen.shape[1] == 1 and len(chosen) and np.ndim(chosen.iloc[0, 0]):
        return np.stack([np.asarray(each, np.float32) for each in chosen.iloc[:, 0]])
    return chosen.to_numpy(dtype=np.float32)


def _signature(model: Model) -> ModelSignature:
    names, width = model.columns, int(np.prod(model.shape))
    if len(names) == width:
        rows: list[ColSpec | TensorSpec] = [ColSpec(DataType.double, name) for name in names]
    else:
        rows = [TensorSpec(np.dtype(np.float32), (-1, *model.shape))]
    kind: Any = DataType.string if model.labels else DataType.double if model.is_regression else DataType.long
    if model.is_multilabel:
        kind = Array(DataType.long)
    found: list[ColSpec | TensorSpec] = [ColSpec(kind, "prediction")]
    if not model.is_regression:
        found.append(ColSpec(Array(DataType.double), "probability"))
    return ModelSignature(inputs=Schema(rows), outputs=Schema(found))
