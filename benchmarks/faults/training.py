"""One training of a campaign: `sparkdl-bench run` in a process group of its own, which faults are done to."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from faults.law import Ended
from faults.ways import Way
from sparkdl_bench.bench.watched_run import role
from sparkdl_bench.errors import RunFailedError
from sparkdl_bench.peers._process import marked, stop_all

MARK = "SPARKDL_FAULT_RUN"
ENGINE = "sparkdl_bench.engines._process"
_POLL_S = 0.02
_NOTICED_S = 40.0
# Of the least optimising compiler alone, as in the tests: these JVMs live for seconds.
_JVM_OPTIONS = "-XX:TieredStopAtLevel=1"


class EndedEarlyError(RunFailedError):
    """The run was over before the fault could come."""


class Training:
    """A run and its processes.

    Args:
        folder: its own; with `tmp`, `local` (Spark's scratch space), `results` and `checkpoints`.
        settings: keys of the run beside the way's.
        spark: properties of the session beside the way's.
        environment: variables beside this process's.
        prefix: words before the command, such as those that run it on another host.
        limit_s: after which it counts as hung.
    """

    def __init__(
        self,
        folder: Path,
        way: Way,
        settings: Mapping[str, Any],
        spark: Mapping[str, str],
        environment: Mapping[str, str],
        prefix: Sequence[str] = (),
        limit_s: float = 120.0,
    ) -> None:
        self.folder, self.way, self._limit_s = folder, way, limit_s
        self.results = Path(settings["results"])
        self.mark = secrets.token_hex(8)
        self.pids: set[int] = set()
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "run.toml"
        # Executors of a cluster that was there before are no children of this process.
        session = {**way.session, **spark, f"spark.executorEnv.{MARK}": self.mark}
        file.write_text(_toml({"name": "fault", **way.run, **settings}, session), encoding="utf-8")
        self._said, self._out = folder / "stderr.txt", folder / "stdout.txt"
        self._started = time.monotonic()
        with self._said.open("wb") as said, self._out.open("wb") as out:
            self.process = subprocess.Popen(  # noqa: S603 (the command is ours)
                [*prefix, sys.executable, "-m", "sparkdl_bench", "run", str(file)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=said,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **environment, MARK: self.mark},
                start_new_session=True,
            )

    def processes(self) -> list[psutil.Process]:
        """All that live, no matter which process started them."""
        found = marked(self.mark, MARK)
        self.pids.update(each.pid for each in found)
        return found

    def executors(self) -> list[psutil.Process]:
        return self._in_role(lambda words: role(words).startswith("executor"))

    def drivers(self) -> list[psutil.Process]:
        """The driver's JVM, where it lives."""
        return self._in_role(lambda words: role(words) == "driver")

    def engines(self) -> list[psutil.Process]:
        """The Python processes that compute."""
        return self._in_role(lambda words: ENGINE in words)

    def _in_role(self, wanted: Callable[[Sequence[str]], bool]) -> list[psutil.Process]:
        found = []
        for each in self.processes():
            with contextlib.suppress(psutil.Error):  # it has just ended
                if wanted(each.cmdline()):
                    found.append(each)
        return sorted(found, key=lambda each: each.pid)

    def await_training(self) -> None:
        """Until the ranks are connected.

        Raises:
            EndedEarlyError: the run has ended.
        """
        key = "attempt_began" if self.way.job_per_step else "rank_groups"
        self.wait(lambda: any(f'"{key}"' in text for text in self._events()))

    def await_checkpoint(self, count: int, checkpoints: Path) -> None:
        """Until the `count`-th checkpoint of the plan, or a later one, is whole."""
        step = count * int(self.way.run["checkpoint.every"])
        self.wait(lambda: newest_checkpoint(checkpoints) >= step)

    def wait(self, done: Callable[[], bool]) -> None:
        """Until `done`.

        Raises:
            EndedEarlyError: the run has ended, or does not come there within its time.
        """
        deadline = self._started + self._limit_s
        while not done():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise EndedEarlyError("The run was over before the fault.")
            time.sleep(_POLL_S)

    def _events(self) -> list[str]:
        files = self.results.glob("*/events.jsonl")
        return [file.read_text(encoding="utf-8", errors="replace") for file in files]

    def end(self) -> Ended:
        """Waits for its end; a run that does not end is stopped, and counts as hung."""
        hung = False
        deadline = self._started + self._limit_s
        while self.process.poll() is None:
            self.processes()
            if time.monotonic() > deadline:
                hung = True
                self.kill()
                break
            time.sleep(0.1)
        seconds = time.monotonic() - self._started
        # Of a command that was killed the JVM goes on for a moment, and writes the summary.
        while self.processes() and time.monotonic() < self._started + seconds + _NOTICED_S:
            time.sleep(0.2)
        said = self._said.read_text(encoding="utf-8", errors="replace")
        status = None if hung else self.process.returncode
        place = moved_to(said) or self.results
        return Ended(status, said, weights_of(place), summary_of(place), seconds)

    def kill(self) -> None:
        """All of its processes, at once."""
        for each in [*self.processes(), psutil.Process(self.process.pid)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.send_signal(signal.SIGKILL)
        self.process.wait(60)

    def stop(self) -> None:
        """Whatever still lives; ends also those that were stopped by a signal."""
        for each in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                each.resume()
        stop_all(self.process, self.mark, MARK)


def moved_to(said: str) -> Path | None:
    """The folder that a run has named whose results could no longer be written where they were to be."""
    found = re.search(r"so this run's results are in (\S+)\. Copy what you need from there", said)
    return Path(found.group(1)).parent if found else None


def newest_checkpoint(folder: Path) -> int:
    """The newest step with a whole checkpoint; 0 where there is none."""
    steps = [int(each.parent.name.removeprefix("step-")) for each in folder.glob("step-*/manifest.json")]
    return max(steps, default=0)


def weights_of(results: Path) -> str:
    """SHA-256 of the last run's trained weights, over names, shapes and values; empty where there are none."""
    for run in sorted(results.glob("*"), reverse=True):
        file = run / "model" / "weights.npz"
        if not file.is_file():
            return ""
        digest = hashlib.sha256()
        with np.load(file) as stored:
            for name in sorted(stored.files):
                digest.update(f"{name} {stored[name].shape} {stored[name].dtype}\n".encode())
                digest.update(stored[name].tobytes())
        return digest.hexdigest()
    return ""


def summary_of(results: Path) -> dict[str, Any] | None:
    for run in sorted(results.glob("*"), reverse=True):
        try:
            loaded: dict[str, Any] = json.loads((run / "summary.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return loaded
    return None


def natives() -> str:
    """`engine.cache`: where native libraries are unpacked by default, whatever the folder for temporary files is."""
    return str(Path(tempfile.gettempdir()) / f"sparkdl-bench-{getpass.getuser()}")


def variables(folder: Path) -> dict[str, str]:
    """Of a run whose temporary files lie in `folder`."""
    return {"TMPDIR": str(folder), "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={folder} {_JVM_OPTIONS}"}


def _toml(run: Mapping[str, Any], spark: Mapping[str, str]) -> str:
    # A JSON value of these types is a TOML value, too.
    lines = [f"{key} = {json.dumps(value)}" for key, value in run.items()]
    return (
        "\n".join([*lines, "[spark]", *(f"{json.dumps(key)} = {json.dumps(each)}" for key, each in spark.items())])
        + "\n"
    )
