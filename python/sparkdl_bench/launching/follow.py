"""Follows the ranks of one attempt to their end, and finds the one with which a failure began."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from sparkdl_bench.errors import ConfigurationError, Interrupted, RankFailedError, RunFailedError, SparkDLError
from sparkdl_bench.launching.display import Display
from sparkdl_bench.launching.job import DONE, FAILED, LOG, PLACE, REPORT
from sparkdl_bench.launching.record import LaunchRecord
from sparkdl_bench.launching.stage import Ended, why
from sparkdl_bench.runner import Interruption

_POLL_MILLIS = 100
# After the job's good end, for what ranks told before theirs.
_LAST_WORDS_SECONDS = 10.0
# After a failure, for the word of the rank that it began with.
_CAUSE_SECONDS = 3.0
_CANCEL_SECONDS = 10.0
# After a rank has told its failure, for the end of its task: what it has begun with others may hold it up.
_FAILED_SECONDS = 1.5
# The same where it may be the consequence of another rank's end, of which Spark will know more.
_CONSEQUENCE_SECONDS = 10.0


class Launches(Protocol):
    """The driver's end of the ranks' messages (`_jvm.Api`)."""

    def launch_slots(self) -> int: ...

    def launch_open(self, launch_id: str) -> None: ...

    def launch_messages(self, launch_id: str, millis: int) -> list[dict[str, Any]]: ...

    def launch_close(self, launch_id: str) -> None: ...


class Submission(Protocol):
    """A job that was not started yet (`stage.Stage`)."""

    future: Future[list[Any]]

    def start(self) -> None: ...

    def cancel(self) -> None: ...


class LostError(RankFailedError):
    """A rank's executor was lost: the launch may be tried again."""


@dataclass(frozen=True)
class _Failure:
    rank: int
    host: str
    message: str
    traceback: str
    of_exchange: bool
    is_configuration: bool


class Watch:
    """What the ranks of one attempt have told."""

    def __init__(self, size: int, record: LaunchRecord, display: Display) -> None:
        self.size = size
        self._record = record
        self._display = display
        self._placed: set[int] = set()
        self._done: set[int] = set()
        self._failures: dict[int, _Failure] = {}
        self._failed_s: float | None = None

    @property
    def has_begun(self) -> bool:
        """Every rank runs, or has run."""
        return len(self._placed) == self.size

    @property
    def begun(self) -> int:
        return len(self._placed)

    @property
    def is_over(self) -> bool:
        """Every rank has told its end."""
        return len(self._done | self._failures.keys()) == self.size

    @property
    def cause(self) -> _Failure | None:
        """The first failure that is no consequence of another one; else the first one."""
        own = [each for each in self._failures.values() if not each.of_exchange]
        return next(iter([*own, *self._failures.values()]), None)

    @property
    def is_stuck(self) -> bool:
        """Whether a rank has failed so long ago that its task should have ended, and the job with it."""
        if self.cause is None or self._failed_s is None:
            return False
        patience = _CONSEQUENCE_SECONDS if self.cause.of_exchange else _FAILED_SECONDS
        return time.monotonic() - self._failed_s > patience

    @property
    def silent(self) -> list[int]:
        """Ranks that have not told an end."""
        return [rank for rank in range(self.size) if rank not in self._done and rank not in self._failures]

    def has_told(self, rank: int) -> bool:
        return rank in self._failures

    def place(self, rank: int) -> dict[str, Any]:
        return self._record.place_of(rank)

    def take(self, message: Mapping[str, Any]) -> None:
        rank, kind, payload = int(message["rank"]), message["kind"], message["payload"]
        if kind == LOG:
            lines = [(str(stream), str(text)) for stream, text in payload["lines"]]
            self._record.printed(rank, [text for _, text in lines], int(payload["left_out"]))
            self._display.printed(rank, lines, int(payload["left_out"]))
        elif kind == REPORT:
            self._record.reported(rank, payload["reports"], int(payload["left_out"]))
            for report in payload["reports"]:
                self._display.reported(rank, {key: value for key, value in report.items() if key != "time_ms"})
        elif kind == PLACE:
            self._placed.add(rank)
            self._record.placed(rank, str(payload["host"]), int(payload["pid"]))
        elif kind == FAILED:
            self._failed_s = self._failed_s or time.monotonic()
            self._failures.setdefault(
                rank,
                _Failure(
                    rank,
                    str(message["host"]),
                    str(payload["message"]),
                    str(payload["traceback"]),
                    bool(payload["exchange"]),
                    bool(payload["configuration"]),
                ),
            )
        elif kind == DONE:
            self._done.add(rank)
        elif kind == "dropped":  # by the driver, which reads too slowly
            self._record.printed(rank, [f"[{payload['count']} messages of this rank were lost at the driver]"], 0)


