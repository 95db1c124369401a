"""Follows a run in the JVM to its end, and cancels it on Ctrl-C."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

from sparkdl_bench.errors import (
    ConfigurationError,
    DivergedError,
    Interrupted,
    RunCancelledError,
    RunFailedError,
    SparkDLError,
)
from sparkdl_bench.progress import Progress

_POLL_SECONDS = 0.1
_CANCEL_SECONDS = 30.0
_DECODING_SECONDS = 0.2


class _Runs(Protocol):
    def poll(self, run_id: str) -> dict[str, object]: ...

    def wait(self, run_id: str, millis: int) -> dict[str, object]: ...

    def cancel(self, run_id: str) -> None: ...


class _Starts(Protocol):
    def start(self, settings: Mapping[str, str]) -> str: ...

    def decoding(self) -> dict[str, Any]: ...

    def cancel_decoding(self) -> None: ...


def start(
    api: _Starts,
    settings: Mapping[str, str],
    on_decoding: Callable[[Mapping[str, Any]], None],
    signals: Sequence[int] = (signal.SIGINT,),
) -> str:
    """Starts a run; returns its id. The first run over some sets decodes them first, which may take minutes.

    Args:
        on_decoding: told how far that is (`source`, `done`, `parts`, `rows`), a few times a second.

    Raises:
        ConfigurationError: session, settings or data are not fit for the run.
        Interrupted: one of the signals came while it waited.
    """
    with interruption(signals) as interrupted, ThreadPoolExecutor(1) as pool:
        started = pool.submit(api.start, settings)
        while not started.done():
            if interrupted.is_set():
                _end_decoding(api, started)
                raise Interrupted(interrupted.number, "The run was cancelled before it had begun.")
            on_decoding(api.decoding())
            wait([started], _DECODING_SECONDS)
        return started.result()


def _end_decoding(api: _Starts, started: Future[str]) -> None:
    """A job that is just about to be submitted is not there to be cancelled yet: asks until the wait is over."""
    deadline = time.monotonic() + _CANCEL_SECONDS
    while not started.done() and time.monotonic() < deadline:
        api.cancel_decoding()
        wait([started], _DECODING_SECONDS)


def follow(
    api: _Runs,
    run_id: str,
    on_progress: Callable[[Progress], None] = lambda _: None,
    signals: Sequence[int] = (signal.SIGINT,),
) -> Progress:
    """Waits for the end of a run.

    Polls ten times a second rather than at each step, so that watching costs a fast run nothing.

    Args:
        signals: those that cancel the run; a program of the user's own keeps its handlers of all others.

    Raises:
        RunFailedError: the run failed; DivergedError where its loss is not finite.
        ConfigurationError: it failed because of what a rank found and the user can mend.
        RunCancelledError: somebody else cancelled it.
        Interrupted: one of the signals came; the run was cancelled.
    """
    with interruption(signals) as interrupted:
        progress = Progress.of(api.poll(run_id))
        while progress.state == "running" and not interrupted.is_set():
            on_progress(progress)
            interrupted.wait(_POLL_SECONDS)
            progress = Progress.of(api.poll(run_id))
        if interrupted.is_set():
            progress = _cancel(api, run_id)
            raise Interrupted(interrupted.number, f"The run was cancelled. What it wrote is in {progress.results}.")
    api.wait(run_id, 0)  # returns when the run's thread has ended, so that its result is there
    on_progress(progress)
    if progress.state == "cancelled":
        raise RunCancelledError(f"The run was cancelled. What it wrote is in {progress.results}.")
    if progress.state != "done":
        kinds: dict[str | None, type[SparkDLError]] = {"configuration": ConfigurationError, "diverged": DivergedError}
        kind = kinds.get(progress.error_kind, RunFailedError)
        raise kind(f"{progress.error or 'The run failed without a reason.'} What it wrote is in {progress.results}.")
    return progress


class Interruption(threading.Event):
    """Set when a signal came; `number` says which."""

    number: int = signal.SIGINT


@contextmanager
def interruption(signals: Sequence[int] = (signal.SIGINT,)) -> Iterator[Interruption]:
    """An event that Ctrl-C sets, in place of an exception amid a call to the JVM. A second one interrupts at once."""
    interrupted = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def handle(number: int, _frame: FrameType | None) -> None:
        if interrupted.is_set():
            raise Interrupted(number, "Interrupted twice; the run may still go on in the JVM until this process ends.")
        interrupted.number = number
        interrupted.set()

    previous = {number: signal.signal(number, handle) for number in signals}
    try:
        yield interrupted
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _cancel(api: _Runs, run_id: str) -> Progress:
    api.cancel(run_id)
    deadline = time.monotonic() + _CANCEL_SECONDS
    progress = Progress.of(api.poll(run_id))
    while progress.state == "running" and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        progress = Progress.of(api.poll(run_id))
    return progress
