"""Runs on a sharded set that are killed after a random step and go on: how often was each row of each epoch visited?"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from sparkdl_bench.bench import store, visits
from sparkdl_bench.bench.killable_run import KillableRun
from sparkdl_bench.bench.suite import results_option
from sparkdl_bench.console import default_console
from sparkdl_bench.errors import RunFailedError, SparkDLError

NAME = "kills"
SET = visits.CountedSet(width=1024, classes=15, most_batch=16)
EPOCHS = 4
STEPS = EPOCHS * SET.steps_per_epoch
EVERY = 50  # steps, of checkpoints
# Later kills might come after the end of a run.
_LATEST = 0.7
# About, where a kill is to come between two checkpoints.
_STEP_S = 0.001
_OTHER_WORKERS = (1, 3)


@dataclass(frozen=True)
class KillsPlan:
    """Half of the runs lose an executor, and Spark goes on; half are killed whole, and another run goes on.

    Attributes:
        seed: of the steps, of which executor is killed, and of the numbers of workers.
    """

    runs: int = 20
    seed: int = 0
    rows: int = SET.rows
    epochs: int = EPOCHS
    steps: int = STEPS
    checkpoint_every: int = EVERY


@dataclass(frozen=True)
class KilledRun:
    """What became of one run.

    Attributes:
        step: after which it was to be killed.
        workers: that began it, and that ended it.
        killed: it was killed before its end.
        visits: of a row, the least and the most, by epoch; none where it failed.
        error: its words, where it failed.
    """

    step: int
    workers: tuple[int, int]
    killed: bool
    visits: list[tuple[int, int]]
    error: str
    seconds: float

    @property
    def held(self) -> bool:
        return self.killed and len(self.visits) == EPOCHS and all(each == (1, 1) for each in self.visits)


class Trainings:
    """Runs on one small set, which is decoded once."""

    def __init__(self, folder: Path, timeout_s: float) -> None:
        self._folder, self._timeout_s = folder, timeout_s
        keys = {
            **SET.settings(EPOCHS),
            **SET.write_libsvm(folder / "set"),
            "data.placement": "sharded",
            "data.shuffle_buffer": SET.shuffle_buffer(SET.rows),
            "data.cache_dir": str(folder / "decoded"),
        }
        self._settings: dict[str, Any] = {key: value for key, value in keys.items() if "." not in key}
        for table in ("data", "schedule", "optimizer", "model"):
            prefix = f"{table}."
            self._settings[table] = {
                key.removeprefix(prefix): value for key, value in keys.items() if key.startswith(prefix)
            }
        optimizer = self._settings.pop("optimizer")
        self._settings |= {"learning_rate": optimizer["learning_rate"], "momentum": 0.0}

    def start(self, name: str, workers: int = 2, resume: Path | None = None) -> KillableRun:
        """Starts a run; one that goes on from `resume` keeps its checkpoints beside."""
        folder = self._folder / name
        more: dict[str, Any] = {"resume": resume.as_uri()} if resume else {}
        checkpoint = {"dir": (folder / "checkpoints").as_uri(), "every": EVERY}
        master = f"local-cluster[{workers},1,1024]"
        settings = {**self._settings, "workers": workers, "master": master, "checkpoint": checkpoint, **more}
        return KillableRun(folder, settings, self._timeout_s)

    def visits(self, run: KillableRun) -> Any:
        """Waits for the run's end; how often each row was visited, as (epoch, row)."""
        (layer,) = (each for each in run.finish().values() if each.ndim == 2)
        return SET.visits(layer, EPOCHS)


@click.command(NAME)
@click.option("--runs", type=click.IntRange(1), default=20, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the steps.")
@results_option
@click.option("--timeout", "timeout_s", type=click.FloatRange(1), default=300.0, show_default=True, help="Of a run, s.")
def command(runs: int, seed: int, results: Path, timeout_s: float) -> None:
    """Sharded runs that are killed at a random step and go on: each row of each epoch is visited once."""
    plan = KillsPlan(runs, seed)
    file = store.create(results, NAME, asdict(plan))
    outcomes: list[KilledRun] = []
    with tempfile.TemporaryDirectory(prefix="sparkdl-bench-kills-") as name:
        trainings = Trainings(Path(name), timeout_s)
        for number in range(plan.runs):
            # Each run's own, so that one can be made again by itself.
            chance = random.Random(f"{plan.seed}/{number}")  # noqa: S311 (no secrets)
            outcome, _ = killed_run(trainings, f"run-{number}", chance, whole=number % 2 == 0)
            outcomes.append(outcome)
            click.echo(f"run {number + 1}: {outcome}")
            file.set("outcomes", [asdict(each) for each in outcomes])
    show(outcomes)
    click.echo(f"All outcomes: {file.path}")
    if fault := missed(outcomes):
        raise RunFailedError(fault)


def killed_run(trainings: Trainings, name: str, chance: random.Random, whole: bool) -> tuple[KilledRun, KillableRun]:
    """One run that is killed after a random step, as near as its checkpoints tell; with the run that ended it.

    Args:
        whole: all its processes are killed, and a run with another number of workers goes on; else one executor is.
    """
    began = time.monotonic()
    step = chance.randrange(EVERY, round(_LATEST * STEPS))
    workers = chance.choice(_OTHER_WORKERS) if whole else 2
    run = trainings.start(name)
    started, killed, error = [run], False, ""
    least_and_most: list[tuple[int, int]] = []
    try:
        run.wait_for_checkpoint(step - step % EVERY)
        time.sleep(step % EVERY * _STEP_S)
        if whole:
            killed = run.process.poll() is None
            run.stop()
            run = trainings.start(f"{name}-resumed", workers, resume=run.checkpoints)
            started.append(run)
        else:
            killed = run.kill_executor(chance.randrange(2))
        visited = trainings.visits(run)
        least_and_most = [(int(np.min(each)), int(np.max(each))) for each in visited]
    except SparkDLError as problem:
        error = str(problem)
    finally:
        for each in started:
            each.stop()
    return KilledRun(step, (2, workers), killed, least_and_most, error, time.monotonic() - began), run


def missed(outcomes: Sequence[KilledRun]) -> str:
    """A sentence where a run did not hold; empty where all did."""
    others = [each for each in outcomes if not each.held]
    if not others:
        return ""
    return (
        f"{len(others)} of {len(outcomes)} runs were not killed and gone on with so that each row of each epoch was "
        f"visited once; the first: {others[0]}."
    )


def show(outcomes: Sequence[KilledRun]) -> None:
    table = Table(title="Sharded runs that were killed")
    for heading in ("runs", "killed", "each row once an epoch", "failed", "longest"):
        table.add_column(heading, justify="right")
    table.add_row(
        str(len(outcomes)),
        str(sum(each.killed for each in outcomes)),
        str(sum(each.held for each in outcomes)),
        str(sum(bool(each.error) for each in outcomes)),
        f"{max((each.seconds for each in outcomes), default=0.0):.0f} s",
    )
    default_console().print(table)
