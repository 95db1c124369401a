"""`make soak`: executors killed at random steps, and memory over many steps."""

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
from sparkdl_bench.bench.victim import CHECKPOINT_EVERY, Victim, Weights, same
from sparkdl_bench.errors import SparkDLError

NAME = "soak"
# Later kills might come too late for a run that is ahead of the undisturbed one.
_LATEST = 0.9


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
        steps: after which an executor was to be killed.
        kills: executors really killed.
        identical: it ended with the undisturbed run's weights, bit for bit.
        error: its words, where it failed.
    """

    steps: list[int]
    kills: int
    identical: bool
    error: str
    seconds: float

    @property
    def held(self) -> bool:
        return self.identical and self.kills == len(self.steps)


@click.command(NAME)
@click.option("--runs", type=click.IntRange(0), default=20, show_default=True, help="Runs with one kill each.")
@click.option("--kills", type=click.IntRange(0), default=5, show_default=True, help="Kills of the last run.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the steps.")
@click.option("--memory/--no-memory", "with_memory", default=True, help="Memory between steps 500 and 5,000 as well.")
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True, help="Result files.")
@click.pass_context
def command(context: click.Context, runs: int, kills: int, seed: int, with_memory: bool, results: Path) -> None:
    """Executors killed with SIGKILL at random steps; then resident memory over many steps."""
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
    if sum(each.held for each in outcomes) < 0.95 * len(outcomes):
        raise click.ClickException(
            "Fewer than 19 of 20 runs were killed as planned and ended with the undisturbed weights."
        )


def campaign(plan: SoakPlan, file: store.ResultFile) -> list[KilledRun]:
    chance = random.Random(plan.seed)  # noqa: S311 (no secrets)
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="sparkdl-bench-soak-") as name:
        undisturbed = Victim(Path(name) / "undisturbed", {"epochs": plan.epochs}, plan.timeout_s)
        expected = undisturbed.finish()
        final = undisturbed.summary()["final"]
        for number in range(plan.runs + (1 if plan.kills else 0)):
            kills = 1 if number < plan.runs else plan.kills
            steps = sorted(chance.randrange(round(_LATEST * final["steps"])) for _ in range(kills))
            step_s = final["ms_per_step_median"] / 1000
            victim = Victim(Path(name) / str(number), {"epochs": plan.epochs}, plan.timeout_s)
            outcome = killed_run(victim, steps, step_s, chance, expected)
            click.echo(f"run {number + 1}: {outcome}")
            outcomes.append(outcome)
            file.set("outcomes", [asdict(each) for each in outcomes])
    return outcomes


def killed_run(victim: Victim, steps: list[int], step_s: float, chance: random.Random, expected: Weights) -> KilledRun:
    """A run in which one executor is killed after each of `steps`, as near as its checkpoints tell.

    Args:
        step_s: what a step takes, seconds.
    """
    start = time.monotonic()
    killed = 0
    try:
        victim.wait_for_executors(2)
        for step in steps:
            past = step % CHECKPOINT_EVERY
            victim.wait_for_step(step - past)
            time.sleep(past * step_s)
            killed += victim.kill_executor(chance.randrange(2))
        identical, error = same(victim.finish(), expected), ""
    except SparkDLError as problem:
        identical, error = False, str(problem)
    finally:
        victim.stop()
    return KilledRun(steps, killed, identical, error, time.monotonic() - start)


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
