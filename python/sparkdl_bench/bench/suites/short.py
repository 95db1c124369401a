"""`make bench`: the in-band baseline beside BigDL's, and our engine beside PyTorch. Under half an hour on two cores."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click

from sparkdl_bench import peers
from sparkdl_bench.bench import machine, store, table
from sparkdl_bench.bench.contestant import Contestant, EngineContestant, OursContestant, PeerContestant
from sparkdl_bench.bench.trials import Comparison, Outcome, busy_trials, compare, run_trials
from sparkdl_bench.peers import TrainCase

NAME = "short"
RESULTS = Path("benchmarks") / "results"


@dataclass(frozen=True)
class ShortPlan:
    """What is measured; kept in the result file, and a file is gone on with only where it is the same.

    Attributes:
        trials: of each contestant.
        job_warmup, job_steps: of the ways that start Spark jobs in each step.
        step_warmup, step_steps: of the steps without Spark.
        data: `mnist` or `synthetic`.
    """

    trials: int = 5
    job_warmup: int = 1000
    job_steps: int = 500
    step_warmup: int = 2000
    step_steps: int = 1000
    data: str = "synthetic"

    @property
    def comparisons(self) -> list[Comparison]:
        return [
            Comparison("MLP 784-1024-10, batch 128, 2 × 1 core, a step", "block-manager", "bigdl", 0.8),
            Comparison("engine alone, 1 thread, a step", "libtorch-1", "pytorch-1", 1.05),
            Comparison("engine alone, 2 threads, a step", "libtorch-2", "pytorch-2", 1.05),
        ]

    def groups(self, data_path: str, directory: Path) -> list[list[Contestant]]:
        spark = TrainCase(workers=2, warmup_steps=self.job_warmup, steps=self.job_steps, data_path=data_path)
        single = TrainCase(warmup_steps=self.step_warmup, steps=self.step_steps, data_path=data_path)
        double = replace(single, threads=2)
        ours = {"transport": "block-manager", "topology": "sliced", "codec": "fp32", "engine.blas": "mkl"}
        return [
            [OursContestant("block-manager", spark, ours), PeerContestant("bigdl", "bigdl", spark, directory)],
            [EngineContestant("libtorch-1", single), PeerContestant("pytorch-1", "pytorch", single, directory)],
            [EngineContestant("libtorch-2", double), PeerContestant("pytorch-2", "pytorch", double, directory)],
        ]


@click.command(NAME)
@click.option("--resume", is_flag=True, help="Go on with the newest file of the same plan, commit and machine.")
@click.option("--trials", type=click.IntRange(1), default=5, show_default=True, help="Trials of each contestant.")
@click.option("--job-warmup", type=click.IntRange(0), default=1000, show_default=True, help="Steps, Spark jobs a step.")
@click.option("--job-steps", type=click.IntRange(20), default=500, show_default=True, help="Steps, Spark jobs a step.")
@click.option("--step-warmup", type=click.IntRange(0), default=2000, show_default=True, help="Steps without Spark.")
@click.option("--step-steps", type=click.IntRange(3), default=1000, show_default=True, help="Steps without Spark.")
@click.option("--data", "data_path", help="Folder of MNIST's IDX files [default: $SPARKDL_DATA/mnist, else synthetic].")
@click.option(
    "--peers-dir", type=click.Path(path_type=Path), default=peers.default_directory, help="Peers' environments."
)
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True, help="Result files.")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(1), default=900.0, show_default=True, help="Of a trial, s."
)
def command(
    resume: bool,
    trials: int,
    job_warmup: int,
    job_steps: int,
    step_warmup: int,
    step_steps: int,
    data_path: str | None,
    peers_dir: Path,
    results: Path,
    timeout_s: float,
) -> None:
    """Ours (block-manager) beside BigDL, and our engine's step beside PyTorch's."""
    path = find_mnist(data_path)
    plan = ShortPlan(trials, job_warmup, job_steps, step_warmup, step_steps, "mnist" if path else "synthetic")
    file = (store.resume(results, NAME, asdict(plan)) if resume else None) or store.create(results, NAME, asdict(plan))
    warn_if_busy()
    start = time.monotonic()
    groups = plan.groups(path, peers_dir)
    run_trials(groups, trials, file, timeout_s, click.echo)
    outcomes = [compare(comparison, file) for comparison in plan.comparisons]
    file.set("outcomes", [{**asdict(outcome), "met": outcome.met} for outcome in outcomes])
    report(file, outcomes, [each.name for group in groups for each in group])
    click.echo(f"{(time.monotonic() - start) / 60:.1f} minutes.")


def report(file: store.ResultFile, outcomes: Sequence[Outcome], contestants: Sequence[str]) -> None:
    """The table, the trials that a busy machine spoilt, and where the samples are."""
    facts = file.content["machine"]
    where = f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB, commit {file.content['commit']}"
    table.show_outcomes(f"{where}, data {file.content['plan']['data']}", outcomes)
    busy = busy_trials(file, contestants)
    if busy:
        click.echo(f"The machine was busy before {len(busy)} trials: {', '.join(busy)}. Do not trust these numbers.")
    click.echo(f"All samples: {file.path}")


def find_mnist(given: str | None) -> str:
    """The folder of MNIST's files as an absolute path, or nothing for synthetic rows of its shape."""
    if given:
        return str(Path(given).resolve())
    base = os.environ.get("SPARKDL_DATA")
    folder = Path(base, "mnist").resolve() if base else None
    return str(folder) if folder and folder.is_dir() else ""


def warn_if_busy() -> None:
    load = machine.load()
    if not load.is_idle:
        click.echo(
            f"This machine is not idle: {load.busy:.0%} of its cores' time is in use, load average "
            f"{load.average_1min}. The numbers will be too high; stop what else runs and measure again.",
            err=True,
        )
