"""`make bench-train`: steps of `block-stream` beside DDP, BigDL and one PyTorch process, and the cost of sampling."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import click

from sparkdl_bench.bench.contestant import Contestant, OursContestant, PeerContestant
from sparkdl_bench.bench.store import ResultFile
from sparkdl_bench.bench.suite import Options, contestants_of, only_option, options, rows_named, run_suite
from sparkdl_bench.bench.trials import Comparison
from sparkdl_bench.peers import TrainCase

NAME = "train"
_BASE = {"topology": "sliced", "codec": "fp32", "engine.blas": "mkl"}
_SOCKETS = {**_BASE, "transport": "block-stream", "host_local": "off"}
_HOST_LOCAL = {**_BASE, "transport": "block-stream", "host_local": "on"}
_UNSAMPLED = {**_SOCKETS, "resources.hertz": "0"}
COMPARISONS = [
    Comparison("batch 128, 2 × 1 core, sockets", "block-stream", "pytorch-ddp", 0.6),
    Comparison("batch 128, 2 × 1 core, sockets", "block-stream", "bigdl", 0.125),
    Comparison("batch 128, 2 × 1 core, sockets", "block-stream", "pytorch-2", 1.4),
    Comparison("batch 128, 2 × 1 core, host-local", "block-stream-local", "pytorch-2", 1.4),
    # Half as many cores: for information.
    Comparison("batch 128, 2 × 1 core beside 1 core, sockets", "block-stream", "pytorch-1", None),
    Comparison("batch 128, the sampler of resources beside none", "block-stream", "block-stream-unsampled", 1.01),
    Comparison("batch 512, 2 × 1 core, sockets", "block-stream-512", "pytorch-2-512", 1.15),
    Comparison("batch 512, 2 × 1 core, host-local", "block-stream-local-512", "pytorch-2-512", 1.15),
]


@dataclass(frozen=True)
class TrainPlan:
    """What is measured: steps of the ways that start Spark jobs in each step (BigDL), and of the others."""

    job_warmup: int = 1000
    job_steps: int = 300
    step_warmup: int = 3000
    step_steps: int = 1000

    def groups(self, shared: Options) -> list[list[Contestant]]:
        path, directory = shared.data_path, shared.peers_dir
        jobs = TrainCase(workers=2, warmup_steps=self.job_warmup, steps=self.job_steps, data_path=path)
        two = TrainCase(workers=2, warmup_steps=self.step_warmup, steps=self.step_steps, data_path=path)
        one = replace(two, workers=1)
        large, large_one = replace(two, batch=512), replace(one, batch=512, threads=2)
        return [
            [
                OursContestant("block-stream", two, _SOCKETS),
                OursContestant("block-stream-local", two, _HOST_LOCAL),
                OursContestant("block-stream-unsampled", two, _UNSAMPLED),
                PeerContestant("pytorch-ddp", "pytorch-ddp", two, directory),
                PeerContestant("pytorch-1", "pytorch", one, directory),
                PeerContestant("pytorch-2", "pytorch", replace(one, threads=2), directory),
                PeerContestant("bigdl", "bigdl", jobs, directory),
            ],
            [
                OursContestant("block-stream-512", large, _SOCKETS),
                OursContestant("block-stream-local-512", large, _HOST_LOCAL),
                PeerContestant("pytorch-2-512", "pytorch", large_one, directory),
            ],
        ]


@click.command(NAME)
@click.option(
    "--job-warmup", type=click.IntRange(0), default=1000, show_default=True, help="Steps, Spark jobs per step."
)
@click.option(
    "--job-steps", type=click.IntRange(20), default=300, show_default=True, help="Steps, Spark jobs per step."
)
@click.option("--step-warmup", type=click.IntRange(0), default=3000, show_default=True, help="Steps of the others.")
@click.option("--step-steps", type=click.IntRange(3), default=1000, show_default=True, help="Steps of the others.")
@only_option
@options
def command(shared: Options, job_warmup: int, job_steps: int, step_warmup: int, step_steps: int, only: str) -> None:
    """A training step of block-stream beside DDP, BigDL and one PyTorch process."""
    plan = TrainPlan(job_warmup, job_steps, step_warmup, step_steps)
    comparisons = rows_named(only, COMPARISONS)
    groups = contestants_of(comparisons, plan.groups(shared))
    line = sampler_line(run_suite(NAME, {**asdict(plan), "only": only}, groups, comparisons, shared))
    if line:
        click.echo(line)


def sampler_line(file: ResultFile) -> str | None:
    """What the sampler's own thread took, which no comparison of runs tells apart from chance; None where none told."""
    trials = file.trials("block-stream")
    shares = [float(trial.facts["sampler_share"]) for trial in trials if "sampler_share" in trial.facts]
    if not shares:
        return None
    return f"The sampler's own thread took at most {max(shares):.3%} of a core in any process of {len(shares)} trials."
