"""A training run in a process of its own whose executors may be killed: for the kill campaign and the tests.

`python -m sparkdl_bench.bench.killable_run SETTINGS.json` is that process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil

from sparkdl_bench.errors import RunFailedError

Weights = dict[str, npt.NDArray[np.float32]]
CHECKPOINT_EVERY = 500  # steps
EPOCHS = 200
_KILLED_S = 60.0  # for the kernel, after SIGKILL
_BACKEND = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class RunHungError(RunFailedError):
    """The run did not end, or not come to where it was waited for, within its time; it was stopped."""


def _files(checkpoint: Path) -> list[Path]:
    try:
        return list(checkpoint.glob("rank-*"))
    except FileNotFoundError:  # the run removes old ones
        return []


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step-"))


class KillableRun:
    """One run on two executors over `block-stream`, with checkpoints in a folder below `folder`.

    Args:
        folder: where the run's files go; one run a folder.
        settings: keywords of `Trainer` that differ from the defaults below, `master`, and further properties `spark`.
        timeout_s: bound of every wait.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], timeout_s: float = 300.0) -> None:
        self.folder = folder
        self.timeout_s = timeout_s
        folder.mkdir(parents=True, exist_ok=True)
        self.checkpoints = folder / "checkpoints"
        given = {
            "master": "local-cluster[2,1,1024]",
            "workers": 2,
            "epochs": EPOCHS,
            "checkpoint": {"dir": self.checkpoints.as_uri(), "every": CHECKPOINT_EVERY},
            "results": str(folder / "results"),
            **settings,
        }
        (folder / "settings.json").write_text(json.dumps(given), encoding="utf-8")
        self._log = folder / "log.txt"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(  # noqa: S603 (the command is ours)
                [sys.executable, "-m", "sparkdl_bench.bench.killable_run", str(folder / "settings.json")],
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def executors(self) -> list[psutil.Process]:
        """The executors that run now, oldest first."""
        if self.process.poll() is not None:
            return []  # its number may be another process's by now
        children = psutil.Process(self.process.pid).children(recursive=True)
        found = []
        for child in children:
            try:
                if _BACKEND in child.cmdline():
                    found.append(child)
            except psutil.Error:
                continue
        return found

    def wait_for_executors(self, count: int) -> None:
        self._wait(lambda: len(self.executors()) >= count, f"{count} executors")

    def wait_for_step(self, step: int) -> None:
        """Until a checkpoint after `step` or a later step has begun to appear, or the run has ended."""
        self._wait(lambda: self.newest_step() >= step, f"a checkpoint after step {step}")

    def wait_for_checkpoint(self, step: int) -> None:
        """Until a checkpoint after `step` or a later step is whole, so that the run would go on from there.

        A rank writes beside its steps, so it may have begun several before the other has ended its first.
        """
        self._wait(lambda: self.newest_checkpoint() >= step, f"a whole checkpoint after step {step}")

    def wait_for_event(self, key: str, count: int) -> None:
        """Until `events.jsonl` has so many events of that key, or the run has ended."""
        self._wait(lambda: len(self.events(key)) >= count, f"{count} events {key}")

    def events(self, key: str) -> list[dict[str, Any]]:
        """The events of that key so far, oldest first."""
        found = []
        for file in (self.folder / "results").glob("*/events.jsonl"):
            for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    event = json.loads(line)
                except ValueError:
                    continue  # the run is writing it
                if event["key"] == key:
                    found.append(event)
        return found

    def newest_step(self) -> int:
        written = (each for each in self.checkpoints.glob("step-*") if _files(each))
        return max((_step(each) for each in written), default=0)

    def newest_checkpoint(self) -> int:
        """The newest step after which there is a whole checkpoint; 0 where there is none."""
        return max((_step(each.parent) for each in self.checkpoints.glob("step-*/manifest.json")), default=0)

    def kill_executor(self, which: int) -> bool:
        """Kills one executor with SIGKILL; False when none runs (any more)."""
        executors = self.executors()
        if not executors:
            return False
        try:
            executors[which % len(executors)].send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:  # it has just ended
            return False
        return True

    def finish(self) -> Weights:
        """Waits for the end and returns the trained weights.

        Raises:
            RunFailedError: it failed; with its own words.
            RunHungError: it did not end.
        """
        try:
            status = self.process.wait(self.timeout_s)
        except subprocess.TimeoutExpired:
            self.stop()
            raise RunHungError(f"The run in '{self.folder}' has not ended after {self.timeout_s:.0f} s.") from None
        if status != 0:
            raise RunFailedError(f"The run in '{self.folder}' ended with status {status}: {self._said()}")
        with np.load(self.folder / "weights.npz") as stored:
            return dict(stored)

    def summary(self) -> dict[str, Any]:
        (run,) = (self.folder / "results").iterdir()
        loaded: dict[str, Any] = json.loads((run / "summary.json").read_text(encoding="utf-8"))
        return loaded

    def stop(self) -> None:
        """Ends the run's processes, if any are left."""
        if self.process.poll() is not None:
            return
        for each in [*psutil.Process(self.process.pid).children(recursive=True), psutil.Process(self.process.pid)]:
            try:
                each.kill()
            except psutil.NoSuchProcess:
                continue
        self.process.wait(_KILLED_S)

    def _wait(self, done: Any, what: str) -> None:
        deadline = time.monotonic() + self.timeout_s
        while not done() and self.process.poll() is None:
            if time.monotonic() > deadline:
                self.stop()
                raise RunHungError(f"The run in '{self.folder}' had not {what} after {self.timeout_s:.0f} s.")
            time.sleep(0.02)

    def _said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-3000:].strip()


def same(left: Weights, right: Weights) -> bool:
    """Whether two runs ended with the same weights, bit for bit."""
    return left.keys() == right.keys() and all(
        left[name].shape == right[name].shape and left[name].tobytes() == right[name].tobytes() for name in left
    )


def main() -> None:
    from pyspark.sql import SparkSession

    from sparkdl_bench.session import configure
    from sparkdl_bench.trainer import Trainer

    path = Path(sys.argv[1])
    settings = json.loads(path.read_text(encoding="utf-8"))
    builder = SparkSession.builder.master(settings.pop("master"))  # type: ignore[attr-defined,unused-ignore]
    for name, value in settings.pop("spark", {}).items():
        builder = builder.config(name, value)
    spark = configure(builder).getOrCreate()
    defaults = {
        "model": {"name": "mlp", "hidden": [32]},
        "data": "digits",
        "batch": 50,
        "transport": "block-stream",
        "momentum": 0.9,
        "learning_rate": 0.02,
        "evaluate_every": 0,
    }
    fitted = Trainer(**{**defaults, **settings}).fit(spark)
    weights: dict[str, Any] = dict(fitted.weights())
    np.savez(path.parent / "weights.npz", **weights)
    spark.stop()


if __name__ == "__main__":
    main()
