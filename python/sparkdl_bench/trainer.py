"""Training from Python, in a Spark session of the user's own."""

from __future__ import annotations

import html
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from sparkdl_bench import catalogue, frames, plot, progress, redaction, saved
from sparkdl_bench._jvm import Api
from sparkdl_bench.config import as_text, flatten
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.nearest import cut
from sparkdl_bench.prediction import Model
from sparkdl_bench.progress import Progress
from sparkdl_bench.results import RunResults, measures
from sparkdl_bench.runner import follow, start
from sparkdl_bench.session import check_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Data: TypeAlias = "str | Path | Mapping[str, Any]"
_ORIGIN = "the call of Trainer"
_DEFAULTS = {"workers": 2, "batch": 128, "epochs": 5}
_SOURCE_OF = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".libsvm": "libsvm", ".svm": "libsvm"}


class Trainer:
    """A run, described by keywords: `Trainer(model="mlp", data="digits", workers=2, learning_rate=0.1).fit(spark)`.

    Args:
        model: name of a model family (`mlp`, `lenet`, …), or a dict: `{"name": "mlp", "hidden": [100, 50]}`.
        data: one of

            - `digits`, `synthetic` or another data source by name;
            - the path of a folder of IDX files (local, or of any Hadoop file system: `hdfs://…`);
            - a dict of the `data` keys: `{"source": "csv", "path": …, "label": "class"}`;
            - a DataFrame, with the `label` column's name as a further keyword; or, to test on rows of their own,
              `{"table": frame, "test_table": another, "label": "class"}`. Without a name the label is the column
              `label`. Its classes are those that the column holds, words or whole numbers from 0 on, unless `classes`
              or `label_names` says otherwise. Its rows are decoded once for the run (docs/reference/data.md), into the
              folder that `FitResult.decoded_dir` names; it is removed when the session ends. A DataFrame alone is
              standardised unless `normalize` says otherwise.
        workers: number of ranks, each one Spark task; or a range, `"2..8"`: as many as there are slots while it trains
            (docs/how-to/elastic.md).
        batch: rows per step over all workers, any number ≥ workers.
        epochs: passes over the training rows.
        settings: any other key of a run (`sparkdl-bench list keys` shows all):

            - by its name: `keep_best="accuracy"`, `seed=7`;
            - by its last part where only one key ends so: `learning_rate=0.1` is `optimizer.learning_rate`;
            - with two underscores for a dot: `engine__blas="openblas"` is `engine.blas`;
            - by group: `optimizer={"name": "sgd", "momentum": 0.9}`, or `optimizer="sgd"` for its name alone.

    Lists, numbers, booleans and paths become text; None leaves a key at its default.

    Raises:
        ConfigurationError: a name or a value is none that there is. What goes together, and with the session and the
            data, `fit` finds.
    """

    def __init__(
        self,
        model: str | Mapping[str, Any] = "mlp",
        data: str | Path | DataFrame | Mapping[str, Any] = "digits",
        *,
        workers: int | str = 2,
        batch: int = 128,
        epochs: int = 5,
        **settings: Any,
    ) -> None:
        own = {"workers": workers, "batch": batch, "epochs": epochs}
        self._data = data
        self._keywords = {"model": model, **_without_defaults(own, settings), **settings}
        self._check()

    def __repr__(self) -> str:
        model, *others = ((name, value) for name, value in self._keywords.items() if value is not None)
        words = [f"{name}={_shown(name, value)}" for name, value in (model, ("data", self._data), *others)]
        return f"Trainer({', '.join(words)})"

    def _check(self) -> None:
        """Names and values, by the catalogue of the jar; where there is none, the JVM tells in `fit`."""
        known = catalogue.load()
        if known is None:
            return
        for keyword, value in self._keywords.items():
            if value is not None and not isinstance(value, Mapping):
                _refuse_ambiguous(keyword, known)
        sources = [str(each["name"]) for each in known.variants["data"]]
        given = self.settings(list(known.keys), sources, _without_frames(self._data))
        found: dict[str, str] = {}
        for written, text in given.items():
            key, value = catalogue.canonical(written, text)
            if found.setdefault(key, value) != value:
                raise ConfigurationError(
                    f"The key '{key}' is set twice in {_ORIGIN}: to '{found[key]}', and by '{written}' to '{value}'. "
                    "Set it once."
                )
        catalogue.check(found, from_file=False)

    def settings(self, keys: Sequence[str], sources: Sequence[str], data: Data | None = None) -> dict[str, str]:
        """The run's keys as text.

        Args:
            keys: every key that there is.
            sources: every data source that there is.
            data: in place of the Trainer's own, where that holds DataFrames.

        Raises:
            ConfigurationError: a keyword and `data` say two things of one key, or a value is none that a key can have.
        """
        chosen: Any = self._data if data is None else data
        model = self._keywords["model"]
        if not isinstance(model, (str, Mapping)):
            raise ConfigurationError(_not_a_model(model))
        words, rows = keywords_to_settings(self._keywords, keys), data_to_settings(chosen, sources)
        for key, text in rows.items():
            if words.get(key, text) != text:
                raise ConfigurationError(
                    f"The key '{key}' is set twice in {_ORIGIN}: to {text!r} by data, and to {words[key]!r} by a "
                    "keyword of its own. Set it once."
                )
        return {**words, **rows}

    def fit(
        self, spark: SparkSession | None = None, on_progress: Callable[[Progress], None] | None = None
    ) -> FitResult:
        """Trains, and returns when the run has ended. With matplotlib installed, its results folder holds `plot.png`.

        Args:
            spark: a classic session with our jar, as `sparkdl_bench.configure` makes it; without one the session that
                is active in this thread.
            on_progress: called about ten times a second, in place of the display that notebooks and terminals get.

        Raises:
            ConfigurationError: session, settings or data are not fit for the run; no Spark job was started, unless only
                a rank could tell.
            RunFailedError: the run failed; DivergedError where its loss is NaN or infinite.
        """
        api = check_session(_active_session() if spark is None else spark)
        keys = [str(key["name"]) for key in api.all_keys()]
        sources = [str(source["name"]) for source in api.variants("data")]
        with frames.named(self._data) as data:
            settings = frames.labelled(self.settings(keys, sources, data), self._data)
            settings = frames.standardised(frames.classed(settings, self._data), self._data)
            with _display_decoding() as show_decoding:
                run_id = start(api, settings, show_decoding)
        if transport := api.transport_line(run_id):
            _say(transport)
        with _display(on_progress) as show:
            done = follow(api, run_id, show)
        result = _result(api, run_id, done)
        if result.warning:
            print(f"sparkdl-bench: {result.warning}", file=sys.stderr)
        try:
            plot.draw_where_possible(RunResults(result.results_dir))
        except (ConfigurationError, OSError) as error:  # the weights count, whatever becomes of a picture
            print(f"sparkdl-bench: The picture of the run was not drawn: {error}", file=sys.stderr)
        return result


