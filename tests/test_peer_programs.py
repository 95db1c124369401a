"""The programs that measure the peers, over a PyTorch that computes nothing: what it is asked for, what is written.

Times are a clock of this file's; every rank does what this one does, so sums over the ranks are as many times as large.
"""

from __future__ import annotations

import importlib
import re
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

from sparkdl_bench import peers
from sparkdl_bench.peers import Sample, _process
from sparkdl_bench.peers._base import EnvironmentPeer
from sparkdl_bench.peers.programs.measure import _harness

PROGRAMS = "sparkdl_bench.peers.programs.measure"
MILLISECOND = 1_000_000
CASE = {
    "batch": 8,
    "rows": 40,
    "features": 5,
    "hidden": [3],
    "classes": 10,
    "threads": 3,
    "learning_rate": 0.1,
    "data_path": "",
    "warmup_steps": 2,
    "steps": 3,
    "specification": '{"layers": [], "input_shape": [5]}',
}


class Array(np.ndarray):  # type: ignore[type-arg]
    """NumPy's, with what of a tensor the programs use besides."""

    def mul_(self, factor: float) -> Array:
        self *= factor
        return self

    def to(self, kind: Any) -> Array:
        return self.astype(kind).view(Array)


class Torch:
    """A PyTorch of so many ranks.

    Attributes:
        threads: what `set_num_threads` was called with.
        rows: how many rows each forward pass was given.
        summed: the lengths of what was summed over the ranks.
    """

    def __init__(self, ranks: int, clock: list[int]) -> None:
        self.ranks, self.clock = ranks, clock
        self.threads: list[int] = []
        self.rows: list[int] = []
        self.summed: list[int] = []

    def modules(self) -> dict[str, types.ModuleType]:
        nn = _Module("torch.nn", Module=_Layer, Linear=_Layer, BatchNorm2d=_Layer)
        nn.Sequential = lambda *_: MagicMock(side_effect=self._forward)
        nn.parallel = types.SimpleNamespace(DistributedDataParallel=lambda model: model)
        functional = _Module("torch.nn.functional", cross_entropy=self._loss)
        nn.functional = functional
        distributed = _Module(
            "torch.distributed",
            all_reduce=self._all_reduce,
            all_gather_object=self._gather,
            get_backend=lambda: "gloo",
        )
        torch = _Module(
            "torch",
            nn=nn,
            distributed=distributed,
            float32=np.float32,
            float64=np.float64,
            from_numpy=lambda values: values,
            tensor=lambda values, dtype=np.float64: np.asarray(values, dtype).view(Array),
            ones=lambda count: np.ones(count, np.float32).view(Array),
            arange=lambda count: np.arange(count).view(Array),
            equal=np.array_equal,
            set_num_threads=self.threads.append,
            get_num_threads=lambda: 7,
            optim=types.SimpleNamespace(SGD=lambda *_, **__: MagicMock(step=self._tick)),
            __version__="2.0",
        )
        torch.Tensor = Array
        return {each.__name__: each for each in (torch, nn, functional, distributed)}

    def _tick(self) -> None:
        self.clock[0] += MILLISECOND * (1 + self.clock[0] // MILLISECOND)

    def _forward(self, x: Any) -> Any:
        self.rows.append(len(x))
        return x

    def _loss(self, scores: Any, labels: Any) -> Any:
        assert len(scores) == len(labels)
        return MagicMock(item=lambda: 1.0)

    def _all_reduce(self, values: Any) -> None:
        self.summed.append(len(values))
        self.clock[0] += 2 * MILLISECOND
        values *= self.ranks

    def _gather(self, into: list[Any], value: Any) -> None:
        into[:] = [value] * self.ranks


class _Layer:
    """What the programs' own layers extend."""

    def __init__(self, *_: Any, **__: Any) -> None: ...


class _Module(types.ModuleType):
    """A module in which all that nobody asks after is there."""

    def __init__(self, name: str, **members: Any) -> None:
        super().__init__(name)
        self.__dict__.update(members)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock()


Started = Callable[[str, int], tuple[Any, Torch]]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """A program imported anew over such a PyTorch."""
    clock = [0]
    monkeypatch.setattr(_harness.time, "perf_counter_ns", lambda: clock[0])
    imported: list[str] = []

    def start(name: str, ranks: int) -> tuple[Any, Torch]:
        torch = Torch(ranks, clock)
        for each, module in torch.modules().items():
            monkeypatch.setitem(sys.modules, each, module)
        # With what they share of PyTorch.
        imported.extend([f"{PROGRAMS}._perceptron", f"{PROGRAMS}.torch_model", f"{PROGRAMS}.{name}"])
        for each in imported:
            sys.modules.pop(each, None)
        return importlib.import_module(imported[-1]), torch

    yield start
    for name in imported:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["torch_mlp", "torch_model"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_step_is_timed_after_the_warm_up_with_the_case_s_rows_and_threads(
    started: Started, monkeypatch: pytest.MonkeyPatch, name: str, ranks: int
) -> None:
    program, torch = started(name, ranks)
    model = MagicMock(side_effect=torch._forward, parameters=list)
    monkeypatch.setattr(program, "Model", lambda _: model, raising=False)
    samples_ms, facts = program._train({**CASE, "workers": ranks}, 0)
    # Steps take 1, 2, 4, 8 and 16 ms, the first two to warm up.
    assert samples_ms == [4.0, 8.0, 16.0]
    assert torch.rows == [8 // ranks] * 5
    assert torch.threads == [3]
    # What PyTorch says, which a contestant is held to, and not what it was told.
    assert facts["threads"] == 7
    assert facts["backend"] == ("none" if ranks == 1 else "gloo")


@pytest.mark.parametrize(
    ("losses", "ends_well"), [((1.0, 5.0, 99.9), True), ((1.0, 5.0, 100.0), False), ((500.0, 5.0, 2.0), True)]
)
def test_a_training_whose_last_loss_is_none_is_no_measurement(
    started: Started, monkeypatch: pytest.MonkeyPatch, losses: tuple[float, ...], ends_well: bool
) -> None:
    program, _ = started("torch_mlp", 1)
    left = list(losses)
    monkeypatch.setattr(program.functional, "cross_entropy", lambda *_: MagicMock(item=lambda: left.pop(0)))
    case = {**CASE, "workers": 1, "warmup_steps": 0, "steps": 3}
    if ends_well:
        _, facts = program._train(case, 0)
        assert (facts["first_loss"], facts["last_loss"]) == (losses[0], losses[-1])
    else:
        with pytest.raises(SystemExit, match=r"diverged: loss 100\.0 after 3 steps"):
            program._train(case, 0)


@pytest.mark.parametrize("name", ["torch_mlp", "torch_model"])
def test_ddp_writes_the_mean_over_the_ranks_once(
    started: Started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    program, torch = started(name, 2)
    monkeypatch.setattr(program, "_train", lambda *_: ([1.0, 3.0], {"threads": 2}))
    out = tmp_path / "out.jsonl"
    for rank in (1, 0):
        program._rank(rank, {"workers": 2}, "file://nowhere", out)
    measurement = _process._read(name, out)
    assert measurement.samples == (Sample(1.0), Sample(3.0))
    assert measurement.facts == {"threads": 2}
    assert torch.summed == [2, 2]


@pytest.mark.parametrize("ranks", [1, 3])
def test_gloo_writes_the_mean_over_the_ranks(started: Started, tmp_path: Path, ranks: int) -> None:
    program, torch = started("gloo_allreduce", ranks)
    case = {"workers": ranks, "elements": 4, "warmup": 3, "iterations": 2}
    out = tmp_path / "out.jsonl"
    program._rank(0, case, "file://nowhere", out)
    measurement = _process._read("gloo", out)
    assert measurement.samples == (Sample(2.0), Sample(2.0))
    # A check, three to warm up, two measured, a check, the verdicts, and the two times.
    assert torch.summed == [4] * 7 + [1, 2]
    assert torch.threads == [1]
    # These ranks do not add up 0, 1 and 2.
    assert measurement.facts["correct"] is (ranks == 1)
    assert measurement.facts["channel"] == ("none" if ranks == 1 else "unknown")


@pytest.mark.parametrize("wrong", [None, 0, 2499])
def test_gloo_s_sums_are_right_when_each_value_is(
    started: Started, monkeypatch: pytest.MonkeyPatch, wrong: int | None
) -> None:
    program, _ = started("gloo_allreduce", 3)

    def add_up(values: Any) -> None:
        assert values.tolist() == [place % 1000 + 2 for place in range(2500)]
        values[:] = [sum(place % 1000 + each for each in range(3)) for place in range(2500)]
        if wrong is not None:
            values[wrong] += 1

    monkeypatch.setattr(program.dist, "all_reduce", add_up)
    assert program._is_correct(2, {"workers": 3, "elements": 2500}) == (wrong is None)


def test_a_whole_training_s_steps_are_the_sum_of_their_phases_and_the_mean_over_the_ranks(
    started: Started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program, _ = started("torch_fit", 2)
    fit = object.__new__(program.Fit)
    fit.samples_ms, fit.phases_ns = [], dict.fromkeys(program.PHASES, 0)
    for factor in (1, 2):
        fit._count(*(factor * each * MILLISECOND for each in (1, 2, 3, 4)))
    assert fit.samples_ms == [10.0, 20.0]
    assert list(fit.phases_ns.values()) == [3 * each * MILLISECOND for each in (1, 2, 3, 4)]

    phases_ms = dict(zip(program.PHASES, (1.0, 2.0, 3.0, 4.0), strict=True))
    made = types.SimpleNamespace(run=lambda: ([1.0, 3.0], {"phases_ms": phases_ms}))
    monkeypatch.setattr(program, "Fit", lambda *_: made)
    out = tmp_path / "out.jsonl"
    for rank in (1, 0):
        program._rank(rank, {"workers": 2}, "file://nowhere", out)
    measurement = _process._read("fit", out)
    assert measurement.samples == (Sample(1.0), Sample(3.0))
    assert measurement.facts == {"phases_ms": phases_ms}


def test_bigdl_s_epochs_are_cut_where_its_tests_ended() -> None:
    program = importlib.import_module(f"{PROGRAMS}.bigdl_fit")
    # Two epochs of three steps; a test takes 0.5 s, the first step of each epoch waits for what is before it.
    losses = [(1.0, 3.0), (1.1, 2.0), (1.3, 1.0), (2.0, 0.9), (2.1, 0.8), (2.2, 0.7)]
    samples_ms, history, evaluation_s = program.by_epoch(losses, [(1.8, 0.5), (2.7, 0.75)], [1.5, 0.5])
    assert samples_ms == pytest.approx([100, 200, 100, 100])
    assert evaluation_s == pytest.approx(1.0)
    assert [each["seconds"] for each in history] == [1.8, 2.7]
    assert [each["train_loss"] for each in history] == pytest.approx([2.0, 0.8])
    assert [(each["test_loss"], each["accuracy"]) for each in history] == [(1.5, 0.5), (0.5, 0.75)]


def test_mllib_gets_our_weights_by_columns_and_the_bias_behind_them() -> None:
    program = importlib.import_module(f"{PROGRAMS}.mllib_fit")
    weight, bias = np.asarray([[1, 2, 3], [4, 5, 6]], np.float32), np.asarray([7, 8], np.float32)
    assert program.initial_weights([(weight, bias), (weight[:1, :2], bias[:1])]) == [1, 4, 2, 5, 3, 6, 7, 8, 1, 2, 7]


@pytest.mark.parametrize(
    ("size", "options", "same"),
    [
        (24, {"kernel": 2, "ceil": 1}, False),
        (32, {"kernel": 3, "stride": 2, "ceil": 1}, True),
        (32, {"kernel": 3, "stride": 2}, False),
        (5, {"kernel": 2, "ceil": 1}, True),
    ],
)
def test_keras_pools_as_many_values(size: int, options: dict[str, int], same: bool) -> None:
    program = importlib.import_module(f"{PROGRAMS}._keras")
    assert program.pads_as_ceil("pool", size, options) == same
    with pytest.raises(SystemExit, match="pool1"):
        program.pads_as_ceil("pool1", size, {**options, "padding": 1})


def test_tensorflow_s_chief_and_first_worker_are_two_ranks() -> None:
    program = importlib.import_module(f"{PROGRAMS}._mirrored")

    def rank(kind: str, number: int, *jobs: str) -> int:
        spec = types.SimpleNamespace(jobs=jobs)
        resolver = types.SimpleNamespace(task_type=kind, task_id=number, cluster_spec=lambda: spec)
        return int(program.rank_of(resolver))

    assert [rank("chief", 0, "chief", "worker"), rank("worker", 0, "chief", "worker")] == [0, 1]
    assert [rank("worker", number, "worker") for number in (0, 1)] == [0, 1]


@pytest.mark.parametrize("name", ["elephas_fit", "dl4j_fit"])
def test_a_sample_of_an_epoch_is_of_all_its_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    """And it is written before Spark is stopped: what comes after is none of its clock's."""
    program = importlib.import_module(f"{PROGRAMS}.{name}")
    out, written = tmp_path / "out.jsonl", []
    facts = {"steps_per_sample": 469}

    @contextmanager
    def session(*_: Any) -> Iterator[Any]:
        yield MagicMock()
        written.append(out.is_file())

    monkeypatch.setattr(program, "read_arguments", lambda: ({"threads": 1}, out))
    monkeypatch.setattr(program, "session", session)
    monkeypatch.setattr(program, "_train", lambda *_: ([8.0, 9.0], facts))
    for variable in ("SPARKDL_ELEPHAS", "SPARKDL_DL4J", "SPARKDL_DL4J_CLASSES", _process.SHARED_MEMORY):
        monkeypatch.setenv(variable, "sync")
    program.main()
    assert written == [True]
    measured = _process._read("peer", out)
    assert [(each.ms, each.steps) for each in measured.samples] == [(8.0, 469), (9.0, 469)]


def test_h2o_trains_a_row_at_a_time_by_its_own_rate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever the run's optimiser is, and to the end; what it tells is one mean over the passes."""
    program = importlib.import_module(f"{PROGRAMS}.h2o_fit")
    made = MagicMock()
    for name in ("pysparkling", "pysparkling.ml"):
        monkeypatch.setitem(sys.modules, name, made)
    rows = MagicMock(y_train=np.zeros(9), read=lambda _: rows)
    start = MagicMock(perceptron=lambda: [(None, np.zeros(5)), (None, np.zeros(2))], read=lambda _: start)
    clock = MagicMock(seconds=4.0, history=[{}], facts=lambda *_: {})
    scored = [(0.0, MagicMock(asDict=lambda: {"0": 1.0, "1": 0.0}, __getitem__=lambda _, name: 1.0 - int(name)))]
    made.H2ODeepLearningClassifier.return_value.fit.return_value.transform.return_value.select.return_value.collect = (
        lambda: scored
    )

    @contextmanager
    def session(*_: Any) -> Iterator[Any]:
        yield MagicMock(version="3.5")

    for name, stand_in in {"Rows": rows, "Start": start, "Clock": lambda: clock, "session": session}.items():
        monkeypatch.setattr(program, name, stand_in)
    monkeypatch.setattr(program, "vector_frame", MagicMock())
    optimizer = {"name": "sgd", "learning_rate": "0.05", "momentum": "0.9"}
    case = {"workers": 2, "threads": 1, "epochs": 3, "seed": 0, "optimizer": optimizer}
    out = tmp_path / "out.jsonl"
    monkeypatch.setattr(program, "read_arguments", lambda: (case, out))
    program.main()
    told = made.H2ODeepLearningClassifier.call_args.kwargs
    assert {name: told[name] for name in ("rate", "momentumStart", "momentumStable", "stoppingRounds", "epochs")} == {
        "rate": 0.005,
        "momentumStart": 0.0,
        "momentumStable": 0.0,
        "stoppingRounds": 0,
        "epochs": 3.0,
    }
    assert not told["adaptiveRate"]
    measured = _process._read("h2o", out)
    assert measured.samples == (Sample(0.0, 3),)
    assert "a rate of 0.005 a row, no momentum" in str(measured.facts["optimizer"])
    assert "a rate of 0.005" in peers.find("h2o").fixed["optimizer.learning_rate"]


@pytest.mark.parametrize(
    ("workers", "host_mb", "memory_mb"), [(2, 24576, 4096), (7, 24576, 1667), (2, 16384, 3379), (2, 4096, 1024)]
)
def test_executors_share_the_host_s_memory_with_the_driver(workers: int, host_mb: int, memory_mb: int) -> None:
    program = importlib.import_module(f"{PROGRAMS}._spark")
    assert program.executor_mb(workers, host_mb) == memory_mb
    assert program.DRIVER_MB == 3072
    assert program.host_mb() > 512


def reached(program: str) -> set[str]:
    """Of the modules beside it those that a program imports, and those that they import."""
    source = (Path(_harness.__file__).parent / f"{program}.py").read_text(encoding="utf-8")
    near = set(re.findall(r"^ *from (?:\.|measure\.)(\w+) import", source, re.MULTILINE))
    return near.union(*(reached(each) for each in near))


@pytest.mark.parametrize("name", [name for name, peer in peers.discover().items() if "fit" in peer.kinds])
def test_a_peer_says_that_it_runs_on_spark_where_its_program_does(name: str) -> None:
    peer = peers.find(name)
    assert isinstance(peer, EnvironmentPeer)
    assert peers.is_on_spark(name) == peer.on_spark == ("_spark" in reached(peer.fit_program))


def test_a_peer_that_is_not_there_is_not_said_to_run_on_spark() -> None:
    assert not peers.is_on_spark("a peer of another version")
