"""Peers: other ways to train, or to add up gradients, that ours are measured beside on the same machine.

One peer is one file of this folder, found by scanning: a module whose name does not begin with an underscore and which
holds a `Peer` called `PEER`. Its measuring program lies in `programs/` and runs in a virtual environment of the peer's
own, so that a peer's dependencies never meet those of `sparkdl-bench`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.nearest import suggestion


@dataclass(frozen=True)
class TrainCase:
    """Train a net with plain SGD; a sample is one step (forward, backward, synchronise, update).

    Attributes:
        batch: global batch, rows per step over all workers.
        hidden: widths of the hidden layers (ReLU between them) of the model `mlp`.
        features: values per row.
        model: model family; peers other than `pytorch-model` know `mlp` alone.
        shape: shape of a row, whose product is `features`; empty for rows of one dimension.
        specification: the model's specification as JSON, for peers that build any model from it.
        workers: processes or Spark tasks, each one core unless `threads` says more.
        threads: compute threads a worker.
        warmup_steps: steps before the first sample.
        steps: measured steps.
        rows: rows of the training set that the steps walk over.
        data_path: folder of MNIST's four IDX files (gzip); empty for synthetic rows of the same shape.
    """

    batch: int = 128
    hidden: tuple[int, ...] = (1024,)
    features: int = 784
    classes: int = 10
    workers: int = 1
    threads: int = 1
    warmup_steps: int = 200
    steps: int = 400
    rows: int = 20_000
    learning_rate: float = 0.1
    data_path: str = ""
    model: str = "mlp"
    shape: tuple[int, ...] = ()
    specification: str = ""
    kind: str = field(default="train", init=False)

    def __post_init__(self) -> None:
        _check_positive(self, "batch", "workers", "threads", "steps", "rows")
        if self.batch < self.workers:
            raise ConfigurationError(
                f"A global batch of {self.batch} rows cannot be spread over {self.workers} workers: each needs at "
                "least one row. Raise batch or lower workers."
            )


@dataclass(frozen=True)
class FitCase:
    """Train a model of ours for whole epochs, tested after each; a sample is one step, the history a fact.

    Attributes:
        data_path: a .npz file with x_train, y_train, x_test, y_test (rows × values, fp32; labels int64).
        start_path: a .npz file with `parameters`, the initial weights in the specification's flat layout (fp32), and
            `orders`, the rows of each epoch (epochs × rows, int32). Peers that cannot start so say it.
        specification: the model as JSON (docs/reference/models.md), with `parameters`.
        batch: global batch, rows per step over all workers; the last one of an epoch may be smaller.
        epochs: passes over the training rows, in an order of their own each.
        optimizer: `name`, `learning_rate` and the other keys of the run's optimiser, without `optimizer.`.
        schedule: of the learning rate, likewise.
        tuned: whether to take what the peer's own guide recommends for this host beyond its defaults.
        others: as in `TrainCase`.
    """

    data_path: str
    start_path: str = ""
    specification: str = ""
    batch: int = 128
    epochs: int = 5
    workers: int = 1
    threads: int = 1
    seed: int = 0
    optimizer: Mapping[str, str] = field(default_factory=lambda: {"name": "sgd", "learning_rate": "0.1"})
    schedule: Mapping[str, str] = field(default_factory=lambda: {"name": "constant"})
    tuned: bool = False
    kind: str = field(default="fit", init=False)

    def __post_init__(self) -> None:
        _check_positive(self, "batch", "workers", "threads", "epochs")


@dataclass(frozen=True)
class PredictCase:
    """Predict rows that lie in memory with a multilayer perceptron; a sample is one pass over `rows`: its
    milliseconds per 1,000 rows.

    Attributes:
        rows: predicted in a pass, over all workers.
        held_rows: in memory, over all workers; a pass goes over them as often as it needs.
        batch: rows that are computed at once.
        samples: measured passes, after one that is not counted.
        others: as in `TrainCase`.
    """

    rows: int = 1_000_000
    held_rows: int = 100_000
    batch: int = 256
    hidden: tuple[int, ...] = (1024,)
    features: int = 784
    classes: int = 10
    workers: int = 2
    threads: int = 1
    samples: int = 3
    kind: str = field(default="predict", init=False)

    def __post_init__(self) -> None:
        _check_positive(self, "rows", "batch", "workers", "threads", "samples")
        if not self.workers <= self.held_rows <= self.rows:
            raise ConfigurationError(
                f"held_rows = {self.held_rows} is not valid; it is a number from workers ({self.workers}) to rows "
                f"({self.rows})."
            )


@dataclass(frozen=True)
class CollectiveCase:
    """All-reduce (sum) of a vector of fp32; a sample is one all-reduce, the mean over the ranks of each one's time.

    Attributes:
        elements: fp32 values per rank.
        workers: ranks, each a process of its own on this machine.
        host_local: whether shared memory may be used; False forces sockets (TCP on loopback).
        warmup: all-reduces before the first sample.
        iterations: measured all-reduces.
        in_shared_memory: of `torch.distributed`: whether the vector lies in memory that processes share.
    """

    elements: int = 814_090
    workers: int = 2
    host_local: bool = False
    warmup: int = 200
    iterations: int = 500
    in_shared_memory: bool = False
    kind: str = field(default="allreduce", init=False)

    def __post_init__(self) -> None:
        _check_positive(self, "workers", "iterations")
        if self.elements < 0:
            raise ConfigurationError(f"elements = {self.elements} is not valid; it is a number of values, 0 or more.")


Case: TypeAlias = TrainCase | FitCase | PredictCase | CollectiveCase


@dataclass(frozen=True)
class Sample:
    """Milliseconds per step (or an all-reduce). Where `steps` > 1 it is the mean over that many consecutive ones."""

    ms: float
    steps: int = 1


@dataclass(frozen=True)
class Measurement:
    """All samples of one run of a peer, in the order they were taken, and what really ran (versions, BLAS, threads)."""

    samples: tuple[Sample, ...]
    facts: Mapping[str, object]


class Peer(Protocol):
    """What a peer's file offers as `PEER`."""

    @property
    def name(self) -> str: ...
    @property
    def doc(self) -> str: ...
    @property
    def kinds(self) -> frozenset[str]:
        """Which cases it can run: `train`, `fit`, `predict`, `allreduce`."""
        ...

    @property
    def host_local_choices(self) -> tuple[bool, ...]:
        """Values of `CollectiveCase.host_local` that it can run: False is sockets, True is shared memory."""
        ...

    @property
    def workers(self) -> int:
        """Processes or tasks that it is run with where nobody says how many."""
        ...

    @property
    def requirements(self) -> tuple[str, ...]:
        """Pinned requirements of its environment; empty when it needs none of its own."""
        ...

    @property
    def needs(self) -> str:
        """The Pythons and Javas that it can be run with, for people."""
        ...

    @property
    def on_spark(self) -> bool:
        """Whether whole trainings run in Spark's tasks."""
        ...

    @property
    def fixed(self) -> Mapping[str, str]:
        """Keys of a run that a training of whole epochs cannot be told, and why; empty for most."""
        ...

    def unable(self) -> str | None:
        """Why it can neither be installed nor run on this host; None where it can."""
        ...

    def install(self, directory: Path, /) -> None:
        """Make the environment under `directory`; does nothing when it is there and whole."""
        ...

    def remove(self, directory: Path, /) -> bool:
        """Take away what `install` has made; False where there was nothing."""
        ...

    def missing(self, directory: Path, /) -> str | None:
        """Why it cannot run now, with the command that fixes it; None when it can."""
        ...

    def check(self, case: Case, /) -> None:
        """Refuse a case that it cannot run, with the reason."""
        ...

    def run(self, case: Case, timeout_s: float, directory: Path, out: Path | None = None, /) -> Measurement:
        """Measure `case` in a process group of its own, of which nothing is left afterwards but `out`, where asked for.

        The program of a case of kind `fit` writes to `out` once, at its end.
        """
        ...