def _active_session() -> SparkSession | None:
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _say(line: str) -> None:
    """Where somebody sees it: a notebook, a terminal."""
    if progress.in_notebook() or sys.stderr.isatty():
        print(line, file=sys.stderr)


@contextmanager
def _display(chosen: Callable[[Progress], None] | None) -> Iterator[Callable[[Progress], None]]:
    """What the user chose; else a display where there is somebody to see it."""
    if chosen:
        yield chosen
    elif progress.in_notebook() or sys.stderr.isatty():
        with progress.shown(sys.stderr) as show:
            yield show
    else:
        yield lambda _: None


@contextmanager
def _display_decoding() -> Iterator[Callable[[Mapping[str, Any]], None]]:
    if progress.in_notebook() or sys.stderr.isatty():
        with progress.decoding(sys.stderr) as show:
            yield show
    else:
        yield lambda _: None


@dataclass(frozen=True, repr=False)
class FitResult:
    """A finished run.

    Attributes:
        warning: where the results are because their folder could not be written; empty where all is well.
    """

    results_dir: Path
    specification: dict[str, Any]
    _weights: saved.Weights
    _best: saved.Weights | None = None
    warning: str = ""
    _input: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {value}" if name != "transport" else value for name, value in self._facts())
        return f"FitResult({facts})\n  {self.results_dir}"

    def _repr_html_(self) -> str:
        rows = [*self._facts(), ("results", str(self.results_dir))]
        cells = "".join(
            f'<tr><th scope="row" style="text-align:left">{html.escape(name)}</th>'
            f'<td style="text-align:left">{html.escape(value)}</td></tr>'
            for name, value in rows
        )
        return f"<table>{cells}</table>"

    def _facts(self) -> list[tuple[str, str]]:
        """What one wants to know first; less where the results were not kept."""
        try:
            summary = self.summary
        except ConfigurationError:
            return [("results", "not kept")]
        final = summary.get("final", {})
        seconds = final.get("seconds_total")
        facts = [
            ("status", "" if summary.get("status") == "success" else str(summary.get("status"))),
            *((name, value) for name, value in measures(final) if value != "–"),
            ("seconds", "" if seconds is None else f"{seconds:.1f}"),
            ("transport", str(summary.get("variant", {}).get("transport", ""))),
            ("workers", str(summary.get("workers", ""))),
        ]
        return [(name, value) for name, value in facts if value]

    @property
    def summary(self) -> dict[str, Any]:
        """What `summary.json` says: `final` accuracy, losses and times, `phases_ms`, `bytes` by channel, …"""
        return RunResults(self.results_dir).summary

    @property
    def decoded_dir(self) -> str:
        """The folder of the decoded rows, for a run that must see the same: `data={…, "decoded_dir": …}`; or "".

        Raises:
            ConfigurationError: the results folder's `run.json`, which names it, is not there or is damaged.
        """
        configuration = RunResults(self.results_dir).run.get("configuration")
        if not isinstance(configuration, dict):
            raise ConfigurationError(
                f"'{self.results_dir / 'run.json'}' has no configuration, which names the folder of the decoded rows. "
                'Train again, or name the folder yourself: data={…, "decoded_dir": …}.'
            )
        return str(configuration.get("data.decoded_dir", ""))

    @property
    def history(self) -> list[dict[str, Any]]:
        """One record an epoch: `epoch`, `seconds` (its length), `train_loss`, `test_loss`, `test_accuracy`.

        Of a regression `test_mae`, `test_rmse` and `test_r2` in place of the accuracy, which is None.
        Else also precision, recall and F1: `test_f1_macro`, the mean over classes or labels, and so on; of two
        classes `test_f1`, `test_precision` and `test_recall` of class 1 and `test_auc`; of rows with several labels
        `test_f1_micro`, … of all labels at once.
        """
        return RunResults(self.results_dir).history

    def weights(self, which: str = "last") -> saved.Weights:
        """The trained parameters by name, fp32: `fc1.weight` [out, in], `fc1.bias` [out], …

        Args:
            which: `last`, after the last step; or `best`, of the best evaluation, where the run had `keep_best`.
        """
        return {name: array.copy() for name, array in self._of(which).items()}

    def save(self, path: str | Path, which: str = "last") -> None:
        """Writes the model to a folder; `sparkdl_bench.load` reads it. `which` is as in `weights`."""
        saved.save(Path(path), self.specification, self._of(which), self._input)

    def model(self, which: str = "last") -> Model:
        """What predicts on new rows: `fitted.model().transform(frame)`. `which` is as in `weights`."""
        return Model(saved.SavedModel(self.specification, self._of(which), self._input))

    def _of(self, which: str) -> saved.Weights:
        if which not in ("last", "best"):
            raise ConfigurationError(f"which is {which!r}; valid are 'last' and 'best'.")
        if which == "last":
            return self._weights
        if self._best is None:
            raise ConfigurationError(
                "This run did not keep its best weights. Train with keep_best='accuracy' (the highest test accuracy) "
                "or keep_best='loss' (the lowest test loss); which='last' gives those after the last step."
            )
        return self._best

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


