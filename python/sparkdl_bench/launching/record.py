"""What a launch leaves behind: the files of a run's folder (docs/reference/metrics.md), and a log for each rank."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

from sparkdl_bench import machine
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.files import replace_text
from sparkdl_bench.redaction import redacted, redacted_text
from sparkdl_bench.results import SCHEMA
from sparkdl_bench.version import __version__

LARGEST_LOG = 64 << 20
# Of a rank's reports the first ones are all kept as events, then one a second. The summary is made of all of rank 0's.
_ALL_EVENTS = 10_000
_LATER_MS = 1000.0
# Of steps.json; a script may count its steps as it likes.
_MOST_STEPS = 1_000_000
_MODE = 0o640


class LaunchRecord:
    """The results folder of one launch. Used by one thread at a time."""

    def __init__(self, folder: Path, sync: str, workers: int) -> None:
        self.folder = folder
        self._sync = sync
        self._workers = workers
        self._began_s = time.monotonic()
        self._events = _opened(folder / "events.jsonl")
        self._logs: dict[int, _Log] = {}
        self.training = Training()
        self._left_out = 0
        self._places: dict[int, dict[str, Any]] = {}
        self._notices: list[dict[str, Any]] = []
        self._events_of: dict[int, tuple[int, float]] = {}

    @classmethod
    def create(
        cls, results: Path, name: str, function: str, sync: str, configuration: Mapping[str, str], spark: Any
    ) -> LaunchRecord:
        """Makes `<results>/<time>-<name>/` with its `run.json`.

        Raises:
            ConfigurationError: the folder cannot be made.
        """
        safe = "".join(each if each.isascii() and (each.isalnum() or each in "._-") else "-" for each in name)
        now = datetime.now(timezone.utc)
        folder = results.absolute() / f"{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03d}-{safe}"
        try:
            folder.mkdir(parents=True)
            record = cls(folder, sync, int(configuration["workers"]))
        except OSError as error:
            raise ConfigurationError(
                f"The results folder '{folder}' cannot be made: {error.strerror}. Name a folder that can be written "
                "with results=… (--results)."
            ) from error
        record._write("run.json", _run(function, sync, configuration, spark))
        record.event("run_start", None, clock_started_ms=round(time.time() * 1e3))
        record.event("epoch_start", None, epoch_num=1)
        return record

    def event(self, key: str, value: Any, **metadata: Any) -> None:
        line = {"schema": SCHEMA, "time_ms": round(time.time() * 1e3), "key": key, "value": value, "metadata": metadata}
        self._events.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._events.flush()

    def placed(self, rank: int, host: str, pid: int) -> None:
        self._places[rank] = {"host": host, "pid": pid}
        self.event("rank_placed", rank, host=host, pid=pid)

    def place_of(self, rank: int) -> dict[str, Any]:
        """`host` and `pid` of a rank; empty before it has told."""
        return self._places.get(rank, {})

    def printed(self, rank: int, lines: Sequence[str], left_out: int) -> None:
        """Appends to the rank's log."""
        log = self._logs.get(rank)
        if log is None:
            (self.folder / "logs").mkdir(exist_ok=True)
            log = self._logs[rank] = _Log(_opened(self.folder / "logs" / f"rank-{rank}.log"))
        log.write(lines, left_out)

    def reported(self, rank: int, reports: Sequence[Mapping[str, Any]], left_out: int) -> None:
        self._left_out += left_out
        for report in reports:
            count, last_ms = self._events_of.get(rank, (0, 0.0))
            told_ms = float(report["time_ms"])
            if count < _ALL_EVENTS or told_ms - last_ms >= _LATER_MS:
                self._events_of[rank] = (count + 1, told_ms)
                numbers = {name: value for name, value in report.items() if name != "time_ms"}
                self.event("report", None, rank=rank, told_ms=round(told_ms), numbers=numbers)
            if rank == 0 and (ended := self.training.add(report)):
                if ended["test_accuracy"] is not None:
                    self.event("eval_accuracy", ended["test_accuracy"], epoch_num=ended["epoch"])
                self.event("epoch_stop", None, epoch_num=ended["epoch"], train_loss=ended["train_loss"])

    def noticed(self, kind: str, rank: int | None, reason: str) -> None:
        at = {"rank": rank, "host": self._places.get(-1 if rank is None else rank, {}).get("host"), "executor": None}
        seconds = time.monotonic() - self._began_s
        self._notices.append({"kind": kind, "seconds": seconds, **at, "reason": redacted_text(reason)})
        self.event(kind, None, **at, reason=redacted_text(reason))

    def close(self, status: str, error: str | None) -> None:
        """Writes what is left, `summary.json` last; once."""
        if self._events.closed:
            return
        seconds = time.monotonic() - self._began_s
        if not self.training.history:  # readers expect an epoch: all of it is one
            epoch = self.training.whole(seconds)
            self.event("epoch_stop", None, epoch_num=1, train_loss=epoch["train_loss"])
        self.event("run_stop", None, status=status)
        self._events.close()
        for log in self._logs.values():
            log.close()
        steps_ms = self.training.steps_ms
        self._write("steps.json", steps_ms)
        self._write("summary.json", self._summary(status, error, seconds))

    def _summary(self, status: str, error: str | None, seconds: float) -> dict[str, Any]:
        training = self.training
        last = training.history[-1]
        return {
            "schema": SCHEMA,
            "status": status,
            "error": None if error is None else redacted_text(error),
            "final": {
                "test_accuracy": last["test_accuracy"],
                "test_loss": last["test_loss"],
                "train_loss": last["train_loss"],
                "seconds_total": seconds,
                "seconds_prepare": None,
                "seconds_per_epoch_median": _median([each["seconds"] for each in training.history]),
                "ms_per_step_median": _median(training.steps_ms),
                "steps": training.steps,
            },
            "reported": training.last,
            "reports_left_out": self._left_out,
            "phases_ms": {},
            "ranks": [
                {"rank": rank, "host": place["host"], "executor": None, "phases_ms": {}, "made_others_wait_s": None}
                for rank, place in sorted(self._places.items())
            ],
            "bytes": {},
            "counts": {},
            "variant": {"algorithm": "launch", "topology": "–", "transport": self._sync, "codec": "–"},
            "workers": self._workers,
            "workers_at_start": self._workers,
            "servers": 0,
            "batch": 0,
            "notices": self._notices,
            "history": training.history,
        }

    def _write(self, name: str, content: Any) -> None:
        path = self.folder / name
        replace_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        path.chmod(path.stat().st_mode & _MODE)


