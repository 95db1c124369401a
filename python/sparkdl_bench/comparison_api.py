"""`sparkdl_bench.compare(data=…)`: whether a cluster pays off, for somebody's own data and net, in one call."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkdl_bench import catalogue, frames, preflight
from sparkdl_bench.comparison import look, nets, quick
from sparkdl_bench.comparison.plan import QUICK
from sparkdl_bench.config import RunFile, as_text, flatten
from sparkdl_bench.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RESULTS = Path("results") / "compare"
_ORIGIN = "the call of compare"
# Packages of the extra `report`.
_NEEDED_BY_REPORTS = ("scipy", "statsmodels", "vl_convert")


@dataclass(frozen=True)
class ComparisonResult:
    """A finished comparison.

    Attributes:
        folder: of its records; `sparkdl-bench report FOLDER` makes the page of it, too.
        answer: what to use, and why, in two sentences.
        sureness: how sure that is, in a line; empty where the sentences say it.
    """

    folder: Path
    answer: str
    sureness: str = ""
    _told: str = field(default="", repr=False)

    def report(self, path: str | Path = "report.html") -> Path:
        """Writes the page; needs the extra `report`."""
        return write_report(self.folder, Path(path))

    def __repr__(self) -> str:
        return f"ComparisonResult: {self.answer} {self.sureness}".rstrip() + f"\nfolder {self.folder}"

    def _repr_html_(self) -> str:
        return (
            f"<p><b>{escape(self.answer)}</b></p><p>{escape(self.sureness)}</p>"
            f"<p><code>{escape(str(self.folder))}</code></p>"
        )


def compare(
    data: str | Path | DataFrame | Mapping[str, Any],
    *,
    model: str | Mapping[str, Any] | None = None,
    label: str | None = None,
    workers: Sequence[int] = (1, 2),
    minutes: float | None = None,
    trials: int | None = None,
    epochs: int | None = None,
    spark: SparkSession | None = None,
    master: str | None = None,
    results: str | Path = RESULTS,
    resume: bool = False,
    **settings: Any,
) -> ComparisonResult:
    """Trains a net on data with each number of workers, in turn and several times, and says what pays off.

    Args:
        data: a DataFrame; the path of a file or folder of this host; `digits`; or a dict of the `data` keys.
        model: a model family's name, or a dict (`{"name": "mlp", "hidden": [100, 50]}`); None: one that fits the data.
        label: the label's column; None: the one with a usual name.
        workers: the numbers to compare. 1 is one process with all cores of this host; others share these cores, or run
            on `master` where that is a cluster's.
        minutes: how long to measure, each way at least once (10 where `trials` is not given either).
        trials: measured runs of each way, in place of minutes.
        epochs: of each run; None: as many as fit.
        spark: the session, whose master is taken where it is a cluster's. Runs have sessions of their own.
        master: in place of the session's; `local[N]` for N cores of this host.
        results: folder of the comparisons. A DataFrame is written there once, as Parquet.
        resume: continue what an interrupted call with the same arguments has left.
        settings: other keys of a run, as for `Trainer`: `batch=64`, `learning_rate=0.05`.

    Raises:
        ConfigurationError: the data, the net or the settings are wrong.
        RunFailedError: no trial could be finished.
    """
    effort = quick.Effort(10.0 if minutes is None and trials is None else minutes, trials, epochs)
    where = _master(master, spark)
    ways = quick.ways(workers, where)
    if where is not None:
        preflight.check_master(where)
    _refuse_without_extra()
    root = Path(results).resolve()
    found = _look(data, label, root)
    chosen = _settings(model, settings)
    fitting = nets.fitting(found)
    if any(key.startswith("model.") for key in chosen):
        fitting = {key: value for key, value in fitting.items() if not key.startswith("model.")}
    given = {**fitting, **found.settings, **chosen}
    base = dict(catalogue.canonical(key, value) for key, value in given.items())
    catalogue.check(base, from_file=False)
    name = _name(found, base, workers)
    sys.stderr.write(f"{found.told}. Net: {nets.described(base)}.\n")
    if shared := quick.oversubscribed(workers, where):
        sys.stderr.write(f"{shared}\n")
    folder = quick.measure(
        name,
        "What pays off",
        RunFile({}, base),
        ways,
        effort,
        root,
        lambda line: print(line, file=sys.stderr),
        goes_on=resume,
    )
    return result(folder.path, found.told)


def _master(named: str | None, spark: SparkSession | None) -> str | None:
    """What is named; else a session's where that is a cluster's: of this host the comparison takes all cores."""
    if named is not None or spark is None:
        return named
    master = str(spark.sparkContext.master)
    return None if master.startswith("local") else master


def result(folder: Path, told: str = "") -> ComparisonResult:
    """What a comparison's records say."""
    try:
        from sparkdl_bench.report.analysis import analyse
        from sparkdl_bench.report.answer import answer
        from sparkdl_bench.report.load import load
    except ModuleNotFoundError as error:
        raise _extra(error) from error
    said = answer(analyse(load([folder]).comparisons[0]))
    return ComparisonResult(folder, " ".join(said.sentences), said.sureness, told)


