"""A comparison of ways to train one net on one set, for as long as somebody has said: what `try` and `compare()` share.

Nothing is measured here that a comparison file could not ask for: a plan is made, and the loop of all comparisons runs
its cells, trial by trial of all ways in turn, until the time is over.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparkdl_bench import preflight
from sparkdl_bench.comparison import check, loop, store
from sparkdl_bench.comparison.cells import Cell, cells_of, check_without_jvm
from sparkdl_bench.comparison.execute import ProcessExecutor, run_toml
from sparkdl_bench.comparison.plan import Plan, Variant
from sparkdl_bench.comparison.store import ComparisonFolder
from sparkdl_bench.config import RunFile
from sparkdl_bench.errors import ConfigurationError, RunFailedError
from sparkdl_bench.files import replace_text
from sparkdl_bench.nearest import listed
from sparkdl_bench.peers import default_directory
from sparkdl_bench.peers._process import run_to_end
from sparkdl_bench.results import RunResults

MOST_TRIALS = 10
_MEMORY_MIB = 2048
_PILOT_STEPS = 200
_PILOT_S = 600.0
# Of the time of all trials that training should take; the rest is starting and ending.
_TRAINING_SHARE = 0.5
_TRIALS_HOPED_FOR = 4
_MOST_EPOCHS = 50

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Effort:
    """How long to measure: for so many minutes, or so many trials of each way. `epochs` of None: as many as fit."""

    minutes: float | None = None
    trials: int | None = None
    epochs: int | None = None

    def __post_init__(self) -> None:
        is_number = isinstance(self.minutes, (int, float)) and not isinstance(self.minutes, bool)
        if self.minutes is not None and not (is_number and 0 < self.minutes < float("inf")):
            raise ConfigurationError(f"minutes = {self.minutes!r} is not valid; it is a number above 0, such as 10.")
        for name, value in (("trials", self.trials), ("epochs", self.epochs)):
            if value is not None and not (_is_whole(value) and value >= 1):
                raise ConfigurationError(f"{name} = {value!r} is not valid; it is a whole number, at least 1.")

    @property
    def seconds(self) -> float | None:
        return None if self.minutes is None else self.minutes * 60


def ways(workers: Sequence[int], master: str | None = None) -> tuple[Variant, ...]:
    """One process with all cores of this host, and so many workers that share them; or, with a master of a cluster,
    workers there.

    Args:
        master: of a cluster; or `local[N]`, for N cores of this host.
    """
    numbers = list(workers) if isinstance(workers, Iterable) and not isinstance(workers, str) else []
    if not numbers or any(not _is_whole(each) or each < 1 for each in numbers) or len(set(numbers)) < len(numbers):
        raise ConfigurationError(
            f"workers = {workers!r} is not valid; it is a list of different whole numbers of at least 1, such as "
            "[1, 2]."
        )
    cores = cores_of(master)
    if preflight.local_cores(master or "") and cores < max(numbers):
        raise ConfigurationError(
            f"The master is {master}, and {max(numbers)} workers need a core each. Name local[{max(numbers)}] or more, "
            "or leave the master out for all cores of this host."
        )
    return tuple(_way(number, cores, master) for number in numbers)


def cores_of(master: str | None) -> int:
    """The cores of this host for the ways that run on it: those that a local master names, or all.

    Raises:
        ConfigurationError: the master is none by its form, or is a local one that means something else.
    """
    here = len(os.sched_getaffinity(0))
    if master is None:
        return here
    preflight.check_master(master, reach=False)
    if master.startswith("local-cluster"):
        raise ConfigurationError(
            f"The master is {master}, and a comparison gives each number of workers a local-cluster of its own, of one "
            "executor for each worker. Name local[N] to let all ways share N cores of this host, or a cluster's "
            "master: spark://HOST:7077, yarn."
        )
    cores = preflight.local_cores(master) or here
    if cores > here:
        raise ConfigurationError(
            f"The master is {master}, and this process may use {here} core{'s' if here > 1 else ''} of this host, so "
            f"{cores} would be shared. Name local[{here}], or leave the master out."
        )
    return cores


def oversubscribed(workers: Sequence[int], master: str | None) -> str:
    """A sentence that names the ways with more workers than this host has cores; empty where there are none."""
    if master is not None and not master.startswith("local"):
        return ""
    cores = cores_of(master)
    more = [each for each in workers if each > cores]
    if not more:
        return ""
    counted = f"{cores} core{'s' if cores != 1 else ''}"
    return f"{listed([f'{each} workers' for each in more])} share {counted} of this host: that is not more cores."


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _way(workers: int, cores: int, master: str | None) -> Variant:
    if workers == 1:
        settings = {"workers": "1", "spark.master": f"local[{cores}]", "spark.task.cpus": str(cores)}
        return Variant("one process", "", settings)
    if master is not None and not master.startswith("local"):
        return Variant(f"{workers} workers", "", {"workers": str(workers), "spark.master": master})
    each = max(1, cores // workers)
    local = {
        "spark.master": f"local-cluster[{workers},{each},{_MEMORY_MIB}]",
        "spark.executor.memory": f"{_MEMORY_MIB}m",
        "spark.task.cpus": str(each),
    }
    return Variant(f"{workers} workers", "", {"workers": str(workers), **local})


def sensible_workers(cores: int) -> list[int]:
    """One process, two workers, and four where there are cores for them."""
    return [1, 2, 4] if cores >= 4 else [1, 2]


def measure(
    name: str,
    title: str,
    run: RunFile,
    ways: tuple[Variant, ...],
    effort: Effort,
    results: Path,
    tell: Tell,
    *,
    goes_on: bool = False,
) -> ComparisonFolder:
    """Tries the run once, decides how many epochs fit, and trains every way in turn until the time is over.

    Args:
        run: what all ways train, without workers and master.
        goes_on: whether to continue what an earlier call of the same name has left.

    Raises:
        ConfigurationError: the run is wrong, or its data.
        RunFailedError: no trial could be finished.
    """
    start = time.monotonic()
    if len(ways) < 2:
        raise ConfigurationError("There is one way only, so there is nothing to compare. Give two numbers of workers.")
    pilot = _pilot(name, run, ways, effort, results, tell, goes_on)
    chosen = RunFile(run.spark, {**run.settings, "epochs": str(pilot.epochs)})
    plan = Plan(
        name=name,
        title=title,
        base=chosen,
        variants=ways,
        matrix={},
        trials=effort.trials or MOST_TRIALS,
        warmup_steps=min(100, max(0, pilot.steps_per_epoch * pilot.epochs // 4)),
        seed_per_trial=True,
        timeout_s=max(900.0, 2 * (effort.seconds or 0.0)),
    )
    cells = in_rounds(plan, cells_of(plan))
    folder = store.resume(results, plan) if goes_on else None
    if folder is None:
        folder = store.create(results, plan, cells)
    until = None if effort.seconds is None else start + effort.seconds
    with folder.locked():
        executor = ProcessExecutor(plan, folder, default_directory())
        executor.stop_leftovers()
        with loop.shown(sys.stderr, len(cells)) as display:
            epochs = f"{pilot.epochs} epoch{'s' if pilot.epochs != 1 else ''}"
            display.tell(f"{len(ways)} ways, {epochs} each, into {folder.path}")
            loop.run_cells(cells, folder, executor, display, until=until)
    _refuse_failure(folder)
    return folder


def _refuse_failure(folder: ComparisonFolder) -> None:
    records = folder.records()
    if not any(record["status"] == "success" for record in records):
        reason = records[0]["error"] if records else "The time was over before one had begun; give more minutes."
        raise RunFailedError(f"No trial could be finished. {reason}")


def in_rounds(plan: Plan, cells: Sequence[Cell]) -> list[Cell]:
    """The first trial of every way, then the second …, each round in a random order: wherever the time ends, all ways
    have been measured alike."""
    chance = random.Random(plan.seed)  # noqa: S311 (an order that can be repeated)
    rounds: dict[int, list[Cell]] = {}
    for cell in cells:
        rounds.setdefault(cell.trial, []).append(cell)
    for members in rounds.values():
        chance.shuffle(members)
    return [cell for trial in sorted(rounds) for cell in rounds[trial]]


@dataclass(frozen=True)
class _Pilot:
    """What one short run has shown."""

    epochs: int
    steps_per_epoch: int


def _pilot(
    name: str, run: RunFile, ways: tuple[Variant, ...], effort: Effort, results: Path, tell: Tell, goes_on: bool
) -> _Pilot:
    """Trains a few steps by the first way: finds faults, decodes the data for all, measures how long an epoch is."""
    kept = results / f".{name}.pilot.json"
    if goes_on and kept.is_file():
        return _Pilot(**json.loads(kept.read_text(encoding="utf-8")))
    plan = Plan(name, name, RunFile(run.spark, {**run.settings, "epochs": "1"}), ways, {}, trials=1)
    cells = cells_of(plan)
    check_without_jvm(cells)
    check.check_cells(cells, check.missing(cells, default_directory()))
    tell("Looking at the data and the net: a short run")
    place = results / f".{name}.pilot"
    settings = {"max_steps": str(_PILOT_STEPS), "evaluate_every": "0", "resources.hertz": "0", "results": str(place)}
    first = cells[0].run
    conf = place / "run.toml"
    replace_text(conf, run_toml({**first.settings, **settings}, first.spark))
    begun = time.monotonic()
    run_to_end("the short run", [sys.executable, "-m", "sparkdl_bench", "run", str(conf)], _PILOT_S)
    took = time.monotonic() - begun
    made = max(place.glob("*/summary.json"), key=lambda file: file.stat().st_mtime).parent
    pilot = _sized(RunResults(made), took, len(ways), effort)
    replace_text(kept, json.dumps(pilot.__dict__) + "\n")
    return pilot


def _sized(found: RunResults, took_s: float, count: int, effort: Effort) -> _Pilot:
    """So many epochs that a few trials of every way fit into the time."""
    summary: Mapping[str, object] = found.summary
    final = found.summary["final"]
    ms = float(final.get("ms_per_step_median") or 1.0)
    rows = int(found.run.get("data", {}).get("train_rows") or found.run.get("train_rows") or 0)
    batch = int(str(summary.get("batch") or 128))
    steps = max(1, -(-rows // batch)) if rows else _PILOT_STEPS
    if effort.epochs is not None:
        return _Pilot(effort.epochs, steps)
    fixed_s = max(1.0, took_s - _PILOT_STEPS * ms / 1e3)
    each_s = (effort.seconds or 600.0) / (count * _TRIALS_HOPED_FOR)
    train_s = max(each_s - 1.5 * fixed_s, each_s * _TRAINING_SHARE / 2, 1.0)
    return _Pilot(max(1, min(_MOST_EPOCHS, int(train_s / (steps * ms / 1e3)))), steps)
