"""`make bench-peers`: a training step of every peer that can train this net, beside ours with as many workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import click

from sparkdl_bench import peers
from sparkdl_bench.bench.contestant import Contestant, OursContestant, PeerContestant
from sparkdl_bench.bench.suite import Options, options, run_suite
from sparkdl_bench.bench.trials import Comparison
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.peers import TrainCase

NAME = "peers"
# Over sockets, as the peers do it; one worker has nothing to exchange.
_OURS = {
    "transport": "block-stream",
    "topology": "sliced",
    "codec": "fp32",
    "host_local": "off",
    "engine.blas": "mkl",
}
THREADS = "pytorch-threads"
# Peers that start Spark jobs in every step, and so need many steps' time for few of them.
_JOBS_A_STEP = frozenset({"bigdl"})


@dataclass(frozen=True)
class PeersPlan:
    """How many steps are measured: of peers that start Spark jobs in each step, and of all others."""

    job_warmup: int = 400
    job_steps: int = 200
    step_warmup: int = 2000
    step_steps: int = 1000

    def groups(self, shared: Options) -> list[list[Contestant]]:
        """For one worker and for two: ours, then every peer that runs the case."""
        return [self._group(workers, shared) for workers in (1, 2)]

    def _group(self, workers: int, shared: Options) -> list[Contestant]:
        many = TrainCase(
            workers=workers, warmup_steps=self.step_warmup, steps=self.step_steps, data_path=shared.data_path
        )
        few = replace(many, warmup_steps=self.job_warmup, steps=self.job_steps)
        cases = {name: few if name in _JOBS_A_STEP else many for name in peers.discover()}
        theirs = [name for name, case in cases.items() if _runs(name, case)]
        # One process with as many threads is what a user of one machine would take.
        threads = replace(many, workers=1, threads=workers)
        process = [PeerContestant(f"{THREADS}-{workers}", "pytorch", threads, shared.peers_dir)] if workers > 1 else []
        return [
            OursContestant(f"ours-{workers}", many, _OURS),
            *(PeerContestant(f"{name}-{workers}", name, cases[name], shared.peers_dir) for name in theirs),
            *process,
        ]


def comparisons(groups: Sequence[Sequence[Contestant]]) -> list[Comparison]:
    """Ours beside each of the others of its group; at least as fast is what is aimed at."""
    return [
        Comparison(f"batch 128, {ours.name.rpartition('-')[2]} × 1 core, a step", ours.name, peer.name, 1.0)
        for ours, *theirs in groups
        for peer in theirs
    ]


def _runs(name: str, case: TrainCase) -> bool:
    try:
        peers.find(name).check(case)
    except ConfigurationError:
        return False
    return True


@click.command(NAME)
@click.option(
    "--job-warmup", type=click.IntRange(0), default=400, show_default=True, help="Steps, Spark jobs per step."
)
@click.option(
    "--job-steps", type=click.IntRange(20), default=200, show_default=True, help="Steps, Spark jobs per step."
)
@click.option("--step-warmup", type=click.IntRange(0), default=2000, show_default=True, help="Steps of the others.")
@click.option("--step-steps", type=click.IntRange(3), default=1000, show_default=True, help="Steps of the others.")
@options
def command(shared: Options, job_warmup: int, job_steps: int, step_warmup: int, step_steps: int) -> None:
    """A training step of every peer that can train this net, beside ours."""
    plan = PeersPlan(job_warmup, job_steps, step_warmup, step_steps)
    groups = plan.groups(shared)
    run_suite(NAME, asdict(plan), groups, comparisons(groups), shared)
