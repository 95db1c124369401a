"""Training survives the loss of executors: it goes on from its checkpoint, to the undisturbed weights, bit for bit."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyspark
import pytest

from sparkdl_bench import session
from sparkdl_bench.bench.killable_run import CHECKPOINT_EVERY, EPOCHS, KillableRun, Weights, same
from sparkdl_bench.bench.spark_collective import spark_transport_missing
from standalone import standalone_cluster


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Weights:
    return KillableRun(tmp_path_factory.mktemp("undisturbed"), {}).finish()


# A run that sums in another order has other rounding errors, which a ReLU net may amplify without bound; the loss of
# this net is convex, so they fade. Its steps are short, hence more of them.
CONVEX: dict[str, Any] = {"model": {"name": "softmax"}, "epochs": 2 * EPOCHS}
ROUNDING = 1e-5


@pytest.fixture(scope="module")
def undisturbed_convex(tmp_path_factory: pytest.TempPathFactory) -> Weights:
    return KillableRun(tmp_path_factory.mktemp("undisturbed-convex"), CONVEX).finish()


# Over block-stream it is killed in the next test, after another one.
@pytest.mark.parametrize(
    "transport",
    [
        pytest.param("tcp", marks=pytest.mark.on_one_line),
        *(pytest.param(name, marks=[pytest.mark.on_one_line, pytest.mark.campaign]) for name in ("ucx", "mpi")),
    ],
)
def test_a_killed_executor_changes_no_bit(tmp_path: Path, undisturbed: Weights, transport: str) -> None:
    reason = spark_transport_missing(transport)
    if reason:
        pytest.skip(reason)
    training = KillableRun(tmp_path, {"transport": transport})
    training.wait_for_step(1000)
    assert training.kill_executor(1)
    # The undisturbed run was over block-stream: synchronous SGD has the same bits over every transport.
    _ends_as(training, undisturbed, attempts=2)


# A Spark job per step takes longer than a step of the other shape.
JOBS: dict[str, Any] = {"epochs": 8}
JOBS_EVERY = 20


@pytest.fixture(scope="module")
def undisturbed_jobs(tmp_path_factory: pytest.TempPathFactory) -> Weights:
    run = {**JOBS, "transport": "block-manager", "checkpoint": {}}
    return KillableRun(tmp_path_factory.mktemp("undisturbed-jobs"), run).finish()


@pytest.mark.on_one_line
@pytest.mark.parametrize(
    "way",
    [
        {"transport": "block-manager"},
        pytest.param({"transport": "shuffle"}, marks=pytest.mark.campaign),
        pytest.param({"transport": "shuffle", "shuffle": {"exchanges": "one"}}, marks=pytest.mark.campaign),
        pytest.param({"transport": "shuffle", "topology": "tree"}, marks=pytest.mark.campaign),
    ],
    ids=["block-manager", "shuffle", "one-exchange", "tree"],
)
@pytest.mark.long
def test_a_killed_executor_of_a_job_per_step_changes_no_bit(
    tmp_path: Path, undisturbed_jobs: Weights, way: dict[str, Any]
) -> None:
    checkpoint = {"dir": (tmp_path / "checkpoints").as_uri(), "every": JOBS_EVERY}
    training = KillableRun(tmp_path, {**JOBS, **way, "checkpoint": checkpoint})
    training.wait_for_checkpoint(JOBS_EVERY)
    whole = training.newest_checkpoint()
    assert training.kill_executor(1)
    # All ways of this shape sum two workers' gradients in the same order.
    assert same(training.finish(), undisturbed_jobs)
    begun = [each["metadata"]["from_step"] for each in _events(training, "attempt_began")]
    assert begun[0] == 0
    assert begun[-1] >= whole >= JOBS_EVERY
    assert _events(training, "resubmitted")
    (lost,) = _events(training, "executor_stopped")
    assert lost["metadata"]["rank"] in (0, 1)
    assert all(lost["metadata"][key] for key in ("host", "executor", "reason"))
    summary = training.summary()
    assert summary["status"] == "success"
    assert [each["kind"] for each in summary["notices"]] == ["executor_stopped"]
    assert [each["epoch"] for each in summary["history"]] == list(range(1, JOBS["epochs"] + 1))


@pytest.mark.campaign
def test_two_kills_one_before_the_first_checkpoint(tmp_path: Path, undisturbed: Weights) -> None:
    training = KillableRun(tmp_path, {})
    _wait_until_it_trains(training, attempts=1)
    assert training.kill_executor(0)
    # By its checkpoints alone the first attempt, where it was killed late, would be taken for the second one.
    _wait_until_it_trains(training, attempts=2)
    training.wait_for_checkpoint(2000)
    assert training.kill_executor(1)
    _ends_as(training, undisturbed, attempts=3)


def _ends_as(training: KillableRun, undisturbed: Weights, attempts: int) -> None:
    assert same(training.finish(), undisturbed)
    assert len(_events(training, "rank_groups")) >= attempts
    summary = training.summary()
    assert summary["status"] == "success"
    assert [each["epoch"] for each in summary["history"]] == list(range(1, EPOCHS + 1))


def _wait_until_it_trains(training: KillableRun, attempts: int) -> None:
    """Until the ranks have told so often that they are connected: after the session's checks, before a checkpoint."""
    deadline = time.monotonic() + training.timeout_s
    while attempts > sum(
        # The run is writing it.
        file.read_text(encoding="utf-8", errors="replace").count('"key":"rank_groups"')
        for file in (training.folder / "results").glob("*/events.jsonl")
    ):
        assert training.process.poll() is None, "the run has ended"
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.long
def test_a_run_resumes_by_hand_also_with_another_number_of_workers(
    tmp_path: Path, undisturbed_convex: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Named relatively, it is one folder for all processes nevertheless; the other tests name it by its URI.
    monkeypatch.chdir(tmp_path)
    checkpoint = {"dir": "checkpoints", "every": CHECKPOINT_EVERY}
    first = KillableRun(tmp_path, {**CONVEX, "epochs": EPOCHS, "checkpoint": checkpoint})
    first.finish()
    assert len(list(first.checkpoints.iterdir())) == 2, "the newest two are kept"
    second = KillableRun(tmp_path / "second", {**CONVEX, "resume": "checkpoints"})
    assert same(second.finish(), undisturbed_convex)
    alone = {**CONVEX, "resume": first.checkpoints.as_uri(), "workers": 1}
    _same_but_for_rounding(KillableRun(tmp_path / "alone", alone).finish(), undisturbed_convex)


@pytest.mark.long
def test_a_killed_executor_of_several_ranks_changes_no_bit(tmp_path: Path) -> None:
    several = {"master": "local-cluster[2,2,1024]", "workers": 4, "epochs": 100}
    undisturbed = KillableRun(tmp_path / "undisturbed", several).finish()
    timed = {"dir": (tmp_path / "killed" / "checkpoints").as_uri(), "every": 1000000, "every_seconds": 0.5}
    training = KillableRun(tmp_path / "killed", {**several, "checkpoint": timed})
    training.wait_for_checkpoint(1)
    assert training.kill_executor(0)
    assert same(training.finish(), undisturbed)
    (run,) = (tmp_path / "killed" / "results").iterdir()
    groups = json.loads((run / "run.json").read_text(encoding="utf-8"))["rank_groups"]
    assert [len(each) for each in groups] == [2, 2]
    events = [json.loads(line) for line in (run / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    told = [each for each in events if each["key"] == "rank_groups"]
    assert len(told) == 2
    assert told[0]["value"] == told[1]["value"] == told[1]["metadata"]["before"]


@pytest.mark.long
def test_the_driver_submits_the_training_again_where_spark_gives_up(tmp_path: Path, undisturbed: Weights) -> None:
    training = KillableRun(tmp_path, {"spark": {"spark.stage.maxConsecutiveAttempts": "1"}})
    training.wait_for_checkpoint(500)
    whole = training.newest_checkpoint()
    assert training.kill_executor(1)
    assert same(training.finish(), undisturbed)
    # The survivor may end the stage before Spark knows of the loss, so that the first time may be in vain.
    told = _events(training, "resubmitted")
    assert told
    assert {each["metadata"]["workers"] for each in told} == {2}
    begun = [each["metadata"]["from_step"] for each in _events(training, "rank_groups")]
    assert len(begun) == 2
    assert begun[0] == 0
    assert begun[1] >= whole >= 500
    assert len(list(training.checkpoints.iterdir())) == 2, "the newest two are kept"


@pytest.mark.long
def test_training_goes_on_with_the_workers_that_are_left(tmp_path: Path, undisturbed_convex: Weights) -> None:
    # Executors of Spark 3.5 make their shuffle manager before a plugin could choose it.
    spark = {session.MANAGER_KEY: session.SORTING_MANAGER} if pyspark.__version__.startswith("3.") else {}
    with standalone_cluster(tmp_path, workers=2, memory="1g") as master:
        run = {**CONVEX, "master": master, "recovery": {"replacement_wait": 5}, "spark": spark}
        training = KillableRun(tmp_path / "run", run)
        try:
            training.wait_for_step(1000)
            lost = _end_a_worker_and_its_executor(tmp_path)
            weights = training.finish()
        finally:
            training.stop()
    assert lost
    summary = training.summary()
    assert summary["status"] == "success"
    assert summary["workers"] == 1
    # The master may count the lost executor for a while, so that the first time may be in vain.
    assert _events(training, "resubmitted")[-1]["metadata"]["workers"] == 1
    _same_but_for_rounding(weights, undisturbed_convex)


def _same_but_for_rounding(weights: Weights, undisturbed: Weights) -> None:
    for name, values in undisturbed.items():
        assert np.abs(weights[name] - values).max() < ROUNDING, name


def _events(training: KillableRun, key: str) -> list[dict[str, Any]]:
    (run,) = (training.folder / "results").iterdir()
    events = [json.loads(line) for line in (run / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    return [each for each in events if each["key"] == key]


def _end_a_worker_and_its_executor(folder: Path) -> bool:
    """Ends the second worker of a standalone cluster, so that nobody starts its executor anew, and then that one."""
    work = str(folder / "work-1")
    deadline = time.monotonic() + 20
    while True:
        workers = _running("org.apache.spark.deploy.worker.Worker", work)
        executors = _running("org.apache.spark.executor.CoarseGrainedExecutorBackend", work)
        if len(workers) == 1 and len(executors) == 1:
            break
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)  # a process that has just been started has its parent's words for a moment
    workers[0].kill()
    with suppress(psutil.NoSuchProcess):  # an executor ends by itself, too, when its worker is gone
        executors[0].kill()
    return True


def _running(word: str, work: str) -> list[psutil.Process]:
    """Processes with this word on their command lines and this folder there, or that work in it or below it."""
    found = []
    for each in psutil.process_iter():
        with suppress(psutil.Error):  # another test's, which has just ended
            words = each.cmdline()
            if word in words and (work in words or each.cwd().startswith(work)):
                found.append(each)
    return found
