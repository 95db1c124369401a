"""Runs with a range of workers: what is refused without a JVM, and executors that come and go on a real cluster."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyspark
import pytest

from sparkdl_bench import catalogue, preflight, session
from sparkdl_bench.bench.killable_run import KillableRun
from sparkdl_bench.comparison.cells import cells_of, check_without_jvm
from sparkdl_bench.comparison.plan import load_plan
from sparkdl_bench.config import RunFile
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.ml import SparkDLClassifier
from sparkdl_bench.trainer import Trainer
from standalone import standalone_cluster, standalone_worker

# The loss is convex, so that the rounding errors of another order of summing fade.
CONVEX: dict[str, Any] = {"model": {"name": "softmax"}, "epochs": 1000000}
ROUNDING = 1e-5


@pytest.mark.parametrize("workers", ["2..8", "3", " 2 .. 8 ", "5..5"])
def test_a_range_of_workers_is_a_valid_value(workers: str) -> None:
    catalogue.check({"workers": workers})


@pytest.mark.parametrize("workers", ["8..2", "0..2", "2..", "..2", "2..3..4", "2.8", "two"])
def test_what_is_no_range_is_refused_without_a_jvm(workers: str) -> None:
    with pytest.raises(ConfigurationError, match=r"at least 1, or a range of them such as 2\.\.8"):
        catalogue.check({"workers": workers})


def test_the_bounds_are_held_against_the_batch_and_the_slots() -> None:
    def said(master: str, **settings: str) -> list[str]:
        return [text for _, text in preflight.faults(RunFile({"spark.master": master}, settings))]

    assert not said("local[2]", workers="2..8")
    (few,) = said("local[2]", workers="3..8")
    assert few.startswith("workers = 3..8 must all run at once, and the master local[2] has 2 task slots.")
    (small,) = said("local[2]", workers="2..8", batch="7")
    assert small.startswith("batch = 7 is the global batch and less than workers = 2..8")


def test_trainer_and_spark_ml_take_a_range() -> None:
    assert "workers='2..8'" in repr(Trainer(workers="2..8"))
    assert SparkDLClassifier(workers="2..8").getWorkers() == "2..8"
    assert SparkDLClassifier(workers=3).getWorkers() == 3
    with pytest.raises(ConfigurationError, match="which is not valid"):
        Trainer(workers="8..2")


def test_a_comparison_is_of_runs_with_one_number_of_workers(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    (tmp_path / "run.toml").write_text("epochs = 1\n", encoding="utf-8")
    plan.write_text('base = "run.toml"\n[matrix]\nworkers = ["1..2", 2]\n', encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"workers = 1\.\.2 lets the number of workers change"):
        check_without_jvm(cells_of(load_plan(plan)))


@pytest.mark.campaign
def test_executors_of_a_standalone_cluster_come_and_go(tmp_path: Path) -> None:
    spark = {"spark.decommission.enabled": "true"}
    if pyspark.__version__.startswith("3."):
        spark[session.MANAGER_KEY] = session.SORTING_MANAGER
    own = {"workers": "1..4", "elastic": {"settle": 1}, "recovery": {"replacement_wait": 60}}
    with standalone_cluster(tmp_path, workers=1, memory="1g") as master:
        training = KillableRun(tmp_path / "run", {**CONVEX, **own, "master": master, "spark": spark})
        try:
            training.wait_for_checkpoint(500)
            with standalone_worker(tmp_path, master, 1, memory="1g") as second:
                training.wait_for_event("workers_changed", 1)
                with standalone_worker(tmp_path, master, 2, memory="1g") as third:
                    training.wait_for_event("workers_changed", 2)
                    second.send_signal(signal.SIGPWR)
                    training.wait_for_event("workers_changed", 3)
                    training.wait_for_checkpoint(_steps(training)[-1] + 1)
                    third.kill()  # with its executor, which ends when its worker is gone
                    training.wait_for_event("workers_changed", 4)
            training.wait_for_checkpoint(_steps(training)[-1] + 1)
        finally:
            training.stop()
    changes = [each["metadata"] for each in training.events("workers_changed")]
    assert [(each["from"], each["to"]) for each in changes[:4]] == [(1, 2), (2, 3), (3, 2), (2, 1)]
    assert [each["reason"].rsplit(" ", 1)[-1] for each in changes[:2]] == ["came", "came"]
    assert changes[2]["reason"].endswith("is decommissioned")
    assert changes[3]["reason"].endswith("is gone")
    # The same global batches: what it has then is what one worker has that was never disturbed.
    last = training.newest_checkpoint() + 1
    alone = {**CONVEX, "master": "local[1]", "workers": 1, "max_steps": last}
    resumed = KillableRun(tmp_path / "resumed", {**alone, "resume": training.checkpoints.as_uri()}).finish()
    undisturbed = KillableRun(tmp_path / "undisturbed", alone).finish()
    for name, values in undisturbed.items():
        assert np.abs(resumed[name] - values).max() < ROUNDING, name


def _steps(training: KillableRun) -> list[int]:
    return [int(each["metadata"]["step"]) for each in training.events("workers_changed")]