def data_to_settings(data: Data, sources: Sequence[str]) -> dict[str, str]:
    """The `data` argument as keys of a run; see `Trainer`."""
    if foreign := frames.of_another_library(data):
        raise ConfigurationError(f"data is {foreign} Name the label's column with label=….")
    if isinstance(data, Mapping):
        source = {"source": "table"} if "table" in data and "source" not in data else {}
        return flatten({**source, **data}, _ORIGIN, "data.")
    if not isinstance(data, (str, Path)):
        raise ConfigurationError(
            f"data is a {type(data).__name__}, and must be a data source's name, a path, a dict, or a DataFrame of "
            "this Spark session."
        )
    if isinstance(data, str) and data in sources:
        return {"data.source": data}
    kind = _SOURCE_OF.get(Path(data).suffix.lower())
    if kind in sources:
        raise ConfigurationError(
            f"data={str(data)!r} is a file, and a path alone is a folder of IDX files. Write "
            f'data={{"source": "{kind}", "path": {str(data)!r}, "label": …}}; docs/reference/data.md has all keys.'
        )
    if isinstance(data, Path) or "/" in data or "\\" in data or _is_folder(data):
        return {"data.source": "idx", "data.path": str(data)}
    raise ConfigurationError(
        f"data={data!r} is neither a data source nor a folder. Data sources: {', '.join(sources)}; a folder of IDX "
        "files that lies in the working folder is written './name'."
    )


