"""Measures an experiment's parts by `sparkdl-bench` itself, each in turn, as long as there is time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from papers.busy import OtherJobEndedError, busy
from papers.experiment import ROOT, Experiment, Job, Measured, Part
from sparkdl_bench.comparison import store
from sparkdl_bench.comparison.store import PLAN_FILE
from sparkdl_bench.errors import RunFailedError
from sparkdl_bench.files import load_json, replace_text
from sparkdl_bench.lab import hosts
from sparkdl_bench.report.analysis import analyse
from sparkdl_bench.report.load import Comparison

_JOBS = "jobs.json"
_ABSENT = "absent.json"
_DECODED = "decoded"
_SCHEMA = 1
# Beside which no other run is measured: a job that should take seconds, and does not end.
_JOB_S = 900.0
_LEFT_OUT = "no `--minutes` were left for it"
_NOT_BUSY = "the second Spark job ended while it was measured, so the machine was not busy all the time; it begins anew"
# In a comparison's folder: why its records say nothing of what they should.
_SPOILT = "spoilt.txt"
_NOT_BEGUN = "its command ended with an error before the first run, and said which"

Say = Callable[[str], None]


class Measuring:
    """One experiment in its folder of results.

    Args:
        results: of the experiment at this size: a folder for each part.
        data: of the sets.
        until: when nothing more is begun, by the monotonic clock.
    """

    def __init__(self, experiment: Experiment, size: str, results: Path, data: Path, until: float, say: Say) -> None:
        self._experiment, self._size, self._results, self._data = experiment, size, results, data
        self._until, self._say = until, say

    def run(self, parts: Sequence[str] = (), *, goes_on: bool, retry_failed: bool = False) -> list[str]:
        """Measures what is left of these parts (none: of all), and says which of them had runs that failed."""
        failed = []
        chosen = [each for each in self._experiment.pieces if not parts or each.name in parts]
        for each in chosen:
            reason = self._obstacle(each)
            if not reason and time.monotonic() >= self._until:
                reason = "" if self._is_begun(each) else _LEFT_OUT
            elif not reason:
                self._say(f"{self._experiment.letter}, {each.name}: {each.what}")
                told = self._job(each) if isinstance(each, Job) else self._part(each, goes_on, retry_failed)
                if told is not None:
                    failed.append(each.name)
                    reason = "" if self._is_begun(each) else told
            self._note(each.name, reason)
        return failed

    def _obstacle(self, each: Part | Job) -> str:
        """Why it cannot be measured on this machine; empty where it can."""
        if isinstance(each, Part) and each.lab and (reason := hosts.obstacle()):
            return f"it needs hosts of its own, and {reason}"
        needed = each.data
        if needed and not (self._data / needed).is_dir():
            return f"the set '{needed}' is not in '{self._data}'; --data names another folder"
        return ""

    def _part(self, part: Part, goes_on: bool, retry_failed: bool) -> str | None:
        """None where all went well, else the reason of a part of which nothing is there."""
        folder = self._results / part.name
        left_s = self._until - time.monotonic()
        words = part.command(self._size, str(self._data), str(self._results / _DECODED))
        words += ["--results", str(folder), "--skip-missing"]
        if left_s != float("inf"):
            words += ["--minutes", f"{left_s / 60:.3f}"]
        # What is spoilt is the newest, with which it would go on.
        latest = max(_folders(folder), default=None)
        if goes_on and not (latest and (latest / _SPOILT).is_file()):
            words.append("--resume")
            if retry_failed:
                words.append("--retry-failed")
        try:
            with self._around(part):
                return None if _ours(words) == 0 else _NOT_BEGUN
        except OtherJobEndedError as error:
            self._say(str(error))
            if latest := max(_folders(folder), default=None):
                replace_text(latest / _SPOILT, f"{error}\n")
            return _NOT_BUSY
        except RunFailedError as error:  # of a lab or of the job beside it; other parts need neither
            self._say(str(error))
            return _NOT_BEGUN

    @contextmanager
    def _around(self, part: Part) -> Iterator[None]:
        """The lab of a part, and the other job beside it."""
        with ExitStack() as stack:
            if part.lab:
                _checked(["lab", "up", part.lab_name, *part.lab])
                stack.callback(_ours, ["lab", "down", part.lab_name])
            if part.busy:
                stack.enter_context(busy(len(os.sched_getaffinity(0))))
            yield

    def _job(self, job: Job) -> str | None:
        """A whole command, timed from its start to its end; what went wrong, None where nothing did."""
        words = [word.replace("{data}", str(self._data)) for word in job.words]
        began = time.monotonic()
        try:
            done = _captured(words, _JOB_S)
        except subprocess.TimeoutExpired:
            reason = f"it did not end within {_JOB_S:g} s"
            self._say(f"{job.name}: {reason}")
            return reason
        seconds = round(time.monotonic() - began, 2)
        if done.returncode:
            self._say(done.stderr.strip())
            return _NOT_BEGUN
        said = [line.strip() for line in done.stdout.splitlines() if line.strip().startswith(tuple(job.shown))]
        known = read_jobs(self._results)
        fact = {"seconds": seconds, "said": said, "started": datetime.now(timezone.utc).isoformat(timespec="seconds")}
        known.setdefault(job.name, []).append(fact)
        replace_text(self._results / _JOBS, json.dumps({"schema": _SCHEMA, "jobs": known}, indent=1) + "\n")
        return None

    def _is_begun(self, each: Part | Job) -> bool:
        if isinstance(each, Job):
            return each.name in read_jobs(self._results)
        return fullest(self._results / each.name) is not None

    def _note(self, name: str, reason: str) -> None:
        """Why a part is not there, for the page; nothing where it is."""
        known = {**read_absent(self._results), name: reason}
        text = json.dumps({"schema": _SCHEMA, "absent": {key: why for key, why in known.items() if why}}, indent=1)
        replace_text(self._results / _ABSENT, text + "\n")


def measured(experiment: Experiment, size: str, results: Path) -> tuple[Measured, dict[str, Comparison]]:
    """What lies in a folder of results: the fullest comparison of each part, and these as they are kept."""
    comparisons: dict[str, Comparison] = {}
    absent = read_absent(results)
    for part in experiment.parts:
        folder = fullest(results / part.name)
        records = store.open_folder(folder).records() if folder else []
        if folder and any(record["status"] == "success" for record in records):
            comparisons[part.name] = Comparison(store.open_folder(folder).content, records)
        else:
            absent.setdefault(part.name, "every run of it failed" if records else "it was not asked for yet")
    jobs = read_jobs(results)
    for job in experiment.jobs:
        if job.name not in jobs:
            absent.setdefault(job.name, "it was not asked for yet")
    return of(comparisons, jobs, absent, size), comparisons


def of(
    comparisons: Mapping[str, Comparison],
    jobs: Mapping[str, Sequence[Mapping[str, Any]]],
    absent: Mapping[str, str],
    size: str,
) -> Measured:
    """The same from comparisons that were read elsewhere; what was measured is not absent."""
    there = {*comparisons, *jobs}
    return Measured(
        {name: analyse(each) for name, each in comparisons.items()},
        jobs,
        {name: reason for name, reason in absent.items() if name not in there},
        size,
    )


def fullest(folder: Path) -> Path | None:
    """The comparison in a folder with the most runs that succeeded, of several the newest; none that is spoilt."""
    whole = [each for each in _folders(folder) if not (each / _SPOILT).is_file()]
    return max(whole, key=lambda each: (_successes(each), each), default=None)


def _folders(folder: Path) -> list[Path]:
    return [file.parent for file in folder.glob(f"*/{PLAN_FILE}")]


def _successes(folder: Path) -> int:
    return sum(record["status"] == "success" for record in store.open_folder(folder).records())


def read_jobs(results: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = _read(results / _JOBS, "jobs")
    return found


def read_absent(results: Path) -> dict[str, str]:
    found: dict[str, str] = _read(results / _ABSENT, "absent")
    return found


def _read(file: Path, key: str) -> dict[str, Any]:
    if not file.is_file():
        return {}
    found: dict[str, Any] = load_json(file, _SCHEMA, {}, "what an experiment has measured")[key]
    return found


def _captured(words: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """What a command of ours said. Nothing of it is left, not its JVM either.

    Raises:
        subprocess.TimeoutExpired: it took longer.
    """
    whole = [sys.executable, "-m", "sparkdl_bench", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(  # noqa: S603 (the command is ours)
        whole, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        try:
            said, failed = process.communicate(timeout=timeout_s)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(whole, process.returncode, said, failed)


def _ours(words: Sequence[str]) -> int:
    whole = [sys.executable, "-m", "sparkdl_bench", *words]
    return subprocess.run(whole, cwd=ROOT, check=False).returncode  # noqa: S603 (the command is ours)


def _checked(words: Sequence[str]) -> None:
    if status := _ours(words):
        raise RunFailedError(
            f"`sparkdl-bench {' '.join(words)}` ended with status {status}; what it says stands above."
        )
