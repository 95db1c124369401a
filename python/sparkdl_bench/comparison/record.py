"""What is kept of one cell: numbers from the run's own folder, and where the time of its whole process went."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkdl_bench import statistics
from sparkdl_bench.comparison import peer_run, resources
from sparkdl_bench.comparison.cells import Cell, global_batch
from sparkdl_bench.comparison.plan import Plan
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.peers import Sample
from sparkdl_bench.redaction import redacted, redacted_text
from sparkdl_bench.results import RunResults

# Phases of a step (docs/reference/metrics.md) by the layer that they belong to.
LAYER_OF_PHASE = {
    "data": "data",
    "compute": "compute",
    "encode": "synchronise",
    "send": "synchronise",
    "wait": "synchronise",
    "reduce": "synchronise",
    "decode": "synchronise",
    "update": "update",
    "scheduler": "Spark scheduling",
}
_OF_LISTENERS = {"task launch": "launch", "serialisation": "serialisation", "job submission": "submission"}
# A phase that makes up less of a step than this may grow as it likes.
_NOTABLE = 0.02
# With fewer steps at each end the mean of one phase says little.
_FEWEST_OF_A_THIRD = 10
# Which phases of a step are computing, which the exchange, which the update.
_KINDS = {
    "compute": ("data", "compute"),
    "communication": ("encode", "send", "wait", "reduce", "decode", "scheduler"),
    "update": ("update",),
}
_MOST_EPOCHS = 200
# All steps of a peer that does not say what they are made of.
UNCUT = "steps, not cut"
LAYERS = (
    "start",
    "cluster manager",
    "prepare",
    "data",
    "compute",
    "synchronise",
    "update",
    "task launch",
    "serialisation",
    "job submission",
    "Spark scheduling",
    "evaluation",
    "checkpoint",
    "idle",
    "finish",
    "stop",
    "other",
)


def finished_run(folder: Path) -> Path | None:
    """The run in a cell's folder that came to its good end, all files written; None where there is none."""
    for path in sorted(folder.glob("*/summary.json"), reverse=True):
        results = RunResults(path.parent)
        whole = (path.parent / "steps.json").is_file()
        if whole and results.summary.get("status") == "success":
            return path.parent
    return None


def of_run(
    plan: Plan, cell: Cell, folder: Path, begun_s: float | None, ended_s: float, *, is_fresh: bool = False
) -> dict[str, Any]:
    """The record of one of our own runs.

    Args:
        begun_s, ended_s: when its process began and ended, seconds since the epoch (the clock of the events); of a
            run's folder alone nobody knows the first (None).
        is_fresh: whether that process was this run's alone, so that a user waits from its beginning to its end.
    """
    results = RunResults(folder)
    summary, run = results.summary, results.run
    steps_ms = [float(step) for step in json.loads((folder / "steps.json").read_text(encoding="utf-8"))]
    times = _Times(results.events)
    history = _history(results.history, times)
    workers, threads = int(summary["workers"]), int(run.get("threads_per_worker", 1))
    final, batch = summary["final"], int(summary["batch"])
    rows, steps_an_epoch = _rows_of_steps(batch, run.get("data", {}), len(steps_ms))
    warmup = _warmup([Sample(ms) for ms in steps_ms], plan.warmup_steps)
    waits = Waits(times.start - begun_s, ended_s - begun_s) if is_fresh and begun_s is not None else None
    return {
        **_head(plan, cell, workers, threads, batch, int(summary.get("servers", 0))),
        "status": "success",
        "in_band": "peer" not in summary["variant"],
        "variant": summary["variant"],
        "metrics": metrics(plan, steps_ms, history, final["seconds_total"], rows, waits, warmup.left_out),
        **warmup.told,
        "history": history,
        "phases_ms": summary["phases_ms"],
        "phase_drift": phase_drift(folder, plan.warmup_steps, workers),
        "epoch_phases": epoch_phases(folder, steps_an_epoch, workers),
        "ranks": summary.get("ranks", []),
        "layers_s": _layers(summary, times, results.history, len(steps_ms), begun_s, ended_s),
        "bytes": summary["bytes"],
        "counts": summary.get("counts", {}),
        "resources": resources.of_run(folder),
        "steps_ms": [round(step, 4) for step in steps_ms],
        "facts": {
            "versions": run.get("versions", {}),
            "engine": run.get("engine", {}),
            "data": run.get("data", {}),
            "model": run.get("model", {}),
            "master": run.get("master", ""),
        },
    }


