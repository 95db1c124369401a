"""Training survives the loss of executors: it goes on from its checkpoint, to the undisturbed weights, bit for bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from conftest import ROOT

PROGRAM = """
import json, sys
import numpy as np
from pyspark.sql import SparkSession
import sparkdl_bench
from sparkdl_bench import Trainer

settings = json.loads(sys.argv[1])
builder = SparkSession.builder.master(settings.pop("master"))
spark = sparkdl_bench.configure(builder).getOrCreate()
out = settings.pop("out")
fitted = Trainer(model={"name": "mlp", "hidden": [32]}, data="digits", batch=50, transport="block-stream",
                 momentum=0.9, learning_rate=0.02, evaluate_every=0, **settings).fit(spark)
np.savez(out, **fitted.weights())
spark.stop()
"""
TIMEOUT_S = 300


class Training:
    """One run in a process of its own, with checkpoints in `folder`."""

    def __init__(self, tmp_path: Path, name: str, **settings: object) -> None:
        self.out = tmp_path / f"{name}.npz"
        self.checkpoints = tmp_path / f"{name}-checkpoints"
        self.results = tmp_path / f"{name}-results"
        given = {
            "master": "local-cluster[2,1,1024]",
            "workers": 2,
            "epochs": 400,
            "checkpoint": {"dir": self.checkpoints.as_uri(), "every": 500},
            "results": str(self.results),
            "out": str(self.out),
            **settings,
        }
        variables = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "SPARK_LOCAL_IP": "127.0.0.1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(given)],
            cwd=ROOT,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def executors(self) -> list[psutil.Process]:
        found = []
        for child in psutil.Process(self.process.pid).children(recursive=True):
            try:
                if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in child.cmdline():
                    found.append(child)
            except psutil.Error:
                continue
        return found

    def newest_step(self) -> int:
        steps = [
            int(each.name.removeprefix("step-"))
            for each in self.checkpoints.glob("step-*")
            if list(each.glob("rank-*"))
        ]
        return max(steps, default=0)

    def wait_for_step(self, step: int) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while self.newest_step() < step:
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < deadline, f"no checkpoint after step {step}"
            time.sleep(0.02)

    def kill_one_executor(self) -> None:
        os.kill(self.executors()[-1].pid, signal.SIGKILL)

    def finish(self) -> dict[str, np.ndarray]:
        text, _ = self.process.communicate(timeout=TIMEOUT_S)
        assert self.process.returncode == 0, text
        return dict(np.load(self.out))

    def summary(self) -> dict[str, object]:
        (folder,) = self.results.iterdir()
        loaded: dict[str, object] = json.loads((folder / "summary.json").read_text())
        return loaded


def same(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> bool:
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    return Training(tmp_path_factory.mktemp("undisturbed"), "undisturbed").finish()


def test_a_killed_executor_changes_no_bit(tmp_path: Path, undisturbed: dict[str, np.ndarray]) -> None:
    training = Training(tmp_path, "killed")
    training.wait_for_step(1000)
    training.kill_one_executor()
    assert same(training.finish(), undisturbed)
    history = training.summary()["history"]
    assert isinstance(history, list)
    assert [each["epoch"] for each in history] == list(range(1, 401))


def test_two_kills_one_before_the_first_checkpoint(tmp_path: Path, undisturbed: dict[str, np.ndarray]) -> None:
    training = Training(tmp_path, "killed-twice")
    while not training.executors():
        time.sleep(0.05)
    time.sleep(3)
    training.kill_one_executor()
    training.wait_for_step(2000)
    training.kill_one_executor()
    assert same(training.finish(), undisturbed)


def test_a_run_resumes_by_hand_also_with_another_number_of_workers(
    tmp_path: Path, undisturbed: dict[str, np.ndarray]
) -> None:
    first = Training(tmp_path, "first", epochs=200)
    first.finish()
    second = Training(tmp_path, "second", resume=first.checkpoints.as_uri())
    assert same(second.finish(), undisturbed)
    alone = Training(tmp_path, "alone", workers=1, resume=first.checkpoints.as_uri()).finish()
    for name, values in undisturbed.items():
        assert np.allclose(alone[name], values, atol=1e-3), name
