"""Follows a run in the JVM to its end, and cancels it on Ctrl-C."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from sparkdl_bench.errors import RunCancelledError, RunFailedError
from sparkdl_bench.progress import Progress

_POLL_SECONDS = 0.1
_CANCEL_SECONDS = 30.0


class _Runs(Protocol):
    def poll(self, run_id: str) -> dict[str, object]: ...

    def wait(self, run_id: str, millis: int) -> dict[str, object]: ...

    def cancel(self, run_id: str) -> None: ...


def follow(api: _Runs, run_id: str, on_progress: Callable[[Progress], None] = lambda _: None) -> Progress:
    """Waits for the end of a run.

    Polls ten times a second rather than at each step, so that watching costs a fast run nothing.

    Raises:
        RunFailedError: the run failed.
        RunCancelledError: somebody else cancelled it.
        KeyboardInterrupt: Ctrl-C; the run was cancelled.
    """
    with interruption() as interrupted:
        progress = Progress.of(api.poll(run_id))
        while progress.state == "running" and not interrupted.is_set():
            on_progress(progress)
            interrupted.wait(_POLL_SECONDS)
            progress = Progress.of(api.poll(run_id))
        if interrupted.is_set():
            progress = _cancel(api, run_id)
            raise KeyboardInterrupt(f"The run was cancelled. What it wrote is in {progress.results}.")
    api.wait(run_id, 0)  # returns when the run's thread has ended, so that its result is there
    on_progress(progress)
    if progress.state == "cancelled":
        raise RunCancelledError(f"The run was cancelled. What it wrote is in {progress.results}.")
    if progress.state != "done":
        raise RunFailedError(
            f"{progress.error or 'The run failed without a reason.'} What it wrote is in {progress.results}."
        )
    return progress


@contextmanager
def interruption() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets, in place of an exception amid a call to the JVM. A second one interrupts at once."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def handle(_number: int, _frame: FrameType | None) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt("Interrupted twice; the run may still go on in the JVM until this process ends.")
        interrupted.set()

    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, previous if previous is not None else signal.SIG_DFL)


def _cancel(api: _Runs, run_id: str) -> Progress:
    api.cancel(run_id)
    deadline = time.monotonic() + _CANCEL_SECONDS
    progress = Progress.of(api.poll(run_id))
    while progress.state == "running" and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        progress = Progress.of(api.poll(run_id))
    return progress