def default_directory() -> Path:
    """Where environments are kept unless `--dir` says otherwise."""
    return Path.home() / ".cache" / "sparkdl-bench" / "peers"


@runtime_checkable
class ProvidesEngine(Protocol):
    """A peer whose jars an engine of ours computes with; both have the same name."""

    def engine_jars(self, directory: Path) -> list[Path]:
        """Those jars; a ConfigurationError says how to bring them."""
        ...


def engine_jars(engine: str) -> list[Path]:
    """The jars that an engine needs besides ours; none for most."""
    peer = discover().get(engine)
    return peer.engine_jars(default_directory()) if isinstance(peer, ProvidesEngine) else []


def discover() -> dict[str, Peer]:
    """Every peer by name, sorted."""
    peers: dict[str, Peer] = {}
    for module_info in pkgutil.iter_modules(__path__):
        if module_info.ispkg or module_info.name.startswith("_"):
            continue
        peer: Peer = importlib.import_module(f"{__name__}.{module_info.name}").PEER
        peers[peer.name] = peer
    return dict(sorted(peers.items()))


def find(name: str) -> Peer:
    peers = discover()
    if name in peers:
        return peers[name]
    raise ConfigurationError(
        f"There is no peer called '{name}'.{suggestion(name, peers)} Valid: {', '.join(peers)}. "
        "`sparkdl-bench peers list` describes them."
    )


def is_on_spark(name: str) -> bool:
    """Whether the peer of that name trains in Spark's tasks; False where there is no such peer (any more)."""
    peer = discover().get(name)
    return peer is not None and peer.on_spark


def case_to_dict(case: Case) -> dict[str, object]:
    """As the measuring programs and the result files hold it."""
    return asdict(case)


def _check_positive(case: object, *names: str) -> None:
    for name in names:
        value = getattr(case, name)
        if value < 1:
            raise ConfigurationError(f"{name} = {value} is not valid; it is a whole number, at least 1.")
