from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest

from conftest import FakeApi
from sparkdl_bench.errors import RunCancelledError, RunFailedError
from sparkdl_bench.progress import Progress
from sparkdl_bench.runner import follow, interruption

RUNNING: dict[str, Any] = {"state": "running", "epoch": 1, "epochs": 1, "step": 1, "steps": 2}
DONE: dict[str, Any] = {"state": "done", "epoch": 1, "epochs": 1, "step": 2, "steps": 2, "results": "results/x"}


def test_follows_to_the_end() -> None:
    seen: list[Progress] = []
    done = follow(FakeApi([RUNNING, DONE]), "run-1", seen.append)
    assert done.results == "results/x"
    assert [moment.state for moment in seen] == ["running", "done"]


def test_a_failure_carries_its_reason_and_the_folder() -> None:
    api = FakeApi([RUNNING, {"state": "failed", "error": "Rank 1 on host b did not answer.", "results": "results/x"}])
    with pytest.raises(RunFailedError, match=r"Rank 1 on host b did not answer\. What it wrote is in results/x\."):
        follow(api, "run-1")


def test_cancelled_by_somebody_else() -> None:
    with pytest.raises(RunCancelledError):
        follow(FakeApi([{**RUNNING, "state": "cancelled"}]), "run-1")


def test_ctrl_c_cancels_the_run_and_then_interrupts() -> None:
    api = FakeApi([RUNNING])
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt, match="cancelled"):
        follow(api, "run-1")
    timer.join()
    assert api.cancelled == ["run-1"]


def test_the_users_own_handler_comes_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interruption():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_interrupts_at_once() -> None:
    with interruption() as interrupted:
        signal.raise_signal(signal.SIGINT)
        assert interrupted.is_set()
        with pytest.raises(KeyboardInterrupt, match="twice"):
            signal.raise_signal(signal.SIGINT)


def test_other_threads_leave_signals_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    found: list[Any] = []

    def look() -> None:
        with interruption() as interrupted:
            found.extend([signal.getsignal(signal.SIGINT), interrupted.is_set()])

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [before, False]
