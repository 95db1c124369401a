"""`make soak`: executors killed at random moments, and memory over many steps."""

from __future__ import annotations

import random
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.table import Table

from sparkdl_bench.bench import store
from sparkdl_bench.bench.suite import RESULTS
from sparkdl_bench.bench.suites import memory
from sparkdl_bench.bench.table import default_console
from sparkdl_bench.bench.victim import Victim, Weights, same
from sparkdl_bench.errors import SparkDLError

NAME = "soak"


@dataclass(frozen=True)
class SoakPlan:
    """`runs` runs with one kill each, and one run with `kills` kills."""

    runs: int = 20
    kills: int = 5
    epochs: int = 800
    seed: int = 0
    timeout_s: float = 300.0


@dataclass(frozen=True)
class KilledRun:
    """What became of one run.

    Attributes:
        kills: executors really killed.
        identical: it ended with the undisturbed run's weights, bit for bit.
        error: its words, where it failed.
    """

    kills: int
    identical: bool
    error: str
    seconds: float


@click.command(NAME)
@click.option("--runs", type=click.IntRange(0), default=20, show_default=True, help="Runs with one kill each.")
@click.option("--kills", type=click.IntRange(0), default=5, show_default=True, help="Kills of the last run.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the moments.")
@click.option("--memory/--no-memory", "with_memory", default=True, help="Memory between steps 500 and 5,000 as well.")
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True, help="Result files.")
@click.pass_context
def command(context: click.Context, runs: int, kills: int, seed: int, with_memory: bool, results: Path) -> None:
    """Executors killed with SIGKILL at random moments; then resident memory over many steps."""
    plan = SoakPlan(runs=runs, kills=kills, seed=seed)
    file = store.create(results, NAME, asdict(plan))
    outcomes = list(campaign(plan, file))
    show(outcomes)
    click.echo(f"All outcomes: {file.path}")
    if with_memory:
        for transport in ("block-manager", "block-stream"):
            context.invoke(
                memory.command,
                transport=transport,
                first_step=500,
                last_step=5000,
                data_path=None,
                results=results,
                timeout_s=1800.0,
            )
    if sum(each.identical for each in outcomes) < 0.95 * len(outcomes):
        raise click.ClickException("Fewer than 19 of 20 runs ended with the undisturbed weights.")


def campaign(plan: SoakPlan, file: store.ResultFile) -> list[KilledRun]:
    moments = random.Random(plan.seed)  # noqa: S311 (no secrets)
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="sparkdl-bench-soak-") as name:
        start = time.monotonic()
        expected = Victim(Path(name) / "undisturbed", {"epochs": plan.epochs}, plan.timeout_s).finish()
        length_s = time.monotonic() - start
        for number in range(plan.runs + (1 if plan.kills else 0)):
            kills = 1 if number < plan.runs else plan.kills
            pauses = [moments.uniform(0, length_s if kills == 1 else length_s / 2) for _ in range(kills)]
            outcome = killed_run(Path(name) / str(number), plan, pauses, moments, expected)
            click.echo(f"run {number + 1}: {outcome}")
            outcomes.append(outcome)
            file.set("outcomes", [asdict(each) for each in outcomes])
    return outcomes


def killed_run(
    folder: Path, plan: SoakPlan, pauses: list[float], moments: random.Random, expected: Weights
) -> KilledRun:
    """One run in which an executor is killed after each of `pauses` seconds, counted from the executors' start."""
    start = time.monotonic()
    victim = Victim(folder, {"epochs": plan.epochs}, plan.timeout_s)
    killed = 0
    try:
        victim.wait_for_executors(2)
        for pause in pauses:
            time.sleep(pause)
            killed += victim.kill_executor(moments.randrange(2))
        identical, error = same(victim.finish(), expected), ""
    except SparkDLError as problem:
        identical, error = False, str(problem)
    finally:
        victim.stop()
    return KilledRun(killed, identical, error, time.monotonic() - start)


def show(outcomes: list[KilledRun]) -> None:
    table = Table(title="Runs whose executors were killed")
    for heading in ("runs", "kills", "same weights bit for bit", "failed", "longest"):
        table.add_column(heading, justify="right")
    longest = max((each.seconds for each in outcomes), default=0.0)
    table.add_row(
        str(len(outcomes)),
        str(sum(each.kills for each in outcomes)),
        str(sum(each.identical for each in outcomes)),
        str(sum(bool(each.error) for each in outcomes)),
        f"{longest:.0f} s",
    )
    default_console().print(table)
