"""Train neural nets on a Spark cluster, with parameters that travel through Spark's own data plane.

`Trainer(model="mlp", data="digits", workers=2).fit(spark)` trains in a session that `configure(builder)` prepared.
`fitted.model().transform(frame)` adds the predictions of what was trained.
`compare(data=frame, label="class", workers=[1, 2], minutes=10, spark=spark)` says whether a cluster pays off.
`launch(train_fn, spark, workers=2)` runs a training function of your own, such as a PyTorch script's.
`dataset(frame, label="class", batch=128)` gives its ranks their batches of a DataFrame.

Names are loaded when they are first used, so that a command line which refuses its input does so at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sparkdl_bench.errors import (
    ConfigurationError,
    DivergedError,
    RankFailedError,
    RunCancelledError,
    RunFailedError,
    SparkDLError,
    WriteError,
)
from sparkdl_bench.version import __version__

if TYPE_CHECKING:
    from sparkdl_bench.comparison_api import ComparisonResult, compare
    from sparkdl_bench.exports import load_weights
    from sparkdl_bench.feeding import RowDataset, dataset
    from sparkdl_bench.launching.driver import LaunchResult, launch
    from sparkdl_bench.launching.reporting import launch_attempt, report
    from sparkdl_bench.ml import SparkDLClassifier, SparkDLRegressor
    from sparkdl_bench.prediction import Model, load_model
    from sparkdl_bench.saved import SavedModel, load
    from sparkdl_bench.session import check_session, configure
    from sparkdl_bench.trainer import FitResult, Trainer

_HOMES = {
    "ComparisonResult": "comparison_api",
    "FitResult": "trainer",
    "LaunchResult": "launching.driver",
    "Model": "prediction",
    "RowDataset": "feeding",
    "SavedModel": "saved",
    "SparkDLClassifier": "ml",
    "SparkDLRegressor": "ml",
    "Trainer": "trainer",
    "check_session": "session",
    "compare": "comparison_api",
    "configure": "session",
    "dataset": "feeding",
    "launch": "launching.driver",
    "launch_attempt": "launching.reporting",
    "load": "saved",
    "load_model": "prediction",
    "load_weights": "exports",
    "report": "launching.reporting",
}

__all__ = [
    "ComparisonResult",
    "ConfigurationError",
    "DivergedError",
    "FitResult",
    "LaunchResult",
    "Model",
    "RankFailedError",
    "RunCancelledError",
    "RowDataset",
    "RunFailedError",
    "SavedModel",
    "SparkDLClassifier",
    "SparkDLError",
    "SparkDLRegressor",
    "Trainer",
    "WriteError",
    "__version__",
    "check_session",
    "compare",
    "configure",
    "dataset",
    "launch",
    "launch_attempt",
    "load",
    "load_model",
    "load_weights",
    "report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
