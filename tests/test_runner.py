from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from conftest import FakeApi
from sparkdl_bench.errors import ConfigurationError, DivergedError, Interrupted, RunCancelledError, RunFailedError
from sparkdl_bench.progress import Progress
from sparkdl_bench.runner import follow, interruption, start

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


def test_what_a_rank_found_that_the_user_can_mend_is_no_failed_run() -> None:
    failed = {"state": "failed", "error": "No such interface.", "error_kind": "configuration", "results": "results/x"}
    with pytest.raises(ConfigurationError, match=r"No such interface\. What it wrote is in results/x\.") as caught:
        follow(FakeApi([RUNNING, failed]), "run-1")
    assert caught.value.exit_code == 2
    with pytest.raises(RunFailedError):
        follow(FakeApi([RUNNING, {**failed, "error_kind": "run"}]), "run-1")


def test_a_divergence_is_an_error_of_its_own() -> None:
    diverged = {"state": "diverged", "error": "Step 3.", "error_kind": "diverged", "results": "results/x"}
    with pytest.raises(DivergedError, match=r"Step 3\. What it wrote is in results/x\.") as caught:
        follow(FakeApi([RUNNING, diverged]), "run-1")
    assert isinstance(caught.value, RunFailedError)
    assert caught.value.exit_code == 1


def test_cancelled_by_somebody_else() -> None:
    with pytest.raises(RunCancelledError):
        follow(FakeApi([{**RUNNING, "state": "cancelled"}]), "run-1")


def soon(number: signal.Signals) -> Callable[[Any], None]:
    """Sends this process the signal a moment after it is called first: who calls it is ready for the signal."""
    timer = threading.Timer(0.1, os.kill, (os.getpid(), number))

    def call(_: Any) -> None:
        if timer.ident is None:
            timer.start()

    return call


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_cancels_the_run_and_then_interrupts(number: signal.Signals, status: int) -> None:
    api = FakeApi([RUNNING])
    with pytest.raises(Interrupted, match="cancelled") as caught:
        follow(api, "run-1", soon(number), signals=(signal.SIGINT, signal.SIGTERM))
    assert api.cancelled == ["run-1"]
    assert caught.value.exit_code == status


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


class SlowStart:
    """`start` waits until it was looked at three times, or until it is cancelled."""

    def __init__(self) -> None:
        self.looks = 0
        self.ended = threading.Event()
        self.cancelled = False

    def start(self, settings: Mapping[str, str]) -> str:
        assert self.ended.wait(100)
        if self.cancelled:
            raise ConfigurationError("The data set cannot be decoded: it was cancelled.")
        return settings["name"]

    def decoding(self) -> dict[str, Any]:
        self.looks += 1
        if self.looks >= 3:
            self.ended.set()
        return {"source": "csv", "done": self.looks, "parts": 3, "rows": 10 * self.looks} if self.looks > 1 else {}

    def cancel_decoding(self) -> None:
        self.cancelled = True
        self.ended.set()


def test_who_waits_for_a_run_to_begin_is_told_how_far_decoding_is() -> None:
    seen: list[Mapping[str, Any]] = []
    assert start(SlowStart(), {"name": "run-7"}, seen.append) == "run-7"
    assert [moment.get("done") for moment in seen[:3]] == [None, 2, 3]


def test_why_a_run_cannot_begin_comes_through() -> None:
    api = SlowStart()
    api.cancel_decoding()
    with pytest.raises(ConfigurationError, match="cannot be decoded"):
        start(api, {"name": "run-7"}, lambda _: None)


def test_a_signal_ends_the_decoding() -> None:
    api = SlowStart()
    api.looks = -1000
    with pytest.raises(Interrupted, match="before it had begun"):
        start(api, {"name": "run-7"}, soon(signal.SIGINT))
    assert api.cancelled