def of_peer(plan: Plan, cell: Cell, trained: peer_run.Trained, place: Path) -> dict[str, Any]:
    """The record of a peer's run; its facts hold its history, `place` what its processes used."""
    facts, seconds, stop_s, steps_ms = trained.facts, trained.seconds, trained.stop_s, trained.steps_ms
    settings = cell.run.settings
    workers, threads = cell.workers, int(facts["threads"])
    history = list(facts["history"])
    batch = int(facts.get("batch", global_batch(settings)))  # some have no batches but all rows
    samples = trained.measured.samples
    # As many rows warm up as elsewhere: of a peer that has all rows in each step, fewer steps.
    warmup = _warmup(samples, -(-plan.warmup_steps * min(batch, global_batch(settings)) // batch))
    rows = _means(_rows_of_steps(batch, facts, len(steps_ms))[0], samples)
    phases_ms = {name: float(mean) for name, mean in facts.get("phases_ms", {}).items()}
    before_s = seconds - float(facts["seconds_total"]) - stop_s
    layers = {
        "start": before_s,
        "prepare": float(facts["seconds_prepare"]),
        **(_of_phases(phases_ms, len(steps_ms)) if phases_ms else {UNCUT: sum(steps_ms) / 1e3}),
        "evaluation": float(facts["seconds_evaluation"]),
        "stop": stop_s,
    }
    layers["other"] = layers.get("other", 0.0) + seconds - sum(layers.values())
    return {
        **_head(plan, cell, workers, threads, batch),
        "status": "success",
        "in_band": False,
        "variant": {"peer": cell.peer},
        "metrics": metrics(
            plan,
            steps_ms,
            history,
            float(facts["seconds_total"]),
            rows,
            Waits(before_s, seconds),
            warmup.left_out,
        ),
        **warmup.told,
        "history": history,
        "phases_ms": phases_ms,
        "layers_s": {name: round(value, 4) for name, value in layers.items()},
        "bytes": {},
        "resources": resources.of_run(place),
        "steps_ms": [round(step, 4) for step in steps_ms],
        "facts": {
            **{name: value for name, value in facts.items() if name not in {"history", "phases_ms"}},
            "cores_in_use": peer_run.cores_in_use(place, facts, trained.begun_s),
        },
    }


# The status of a run that somebody ended before its end; of a run alone, as a comparison keeps none of such a cell.
CANCELLED = "cancelled"


def of_failure(plan: Plan, cell: Cell, error: str) -> dict[str, Any]:
    threads = int(cell.run.settings.get("engine.threads", "1") or 1)
    batch = global_batch(cell.run.settings)
    return {
        **_head(plan, cell, cell.workers, max(1, threads), batch),
        "status": "failed",
        "error": redacted_text(error),
    }


@dataclass(frozen=True)
class Waits:
    """What a user waits around a run's own clock.

    Attributes:
        before_s: from the command until the run's clock begins.
        whole_s: from the command until its process has ended.
    """

    before_s: float
    whole_s: float


def metrics(
    plan: Plan,
    steps_ms: Sequence[float],
    history: Sequence[Mapping[str, Any]],
    seconds_total: float,
    rows: float | Sequence[float],
    waits: Waits | None = None,
    left_out: int | None = None,
) -> dict[str, float | None]:
    """The numbers that comparisons are made of; None for what this run does not have.

    `ms_per_step` is the median after the warm-up, `seconds_to_accuracy` counts from the start of the run's own clock,
    evaluations included, to the end of the first one that reached the target, and `epochs_to_accuracy` are the epochs
    until then. `rows` are those of each step, one number where all have the same, 0 or none where nobody knows.
    `left_out` are the steps of the warm-up, the plan's where nobody says, and none of a run that has no others.
    `seconds_waited` and `seconds_waited_to_accuracy` count from the command, `seconds_before_clock` lie between it and
    the run's clock; without `waits`, as for cells that share an application, nobody knows.
    """
    first = plan.warmup_steps if left_out is None else left_out
    first = first if first < len(steps_ms) else 0
    measured = steps_ms[first:]
    trained = rows * len(measured) if isinstance(rows, int | float) else sum(rows[first:])
    accuracies = [record["accuracy"] for record in history if record["accuracy"] is not None]
    reached = [
        record
        for record in history
        if plan.target_accuracy is not None
        and record["accuracy"] is not None
        and record["accuracy"] >= plan.target_accuracy
    ]
    ms = statistics.median(measured) if measured else None
    to_accuracy = reached[0]["seconds"] if reached else None
    waited = None if waits is None or to_accuracy is None else round(waits.before_s + to_accuracy, 4)
    return {
        "seconds_to_accuracy": to_accuracy,
        "seconds_waited_to_accuracy": waited,
        "epochs_to_accuracy": reached[0]["epoch"] if reached else None,
        "seconds_total": seconds_total,
        "seconds_waited": round(waits.whole_s, 4) if waits else None,
        "seconds_before_clock": round(waits.before_s, 4) if waits else None,
        "test_accuracy": accuracies[-1] if accuracies else None,
        "best_accuracy": max(accuracies, default=None),
        **_errors(history),
        "ms_per_step": ms,
        "ms_per_step_p90": statistics.percentile(measured, 90) if measured else None,
        "rows_per_second": trained * 1e3 / sum(measured) if measured and trained else None,
        "drift": statistics.drift(measured) if measured else None,
    }


def _errors(history: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Of a regression the errors of the last evaluation; nothing otherwise."""
    last = next((record for record in reversed(history) if "rmse" in record), None)
    return {} if last is None else {f"test_{name}": last[name] for name in ("mae", "rmse", "r2")}


def phase_drift(folder: Path, warmup_steps: int, workers: int) -> dict[str, float]:
    """By phase the last third of the steps over the first, after the warm-up: means over the ranks that compute.

    Of phases that make up at least `_NOTABLE` of a step at one of the ends; nothing where the run kept no phases, or
    too few steps.
    """
    path = folder / "phases.json"
    if not path.is_file():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    every = int(content.get("every", 1))
    ends: dict[str, tuple[float, float]] = {}
    ranks = [rank["phases_ms"] for rank in content.get("ranks", []) if int(rank["rank"]) < workers]
    for name in dict.fromkeys(name for rank in ranks for name in rank):
        kept = [[float(value) for value in rank.get(name, [])][-(-warmup_steps // every) :] for rank in ranks]
        steps = [sum(values) / len(ranks) for values in zip(*(each for each in kept if each), strict=False)]
        third = len(steps) // 3
        if third >= _FEWEST_OF_A_THIRD:
            ends[name] = (statistics.mean(steps[:third]), statistics.mean(steps[-third:]))
    whole = [sum(end) for end in zip(*ends.values(), strict=True)]
    return {
        name: round(last / first, 4)
        for name, (first, last) in ends.items()
        if first > 0 and max(first / whole[0], last / whole[1]) >= _NOTABLE
    }


def epoch_phases(folder: Path, steps_per_epoch: int, workers: int) -> list[dict[str, float]]:
    """Of each of the first 200 epochs: `epoch`, and a step's mean milliseconds of `compute`, `communication`, `update`.

    Over the ranks that compute and the steps that were kept; nothing where the run kept no phases, or where it is not
    known how many steps an epoch has.
    """
    path = folder / "phases.json"
    if steps_per_epoch < 1 or not path.is_file():
        return []
    content = json.loads(path.read_text(encoding="utf-8"))
    every = int(content.get("every", 1))
    ranks = [rank["phases_ms"] for rank in content.get("ranks", []) if int(rank["rank"]) < workers]
    steps = min((len(values) for rank in ranks for values in rank.values()), default=0)
    by_epoch: dict[int, list[int]] = {}
    for step in range(steps):
        by_epoch.setdefault(step * every // steps_per_epoch + 1, []).append(step)

    def mean(kept: Sequence[int], names: Sequence[str]) -> float:
        spent = sum(float(rank[name][step]) for rank in ranks for name in names if name in rank for step in kept)
        return round(spent / len(ranks) / len(kept), 4)

    return [
        {"epoch": epoch, **{kind: mean(kept, names) for kind, names in _KINDS.items()}}
        for epoch, kept in list(by_epoch.items())[:_MOST_EPOCHS]
    ]


@dataclass(frozen=True)
class _Warmup:
    """How many steps count for no time a step, and, where that is not what was asked for, why."""

    left_out: int
    note: str = ""

    @property
    def told(self) -> dict[str, Any]:
        return {"warmup_left_out": self.left_out, **({"warmup_note": self.note} if self.note else {})}


def _warmup(samples: Sequence[Sample], asked: int) -> _Warmup:
    """Of steps that are told one by one those that were asked for, of means the whole ones that hold them."""
    left_out, several = 0, any(sample.steps > 1 for sample in samples)
    for sample in samples:
        if left_out >= asked:
            break
        left_out += sample.steps
    if left_out < sum(sample.steps for sample in samples) or not samples:
        return _Warmup(left_out)
    if several:
        what = "one mean" if len(samples) == 1 else f"{len(samples)} means"
        return _Warmup(0, f"its warm-up is in its times: it tells {what} of {left_out} steps, not each")
    steps = "its only step is" if left_out == 1 else f"all of its {left_out} steps are"
    return _Warmup(0, f"{steps} of the warm-up of {asked}, so its times are of a cold run")


def _rows_of_steps(batch: int, data: Mapping[str, Any], count: int) -> tuple[list[float], int]:
    """Rows of each of so many steps, and the steps of an epoch: its last has what is left; 0 where nobody knows."""
    rows = int(data.get("train_rows", 0))
    if rows <= 0 or batch <= 0:
        return [float(batch)] * count, 0
    steps = -(-rows // batch)
    return [float(min(batch, rows - step % steps * batch)) for step in range(count)], steps


def _means(rows: Sequence[float], samples: Sequence[Sample]) -> list[float]:
    """Where a peer tells a mean over several steps, their rows are as the mean has them."""
    found: list[float] = []
    for sample in samples:
        own = rows[len(found) : len(found) + sample.steps]
        found += [sum(own) / len(own)] * len(own)
    return found


def _head(plan: Plan, cell: Cell, workers: int, threads: int, batch: int, servers: int = 0) -> dict[str, Any]:
    return {
        "comparison": plan.name,
        "id": cell.id,
        "group": cell.group,
        "factors": dict(cell.factors),
        "trial": cell.trial,
        "warmup": cell.is_warmup,
        "workers": workers,
        "threads": threads,
        "cores": (workers + servers) * threads,
        "batch": batch,
        "settings": redacted(cell.run.settings),
        "spark": redacted(cell.run.spark),
    }


class _Times:
    """When things happened, seconds since the epoch, from a run's events."""

    def __init__(self, events: Sequence[Mapping[str, Any]]) -> None:
        self.start = self.stop = 0.0
        self.attempts = 0
        self.evaluations: dict[int, float] = {}
        self.epochs: dict[int, float] = {}
        for event in events:
            at, key, metadata = event["time_ms"] / 1e3, event["key"], event.get("metadata", {})
            epoch = metadata.get("epoch_num")
            if key == "run_start":
                # The clock starts before the data is touched, the event is written after that.
                self.start = metadata.get("clock_started_ms", event["time_ms"]) / 1e3
            elif key == "rank_groups":
                self.attempts += 1
            elif key == "run_stop":
                self.stop = at
            elif key in ("eval_accuracy", "eval_rmse"):
                self.evaluations[epoch] = at
            elif key == "epoch_stop":
                self.epochs[epoch] = at
        if not self.start or not self.stop:
            raise ConfigurationError("The run's events.jsonl lacks run_start or run_stop.")


def _history(history: Sequence[Mapping[str, Any]], times: _Times) -> list[dict[str, Any]]:
    """Epochs with the seconds from the run's start to the end of their evaluation."""
    return [
        {
            "epoch": record["epoch"],
            "seconds": round(times.evaluations.get(record["epoch"], times.epochs[record["epoch"]]) - times.start, 4),
            "train_loss": record["train_loss"],
            "test_loss": record["test_loss"],
            "accuracy": record["test_accuracy"],
            **{name: record[f"test_{name}"] for name in ("mae", "rmse", "r2") if f"test_{name}" in record},
        }
        for record in history
        if record["epoch"] in times.epochs
    ]


def _layers(
    summary: Mapping[str, Any],
    times: _Times,
    history: Sequence[Mapping[str, Any]],
    steps: int,
    begun_s: float | None,
    ended_s: float,
) -> dict[str, float]:
    """Seconds of the process's wall clock by layer; they add up to it, `other` being what no clock covers.

    Of a process whose begin nobody knows the wall clock is what is known of it: the cluster manager's part, and all
    from the run's clock's start on.
    """
    layers = {**dict.fromkeys(LAYERS, 0.0), **_of_phases(summary["phases_ms"], steps)}
    layers["evaluation"] = sum(float(epoch.get("seconds_evaluation", 0.0)) for epoch in history)
    layers["checkpoint"] = sum(float(epoch.get("seconds_checkpoint", 0.0)) for epoch in history)
    left = sum(float(epoch["seconds"]) for epoch in history) - sum(layers.values())
    # Of a run that lost executors the steps before the loss are not known; of one before these numbers, the evaluation.
    if times.attempts <= 1 and all("seconds_evaluation" in epoch for epoch in history):
        layers["idle"] = max(0.0, left)
    layers["cluster manager"] = _cluster_manager_s(summary, begun_s, times.start)
    layers["start"] = 0.0 if begun_s is None else times.start - begun_s - layers["cluster manager"]
    layers["prepare"] = _prepare_s(summary, times, history)
    layers["finish"] = times.stop - max(times.epochs.values())
    layers["stop"] = ended_s - times.stop
    wall_s = ended_s - times.start + layers["start"] + layers["cluster manager"]
    layers["other"] += wall_s - sum(layers.values())
    spark = summary.get("spark", {})
    before = spark.get("before_steps_s") or {}
    later = {key: seconds - before.get(key, 0.0) for key, seconds in spark.get("layers_s", {}).items()}
    _explain(layers, "prepare", before)
    _explain(layers, "Spark scheduling", later)
    return {name: round(value, 4) for name, value in layers.items()}


def _cluster_manager_s(summary: Mapping[str, Any], begun_s: float | None, run_start_s: float) -> float:
    """Of the time before the run's clock: from the Spark context's start until executors for all ranks had registered.

    Nothing of it where they were there before the process began, the driver runs the tasks, or an older run does not
    tell. Without a begin it counts for the first run of an application alone.
    """
    told = summary.get("spark", {}).get("start") or {}
    context_ms, executors_ms = told.get("context_started_ms"), told.get("executors_registered_ms")
    if context_ms is None or executors_ms is None or (begun_s is None and not told.get("first_run")):
        return 0.0
    context_s, executors_s = float(context_ms) / 1e3, float(executors_ms) / 1e3
    since_s = context_s if begun_s is None else max(context_s, begun_s)
    return max(0.0, min(executors_s, run_start_s) - since_s)


def _of_phases(phases_ms: Mapping[str, float], steps: int) -> dict[str, float]:
    """Seconds of all steps by layer, from the mean milliseconds of a step."""
    layers: dict[str, float] = {}
    for phase, milliseconds in phases_ms.items():
        layer = LAYER_OF_PHASE.get(phase, "other")
        layers[layer] = layers.get(layer, 0.0) + milliseconds * steps / 1e3
    return layers


def _prepare_s(summary: Mapping[str, Any], times: _Times, history: Sequence[Mapping[str, Any]]) -> float:
    """From the run's clock's start to the first step, as the run says, or, of an older one, by its first epoch."""
    told = summary["final"].get("seconds_prepare")
    if told is not None:
        return float(told)
    return max(0.0, min(times.epochs.values()) - float(history[0]["seconds"]) - times.start)


def _explain(layers: dict[str, float], whole: str, spark: Mapping[str, float]) -> None:
    """Takes from a layer what Spark's listeners have an explanation for; never more than there is.

    The listeners also saw the jobs of evaluations and after the last step, so their parts may exceed it a little.
    """
    parts = {name: float(spark.get(key, 0.0)) for name, key in _OF_LISTENERS.items()}
    share = min(1.0, layers[whole] / total) if (total := sum(parts.values())) > 0 else 0.0
    for name, seconds in parts.items():
        layers[name] += seconds * share
        layers[whole] -= seconds * share
