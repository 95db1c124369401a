"""One rank of a launch: what runs in the Python worker of each barrier task."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sparkdl_bench import collective
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.launching import capture, groups, reporting, traces
from sparkdl_bench.launching.groups import Endpoint
from sparkdl_bench.launching.job import DONE, FAILED, GLOO, LOG, PLACE, REPORT, UNPICKLABLE, VALUE, Job, dumps, loads
from sparkdl_bench.launching.places import Place, places, restored, variables, visible_devices
from sparkdl_bench.version import __version__

Answer = tuple[int, str, bytes]
"""Rank, `value` or `unpicklable`, and the pickled result or the type that cannot be pickled."""
Connect = Callable[[str, int, int, int, float], Endpoint]


class RankEndedError(Exception):
    """Ends the task. The driver has been told the reason already."""


def run(job: Job, rank: int, addresses: Sequence[str], gpus: Sequence[str], connect: Connect) -> Answer:
    """Calls the user's function as one rank.

    Args:
        addresses: of the executors of all ranks, `host:port`.
        gpus: that Spark gave this rank.
        connect: `sparkdl_bench.worker.connect`.

    Raises:
        RankEndedError: the function raised; the driver has its traceback.
    """
    if job.version != __version__:
        raise ConfigurationError(
            f"The driver has sparkdl-bench {job.version}, and the Python of the executor on host {addresses[rank]} has "
            f"{__version__}. Install the same version on both."
        )
    place = places(addresses)[rank]
    endpoint = connect(job.launch_id, 0, rank, job.size, job.timeout_s)  # each attempt has a launch id of its own
    endpoint.when_lost(_end_process)
    try:
        return _Rank(job, place, endpoint).run(gpus)
    finally:
        endpoint.close()


def _end_process() -> None:
    """Ends this rank's process, whatever it does: nobody waits for it any more.

    Another rank has failed, the user has cancelled the launch, or the executor is gone. Spark ends the process too, but
    only seconds later, and not where the executor was killed while the process computes.
    """
    os._exit(1)


class _Rank:
    def __init__(self, job: Job, place: Place, endpoint: Endpoint) -> None:
        self._job = job
        self._place = place
        self._endpoint = endpoint
        self._telling = threading.Lock()
        self._reports = reporting.Reports()
        self._told: BaseException | None = None

    def run(self, gpus: Sequence[str]) -> Answer:
        self._tell(PLACE, {"pid": os.getpid(), "host": self._place.host})
        answer: Answer | None = None
        failure: BaseException | None = None
        with restored(), capture.captured(self._send_lines, self._send_reports):
            reporting.current.reports, reporting.current.attempt = self._reports, self._job.attempt
            try:
                answer = self._call(gpus)
            except BaseException as error:  # also sys.exit of a script
                if _is_good_exit(error):
                    answer = (self._place.rank, *_pickled(None))
                else:
                    failure = error
                    self._tell_failure(error)
            finally:
                reporting.current.reports = None
        self._send_reports()
        if failure is None:
            self._tell(DONE, {})
        self._endpoint.flush()
        if failure is not None or answer is None:
            raise RankEndedError(
                f"rank {self._place.rank} of {self._place.size} failed: {traces.message_of(failure) if failure else ''}"
            ) from None
        return answer

    def _call(self, gpus: Sequence[str]) -> Answer:
        job, place = self._job, self._place
        os.environ.update(variables(place, job.launch_id, job.attempt, job.attempts))
        met = [json.loads(text) for text in self._endpoint.meet(json.dumps([place.host, list(gpus)]))]
        os.environ.update(visible_devices(gpus, met, place.host))
        traces.know_sources(job.sources)
        collective.attach(self._endpoint, None if job.sync == GLOO else job.settings)
        groups.prepare(job.sync, place)
        train_fn, args, kwargs = _unpickled(job.call, place)
        with groups.ready(job.sync, self._endpoint, place, job.timeout_s, job.settings):
            try:
                result = train_fn(*args, **kwargs)
            except BaseException as error:
                # Before the group ends: what the others then see is the consequence of this.
                if not _is_good_exit(error):
                    self._tell_failure(error)
                raise
        kind, data = _pickled(result)
        return place.rank, kind, data

    def _tell_failure(self, error: BaseException) -> None:
        if error is self._told:
            return
        self._told = error
        self._tell(
            FAILED,
            {
                "type": type(error).__name__,
                "message": traces.message_of(error),
                "traceback": traces.of_user(error),
                "exchange": traces.is_of_exchange(error),
                "configuration": isinstance(error, ConfigurationError),
            },
        )

    def _send_lines(self, lines: Sequence[capture.Line], left_out: int) -> None:
        self._tell(LOG, {"lines": [list(line) for line in lines], "left_out": left_out})

    def _send_reports(self) -> None:
        for payload in self._reports.take():
            self._tell(REPORT, payload)

    def _tell(self, kind: str, payload: Mapping[str, Any]) -> None:
        with self._telling:
            self._endpoint.tell(kind, payload)


def _is_good_exit(error: BaseException) -> bool:
    return isinstance(error, SystemExit) and error.code in (None, 0)


def _unpickled(call: bytes, place: Place) -> tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]]:
    try:
        train_fn, args, kwargs = loads(call)
    except ImportError as error:
        raise ConfigurationError(
            f"The function's code cannot be loaded on host {place.host}: {error}. Install that module in the "
            "executors' Python, or send it with spark.sparkContext.addPyFile(...) or --py-files."
        ) from error
    return train_fn, args, kwargs


def _pickled(result: Any) -> tuple[str, bytes]:
    try:
        return VALUE, dumps(result)
    except Exception as error:  # whatever a __reduce__ of the user's objects raises
        kind = f"{type(result).__module__}.{type(result).__qualname__}"
        return UNPICKLABLE, dumps((kind, f"{type(error).__name__}: {error}"))
