"""`bench revisions`: steps of this checkout's trainer beside those of another's, to see what a change costs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click

from sparkdl_bench.bench.contestant import Contestant, OursContestant
from sparkdl_bench.bench.suite import Options, options, run_suite
from sparkdl_bench.bench.trials import Comparison
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.machine import commit_of
from sparkdl_bench.nearest import suggestion
from sparkdl_bench.peers import TrainCase
from suites import models

NAME = "revisions"
# What a change of structure may cost.
MOST = 1.03
_BASE = {"topology": "sliced", "codec": "fp32", "engine.blas": "mkl"}
_JOBS = ("block-manager", "shuffle")
# Behind the names of what the other checkout trains.
_OTHER = "-base"
_WAYS = {
    "engine": {"transport": "block-stream", "host_local": "off"},
    "block-stream": {"transport": "block-stream", "host_local": "off"},
    "block-stream-local": {"transport": "block-stream", "host_local": "on"},
    "tcp": {"transport": "tcp"},
    **{name: {"transport": name} for name in _JOBS},
}


@dataclass(frozen=True)
class RevisionsPlan:
    """How many steps are made; one worker (`engine`) exchanges nothing.

    Attributes:
        base: the other checkout's commit.
        ways: of the perceptron.
        nets: others of the suite `models`, with one worker and two.
    """

    base: str
    ways: tuple[str, ...] = tuple(_WAYS)
    nets: tuple[models.Net, ...] = ()
    job_warmup: int = 600
    job_steps: int = 300
    step_warmup: int = 2000
    step_steps: int = 1500

    def groups(self, folder: Path, shared: Options) -> list[list[Contestant]]:
        """The two checkouts take turns."""
        return [
            [each, replace(each, name=f"{each.name}{_OTHER}", checkout=folder)] for each in self._ours(shared).values()
        ]

    def comparisons(self, shared: Options) -> list[Comparison]:
        """Each of this checkout's beside the other's."""
        ours = self._ours(shared).items()
        return [Comparison(title, each.name, f"{each.name}{_OTHER}", MOST) for title, each in ours]

    def _ours(self, shared: Options) -> dict[str, OursContestant]:
        """What this checkout trains, by the comparison's title."""
        perceptrons = {
            f"{name}, MLP 784-1024-10, batch 128, a step": OursContestant(
                name, self._case(name, shared), {**_BASE, **settings}
            )
            for name, settings in _WAYS.items()
            if name in self.ways
        }
        nets = {
            f"{net.name}, batch {net.batch}, {workers} × 1 core, a step": models.ours(
                net, workers, _BASE["engine.blas"]
            )
            for net in self.nets
            for workers in (1, 2)
        }
        return {**perceptrons, **nets}

    def _case(self, name: str, shared: Options) -> TrainCase:
        workers = 1 if name == "engine" else 2
        warmup, steps = (self.job_warmup, self.job_steps) if name in _JOBS else (self.step_warmup, self.step_steps)
        return TrainCase(workers=workers, warmup_steps=warmup, steps=steps, data_path=shared.data_path)


@click.command(NAME)
@click.option(
    "--base",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The other checkout, with its jars made (make jars).",
)
@click.option(
    "--ways", default="", help=f"Some of {', '.join(_WAYS)}, by commas [default: all, or none with --models]."
)
@click.option("--models", "nets", default="", help="Nets of `bench models` as well, separated by commas.")
@options
def command(shared: Options, base: Path, ways: str, nets: str) -> None:
    """A training step of this checkout beside one of another checkout, in turns."""
    folder = base.resolve()
    if not (folder / "python" / "sparkdl_bench").is_dir() or not (folder / "target").is_dir():
        raise ConfigurationError(
            f"--base is '{base}', which holds no built checkout of sparkdl-bench (python/sparkdl_bench and target/). "
            "Make one: git worktree add DIR REVISION, then make jars in it."
        )
    chosen = tuple(name.strip() for name in ways.split(",") if name.strip()) or (() if nets else tuple(_WAYS))
    if unknown := [name for name in chosen if name not in _WAYS]:
        raise ConfigurationError(
            f"--ways has '{unknown[0]}'; valid are {', '.join(_WAYS)}.{suggestion(unknown[0], _WAYS)}"
        )
    plan = RevisionsPlan(commit_of(folder), chosen, tuple(models.chosen(nets)) if nets else ())
    run_suite(NAME, asdict(plan), plan.groups(folder, shared), plan.comparisons(shared), shared)
