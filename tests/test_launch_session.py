"""`sparkdl_bench.launch` in a real session: two executor processes, a Python worker in each."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import sparkdl_bench
from sparkdl_bench.errors import ConfigurationError, RankFailedError, RunFailedError
from sparkdl_bench.launching import scripts
from sparkdl_bench.results import RunResults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# pyspark's collect leaves its socket to the garbage collector, which says so.
pytestmark = [
    pytest.mark.usefixtures("sockets_end_here"),
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"),
]
_PATIENCE_SECONDS = 60.0


class Listener:
    """Standard output that lets the ranks go on when it has seen a line."""

    def __init__(self, line: str, signal: Path) -> None:
        self.text = ""
        self._line = line
        self._signal = signal

    def write(self, text: str) -> int:
        self.text += text
        if self._line in self.text:
            self._signal.touch()
        return len(text)

    def flush(self) -> None: ...


def awaited(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + _PATIENCE_SECONDS
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def summary_of(folder: Path) -> dict[str, Any]:
    """Of the only launch in a folder."""
    (results,) = folder.iterdir()
    return RunResults(results).summary


def test_ranks_return_report_and_print_while_they_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    listener = Listener("[rank 1] ready\n", seen)
    monkeypatch.setattr(sys, "stdout", listener)

    def train(path: str, patience: float, *, scale: int) -> tuple[int, dict[str, str], int]:
        rank = int(os.environ["RANK"])
        print("ready")
        end = time.monotonic() + patience
        while not Path(path).exists():
            assert time.monotonic() < end, "the driver did not see the line while this rank ran"
            time.sleep(0.02)
        os.write(1, f"native {rank}\n".encode())
        for step in (1, 2, 3):
            sparkdl_bench.report(step=step, loss=scale / step)
        return rank * scale, {name: os.environ[name] for name in ("WORLD_SIZE", "LOCAL_RANK", "NODE_RANK")}, os.getpid()

    args = (str(seen), _PATIENCE_SECONDS)
    done = sparkdl_bench.launch(
        train, spark, sync="none", args=args, kwargs={"scale": 10}, name="first", results=tmp_path / "results"
    )
    assert [value for value, _, _ in done] == [0, 10]
    assert [variables for _, variables, _ in done] == [
        {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "NODE_RANK": "0"},
        {"WORLD_SIZE": "2", "LOCAL_RANK": "1", "NODE_RANK": "0"},
    ]
    assert len({pid for *_, pid in done} | {os.getpid()}) == 3
    assert {"[rank 0] native 0", "[rank 1] native 1"} <= set(listener.text.splitlines())
    results = RunResults(done.results_dir)
    assert results.folder.name.endswith("-first")
    assert (results.folder / "logs" / "rank-1.log").read_text() == "ready\nnative 1\n"
    assert results.summary["status"] == "success"
    assert results.summary["final"]["steps"] == 3
    assert results.summary["reported"] == {"step": 3, "loss": pytest.approx(10 / 3)}
    assert results.run["spark"]["spark.master"] == "local-cluster[2,1,1024]"


def test_an_exception_in_one_rank_ends_the_others_and_is_told(spark: SparkSession, tmp_path: Path) -> None:
    def train(folder: str) -> None:
        rank = os.environ["RANK"]
        Path(folder, f"{rank}.partial").write_text(str(os.getpid()))
        Path(folder, f"{rank}.partial").rename(Path(folder, f"{rank}.pid"))
        while not all(Path(folder, f"{each}.pid").exists() for each in "01"):
            time.sleep(0.02)
        if rank == "1":
            raise ValueError("no rows")
        time.sleep(10 * 60)

    with pytest.raises(RankFailedError, match=r"Rank 1 of 2 on host 127.0.0.1 failed: ValueError: no rows") as raised:
        sparkdl_bench.launch(train, spark, sync="none", args=(str(tmp_path),), results=tmp_path / "results")
    error = raised.value
    assert (error.rank, error.host) == (1, "127.0.0.1")
    first, *_, last = error.traceback.splitlines()
    assert (first, last) == ("Traceback (most recent call last):", "ValueError: no rows")
    assert 'raise ValueError("no rows")' in error.traceback
    assert error.traceback.count("  File ") == 1, "frames that are not the user's"
    assert summary_of(tmp_path / "results")["status"] == "failed"
    assert awaited(lambda: is_gone(int((tmp_path / "0.pid").read_text())))


def test_a_script_that_fails_is_told_with_its_own_traceback(spark: SparkSession, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import sys\n\nprint(sys.argv[1])\nraise ValueError('no rows')\n")
    with pytest.raises(RankFailedError, match=r"Rank \d of 2 on host 127.0.0.1 failed: ValueError: no rows") as raised:
        sparkdl_bench.launch(scripts.read(script, ["first"]), spark, sync="none", results=tmp_path / "results")
    assert f'File "{script}", line 4' in raised.value.traceback
    assert "runpy" not in raised.value.traceback


def test_a_failed_rank_that_does_not_end_is_not_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    """As one that has begun something with ranks that do not come."""

    def train(folder: str) -> None:
        rank = os.environ["RANK"]
        Path(folder, f"{rank}.partial").write_text(str(os.getpid()))
        Path(folder, f"{rank}.partial").rename(Path(folder, f"{rank}.pid"))
        while not all(Path(folder, f"{each}.pid").exists() for each in "01"):
            time.sleep(0.02)
        if rank == "1":
            from sparkdl_bench.launching import capture

            capture._Pump.end = lambda _: time.sleep(10 * 60)  # type: ignore[method-assign]
            raise ValueError("no rows")
        time.sleep(10 * 60)

    with pytest.raises(RankFailedError, match=r"Rank 1 of 2 on host 127.0.0.1 failed: ValueError: no rows"):
        sparkdl_bench.launch(train, spark, sync="none", args=(str(tmp_path),), results=tmp_path / "results")
    for rank in "01":
        pid = int((tmp_path / f"{rank}.pid").read_text())
        assert awaited(lambda pid=pid: is_gone(pid))


def test_a_killed_python_worker_is_named(spark: SparkSession, tmp_path: Path) -> None:
    def train() -> None:
        if os.environ["RANK"] == "1":
            os.kill(os.getpid(), 9)
        time.sleep(10 * 60)

    with pytest.raises(
        RankFailedError, match=r"Rank 1 of 2 on host .* \(process \d+\) lost its Python process"
    ) as raised:
        sparkdl_bench.launch(train, spark, sync="none", results=tmp_path)
    assert raised.value.rank == 1
    assert "Rank 1 of 2" in summary_of(tmp_path)["error"]


def test_a_lost_executor_means_another_attempt(spark: SparkSession, tmp_path: Path) -> None:
    def train() -> int:
        if os.environ["RANK"] == "1" and not sparkdl_bench.launch_attempt():
            daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
            os.kill(int(daemon.rpartition(")")[2].split()[1]), 9)
            time.sleep(10 * 60)
        elif not sparkdl_bench.launch_attempt():
            time.sleep(10 * 60)
        return sparkdl_bench.launch_attempt()

    done = sparkdl_bench.launch(train, spark, sync="none", attempts=2, results=tmp_path)
    assert done == [1, 1]
    (notice,) = summary_of(tmp_path)["notices"]
    assert (notice["kind"], notice["rank"]) == ("resubmitted", 1)
    assert "lost its executor" in notice["reason"]


def test_a_result_that_cannot_be_pickled_is_named(spark: SparkSession, tmp_path: Path) -> None:
    def train() -> object:
        return threading.Lock() if os.environ["RANK"] == "1" else None

    with pytest.raises(RunFailedError, match=r"Rank 1 of 2 .* returned a _thread.lock"):
        sparkdl_bench.launch(train, spark, sync="none", results=tmp_path)


def test_what_cannot_run_starts_no_job(spark: SparkSession, tmp_path: Path, jobs: Callable[[], int]) -> None:
    before = jobs()
    with pytest.raises(ConfigurationError, match="has 2 task slots"):
        sparkdl_bench.launch(print, spark, workers=3, sync="none", results=tmp_path)
    with pytest.raises(ConfigurationError, match="Did you mean 'block-stream'"):
        sparkdl_bench.launch(print, spark, sync="blockstream", results=tmp_path)
    with pytest.raises(ConfigurationError, match="Spark Connect"):
        sparkdl_bench.launch(print, SimpleNamespace(is_remote=lambda: True), results=tmp_path)  # type: ignore[arg-type]
    assert jobs() == before
    assert not list(tmp_path.iterdir())


def test_a_way_that_needs_pytorch_says_where_it_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    def hide() -> None:
        sys.modules["torch"] = None  # type: ignore[assignment]  # as in a Python without it

    def show() -> None:
        sys.modules.pop("torch", None)

    # Python workers are used again, so the next launch meets the same ones.
    sparkdl_bench.launch(hide, spark, sync="none", results=tmp_path)
    try:
        with pytest.raises(ConfigurationError, match="sync='gloo' needs PyTorch in the Python of the executors"):
            sparkdl_bench.launch(print, spark, sync="gloo", results=tmp_path)
    finally:
        sparkdl_bench.launch(show, spark, sync="none", results=tmp_path)