class Training:
    """What rank 0's reports say: steps, epochs, the last numbers."""

    def __init__(self) -> None:
        self.steps = 0
        self.steps_ms: list[float] = []
        self.history: list[dict[str, Any]] = []
        self.last: dict[str, Any] = {}
        self._step_ms = 0.0
        self._epoch_s = time.time()

    def add(self, report: Mapping[str, Any]) -> dict[str, Any] | None:
        """Counts a report; returns the line of `history` where it ends an epoch."""
        now_ms = float(report["time_ms"])
        self.last.update({name: value for name, value in report.items() if name != "time_ms"})
        step = _finite(report.get("step"))
        if step is not None and step > self.steps:
            made = int(step) - self.steps
            if self.steps:
                kept = min(made, _MOST_STEPS - len(self.steps_ms))
                self.steps_ms += [round((now_ms - self._step_ms) / made, 4)] * kept
            self.steps, self._step_ms = int(step), now_ms
        epoch = _finite(report.get("epoch"))
        if epoch is None or epoch <= (self.history[-1]["epoch"] if self.history else 0):
            return None
        line = self._line(int(epoch), now_ms / 1e3 - self._epoch_s, report)
        self._epoch_s = now_ms / 1e3
        return line

    def whole(self, seconds: float) -> dict[str, Any]:
        """All of it as one epoch, where none was told."""
        return self._line(1, seconds, self.last)

    def _line(self, epoch: int, seconds: float, numbers: Mapping[str, Any]) -> dict[str, Any]:
        line = {
            "epoch": epoch,
            "seconds": max(0.0, seconds),
            "train_loss": _finite(numbers.get("train_loss", numbers.get("loss"))),
            "test_loss": _finite(numbers.get("test_loss")),
            "test_accuracy": _finite(numbers.get("test_accuracy")),
        }
        self.history.append(line)
        return line


class _Log:
    """A rank's output, up to a size."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._left = LARGEST_LOG

    def write(self, lines: Sequence[str], left_out: int) -> None:
        if left_out:
            self._put(f"[{left_out} lines left out: they came faster than they could be sent]")
        for line in lines:
            self._put(redacted_text(line))
        self._file.flush()

    def _put(self, line: str) -> None:
        if self._left <= 0:
            return
        self._left -= len(line) + 1
        full = f"\n[nothing more is kept: this file has {LARGEST_LOG >> 20} MiB]" if self._left <= 0 else ""
        self._file.write(f"{line}{full}\n")

    def close(self) -> None:
        self._file.close()


def _run(function: str, sync: str, configuration: Mapping[str, str], spark: Any) -> dict[str, Any]:
    """`run.json`."""
    facts = machine.facts()
    properties = dict(spark.sparkContext.getConf().getAll())
    return {
        "schema": SCHEMA,
        "kind": "launch",
        "function": function,
        "transport": sync,
        "configuration": redacted(configuration),
        "commit": machine.commit(),
        "versions": {"sparkdl-bench": __version__, "spark": spark.version, "python": facts["python"]},
        "host": {"cpu": facts["cpu"], "cores": facts["cores"], "os": facts["kernel"]},
        "threads_per_worker": int(properties.get("spark.task.cpus", "1")),
        "master": spark.sparkContext.master,
        "spark": redacted(properties),
    }


def _opened(path: Path) -> IO[str]:
    """A new file that other users of the host cannot read."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _MODE), "w", encoding="utf-8")


def _finite(value: Any) -> float | None:
    """None for NaN and infinity, which travel as their names."""
    return None if value is None or isinstance(value, str) else float(value)


def _median(values: Sequence[float]) -> float | None:
    from statistics import median

    return median(values) if values else None