def _refuse_ambiguous(keyword: str, known: catalogue.Catalogue) -> None:
    """`steps`, which ends one key and is another library's word for a second."""
    meant = known.aliases.get(keyword, ())
    if len(meant) > 1:
        written = " or ".join(f"{key.replace('.', '__')}=…" for key in meant)
        raise ConfigurationError(f"{keyword}=… in {_ORIGIN} may mean {' or '.join(meant)}. Write {written}.")


def _without_defaults(own: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of Trainer's own, without a default whose key somebody sets by another word: `batch_size=64`."""
    known = catalogue.load()
    meant = {known.aliases.get(name, (name,))[0] for name in settings} if known else set()
    return {name: value for name, value in own.items() if name not in meant or value != _DEFAULTS[name]}


def _without_frames(data: Any) -> Any:
    """The data with a word in place of each DataFrame, whose name only `fit` makes."""
    if frames.is_frame(data):
        return {"source": "table", "table": "a DataFrame"}
    if isinstance(data, Mapping):
        return {key: "a DataFrame" if frames.is_frame(value) else value for key, value in data.items()}
    return data


def _shown(name: str, value: Any) -> str:
    """A value in a line that somebody reads, without the secrets in it."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {_shown(str(key), item)}' for key, item in value.items())}}}"
    if frames.is_frame(value):
        return f"DataFrame of {len(value.columns)} columns"
    return "'…'" if redaction.is_secret(name) else cut(redaction.redacted_text(repr(value)))


def _not_a_model(model: object) -> str:
    kind = f"{type(model).__module__}.{type(model).__name__}"
    own = (
        " A module of PyTorch's own classes trains on a DataFrame with SparkDLClassifier(model=…) or SparkDLRegressor, "
        "any loop of your own with sparkdl_bench.launch."
        if kind.split(".")[0] != "builtins"
        else ""
    )
    return (
        f"model is of type {kind}, and must be the name of a model family or a dict of its keys: "
        f'model="mlp", or model={{"name": "mlp", "hidden": [100, 50]}}.{own} '
        "`sparkdl-bench list model` shows the families."
    )


def _is_folder(name: str) -> bool:
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):  # longer than a name may be, or with characters that none has
        return False


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
        best = None
        if api.best_weights(run_id, str(path)):
            best = saved.split(np.fromfile(path, dtype="<f4").astype(np.float32, copy=False), layout)
    result = FitResult(
        Path(str(done.results)),
        api.model_spec(run_id),
        weights,
        best,
        api.warning(run_id),
        api.model_input(run_id),
    )
    api.forget(run_id)
    return result