def write_report(folder: Path, path: Path) -> Path:
    try:
        from sparkdl_bench.report import html
        from sparkdl_bench.report.load import load
    except ModuleNotFoundError as error:
        raise _extra(error) from error
    from sparkdl_bench.files import replace_text

    replace_text(path, html.page(load([folder])))
    return path


def _refuse_without_extra() -> None:
    """At once, not after the minutes of measuring."""
    missing = [name for name in _NEEDED_BY_REPORTS if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(_lacks(missing[0]))


def _extra(error: ModuleNotFoundError) -> Exception:
    if (error.name or "").startswith("sparkdl_bench"):
        return error
    return ConfigurationError(_lacks(str(error.name)))


def _lacks(package: str) -> str:
    return (
        f"Answers and pages need the package '{package}', which is not installed here. The extra 'report' brings all "
        "that they need: pip install 'sparkdl-bench[report]'."
    )


def _look(data: Any, label: str | None, root: Path) -> look.Look:
    if frames.is_frame(data):
        return _frame(data, label, root)
    if isinstance(data, Mapping):
        given = flatten(data, _ORIGIN, "data.")
        shape = tuple(int(size) for size in given.get("data.shape", "1").split(",") if size.strip().isdigit())
        return look.Look(given, shape, int(given.get("data.classes", "10")), 0, f"Data: {given}")
    if isinstance(data, (str, Path)):
        return look.look(str(data), label)
    if foreign := frames.of_another_library(data):
        raise ConfigurationError(f"data is {foreign} Name the label's column with label=….")
    raise ConfigurationError(
        f"data is a {type(data).__name__}, and must be a DataFrame of Spark's, a path, a dict of the data keys, or "
        "'digits'."
    )


def _frame(frame: DataFrame, label: str | None, root: Path) -> look.Look:
    """The DataFrame written once, for the runs, whose sessions do not know it."""
    from sparkdl_bench.comparison import look_table

    found = look_table.of_frame(frame, label)
    root.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="data-", dir=root))
    frame.write.mode("overwrite").parquet((folder / "rows.parquet").as_uri())
    settings = {"data.source": "parquet", "data.path": str(folder / "rows.parquet"), **found["settings"]}
    return look.Look(settings, tuple(found["shape"]), found["classes"], found["rows"], f"DataFrame: {found['told']}")


def _settings(model: str | Mapping[str, Any] | None, settings: Mapping[str, Any]) -> dict[str, str]:
    from sparkdl_bench.trainer import keywords_to_settings

    known = catalogue.load()
    given = {**settings, **({} if model is None else {"model": model})}
    if known is None:
        return {key: as_text(key, value, _ORIGIN) for key, value in given.items() if value is not None}
    plain = {}
    for keyword, value in given.items():
        name = keyword.replace("__", ".")
        plain[name if isinstance(value, Mapping) else known.key(name)] = value
    return keywords_to_settings(plain, list(known.keys))


def _name(found: look.Look, settings: Mapping[str, str], workers: Sequence[int]) -> str:
    """The same for the same arguments, so that an interrupted call can be continued."""
    asked = json.dumps([sorted(settings.items()), list(workers)])
    stem = Path(found.settings.get("data.path", found.settings.get("data.source", "data"))).stem
    slug = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:24] or "data"
    return f"{QUICK}{slug}-{hashlib.sha256(asked.encode()).hexdigest()[:6]}"
