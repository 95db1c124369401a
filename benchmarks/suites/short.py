"""`make bench`: the in-band baseline beside BigDL's, and our engine beside PyTorch. Under half an hour on two cores."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import click

from sparkdl_bench.bench.contestant import Contestant, EngineContestant, OursContestant, PeerContestant
from sparkdl_bench.bench.suite import Options, options, run_suite
from sparkdl_bench.bench.trials import Comparison
from sparkdl_bench.peers import TrainCase

NAME = "short"
COMPARISONS = [
    Comparison("MLP 784-1024-10, batch 128, 2 × 1 core, a step", "block-manager", "bigdl", 0.8),
    Comparison("engine alone, 1 thread, a step", "libtorch-1", "pytorch-1", 1.05),
    Comparison("engine alone, 2 threads, a step", "libtorch-2", "pytorch-2", 1.05),
]


@dataclass(frozen=True)
class ShortPlan:
    """What is measured.

    Attributes:
        job_warmup, job_steps: of the ways that start Spark jobs in each step.
        step_warmup, step_steps: of the steps without Spark.
    """

    job_warmup: int = 400
    job_steps: int = 200
    step_warmup: int = 1000
    step_steps: int = 600

    def groups(self, shared: Options) -> list[list[Contestant]]:
        path, directory = shared.data_path, shared.peers_dir
        spark = TrainCase(workers=2, warmup_steps=self.job_warmup, steps=self.job_steps, data_path=path)
        single = TrainCase(warmup_steps=self.step_warmup, steps=self.step_steps, data_path=path)
        double = replace(single, threads=2)
        ours = {"transport": "block-manager", "topology": "sliced", "codec": "fp32", "engine.blas": "mkl"}
        return [
            [OursContestant("block-manager", spark, ours), PeerContestant("bigdl", "bigdl", spark, directory)],
            [EngineContestant("libtorch-1", single), PeerContestant("pytorch-1", "pytorch", single, directory)],
            [EngineContestant("libtorch-2", double), PeerContestant("pytorch-2", "pytorch", double, directory)],
        ]


@click.command(NAME)
@click.option(
    "--job-warmup", type=click.IntRange(0), default=400, show_default=True, help="Steps, Spark jobs per step."
)
@click.option(
    "--job-steps", type=click.IntRange(20), default=200, show_default=True, help="Steps, Spark jobs per step."
)
@click.option("--step-warmup", type=click.IntRange(0), default=1000, show_default=True, help="Steps without Spark.")
@click.option("--step-steps", type=click.IntRange(3), default=600, show_default=True, help="Steps without Spark.")
@options
def command(shared: Options, job_warmup: int, job_steps: int, step_warmup: int, step_steps: int) -> None:
    """Ours (block-manager) beside BigDL, and our engine's step beside PyTorch's."""
    plan = ShortPlan(job_warmup, job_steps, step_warmup, step_steps)
    run_suite(NAME, asdict(plan), plan.groups(shared), COMPARISONS, shared)