def follow(
    api: Launches, launch_id: str, stage: Submission, watch: Watch, interrupted: Interruption, begin_s: float
) -> list[Any]:
    """Starts the job and waits for its end; returns the ranks' answers.

    Args:
        begin_s: the longest wait until all ranks run, seconds.

    Raises:
        LostError: an executor was lost.
        RankFailedError, ConfigurationError, RunFailedError: the launch failed.
        Interrupted: a signal came; the job was cancelled.
    """

    def listen(until: Callable[[], bool], seconds: float = float("inf")) -> None:
        end = time.monotonic() + seconds
        while not until() and time.monotonic() < end:
            for message in api.launch_messages(launch_id, _POLL_MILLIS):
                watch.take(message)

    def take_the_rest() -> None:
        """What is there already, such as a rank's last lines, which it tells after its failure."""
        while messages := api.launch_messages(launch_id, 0):
            for message in messages:
                watch.take(message)

    def is_late() -> bool:
        return not watch.has_begun and time.monotonic() - began_s > begin_s

    began_s = time.monotonic()
    stage.start()
    listen(lambda: stage.future.done() or interrupted.is_set() or is_late() or watch.is_stuck)
    if interrupted.is_set():
        stage.cancel()
        listen(stage.future.done, _CANCEL_SECONDS)
        take_the_rest()
        raise Interrupted(interrupted.number)
    if not stage.future.done() and watch.is_stuck:
        stage.cancel()
        listen(stage.future.done, _CAUSE_SECONDS)
        take_the_rest()
        raise _raised(Ended(None, "task", "a rank failed"), watch)
    if not stage.future.done():
        stage.cancel()
        listen(stage.future.done, _CANCEL_SECONDS)
        raise RunFailedError(
            f"Of {watch.size} ranks {watch.begun} began within {begin_s:g} s. Other jobs of the session may hold its "
            "task slots, or executors were lost: look at Spark's page. End those jobs, or give a longer timeout."
        )
    error = stage.future.exception()
    if error is None:
        listen(lambda: watch.is_over, _LAST_WORDS_SECONDS)
        take_the_rest()
        return stage.future.result()
    if isinstance(error, SparkDLError):
        raise error
    ended = why(error)
    listen(lambda: watch.is_over or _is_clear(ended, watch), _CAUSE_SECONDS)
    take_the_rest()
    raise _raised(ended, watch)


def _is_clear(ended: Ended, watch: Watch) -> bool:
    if ended.kind != "task":
        return True
    return watch.cause is not None and not watch.cause.of_exchange


def _raised(ended: Ended, watch: Watch) -> SparkDLError:
    cause = watch.cause
    if ended.kind == "executor":
        return LostError(*_lost(ended, watch, f"lost its executor ({ended.reason})"))
    if ended.kind == "python" and (ended.rank is None or not watch.has_told(ended.rank)):
        gone = (
            "lost its Python process: it was killed, perhaps for want of memory (spark.executor.memoryOverhead, or the "
            "host's), or native code crashed. The end of its log, and the executor's standard error, may say more"
        )
        return RankFailedError(*_lost(ended, watch, gone))
    if cause is None:
        if ended.configuration:
            return ConfigurationError(ended.reason)
        return RunFailedError(f"The launch failed: {ended.reason}.")
    if cause.is_configuration:
        return ConfigurationError(cause.message.removeprefix("sparkdl_bench.errors.ConfigurationError: "))
    silent = [rank for rank in watch.silent if rank != cause.rank] if cause.of_exchange else []
    consequence = (
        f" That may be the consequence of the end of another one: {_named(silent, watch)} told no reason, so its "
        "process may have been killed."
        if silent
        else ""
    )
    where = f"Rank {cause.rank} of {watch.size} on host {cause.host} failed: "
    return RankFailedError(
        f"{where}{cause.message.splitlines()[0]}{_stop(cause.message.splitlines()[0])}{consequence}\n{cause.traceback}",
        cause.rank,
        cause.host,
        cause.traceback,
    )


def _lost(ended: Ended, watch: Watch, what: str) -> tuple[str, int | None, str | None, str]:
    """Arguments of a RankFailedError without a traceback."""
    if ended.rank is None:
        return f"A rank {what}.", None, None, ""
    place = watch.place(ended.rank)
    host, pid = place.get("host"), place.get("pid")
    where = f"Rank {ended.rank} of {watch.size}" + (f" on host {host} (process {pid})" if host else "")
    return f"{where} {what}.", ended.rank, host, ""


def _named(ranks: list[int], watch: Watch) -> str:
    return ", ".join(
        f"rank {rank} on host {watch.place(rank).get('host', '(not known)')} (process {watch.place(rank).get('pid')})"
        for rank in ranks
    )


def _stop(sentence: str) -> str:
    return "" if sentence.endswith((".", "!", "?")) else "."
