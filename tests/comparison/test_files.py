"""Every comparison file under conf/runs really trains: some cells of each axis, one trial, a few steps."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import idx
from conftest import COMPARISON_FILES, ROOT
from sparkdl_bench import machine, peers
from sparkdl_bench.comparison import check, loop, store
from sparkdl_bench.comparison.application import Application
from sparkdl_bench.comparison.cells import Cell, cells_of, in_order
from sparkdl_bench.comparison.execute import MARK_VARIABLE, ProcessExecutor
from sparkdl_bench.comparison.plan import Plan, load_plan

pytestmark = pytest.mark.on_one_line

# Transports of ours that need an installation of their own.
OPTIONAL = ("ucx", "mpi")
# As the base on MNIST has it, so that cells of all files have one session.
MEMORY = "spark.executor.memory=2g"
# Six steps on the digits; by epochs, since peers know of no `max_steps`.
DIGITS = ("epochs=1", "batch=256", MEMORY)
Factors = Mapping[str, str]


@dataclass(frozen=True)
class Shortened:
    """How a file is cut down.

    Attributes:
        trains: whether a cell with these factors is trained.
        assignments: keys of all runs.
        fresh: an application for each cell; else cells share one where they can, also with the file before.
    """

    trains: Callable[[Factors], bool]
    assignments: tuple[str, ...] = DIGITS
    fresh: bool = False


FILES = {
    "algorithms": Shortened(
        lambda factors: (
            (factors["variant"], factors["transport"])
            in {("sync-sgd", "tcp"), ("gossip", "block-stream"), ("downpour", "block-stream"), ("lbfgs", "tcp")}
        ),
        ("max_steps=12",),
    ),
    # One process: as in `inband-vs-outofband`.
    "batch": Shortened(
        lambda factors: (factors["variant"], factors["batch"]) == ("block-stream", "256"), ("epochs=1", MEMORY)
    ),
    # One BLAS a JVM: cells with different ones cannot share an application.
    "blas": Shortened(
        lambda factors: (factors["engine.blas"], factors["engine.threads"]) in {("mkl", "1"), ("openblas", "2")},
        fresh=True,
    ),
    # Ways of synchronising that are as different as can be: the suites of transports train every one.
    "inband-vs-outofband": Shortened(lambda factors: factors["variant"] in {"block-stream", "one process"}),
    "job-per-step": Shortened(lambda factors: factors["variant"] == "tree (MLlib)"),
    "parameter-server": Shortened(lambda factors: factors["variant"] == "tcp ps apart"),
    # As `workers` and `inband-vs-outofband` have its ways; its peers: `make peers`.
    "spark-vs-one-machine": Shortened(lambda factors: factors["variant"] == "ours", ("max_steps=6",)),
    "two-hosts-large-batch": Shortened(lambda factors: factors["variant"] == "two hosts", ("max_steps=6",)),
    "two-hosts": Shortened(lambda factors: factors["variant"] == "two hosts", ("max_steps=6",)),
    "workers": Shortened(lambda factors: factors["workers"] == "2"),
}
# First the one file whose cells do not all have the session of most.
PATHS = sorted(COMPARISON_FILES, key=lambda path: path.stem != "inband-vs-outofband")


@pytest.fixture(scope="module")
def left() -> Iterator[list[Application]]:
    """The Spark application that the comparison before has left, if any: to start one takes longer than to train."""
    applications: list[Application] = []
    yield applications
    for each in applications:
        each.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits to see whether the machine is idle; what an executor sets for its processes ends with the test."""
    monkeypatch.setattr(machine, "load", lambda: machine.Load(0.0, 0.0))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"))
    monkeypatch.setenv(MARK_VARIABLE, "")


def rows_like_mnist(folder: Path) -> str:
    """256 rows to train on, 32 to test on."""
    for seed, (names, rows) in enumerate(((idx.TRAIN, 256), (idx.TEST, 32))):
        images = np.random.default_rng(seed).integers(0, 256, (rows, 28, 28), dtype=np.uint8)
        idx.write(folder, names, idx.Set(images, (np.arange(rows) % 10).astype(np.uint8)))
    return folder.as_uri()


