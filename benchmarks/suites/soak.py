"""`make soak`: executors killed at random steps, and memory over many steps."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.table import Table

from sparkdl_bench.bench import store
from sparkdl_bench.bench.killable_run import CHECKPOINT_EVERY, KillableRun, RunHungError, Weights, same
from sparkdl_bench.bench.suite import RESULTS
from sparkdl_bench.console import default_console
from sparkdl_bench.errors import RunFailedError, SparkDLError
from suites import memory

NAME = "soak"
# So many runs are killed as planned and end with the undisturbed weights; each of the others fails and says why.
HELD_SHARE = 0.95
MEMORY = (
    memory.plan_of("mlp", "block-manager", (500, 5_000)),
    memory.plan_of("mlp", "block-stream", (1_000, 10_000)),
    memory.plan_of("resnet-18", "block-stream", (200, 2_000)),
)
_MEMORY_TIMEOUT_S = 3600.0
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
        hung: it was stopped because it took longer than it may.
    """

    steps: list[int]
    kills: int
    identical: bool
    error: str
    seconds: float
    hung: bool = False

    @property
    def held(self) -> bool:
        return self.identical and self.kills == len(self.steps)

    @property
    def fault(self) -> str:
        """What may never happen, not in one run: it hung, or ended well with other weights. Empty otherwise."""
        if self.hung:
            return f"A run whose executors were killed after steps {self.steps} hung. {self.error}"
        if not self.identical and not self.error:
            return (
                f"A run whose executors were killed after steps {self.steps} ended without an error and with other "
                "weights than the undisturbed run: a sum was wrong, or a step was lost or made twice."
            )
        return ""


@click.command(NAME)
@click.option("--runs", type=click.IntRange(0), default=20, show_default=True, help="Runs with one kill each.")
@click.option("--kills", type=click.IntRange(0), default=5, show_default=True, help="Kills of the last run.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the steps.")
@click.option(
    "--memory/--no-memory", "with_memory", default=True, help="Resident memory over thousands of steps as well."
)
@click.option(
    "--resume",
    is_flag=True,
    help="Continue the kills of the newest file of the same plan, commit and machine; memory is measured anew.",
)
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True, help="Result files.")
def command(runs: int, kills: int, seed: int, with_memory: bool, resume: bool, results: Path) -> None:
    """Executors killed with SIGKILL at random steps; then resident memory over many steps."""
    plan = SoakPlan(runs=runs, kills=kills, seed=seed)
    resumed = store.resume(results, NAME, asdict(plan)) if resume else None
    file = resumed or store.create(results, NAME, asdict(plan))
    outcomes = campaign(plan, file)
    show(outcomes)
    click.echo(f"All outcomes: {file.path}")
    faults = [missed(outcomes)]
    if with_memory:
        faults += [memory.exceeded(each, memory.measure(each, "", results, _MEMORY_TIMEOUT_S)) for each in MEMORY]
    if any(faults):
        raise RunFailedError(" ".join(fault for fault in faults if fault))


def missed(outcomes: Sequence[KilledRun]) -> str:
    """A sentence where too few runs held; empty where enough did."""
    held = sum(each.held for each in outcomes)
    if held >= HELD_SHARE * len(outcomes):
        return ""
    errors = [each.error for each in outcomes if each.error]
    return (
        f"{held} of {len(outcomes)} runs were killed as planned and ended with the undisturbed weights; at least 19 of "
        f"20 must. {'The first that failed says: ' + errors[0] if errors else 'The others ended before their kill.'}"
    )


def campaign(plan: SoakPlan, file: store.ResultFile) -> list[KilledRun]:
    """All runs of the plan, each outcome kept as soon as it is there; those that the file holds are not made again.

    Raises:
        RunFailedError: a run hung, or ended well with other weights; those after it are not begun.
    """
    outcomes = [KilledRun(**each) for each in file.content.get("outcomes", [])]
    for outcome in outcomes:
        _check(outcome, file)
    numbers = range(len(outcomes), plan.runs + (1 if plan.kills else 0))
    if not numbers:
        return outcomes
    with tempfile.TemporaryDirectory(prefix="sparkdl-bench-soak-") as name:
        undisturbed = KillableRun(Path(name) / "undisturbed", {"epochs": plan.epochs}, plan.timeout_s)
        expected = undisturbed.finish()
        final = undisturbed.summary()["final"]
        for number in numbers:
            # Each run's own, so that a resumed campaign is the same as one that was not interrupted.
            chance = random.Random(f"{plan.seed}/{number}")  # noqa: S311 (no secrets)
            kills = 1 if number < plan.runs else plan.kills
            steps = sorted(chance.randrange(round(_LATEST * final["steps"])) for _ in range(kills))
            step_s = final["ms_per_step_median"] / 1000
            run = KillableRun(Path(name) / str(number), {"epochs": plan.epochs}, plan.timeout_s)
            outcome = killed_run(run, steps, step_s, chance, expected)
            click.echo(f"run {number + 1}: {outcome}")
            outcomes.append(outcome)
            file.set("outcomes", [asdict(each) for each in outcomes])
            _check(outcome, file)
    return outcomes


def _check(outcome: KilledRun, file: store.ResultFile) -> None:
    if outcome.fault:
        raise RunFailedError(f"{outcome.fault} All outcomes: {file.path}")


def killed_run(
    run: KillableRun, steps: list[int], step_s: float, chance: random.Random, expected: Weights
) -> KilledRun:
    """A run in which one executor is killed after each of `steps`, as near as its checkpoints tell.

    Args:
        step_s: what a step takes, seconds.
    """
    start = time.monotonic()
    killed, hung = 0, False
    try:
        run.wait_for_executors(2)
        for step in steps:
            past = step % CHECKPOINT_EVERY
            run.wait_for_step(step - past)
            time.sleep(past * step_s)
            killed += run.kill_executor(chance.randrange(2))
        identical, error = same(run.finish(), expected), ""
    except SparkDLError as problem:
        identical, error, hung = False, str(problem), isinstance(problem, RunHungError)
    finally:
        run.stop()
    return KilledRun(steps, killed, identical, error, time.monotonic() - start, hung)


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
