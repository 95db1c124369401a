"""The in-band ladder, rung by rung, with the phases of a step; and what a step costs when there is nothing to train."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass

import click
from rich.table import Table

from sparkdl_bench.bench.contestant import OursContestant
from sparkdl_bench.bench.store import ResultFile
from sparkdl_bench.bench.suite import Options, options, run_suite
from sparkdl_bench.bench.trials import Comparison
from sparkdl_bench.console import default_console
from sparkdl_bench.peers import TrainCase

NAME = "ladder"
_BASE = {"topology": "sliced", "codec": "fp32", "engine.blas": "mkl"}
_SHUFFLE = {**_BASE, "transport": "shuffle"}
_STREAM = {**_BASE, "transport": "block-stream"}
JOB_RUNGS = {
    "block-manager": {**_BASE, "transport": "block-manager"},
    "tree": {**_SHUFFLE, "topology": "tree"},
    "shuffle-two": {**_SHUFFLE, "shuffle.exchanges": "two"},
    "shuffle-one": {**_SHUFFLE, "shuffle.exchanges": "one"},
}
STAGE_RUNGS = {
    "block-stream": {**_STREAM, "host_local": "off"},
    "block-stream-local": {**_STREAM, "host_local": "on"},
}
COMPARISONS = [Comparison("the rung beside the first", rung, "block-manager", 1.0) for rung in [*JOB_RUNGS][1:]] + [
    Comparison("the rung beside the first", rung, "block-manager", 0.2) for rung in STAGE_RUNGS
]
EMPTY_TARGET_MS = 0.5


@dataclass(frozen=True)
class LadderPlan:
    """What is measured: the 784-1024-10 net at batch 128 on 2 × 1 core, and a net of a few weights."""

    job_warmup: int = 200
    job_steps: int = 200
    step_warmup: int = 2000
    step_steps: int = 1000

    def groups(self, shared: Options) -> list[list[OursContestant]]:
        path = shared.data_path
        jobs = TrainCase(workers=2, warmup_steps=self.job_warmup, steps=self.job_steps, data_path=path)
        stage = TrainCase(workers=2, warmup_steps=self.step_warmup, steps=self.step_steps, data_path=path)
        rungs = [OursContestant(name, jobs, settings) for name, settings in JOB_RUNGS.items()]
        rungs += [OursContestant(name, stage, settings) for name, settings in STAGE_RUNGS.items()]
        return [rungs, [OursContestant(_empty(name), _nothing(stage), each) for name, each in STAGE_RUNGS.items()]]


def _nothing(like: TrainCase) -> TrainCase:
    """A net of three weights per layer, two rows per step: what is left is the cost of a step itself."""
    return TrainCase(
        batch=2,
        hidden=(1,),
        features=1,
        classes=2,
        workers=2,
        warmup_steps=like.warmup_steps * 2,
        steps=like.steps * 2,
        rows=1000,
    )


def _empty(name: str) -> str:
    return f"empty-{name}"


@click.command(NAME)
@click.option(
    "--job-warmup", type=click.IntRange(0), default=200, show_default=True, help="Steps, Spark jobs per step."
)
@click.option(
    "--job-steps", type=click.IntRange(20), default=200, show_default=True, help="Steps, Spark jobs per step."
)
@click.option("--step-warmup", type=click.IntRange(0), default=2000, show_default=True, help="Steps of the others.")
@click.option("--step-steps", type=click.IntRange(3), default=1000, show_default=True, help="Steps of the others.")
@options
def command(shared: Options, job_warmup: int, job_steps: int, step_warmup: int, step_steps: int) -> None:
    """Every rung of the in-band ladder with the phases of its step, and the cost of an empty step."""
    plan = LadderPlan(job_warmup, job_steps, step_warmup, step_steps)
    groups = plan.groups(shared)
    file = run_suite(NAME, asdict(plan), groups, COMPARISONS, shared)
    show_phases(file, [each.name for group in groups for each in group])
    for name in STAGE_RUNGS:
        median_ms = _median_ms(file, _empty(name))
        met = "met" if median_ms <= EMPTY_TARGET_MS else "missed"
        click.echo(f"An empty step, {name}: {median_ms:.3f} ms, target ≤ {EMPTY_TARGET_MS} ms {met}.")


def show_phases(file: ResultFile, names: list[str]) -> None:
    """Milliseconds per step and, by phase, the mean over ranks, steps (warm-up as well) and trials."""
    shown = Table(
        title="Phases of a step, ms", caption="phases: mean over all steps with the warm-up; step: median after"
    )
    facts = {name: [trial.facts["phases_ms"] for trial in file.trials(name)] for name in names}
    phases = list(facts[names[0]][0])
    for heading in ("rung", "step", *phases):
        shown.add_column(heading, justify="left" if heading == "rung" else "right")
    for name in names:
        means = [statistics.fmean(float(each.get(phase, 0.0)) for each in facts[name]) for phase in phases]
        shown.add_row(name, f"{_median_ms(file, name):.2f}", *(f"{mean:.2f}" for mean in means))
    default_console().print(shown)


def _median_ms(file: ResultFile, name: str) -> float:
    return statistics.median(statistics.median(trial.samples_ms) for trial in file.trials(name))
