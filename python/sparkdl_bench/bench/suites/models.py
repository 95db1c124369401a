"""`make bench-models`: a step of every model, with MKL and OpenBLAS, 1 worker and 2, beside one process of PyTorch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
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
_BASE = {"topology": "sliced", "codec": "fp32", "transport": "block-stream", "memory_check": "off", "timeout": "300"}


@dataclass(frozen=True)
class Net:
    """A model as it is measured: rows of `shape`, `batch` of them a step over all workers, so many steps."""

    model: str
    shape: tuple[int, ...]
    classes: int
    batch: int
    warmup: int
    steps: int
    memory: str = "2g"

    @property
    def is_convolutional(self) -> bool:
        return self.model not in ("softmax", "mlp")

    def case(self, workers: int) -> TrainCase:
        return TrainCase(
            batch=self.batch,
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
    Net("mlp", (1, 28, 28), 10, 128, 1000, 500),
    Net("lenet", (1, 28, 28), 10, 64, 200, 200),
    Net("cnn", (1, 28, 28), 10, 64, 200, 200),
    Net("cifar-quick", (3, 32, 32), 10, 100, 100, 100),
    Net("resnet-18", (1, 28, 28), 10, 32, 5, 15, "3g"),
    Net("vgg-16", (3, 32, 32), 10, 32, 5, 15, "3g"),
    Net("alexnet", (3, 224, 224), 1000, 16, 4, 10, "4g"),
    Net("googlenet", (3, 224, 224), 1000, 8, 4, 10, "3g"),
    Net("resnet-50", (3, 224, 224), 1000, 8, 3, 8, "3g"),
)


def chosen(names: str) -> list[Net]:
    """The nets called `names`, separated by commas; all for an empty text."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    known = {net.model: net for net in NETS}
    for name in wanted:
        if name not in known:
            raise ConfigurationError(f"There is no model '{name}' in this suite. Valid: {', '.join(known)}.")
    return [known[name] for name in wanted] if wanted else list(NETS)


def groups(nets: Sequence[Net], specifications: dict[str, str], shared: Options) -> list[list[Contestant]]:
    """The contestants of each net, which take turns."""
    return [[*_ours(net), _pytorch(net, specifications[net.model], shared)] for net in nets]


def comparisons(nets: Sequence[Net]) -> list[Comparison]:
    return [
        Comparison(f"{net.model}, batch {net.batch}, 1 core", f"{net.model}-mkl-1", f"{net.model}-pytorch", TARGET)
        for net in nets
        if net.is_convolutional
    ] + [
        Comparison(f"{net.model}, batch {net.batch}, {title}", ours, theirs, 1.0)
        for net in nets
        for title, ours, theirs in (
            ("MKL beside OpenBLAS", f"{net.model}-mkl-1", f"{net.model}-openblas-1"),
            ("2 workers beside 1", f"{net.model}-mkl-2", f"{net.model}-mkl-1"),
            ("2 workers beside PyTorch", f"{net.model}-mkl-2", f"{net.model}-pytorch"),
        )
    ]


def specifications_of(nets: Sequence[Net]) -> dict[str, str]:
    """Each net's specification as the JVM builds it."""
    api, _ = session.start_jvm({"spark.master": "local"}, natives=False)
    return {net.model: json.dumps(api.model({"model.name": net.model}, net.shape, net.classes)) for net in nets}


def _ours(net: Net) -> list[Contestant]:
    return [
        OursContestant(
            f"{net.model}-{blas}-{workers}",
            net.case(workers),
            {**_BASE, "engine.blas": blas, "spark.executor.memory": net.memory, "data.test_rows": "2"},
        )
        for blas in BLAS
        for workers in (1, 2)
    ]


def _pytorch(net: Net, specification: str, shared: Options) -> Contestant:
    case = replace(net.case(1), specification=specification)
    return PeerContestant(f"{net.model}-pytorch", "pytorch-model", case, shared.peers_dir)


@click.command(NAME)
@click.option("--models", "names", default="", help="Models to measure, separated by commas [default: all].")
@options
def command(shared: Options, names: str) -> None:
    """A step of every model with each BLAS, one worker and two, beside one process of PyTorch."""
    nets = chosen(names)
    plan = {"nets": [asdict(net) for net in nets]}
    run_suite(NAME, plan, groups(nets, specifications_of(nets), shared), comparisons(nets), shared)
