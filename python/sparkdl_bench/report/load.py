"""Reads what a report is made of: folders of comparisons or runs, JSON lines of `sparkdl-bench net`, kept records."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sparkdl_bench.comparison import record, store
from sparkdl_bench.comparison.cells import NOT_VARIED, Cell
from sparkdl_bench.comparison.plan import VARIANT, Plan, Variant
from sparkdl_bench.config import RunFile
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.nearest import near_file
from sparkdl_bench.report import kept
from sparkdl_bench.results import RunResults

_NET_KEYS = {"transport", "elements", "busbw_gbps", "median_ms", "workers"}
# What a run's group is told by already, and what makes no other training of it.
_TOLD = {"algorithm", "transport", "topology", "codec", "workers", "batch", "batch_per_worker", "engine.threads"}
OF_A_TRIAL = {
    "name",
    "seed",
    "results",
    "tensorboard.dir",
    "mlflow.uri",
    "mlflow.experiment",
    "resume",
    "checkpoint.dir",
}


@dataclass(frozen=True)
class Comparison:
    """One comparison's plan and finished cells.

    Attributes:
        content: as in plan.json: `plan`, `machine`, `commit`, `started`.
        asked: the target accuracy that the report was asked for in place of the plan's; None: the plan's.
    """

    content: Mapping[str, Any]
    records: Sequence[Mapping[str, Any]]
    asked: float | None = None

    @property
    def plan(self) -> Mapping[str, Any]:
        plan: Mapping[str, Any] = self.content["plan"]
        return plan

    @property
    def title(self) -> str:
        return str(self.plan["title"])

    @property
    def target(self) -> float | None:
        """The test accuracy that times are measured to, a share of the test rows; None: not asked."""
        return self.plan.get("target_accuracy") if self.asked is None else self.asked

    def with_target(self, accuracy: float) -> Comparison:
        """The same trials, asked when each reached another accuracy.

        Raises:
            ConfigurationError: they are regressions, which have none.
        """
        if any("test_rmse" in (record.get("metrics") or {}) for record in self.records):
            raise ConfigurationError(
                "A target accuracy was asked for (--target-accuracy), and these trials are regressions (loss.name), "
                "which have no accuracy. Leave it out: the report shows their test errors."
            )
        return replace(self, records=[_reaching(record, accuracy) for record in self.records], asked=accuracy)

    @property
    def configuration(self) -> dict[str, Any]:
        """Its plan and the facts of the machine, to be passed on: without where things lie on that machine."""
        return {
            **({} if self.asked is None else {"report": {"target_accuracy": self.asked}}),
            "plan": _without_paths(self.plan),
            "machine": _without_paths(self.content.get("machine", {})),
            "commit": self.content.get("commit", "unknown"),
            "started": self.content.get("started", "unknown"),
        }

    @property
    def kept(self) -> dict[str, Any]:
        """All of it, to be kept with a repository: without where things lie on that machine."""
        content = {name: value for name, value in self.content.items() if name != "mark"}
        return {"content": _without_paths(content), "asked": self.asked, "records": _without_paths(self.records)}


@dataclass
class Results:
    """All that was found."""

    comparisons: list[Comparison] = field(default_factory=list)
    net: list[dict[str, Any]] = field(default_factory=list)


def load(paths: Sequence[Path], target_accuracy: float | None = None) -> Results:
    """Reads every path: a comparison's folder, a run's folder, a folder of either, a file of `net --json`, or a kept
    report.

    Args:
        target_accuracy: a share of the test rows, in place of every plan's; when it was reached is read off histories.

    Raises:
        ConfigurationError: a path is none of these, nothing is finished yet, or the target is no such share.
    """
    if target_accuracy is not None and not 0 < target_accuracy <= 1:
        raise ConfigurationError(
            f"The target accuracy {target_accuracy} is not valid; it is a share of the test rows, above 0 and at most "
            "1. For 97 % give 0.97."
        )
    results = Results()
    runs: list[Path] = []
    for path in paths:
        _read(path, results, runs)
    if runs:
        results.comparisons.append(_of_runs(runs))
    if not results.net and not any(comparison.records for comparison in results.comparisons):
        raise ConfigurationError(
            f"{', '.join(repr(str(path)) for path in paths)}: no finished cell or run there. {_WHAT}"
        )
    if target_accuracy is not None:
        results.comparisons = [comparison.with_target(target_accuracy) for comparison in results.comparisons]
    return results


_WHAT = (
    "Give the folder that `sparkdl-bench compare` or `try` has named, run folders, files of `net --json`, or the "
    "folder of a report that is kept with its records."
)


def _read(path: Path, results: Results, runs: list[Path]) -> None:
    if path.name == kept.RECORDS or (path / kept.RECORDS).is_file():
        _kept(path if path.name == kept.RECORDS else path / kept.RECORDS, results)
    elif path.is_file():
        results.net += _net(path)
    elif (path / store.PLAN_FILE).is_file():
        folder = store.open_folder(path)
        results.comparisons.append(Comparison(folder.content, folder.records()))
    elif (path / "summary.json").is_file():
        runs.append(path)
    elif path.is_dir():
        inside = [each for each in sorted(path.iterdir()) if each.is_dir() or each.suffix == ".jsonl"]
        known = [
            each
            for each in inside
            if any((each / name).is_file() for name in (store.PLAN_FILE, "summary.json", kept.RECORDS))
            or each.is_file()
        ]
        if not known:
            raise ConfigurationError(f"'{path}' holds neither a comparison nor a run. {_WHAT}")
        for each in known:
            _read(each, results, runs)
    else:
        raise ConfigurationError(f"There is no file or folder '{path}'.{near_file(path)} {_WHAT}")


def _kept(path: Path, results: Results) -> None:
    found = kept.read(path)
    results.comparisons += [
        Comparison(each["content"], each["records"], each["asked"]) for each in found["comparisons"]
    ]
    results.net += found["net"]


def _net(path: Path) -> list[dict[str, Any]]:
    rows = []
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigurationError(f"'{path}' cannot be read: {error.strerror or error}. {_WHAT}") from error
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(f"Line {number} of '{path}' is not JSON: {error}. {_WHAT}") from error
        if not isinstance(row, dict) or not set(row) >= _NET_KEYS:
            raise ConfigurationError(
                f"Line {number} of '{path}' is no row of `sparkdl-bench net --json`; it needs "
                f"{', '.join(sorted(_NET_KEYS))}."
            )
        rows.append(row)
    return rows


def _of_runs(folders: Sequence[Path]) -> Comparison:
    """Single runs, side by side: those whose configurations are the same are trials of one group.

    Raises:
        ConfigurationError: a folder's files are damaged, or not all there.
    """
    try:
        return _side_by_side(folders)
    except (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError) as error:
        named = f"'{folders[0]}'" if len(folders) == 1 else f"One of {', '.join(repr(str(each)) for each in folders)}"
        raise ConfigurationError(
            f"{named} is no whole run's folder: its files do not say what runs write there ({error!r}). They were "
            "damaged, or changed by hand; leave the folder out, or run it again."
        ) from error


def _side_by_side(folders: Sequence[Path]) -> Comparison:
    described = [(folder, RunResults(folder)) for folder in folders]
    plan = Plan("runs", "Runs", RunFile(), (Variant(""),), {}, warmup_steps=0)
    varied = _varied([results.run for _, results in described])
    around = [_surroundings(results.run) for _, results in described]
    changing = [key for key in around[0] if len({each[key] for each in around} - {NOT_VARIED}) > 1]
    records: list[dict[str, Any]] = []
    trials: dict[str, int] = {}
    for (folder, results), surroundings in zip(described, around, strict=True):
        summary = results.summary
        factors = {
            **_factors(summary, results.run),
            **{key: _configured(results.run, key) for key in varied},
            **{key: surroundings[key] for key in changing},
        }
        name = json.dumps(factors)
        trials[name] = trials.get(name, 0) + 1
        settings = {key: str(value) for key, value in results.run.get("configuration", {}).items()}
        cell = Cell(factors, trials[name], RunFile({}, settings))
        times = results.events or [{"time_ms": 0}]  # a run that failed may have none
        begun, ended = times[0]["time_ms"] / 1e3, times[-1]["time_ms"] / 1e3
        if summary.get("status") == "success":
            made = record.of_run(plan, cell, folder, None, ended)
        else:
            made = record.of_failure(plan, cell, str(summary.get("error") or f"Its status is {summary.get('status')}."))
            if summary.get("status") == record.CANCELLED:
                made["status"] = record.CANCELLED
        records.append({**made, "schema": store.SCHEMA, "started": folder.name, "seconds": ended - begun, "load": {}})
    first = described[0][1].run
    host = first.get("host", {})
    machine = {"cpu": host.get("cpu"), "cores": host.get("cores"), "kernel": host.get("os")}
    content = {
        "plan": store.describe(plan),
        "commit": "several" if "commit" in changing else first.get("commit", "unknown"),
        "started": folders[0].name,
        "machine": {"cpu": "several machines"} if "machine" in changing else machine,
    }
    return Comparison(content, records)


def _surroundings(run: Mapping[str, Any]) -> dict[str, str]:
    """What trials of one group have in common besides their configuration: a run on another machine is none."""
    host = run.get("host", {})
    commit = "" if run.get("kind") == "peer" else str(run.get("commit", ""))  # a peer has a release of its own
    return {
        "machine": f"{host['cpu']}, {host.get('cores', '?')} cores" if host.get("cpu") else NOT_VARIED,
        "commit": commit[:12] if commit not in ("", "unknown") else NOT_VARIED,
        "Spark": str(run.get("versions", {}).get("spark", NOT_VARIED)),
    }


def _factors(summary: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, str]:
    if "variant" not in summary and summary.get("status") != "success":
        summary = {**_asked(run), **summary}  # of a run whose JVM was gone before it could write one
    chosen = summary["variant"]
    if run.get("kind") == "launch":
        # A function or script of the user's own: it has no batch that anybody knows, and no threads of ours.
        function = str(run.get("function", "launch"))
        return {VARIANT: f"{function} by launch, sync {chosen['transport']}", "workers": str(summary["workers"])}
    if run.get("kind") == "peer":
        return {VARIANT: str(run["peer"]) + (", tuned" if run.get("tuned") else ""), **_size(summary, run)}
    name = f"{chosen['transport']} {chosen['topology']} {chosen['codec']}"
    if chosen.get("algorithm", "sync-sgd") != "sync-sgd":
        name = f"{chosen['algorithm']} {name}"
    return {VARIANT: name, **_size(summary, run)}


def _asked(run: Mapping[str, Any]) -> dict[str, Any]:
    """What a summary says of the variant, as the run's configuration has it."""
    axes = ("algorithm", "transport", "topology", "codec")
    return {
        "variant": {axis: _configured(run, axis) for axis in axes},
        "workers": _configured(run, "workers"),
        "batch": _configured(run, "batch"),
    }


