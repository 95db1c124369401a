"""Training from Python, in a Spark session of the user's own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparkdl_bench import plot, saved
from sparkdl_bench._jvm import Api
from sparkdl_bench.config import as_text, flatten
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.progress import Progress
from sparkdl_bench.results import RunResults
from sparkdl_bench.runner import follow
from sparkdl_bench.session import check_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ORIGIN = "the call of Trainer"


class Trainer:
    """A run, described by keywords: `Trainer(model="mlp", data="digits", workers=2, learning_rate=0.1).fit(spark)`.

    Args:
        model: name of a model family (`mlp`, `softmax`), or a dict: `{"name": "mlp", "hidden": [100, 50]}`.
        data: `digits`, `synthetic` or another data source by name; the path of a folder of IDX files (local, or of any
            Hadoop file system: `hdfs://…`); or a dict of the `data` keys: `{"source": "idx", "path": …}`.
        workers: number of ranks, each one Spark task.
        batch: rows a step over all workers, any number ≥ workers.
        epochs: passes over the training rows.
        settings: any other key of a run (`sparkdl-bench list` shows all):

            - by its name: `transport="block-manager"`, `seed=7`;
            - by its last part where only one key ends so: `learning_rate=0.1` is `optimizer.learning_rate`;
            - with two underscores for a dot: `engine__blas="openblas"` is `engine.blas`;
            - by group: `optimizer={"name": "sgd", "momentum": 0.9}`, or `optimizer="sgd"` for its name alone.

    Lists, numbers, booleans and paths become text; None leaves a key at its default. Nothing is checked before `fit`.
    """

    def __init__(
        self,
        model: str | Mapping[str, Any] = "mlp",
        data: str | Path | Mapping[str, Any] = "digits",
        *,
        workers: int = 2,
        batch: int = 128,
        epochs: int = 5,
        **settings: Any,
    ) -> None:
        self._data = data
        self._keywords = {"model": model, "workers": workers, "batch": batch, "epochs": epochs, **settings}

    def settings(self, keys: Sequence[str], sources: Sequence[str]) -> dict[str, str]:
        """The run's keys as text.

        Args:
            keys: every key that there is.
            sources: every data source that there is.
        """
        return {**keywords_to_settings(self._keywords, keys), **data_to_settings(self._data, sources)}

    def fit(self, spark: SparkSession, on_progress: Callable[[Progress], None] | None = None) -> FitResult:
        """Trains, and returns when the run has ended.

        Args:
            spark: a classic session with our jar, as `sparkdl_bench.configure` makes it.
            on_progress: called about ten times a second.

        Raises:
            ConfigurationError: session, settings or data are not fit for the run; no Spark job was started.
            RunFailedError: the run failed.
        """
        api = check_session(spark)
        settings = self.settings(
            [str(key["name"]) for key in api.all_keys()], [str(source["name"]) for source in api.variants("data")]
        )
        run_id = api.start(settings)
        done = follow(api, run_id, on_progress or (lambda _: None))
        return _result(api, run_id, done)


@dataclass(frozen=True)
class FitResult:
    """A finished run."""

    results_dir: Path
    specification: dict[str, Any]
    _weights: saved.Weights = field(repr=False)

    @property
    def summary(self) -> dict[str, Any]:
        """What `summary.json` says: `final` accuracy, losses and times, `phases_ms`, `bytes` by channel, …"""
        return RunResults(self.results_dir).summary

    @property
    def history(self) -> list[dict[str, Any]]:
        """One record an epoch: `epoch`, `seconds` (its length), `train_loss`, `test_loss`, `test_accuracy`."""
        return RunResults(self.results_dir).history

    def weights(self) -> saved.Weights:
        """The trained parameters by name, fp32: `fc1.weight` [out, in], `fc1.bias` [out], …"""
        return {name: array.copy() for name, array in self._weights.items()}

    def save(self, path: str | Path) -> None:
        """Writes the model to a folder; `sparkdl_bench.load` reads it."""
        saved.save(Path(path), self.specification, self._weights)

    def plot(self) -> Path:
        """Draws `plot.png` into the results folder; needs matplotlib."""
        return plot.draw(RunResults(self.results_dir))


def keywords_to_settings(keywords: Mapping[str, Any], keys: Sequence[str]) -> dict[str, str]:
    """Keyword arguments as keys of a run; see `Trainer`. Unknown names pass, and the JVM refuses them by name."""
    settings: dict[str, str] = {}
    for keyword, value in keywords.items():
        if value is None:
            continue
        if isinstance(value, Mapping):
            group = keyword.replace("__", ".")
            found = flatten({name: item for name, item in value.items() if item is not None}, _ORIGIN, group + ".")
        else:
            found = {_key_of(keyword, keys): as_text(keyword, value, _ORIGIN)}
        for key, text in found.items():
            if settings.setdefault(key, text) != text:
                raise ConfigurationError(
                    f"The key '{key}' is set twice in {_ORIGIN}: to {settings[key]!r} and {text!r}. Set it once."
                )
    return settings


def data_to_settings(data: str | Path | Mapping[str, Any], sources: Sequence[str]) -> dict[str, str]:
    """The `data` argument as keys of a run; see `Trainer`."""
    if isinstance(data, Mapping):
        return flatten(data, _ORIGIN, "data.")
    if isinstance(data, str) and data in sources:
        return {"data.source": data}
    if isinstance(data, Path) or "/" in data or "\\" in data or Path(data).is_dir():
        return {"data.source": "idx", "data.path": str(data)}
    raise ConfigurationError(
        f"data={data!r} is neither a data source nor a folder. Data sources: {', '.join(sources)}; a folder of IDX "
        "files that lies in the working folder is written './name'."
    )


def _key_of(keyword: str, keys: Sequence[str]) -> str:
    name = keyword.replace("__", ".")
    if name in keys:
        return name
    if f"{name}.name" in keys:
        return f"{name}.name"
    ending = sorted(key for key in keys if key.endswith("." + name))
    if len(ending) > 1:
        written = " or ".join(key.replace(".", "__") + "=…" for key in ending)
        raise ConfigurationError(f"{keyword}=… in {_ORIGIN} may mean {' or '.join(ending)}. Write {written}.")
    return ending[0] if ending else name


def _result(api: Api, run_id: str, done: Progress) -> FitResult:
    with tempfile.TemporaryDirectory(prefix="sparkdl-bench-") as folder:
        path = Path(folder) / "weights.f32"
        layout = api.weights(run_id, str(path))
        weights = saved.split(np.fromfile(path, dtype="<f4").astype(np.float32, copy=False), layout)
    result = FitResult(Path(str(done.results)), api.model_spec(run_id), weights)
    api.forget(run_id)
    return result