def plan_of(path: Path, folder: Path) -> Plan:
    shortened = FILES[path.stem]
    on_files = {"algorithms", "spark-vs-one-machine", "two-hosts", "two-hosts-large-batch"}
    rows = (f"data.path={rows_like_mnist(folder)}",) if path.stem in on_files else ()
    return replace(load_plan(path, [*shortened.assignments, *rows], trials=1), fresh=shortened.fresh)


def train(plan: Plan, cells: list[Cell], folder: Path, left: list[Application]) -> None:
    """Trains the cells as `sparkdl-bench compare` does; each must succeed. Those of most cells' session come last."""
    sharing = Counter(cell.application for cell in cells)
    cells = sorted(cells, key=lambda cell: (sharing[cell.application], cell.application))
    kept = store.create(folder / "out", plan, cells)
    executor = ProcessExecutor(plan, kept, peers.default_directory())
    if left:
        executor._application = left.pop()
    try:
        with loop.shown(io.StringIO(), len(cells)) as display:
            lasting = SimpleNamespace(run=executor.run, close=lambda: None)
            loop.run_cells(cells, kept, lasting, display)
    finally:
        if executor._application:
            left.append(executor._application)
    records = kept.records()
    failed = {record["group"]: record["error"] for record in records if record["status"] != "success"}
    assert failed == {}
    assert {record["group"] for record in records} == {cell.group for cell in cells}
    assert all(record["metrics"]["ms_per_step"] > 0 for record in records)


def ours_of(plan: Plan) -> list[Cell]:
    return [cell for cell in in_order(plan, cells_of(plan)) if not cell.peer]


# NativeLibrariesSuite computes with each BLAS.
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=pytest.mark.campaign if path.stem == "blas" else [], id=path.stem) for path in PATHS],
)
@pytest.mark.long
def test_cells_of_a_file_train(tmp_path: Path, left: list[Application], path: Path) -> None:
    plan = plan_of(path, tmp_path / "rows")
    ours = [cell for cell in ours_of(plan) if cell.run.settings.get("transport") not in OPTIONAL]
    chosen = [cell for cell in ours if FILES[path.stem].trains(cell.factors)]
    assert chosen
    train(plan, chosen, tmp_path, left)


@pytest.mark.parametrize("transport", OPTIONAL)
def test_cells_over_what_is_installed_apart_train(tmp_path: Path, left: list[Application], transport: str) -> None:
    file = {"ucx": "parameter-server", "mpi": "inband-vs-outofband"}[transport]
    plan = plan_of(ROOT / "conf" / "runs" / f"{file}.toml", tmp_path / "rows")
    cells = [cell for cell in ours_of(plan) if cell.run.settings.get("transport") == transport]
    assert cells
    for group, reason in check.missing(cells, peers.default_directory()).items():
        pytest.skip(f"{group}: {reason}")
    train(plan, cells, tmp_path, left)


@pytest.mark.parametrize("name", ["inband-vs-outofband", "workers"])
def test_peers_of_a_file_train(tmp_path: Path, left: list[Application], name: str) -> None:
    plan = plan_of(ROOT / "conf" / "runs" / f"{name}.toml", tmp_path / "rows")
    theirs = [cell for cell in in_order(plan, cells_of(plan)) if cell.peer]
    assert theirs
    for peer in {cell.peer for cell in theirs}:
        reason = peers.find(peer).missing(peers.default_directory())
        if reason:
            pytest.skip(reason)
    train(plan, list({cell.peer: cell for cell in theirs}.values()), tmp_path, left)


def test_every_cell_of_every_file_is_valid() -> None:
    """As `compare --dry-run` finds it: names, values, and what cannot go together; whatever is installed here."""
    plans = [load_plan(path, trials=1) for path in COMPARISON_FILES]
    ours = [cell for plan in plans for cell in cells_of(plan) if not cell.peer]
    check.check_cells([replace(cell, factors={**cell.factors, "file": cell.run.name}) for cell in ours], {})
