"""Follows a run in the JVM to its end, and cancels it on Ctrl-C."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

from sparkdl_bench import exports
from sparkdl_bench import signals as command_signals
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
_END_START_SECONDS = 8.0
_DECODING_SECONDS = 0.2


class _Runs(Protocol):
    def poll(self, run_id: str) -> dict[str, object]: ...

    def wait(self, run_id: str, millis: int) -> dict[str, object]: ...

    def cancel(self, run_id: str) -> None: ...


class _Starts(_Runs, Protocol):
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
    with interruption(signals) as interrupted:
        started = _in_background(lambda: _start(api, settings))
        while not started.done():
            if interrupted.is_set():
                _end_decoding(api, started)
                break
            on_decoding(api.decoding())
            wait([started], _DECODING_SECONDS)
        if interrupted.is_set():
            if started.done() and started.exception() is None:
                _cancel(api, started.result())  # it has begun all the same
            raise Interrupted(interrupted.number, "The run was cancelled before it had begun.")
        return started.result()


def _start(api: _Starts, settings: Mapping[str, str]) -> str:
    with exports.for_jvm(settings) as readable:
        return api.start(readable)


def _in_background(call: Callable[[], str]) -> Future[str]:
    """By a daemon thread: nobody waits for a call that a signal has made useless."""
    future: Future[str] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name="sparkdl-start", daemon=True).start()
    return future


def _end_decoding(api: _Starts, started: Future[str]) -> None:
    """A job that is just about to be submitted is not there to be cancelled yet: asks until the wait is over."""
    deadline = time.monotonic() + _END_START_SECONDS
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
        ConfigurationError: it failed because of what a rank found and the user can fix.
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


class Interruption:
    """Set when a signal came; `number` says which.

    No `threading.Event`: its lock may be held by the very thread that the handler interrupts.
    """

    def __init__(self) -> None:
        self.number: int = signal.SIGINT
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, seconds: float) -> None:
        if not self._is_set:
            time.sleep(seconds)


# The one of the command that this process is, while there is one.
_of_command: Interruption | None = None


@contextmanager
def interruption(signals: Sequence[int] = (signal.SIGINT,)) -> Iterator[Interruption]:
    """An event that Ctrl-C sets, in place of an exception during a call to the JVM. A second one interrupts at once.

    In a command, which has all its signals handled (`sparkdl_bench.signals`), one within another is the same.
    """
    if threading.current_thread() is not threading.main_thread():
        yield Interruption()
    elif command_signals.installed():
        with _interruption_of_command() as interrupted:
            yield interrupted
    else:
        with _interruption_of_program(signals) as interrupted:
            yield interrupted


@contextmanager
def _interruption_of_command() -> Iterator[Interruption]:
    global _of_command
    if _of_command is not None:
        yield _of_command
        return
    interrupted = Interruption()

    def cancel(number: int) -> None:
        interrupted.number = number
        interrupted.set()

    _of_command = interrupted
    try:
        with command_signals.cancelling(cancel):
            yield interrupted
    finally:
        _of_command = None
    if interrupted.is_set():
        raise Interrupted(interrupted.number)


@contextmanager
def _interruption_of_program(signals: Sequence[int]) -> Iterator[Interruption]:
    interrupted = Interruption()

    def handle(number: int, _frame: FrameType | None) -> None:
        if interrupted.is_set():
            raise Interrupted(number, "Interrupted twice; the run may continue in the JVM until this process ends.")
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