def _size(summary: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, str]:
    return {
        # A run whose number of workers may change is no trial of those with one number.
        "workers": str(summary.get("workers_range") or summary["workers"]),
        "batch": str(summary["batch"]),
        "engine.threads": str(run.get("threads_per_worker", 1)),
    }


def _varied(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys in which the runs' configurations differ, but for those that trials may differ in."""
    keys = sorted({key for run in runs for key in run.get("configuration", {})} - _TOLD - OF_A_TRIAL)
    return [key for key in keys if len({_configured(run, key) for run in runs}) > 1]


def _configured(run: Mapping[str, Any], key: str) -> str:
    return str(run.get("configuration", {}).get(key, NOT_VARIED))


def _reaching(record: Mapping[str, Any], accuracy: float) -> Mapping[str, Any]:
    """The record with the time and the epochs to this accuracy, by its own evaluations; a failed one has none."""
    if record["status"] != "success":
        return record
    reached = [each for each in record["history"] if each["accuracy"] is not None and each["accuracy"] >= accuracy]
    seconds = reached[0]["seconds"] if reached else None
    before_s = record["metrics"].get("seconds_before_clock")  # older records do not say
    to_target = {
        "seconds_to_accuracy": seconds,
        "seconds_waited_to_accuracy": None if seconds is None or before_s is None else before_s + seconds,
        "epochs_to_accuracy": reached[0]["epoch"] if reached else None,
    }
    return {**record, "metrics": {**record["metrics"], **to_target}}


# An absolute path of three parts or more, alone or within words; no part of a URL with a host.
_PATH = re.compile(r"(?:(?<=file://)|(?<![\w/…]))(?:/[^\s/:'\",]+){3,}/?")


def _without_paths(value: Any) -> Any:
    """Of absolute paths it keeps the last two parts."""
    if isinstance(value, Mapping):
        return {name: _without_paths(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_paths(each) for each in value]
    if isinstance(value, str):
        # A path alone may hold blanks.
        return _shortened(value) if value.startswith("/") and value.count("/") > 2 else _PATH.sub(_found, value)
    return value


def _found(match: re.Match[str]) -> str:
    return _shortened(match[0])


def _shortened(path: str) -> str:
    return "…/" + "/".join(path.rstrip("/").split("/")[-2:])
