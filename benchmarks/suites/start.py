"""`python -m sparkdl_bench.bench start`: what a user waits for until a net has learnt, beside DDP and one PyTorch."""

from __future__ import annotations

from pathlib import Path

import click

from sparkdl_bench.bench import waiting
from sparkdl_bench.bench.contestant import Contestant
from sparkdl_bench.bench.suite import Options, options, run_suite
from sparkdl_bench.bench.trials import Comparison
from sparkdl_bench.comparison.cells import Cell, cells_of, check_without_jvm
from sparkdl_bench.comparison.plan import Plan, load_plan
from sparkdl_bench.errors import ConfigurationError

NAME = "start"
CONF = Path(__file__).with_name("start.toml")
# Names of CONF's variants.
EXECUTORS, ONE_JVM, DDP = "two executors", "two ranks in one JVM", "DDP over gloo"
PYTORCH, PYTORCH_2 = "PyTorch, 1 thread", "PyTorch, 2 threads"
# Trainings of a session before the one that is measured: none, or enough that it is as warm as a notebook's.
FIRST, THIRD = 0, 2
COMPARISONS = [
    Comparison("from the command, two executors", f"{EXECUTORS}, command", DDP, 1.5),
    Comparison("the same in one JVM", f"{ONE_JVM}, command", DDP, 1.5),
    Comparison("the same beside PyTorch", f"{ONE_JVM}, command", PYTORCH_2, None),
    Comparison("from fit, the session's third", f"{EXECUTORS}, third fit", DDP, 1.0),
    Comparison("the same beside PyTorch, 1 thread", f"{EXECUTORS}, third fit", PYTORCH, 1.3),
    Comparison("the same beside PyTorch, 2 threads", f"{EXECUTORS}, third fit", PYTORCH_2, 1.3),
    Comparison("from fit, the session's first", f"{EXECUTORS}, first fit", DDP, 1.0),
    Comparison("from fit, the third, in one JVM", f"{ONE_JVM}, third fit", DDP, 1.0),
]


def contestants(plan: Plan, peers_dir: Path) -> list[Contestant]:
    """Each of ours from the command and from `fit`, and each peer from its command."""
    found: list[Contestant] = []
    for cell in cells_of(plan):
        if cell.trial == 1:
            found += _of(cell, float(plan.target_accuracy or 0), peers_dir)
    return found


def _of(cell: Cell, target: float, peers_dir: Path) -> list[Contestant]:
    name, run = cell.group, cell.run
    if cell.peer:
        return [waiting.PeerCommand(name, cell.peer, run.settings, run.spark, target, peers_dir)]
    return [
        waiting.Command(f"{name}, command", run.settings, run.spark, target),
        waiting.Fit(f"{name}, first fit", run.settings, run.session, target, FIRST),
        waiting.Fit(f"{name}, third fit", run.settings, run.session, target, THIRD),
    ]


@click.command(NAME)
@options
def command(shared: Options) -> None:
    """Seconds to 95 % on MNIST, from the command and from fit, beside DDP and one PyTorch process."""
    if not shared.data_path:
        raise ConfigurationError(
            "The wait is for an accuracy on MNIST. Name its folder with --data, or the one that has it in its folder "
            "mnist in the environment variable SPARKDL_DATA."
        )
    plan = load_plan(CONF, (f"data.path={shared.data_path}",), shared.trials)
    check_without_jvm(cells_of(plan))
    group = contestants(plan, shared.peers_dir)
    what = {"target": plan.target_accuracy, "sample": "ms until an evaluation had the target"}
    run_suite(NAME, what, [group], COMPARISONS, shared)
