"""`make bench-models`: a step of every model, MKL and OpenBLAS, 1 worker and 2, beside PyTorch with as many cores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from math import prod

import click

from sparkdl_bench import session
from sparkdl_bench.bench.contestant import Contestant, OursContestant, PeerContestant
from sparkdl_bench.bench.suite import Options, options, run_suite
from sparkdl_bench.bench.trials import Comparison
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.peers import TrainCase

NAME = "models"
TARGET = 1.10
BLAS = ("mkl", "openblas")
_BASE = {"topology": "sliced", "codec": "fp32", "transport": "block-stream"}


@dataclass(frozen=True)
class Net:
    """A model as it is measured: rows of `shape`, `batch` of them a step over all workers, so many steps.

    Attributes:
        name: of the model, or of one with widths of its own.
        memory: of an executor.
        hidden: widths of an mlp's hidden layers; empty for other models.
        output_activation: of an mlp.
    """

    name: str
    shape: tuple[int, ...]
    classes: int
    batch: int
    warmup: int
    steps: int
    memory: str = "2g"
    hidden: tuple[int, ...] = ()
    output_activation: str = "none"

    @property
    def model(self) -> str:
        return "mlp" if self.hidden else self.name

    @property
    def is_convolutional(self) -> bool:
        return self.model not in ("softmax", "mlp")

    @property
    def model_settings(self) -> dict[str, str]:
        """The keys of a run that make the model."""
        if not self.hidden:
            return {"model.name": self.model}
        widths = ",".join(str(width) for width in self.hidden)
        return {
            "model.name": self.model,
            "model.hidden": widths,
            "model.output_activation": self.output_activation,
        }

    @property
    def settings(self) -> dict[str, str]:
        """What its runs have besides their case, whatever is measured of them."""
        return {
            **self.model_settings,
            "memory_check": "off",
            "timeout": "300",
            "data.test_rows": "2",
            "spark.executor.memory": self.memory,
        }

    def case(self, workers: int) -> TrainCase:
        return TrainCase(
            batch=self.batch,
            hidden=self.hidden,
            features=prod(self.shape),
            classes=self.classes,
            workers=workers,
            warmup_steps=self.warmup,
            steps=self.steps,
            rows=max(2 * self.batch, 256),
            learning_rate=0.001,
            model=self.model,
            shape=self.shape,
        )


NETS = (
    Net("softmax", (1, 28, 28), 10, 128, 1000, 500),
    Net("mlp", (1, 28, 28), 10, 128, 1000, 500, hidden=(1024,)),
    Net("mlp-small", (1, 28, 28), 10, 128, 1000, 500, hidden=(100, 50), output_activation="tanh"),
    Net("mlp-cifar", (3, 32, 32), 10, 128, 1000, 500, hidden=(1024,)),
    Net("lenet", (1, 28, 28), 10, 64, 200, 200),
    Net("cnn", (1, 28, 28), 10, 64, 200, 200),
    Net("cifar-quick", (3, 32, 32), 10, 100, 100, 100),
    Net("resnet-18", (1, 28, 28), 10, 32, 20, 20, "3g"),
    Net("vgg-16", (3, 32, 32), 10, 32, 5, 15, "3g"),
    Net("alexnet", (3, 224, 224), 1000, 16, 4, 10, "4g"),
    Net("googlenet", (3, 224, 224), 1000, 8, 4, 10, "3g"),
    Net("resnet-50", (3, 224, 224), 1000, 8, 3, 8, "3g"),
)


def net_of(name: str) -> Net:
    """The net called `name`."""
    known = {net.name: net for net in NETS}
    if name in known:
        return known[name]
    near = get_close_matches(name, known, n=1)
    suggestion = f" Did you mean '{near[0]}'?" if near else ""
    raise ConfigurationError(f"There is no net called '{name}' in this suite.{suggestion} Valid: {', '.join(known)}.")


def chosen(names: str) -> list[Net]:
    """The nets called `names`, separated by commas; all for an empty text."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    return [net_of(name) for name in wanted] or list(NETS)


def groups(
    nets: Sequence[Net], specifications: dict[str, str], shared: Options, blas: Sequence[str] = BLAS
) -> list[list[Contestant]]:
    """The contestants of each net, which take turns."""
    return [[*_ours(net, blas), *_pytorch(net, specifications[net.name], shared)] for net in nets]


def comparisons(nets: Sequence[Net], blas: Sequence[str] = BLAS) -> list[Comparison]:
    """Two workers are held against PyTorch with as many cores, by threads and by DDP; one thread is shown besides.

    All with the first of `blas`, which is held against the other one where both are measured.
    """
    one, two = (f"{blas[0]}-{workers}" for workers in (1, 2))
    libraries = [("MKL beside OpenBLAS", "mkl-1", "openblas-1", 1.0)] if set(blas) == set(BLAS) else []
    return [
        Comparison(f"{net.name}, batch {net.batch}, 1 core", f"{net.name}-{one}", f"{net.name}-pytorch", TARGET)
        for net in nets
        if net.is_convolutional
    ] + [
        Comparison(f"{net.name}, batch {net.batch}, {title}", f"{net.name}-{ours}", f"{net.name}-{theirs}", target)
        for net in nets
        for title, ours, theirs, target in (
            *libraries,
            ("2 workers beside 1", two, one, 1.0),
            ("2 workers beside PyTorch with 2 threads", two, "pytorch-2", 1.0),
            ("2 workers beside PyTorch DDP, 2 processes", two, "pytorch-ddp", 1.0),
            ("2 workers beside PyTorch with 1 thread", two, "pytorch", None),
        )
    ]


def specifications_of(nets: Sequence[Net]) -> dict[str, str]:
    """Each net's specification as the JVM builds it."""
    api, _ = session.start_jvm({"spark.master": "local"}, natives=False)
    return {net.name: json.dumps(api.model(net.model_settings, net.shape, net.classes)) for net in nets}


def ours(net: Net, workers: int, library: str) -> OursContestant:
    """Our step of a net with one BLAS."""
    settings = {**_BASE, **net.settings, "engine.blas": library}
    return OursContestant(f"{net.name}-{library}-{workers}", net.case(workers), settings)


def _ours(net: Net, blas: Sequence[str]) -> list[Contestant]:
    return [ours(net, workers, library) for library in blas for workers in (1, 2)]


def _pytorch(net: Net, specification: str, shared: Options) -> list[Contestant]:
    """One process with one thread and with two, and two processes with one each."""
    one, two = (replace(net.case(workers), specification=specification) for workers in (1, 2))
    cases = {"pytorch": one, "pytorch-2": replace(one, threads=2), "pytorch-ddp": two}
    return [
        PeerContestant(f"{net.name}-{name}", "pytorch-model", case, shared.peers_dir) for name, case in cases.items()
    ]


@click.command(NAME)
@click.option("--models", "names", default="", help="Nets to measure, separated by commas [default: all].")
@click.option("--blas", type=click.Choice(BLAS), help="This matrix library alone [default: each].")
@options
def command(shared: Options, names: str, blas: str | None) -> None:
    """A step of every model with each BLAS, one worker and two, beside PyTorch with as many cores."""
    nets = chosen(names)
    measured = (blas,) if blas else BLAS
    plan = {"nets": [asdict(net) for net in nets], "blas": list(measured)}
    contestants = groups(nets, specifications_of(nets), shared, measured)
    run_suite(NAME, plan, contestants, comparisons(nets, measured), shared)
