"""What is kept of a run: times from its events, layers that add up, resources."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import fakes
import pytest

from sparkdl_bench.comparison import record, resources
from sparkdl_bench.comparison.cells import Cell, cells_of
from sparkdl_bench.comparison.peer_run import Trained
from sparkdl_bench.comparison.plan import Plan
from sparkdl_bench.peers import Measurement, Sample

RUN_START_S = 100.0


def write_run(folder: Path, *, whole: bool = True, attempts: int = 1) -> Path:
    """Two epochs of 2 s and 1.5 s after 3 s of preparation, with 0.4 and 0.3 s of evaluation; 10 steps of 250 ms.

    The clock starts 0.5 s before the first event, 6 s after the Spark context, and 1.5 s after the last executor came.
    """
    run = folder / "20260102-030405-000-test"
    run.mkdir(parents=True)
    events: list[dict[str, Any]] = []

    def event(seconds: float, key: str, **metadata: Any) -> None:
        events.append({"time_ms": (RUN_START_S + seconds) * 1e3, "key": key, "value": None, "metadata": metadata})

    event(0.5, "run_start", clock_started_ms=RUN_START_S * 1e3)
    for _ in range(attempts):
        event(2.5, "rank_groups")
    event(5.0, "eval_accuracy", epoch_num=1)
    event(5.0, "epoch_stop", epoch_num=1)
    event(6.5, "eval_accuracy", epoch_num=2)
    event(6.5, "epoch_stop", epoch_num=2)
    event(7.0, "run_stop")
    (run / "events.jsonl").write_text("\n".join(json.dumps(each) for each in events))
    (run / "run.json").write_text(json.dumps({"threads_per_worker": 2, "versions": {"spark": "4.1.4"}}))
    parts = [
        {"seconds": 2.0, "seconds_evaluation": 0.4, "seconds_checkpoint": 0.0},
        {"seconds": 1.5, "seconds_evaluation": 0.3, "seconds_checkpoint": 0.1},
    ]
    history: list[dict[str, Any]] = [
        {"epoch": 1, "train_loss": 1.0, "test_loss": 1.0, "test_accuracy": 0.8, **parts[0]},
        {"epoch": 2, "train_loss": 0.5, "test_loss": 0.5, "test_accuracy": 0.95, **parts[1]},
    ]
    summary = {
        "status": "success",
        "final": {"seconds_total": 7.0, "seconds_prepare": 3.0},
        "phases_ms": {"data": 20.0, "compute": 80.0, "send": 30.0, "wait": 70.0, "scheduler": 50.0},
        "bytes": {"block-manager": 1000},
        "counts": {"dropped": [3]},
        "variant": {"transport": "block-manager"},
        "workers": 2,
        "batch": 32,
        "history": history,
        "spark": {
            "layers_s": {"run": 4.0, "launch": 0.5, "serialisation": 0.9, "submission": 0.1, "outside": 1.5},
            "before_steps_s": {"launch": 0.2, "serialisation": 0.8, "submission": 0.1},
            "start": {
                "context_started_ms": (RUN_START_S - 6.0) * 1e3,
                "executors_registered_ms": (RUN_START_S - 1.5) * 1e3,
                "cluster_manager_s": 4.5,
                "first_run": True,
            },
        },
    }
    (run / "summary.json").write_text(json.dumps(summary))
    if whole:
        (run / "steps.json").write_text(json.dumps([250.0] * 10))
    return run


@pytest.fixture
def made(tmp_path: Path) -> dict[str, Any]:
    plan = fakes.plan_of(tmp_path)
    run = write_run(tmp_path / "runs")
    return record.of_run(plan, cells_of(plan)[0], run, RUN_START_S - 8.0, RUN_START_S + 9.0)


def of_peer(
    place: Path, plan: Plan, cell: Cell, steps_ms: list[float], facts: dict[str, Any], seconds: float, stop_s: float = 0
) -> dict[str, Any]:
    measured = Measurement(tuple(Sample(ms) for ms in steps_ms), facts)
    return record.of_peer(plan, cell, Trained(measured, 100.0, 100.0 + seconds, stop_s), place)


def test_what_the_algorithm_counted_is_kept(made: dict[str, Any]) -> None:
    assert made["counts"] == {"dropped": [3]}


def test_time_to_accuracy_counts_from_the_run_s_start(made: dict[str, Any]) -> None:
    assert made["metrics"]["seconds_to_accuracy"] == 6.5
    assert made["metrics"]["epochs_to_accuracy"] == 2
    assert [each["seconds"] for each in made["history"]] == [5.0, 6.5]
    assert made["metrics"]["test_accuracy"] == 0.95
    assert (made["workers"], made["threads"], made["cores"]) == (2, 2, 4)


def test_a_run_that_names_no_threads_has_one(tmp_path: Path) -> None:
    run = write_run(tmp_path / "older")
    (run / "run.json").write_text("{}")
    plan = fakes.plan_of(tmp_path)
    made = record.of_run(plan, cells_of(plan)[0], run, RUN_START_S - 8.0, RUN_START_S + 9.0)
    assert (made["workers"], made["threads"], made["cores"]) == (2, 1, 2)
    assert made["epoch_phases"] == []


def test_a_user_waits_from_the_command(tmp_path: Path, made: dict[str, Any]) -> None:
    waits = ("seconds_before_clock", "seconds_waited_to_accuracy", "seconds_waited")
    # Of a process that is not this run's alone nobody knows.
    assert [made["metrics"][name] for name in waits] == [None, None, None]
    plan = fakes.plan_of(tmp_path)
    run = write_run(tmp_path / "fresh")
    fresh = record.of_run(plan, cells_of(plan)[0], run, RUN_START_S - 8.0, RUN_START_S + 9.0, is_fresh=True)
    assert [fresh["metrics"][name] for name in waits] == [8.0, 8.0 + 6.5, 17.0]
    assert fresh["metrics"]["seconds_waited"] == pytest.approx(sum(fresh["layers_s"].values()))
    of_a_folder = record.of_run(plan, cells_of(plan)[0], run, None, RUN_START_S + 9.0, is_fresh=True)
    assert of_a_folder["metrics"]["seconds_waited"] is None


def test_phases_that_change_during_a_run_are_kept(tmp_path: Path, made: dict[str, Any]) -> None:
    assert made["phase_drift"] == {}  # an older run's folder
    run = write_run(tmp_path / "grows")
    grows = [9.0] * 4 + [1.0] * 10 + [2.0] * 10 + [3.0] * 10  # after 8 steps of warm-up, of which each second is kept
    kept = {"compute": [5.0] * 34, "update": grows, "decode": [0.001] * 24 + [0.01] * 10}
    server = {"rank": 2, "phases_ms": {"reduce": [1.0] * 24 + [9.0] * 10}}
    ranks = [{"rank": 0, "phases_ms": kept}, {"rank": 1, "phases_ms": {**kept, "compute": [7.0] * 34}}, server]
    (run / "phases.json").write_text(json.dumps({"every": 2, "ranks": ranks}))
    assert record.phase_drift(run, 8, 2) == {"compute": 1.0, "update": 3.0}  # decoding is next to nothing
    assert record.phase_drift(run, 50, 2) == {}  # too few steps are left


def test_phases_are_held_to_their_limits(tmp_path: Path) -> None:
    def drift(steps: int, share: float = 0.5, last: float = 1.0) -> dict[str, float]:
        """Of `update`, which makes up so much of a step of 100 ms, and at the end `last` times as much."""
        third = steps // 3
        rest = [100.0 * (1 - share)] * steps
        update = [100.0 * share] * (steps - third) + [100.0 * share * last] * third
        phases = {"compute": rest, "update": update, "none": [0.0] * steps}
        (tmp_path / "phases.json").write_text(json.dumps({"ranks": [{"rank": 0, "phases_ms": phases}]}))
        return record.phase_drift(tmp_path, 0, 1)

    # Ten steps at each end.
    assert drift(30) == {"compute": 1.0, "update": 1.0}
    assert drift(29) == {}
    # A fiftieth of a step, at one end at least.
    assert drift(30, 0.0201)["update"] == 1.0
    assert "update" not in drift(30, 0.0199)
    assert drift(30, 0.0199, 1.2)["update"] == 1.2
    assert drift(30, 0.03, 0.1)["update"] == 0.1


def test_so_many_epochs_are_told_and_no_more(tmp_path: Path) -> None:
    ranks = [{"rank": 0, "phases_ms": {"compute": [1.0] * 500}}]
    (tmp_path / "phases.json").write_text(json.dumps({"ranks": ranks}))
    found = record.epoch_phases(tmp_path, 2, 1)
    assert [each["epoch"] for each in found] == list(range(1, 201))


def test_layers_add_up_where_clocks_overlap(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs")
    summary = json.loads((run / "summary.json").read_text())
    summary["phases_ms"]["compute"] = 2000.0
    (run / "summary.json").write_text(json.dumps(summary))
    plan = fakes.plan_of(tmp_path)
    layers = record.of_run(plan, cells_of(plan)[0], run, RUN_START_S - 8.0, RUN_START_S + 9.0)["layers_s"]
    assert (layers["compute"], layers["idle"]) == (20.0, 0.0)
    assert layers["other"] < 0
    assert sum(layers.values()) == pytest.approx(17.0)


def test_computing_and_communication_are_told_by_epoch(tmp_path: Path) -> None:
    run = write_run(tmp_path / "epochs")
    # Every second step of three epochs of four steps: two are kept of each.
    rank = {"data": [1.0] * 6, "compute": [1, 3, 2, 2, 2, 2], "wait": [0, 0, 5, 7, 0, 0], "update": [0.5] * 6}
    other = {**rank, "wait": [2.0] * 6, "send": [1.0] * 6}
    server = {"rank": 2, "phases_ms": {"reduce": [99.0] * 6}}
    ranks = [{"rank": 0, "phases_ms": rank}, {"rank": 1, "phases_ms": other}, server]
    (run / "phases.json").write_text(json.dumps({"every": 2, "ranks": ranks}))
    found = record.epoch_phases(run, 4, 2)
    assert [each["epoch"] for each in found] == [1, 2, 3]
    assert [each["compute"] for each in found] == [3.0, 3.0, 3.0]
    assert [each["communication"] for each in found] == [1.5, 4.5, 1.5]
    assert {each["update"] for each in found} == {0.5}
    batch = json.loads((run / "summary.json").read_text())["batch"]
    content = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**content, "data": {"train_rows": 3 * batch + 1}}))  # four steps an epoch
    plan = fakes.plan_of(tmp_path)
    of_run = record.of_run(plan, cells_of(plan)[0], run, RUN_START_S - 8.0, RUN_START_S + 9.0)
    assert of_run["epoch_phases"] == found
    assert record.epoch_phases(run, 0, 2) == record.epoch_phases(tmp_path / "nowhere", 4, 2) == []
    page = (Path(__file__).resolve().parents[2] / "docs/reference/compare.md").read_text(encoding="utf-8")
    (told,) = (part for part in page.split("\n\n") if "`epoch_phases` has" in part)
    assert all(f"`{name}`" in told for name in found[0])


def test_layers_add_up_to_the_process_s_wall_clock(made: dict[str, Any]) -> None:
    layers = made["layers_s"]
    assert sum(layers.values()) == pytest.approx(17.0)
    assert layers == pytest.approx(
        {
            "start": 8.0 - 4.5,
            "cluster manager": 4.5,
            "prepare": 3.0 - 1.1,
            "data": 0.2,
            "compute": 0.8,
            "synchronise": 1.0,
            "update": 0.0,
            # Before the first step 0.2 s and later 0.3 s, and so on.
            "task launch": 0.5,
            "serialisation": 0.9,
            "job submission": 0.1,
            "Spark scheduling": 0.5 - 0.4,
            "evaluation": 0.7,
            "checkpoint": 0.1,
            # 3.5 s of epochs without 2.5 s of steps, evaluation and checkpoint.
            "idle": 0.2,
            "finish": 0.5,
            "stop": 2.0,
            "other": 0.0,
        },
        abs=1e-6,
    )


def test_what_a_loss_took_is_no_rank_s_idle_time(tmp_path: Path) -> None:
    plan = fakes.plan_of(tmp_path)
    run = write_run(tmp_path / "runs", attempts=2)
    layers = record.of_run(plan, cells_of(plan)[0], run, RUN_START_S, RUN_START_S + 7.0)["layers_s"]
    assert (layers["idle"], layers["other"]) == (0.0, pytest.approx(0.2))
    assert sum(layers.values()) == pytest.approx(7.0)


def test_a_run_from_before_evaluations_were_measured_has_layers(tmp_path: Path) -> None:
    plan = fakes.plan_of(tmp_path)
    run = write_run(tmp_path / "runs")
    summary = json.loads((run / "summary.json").read_text())
    for epoch in summary["history"]:
        del epoch["seconds_evaluation"], epoch["seconds_checkpoint"]
    del summary["final"]["seconds_prepare"], summary["spark"]["before_steps_s"], summary["spark"]["start"]
    (run / "summary.json").write_text(json.dumps(summary))
    layers = record.of_run(plan, cells_of(plan)[0], run, RUN_START_S - 8.0, RUN_START_S + 7.0)["layers_s"]
    assert (layers["start"], layers["cluster manager"]) == (8.0, 0.0)
    # Of a folder alone nobody knows when its process began.
    layers = record.of_run(plan, cells_of(plan)[0], run, None, RUN_START_S + 7.0)["layers_s"]
    assert (layers["start"], layers["prepare"]) == (0.0, 3.0)
    assert (layers["idle"], layers["other"]) == (0.0, pytest.approx(1.0))
    assert sum(layers.values()) == pytest.approx(7.0)


@pytest.mark.parametrize(
    ("began_s_before", "changes", "start", "cluster_manager"),
    [
        (8.0, {}, 3.5, 4.5),
        (4.0, {}, 1.5, 2.5),  # the process asked for this run while executors of its application came
        (1.0, {}, 1.0, 0.0),  # an application that other runs have had before
        (8.0, {"executors_registered_ms": None}, 8.0, 0.0),  # the driver runs the tasks
        (None, {}, 0.0, 4.5),
        (None, {"first_run": False}, 0.0, 0.0),  # not for this run have they come
    ],
)
def test_the_cluster_manager_has_the_time_until_executors_were_there(
    tmp_path: Path, began_s_before: float | None, changes: dict[str, Any], start: float, cluster_manager: float
) -> None:
    plan = fakes.plan_of(tmp_path)
    run = write_run(tmp_path / "runs")
    summary = json.loads((run / "summary.json").read_text())
    summary["spark"]["start"].update(changes)
    (run / "summary.json").write_text(json.dumps(summary))
    begun = None if began_s_before is None else RUN_START_S - began_s_before
    layers = record.of_run(plan, cells_of(plan)[0], run, begun, RUN_START_S + 7.0)["layers_s"]
    assert (layers["start"], layers["cluster manager"]) == (start, cluster_manager)
    assert sum(layers.values()) == pytest.approx(7.0 + start + cluster_manager)
    assert layers["other"] == pytest.approx(0.0, abs=1e-6)


def test_what_listeners_explain_is_taken_from_scheduling_and_no_more() -> None:
    layers = dict.fromkeys(record.LAYERS, 0.0) | {"Spark scheduling": 10.0}
    record._explain(layers, "Spark scheduling", {"launch": 4.0, "serialisation": 1.0, "submission": 2.0, "run": 50.0})
    found = {name: layers[name] for name in ("task launch", "serialisation", "job submission", "Spark scheduling")}
    assert found == {"task launch": 4.0, "serialisation": 1.0, "job submission": 2.0, "Spark scheduling": 3.0}
    layers = dict.fromkeys(record.LAYERS, 0.0) | {"Spark scheduling": 1.0}
    record._explain(layers, "Spark scheduling", {"launch": 3.0, "serialisation": 1.0})
    assert layers["task launch"] == 0.75
    assert layers["Spark scheduling"] == 0.0
    layers = dict.fromkeys(record.LAYERS, 0.0) | {"prepare": 1.0}
    record._explain(layers, "prepare", {})
    assert layers["prepare"] == 1.0


def test_a_peer_s_layers_have_its_phases_where_it_tells_them(tmp_path: Path) -> None:
    plan = fakes.plan_of(tmp_path)
    cell = cells_of(plan)[0]
    facts: dict[str, Any] = {
        "threads": 1,
        "seconds_total": 4.0,
        "seconds_prepare": 0.5,
        "seconds_evaluation": 0.3,
        "phases_ms": {"data": 10.0, "compute": 150.0, "wait": 90.0, "update": 50.0},
        "history": [{"epoch": 1, "seconds": 4.0, "train_loss": 1.0, "test_loss": 1.0, "accuracy": 0.95}],
    }
    made = of_peer(tmp_path, plan, cell, [300.0] * 10, facts, 6.0)
    assert made["phases_ms"] == facts["phases_ms"]
    assert "phases_ms" not in made["facts"]
    assert made["steps_ms"] == [300.0] * 10
    assert made["metrics"]["ms_per_step"] == 300.0
    assert made["layers_s"] == pytest.approx(
        {
            "start": 2.0,
            "prepare": 0.5,
            "data": 0.1,
            "compute": 1.5,
            "synchronise": 0.9,
            "update": 0.5,
            "evaluation": 0.3,
            "stop": 0.0,
            "other": 0.2,
        }
    )
    del facts["phases_ms"]
    uncut = of_peer(tmp_path, plan, cell, [300.0] * 10, facts, 6.0)
    assert uncut["phases_ms"] == {}
    stopped = of_peer(tmp_path, plan, cell, [300.0] * 10, facts, 6.0, 0.5)
    assert stopped["layers_s"]["start"] == 1.5  # the end of its process comes after its clock
    waits = ("seconds_before_clock", "seconds_waited_to_accuracy", "seconds_waited")
    assert [stopped["metrics"][name] for name in waits] == [1.5, 5.5, 6.0]
    assert uncut["layers_s"] == pytest.approx(
        {"start": 2.0, "prepare": 0.5, record.UNCUT: 3.0, "evaluation": 0.3, "stop": 0.0, "other": 0.2}
    )


def test_the_warm_up_steps_count_for_no_time_a_step(tmp_path: Path) -> None:
    plan = fakes.plan_of(tmp_path)  # two steps of warm-up
    numbers = record.metrics(plan, [100.0, 100.0, 1.0, 2.0, 3.0], [], 5.0, 32)
    assert numbers["ms_per_step"] == 2.0
    assert numbers["drift"] == 3.0
    assert numbers["rows_per_second"] == 16_000.0
    assert numbers["seconds_to_accuracy"] is None
    assert numbers["epochs_to_accuracy"] is None
    assert numbers["test_accuracy"] is None
    # A run shorter than the warm-up is better than no number.
    assert record.metrics(plan, [100.0], [], 5.0, 32)["ms_per_step"] == 100.0


def test_the_rows_of_the_steps_that_are_timed_count_and_no_others(tmp_path: Path) -> None:
    plan = fakes.plan_of(tmp_path)  # two steps of warm-up
    # The short step, of 8 rows, is one of the two that are timed; or one of those that warm up.
    assert record.metrics(plan, [9.0, 9.0, 1.0, 1.0], [], 5.0, [32, 32, 32, 8])["rows_per_second"] == 20_000.0
    assert record.metrics(plan, [9.0, 9.0, 1.0, 1.0], [], 5.0, [32, 8, 32, 32])["rows_per_second"] == 32_000.0
    # What is told as one number has that of each step.
    assert record.metrics(plan, [9.0, 9.0, 1.0, 1.0], [], 5.0, 32)["rows_per_second"] == 32_000.0


def test_a_record_that_is_all_warm_up_says_so(tmp_path: Path, made: dict[str, Any]) -> None:
    assert made["warmup_left_out"] == 2
    assert "warmup_note" not in made
    plan = fakes.plan_of(tmp_path)
    run = write_run(tmp_path / "short")
    (run / "steps.json").write_text("[250.0, 240.0]")
    short = record.of_run(plan, cells_of(plan)[0], run, RUN_START_S - 8.0, RUN_START_S + 9.0)
    assert short["warmup_left_out"] == 0
    assert short["warmup_note"] == "all of its 2 steps are of the warm-up of 2, so its times are of a cold run"
    assert short["metrics"]["ms_per_step"] == 245.0


@pytest.mark.parametrize(
    ("samples", "left_out", "ms", "said"),
    [
        # Passes over all 600 rows: the 64 of the plan's warm-up are in the first.
        ([Sample(900.0), Sample(300.0), Sample(300.0)], 1, 300.0, ""),
        # An epoch's mean each, of which the first holds them.
        ([Sample(900.0, 3), Sample(300.0, 3)], 3, 300.0, ""),
        # One mean, as H2O's.
        ([Sample(400.0, 10)], 0, 400.0, "its warm-up is in its times: it tells one mean of 10 steps, not each"),
        ([Sample(400.0)], 0, 400.0, "its only step is of the warm-up of 1, so its times are of a cold run"),
    ],
)
def test_a_peer_s_warm_up_has_the_rows_that_ours_has(
    tmp_path: Path, samples: list[Sample], left_out: int, ms: float, said: str
) -> None:
    plan = fakes.plan_of(tmp_path)  # two steps of 32 rows
    facts = {"threads": 1, "seconds_total": 4.0, "seconds_prepare": 0.5, "seconds_evaluation": 0.3, "history": []}
    done = Trained(Measurement(tuple(samples), {**facts, "batch": 600, "train_rows": 600}), 100.0, 106.0, 0.0)
    made = record.of_peer(plan, cells_of(plan)[0], done, tmp_path)
    assert (made["warmup_left_out"], made["metrics"]["ms_per_step"]) == (left_out, ms)
    assert made.get("warmup_note", "") == said
    assert made["metrics"]["rows_per_second"] == pytest.approx(600e3 / ms)


def test_the_first_evaluation_that_reached_the_target_counts_and_the_last_one_is_the_accuracy(tmp_path: Path) -> None:
    plan = fakes.plan_of(tmp_path)  # whose target is 0.9
    shares = (0.7, None, 0.9, 0.97, 0.88)
    history = [{"epoch": at, "seconds": 1.5 * at, "accuracy": share} for at, share in enumerate(shares, start=1)]
    numbers = record.metrics(plan, [9.0, 9.0, 1.0, 2.0, 3.0, 4.0], history, 8.0, 32, record.Waits(2.25, 20.00004))
    assert numbers == {
        "seconds_to_accuracy": 4.5,
        "seconds_waited_to_accuracy": 6.75,
        "epochs_to_accuracy": 3,
        "seconds_total": 8.0,
        "seconds_waited": 20.0,
        "seconds_before_clock": 2.25,
        "test_accuracy": 0.88,
        "best_accuracy": 0.97,
        "ms_per_step": 2.5,
        "ms_per_step_p90": pytest.approx(3.7),
        "rows_per_second": 12_800.0,
        "drift": 4.0,
    }
    without = record.metrics(replace(plan, target_accuracy=None), [], history[:1], 8.0, 0)
    assert {without[name] for name in ("seconds_to_accuracy", "ms_per_step", "rows_per_second", "drift")} == {None}
    assert record.metrics(plan, [1.0, 1.0, 4.0], [], 8.0, 0)["rows_per_second"] is None


def test_of_a_regression_the_last_evaluation_s_errors_are_kept(tmp_path: Path) -> None:
    plan = fakes.plan_of(tmp_path)
    told = [{"rmse": rmse, "mae": rmse / 2, "r2": 1 - rmse} for rmse in (0.5, 0.25)]
    history = [{"epoch": at, "seconds": 1.0 * at, "accuracy": None, **each} for at, each in enumerate(told, start=1)]
    # One that was not evaluated comes last.
    history.append({"epoch": 3, "seconds": 3.0, "accuracy": None})
    numbers = record.metrics(plan, [1.0] * 4, history, 8.0, 32)
    assert [numbers[f"test_{name}"] for name in ("rmse", "mae", "r2")] == [0.25, 0.125, 0.75]
    assert "test_rmse" not in record.metrics(plan, [1.0] * 4, history[-1:], 8.0, 32)


def test_a_set_smaller_than_the_batch_gives_its_rows_a_step(tmp_path: Path, made: dict[str, Any]) -> None:
    plan = fakes.plan_of(tmp_path)
    cell = cells_of(plan)[0]
    run = write_run(tmp_path / "few")
    told = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**told, "data": {"train_rows": 20}}))
    few = record.of_run(plan, cell, run, RUN_START_S - 8.0, RUN_START_S + 9.0)
    assert (made["metrics"]["rows_per_second"], made["batch"]) == (128.0, 32)
    assert (few["metrics"]["rows_per_second"], few["batch"]) == (80.0, 32)
    facts = {"threads": 1, "seconds_total": 4.0, "seconds_prepare": 0.5, "seconds_evaluation": 0.3, "history": []}
    rates = [
        of_peer(tmp_path, plan, cell, [250.0] * 10, {**facts, **rows}, 6.0)["metrics"]["rows_per_second"]
        for rows in ({}, {"train_rows": 20}, {"train_rows": 192}, {"train_rows": 200})
    ]
    # An epoch's last step has what is left: of 200 rows the seventh has 8, and the first two steps warm up.
    assert rates == pytest.approx([128.0, 80.0, 128.0, (7 * 32 + 8) / 8 / 0.25])


def test_a_run_counts_as_finished_when_all_its_files_are_there(tmp_path: Path) -> None:
    assert record.finished_run(tmp_path / "nothing") is None
    write_run(tmp_path / "half", whole=False)
    assert record.finished_run(tmp_path / "half") is None
    whole = write_run(tmp_path / "whole")
    assert record.finished_run(tmp_path / "whole") == whole
    # Of several the newest counts.
    again = whole.with_name("20260102-030406-000-test")
    shutil.copytree(whole, again)
    assert record.finished_run(tmp_path / "whole") == again
    shutil.rmtree(again)
    failed = json.loads((whole / "summary.json").read_text()) | {"status": "failed"}
    (whole / "summary.json").write_text(json.dumps(failed))
    assert record.finished_run(tmp_path / "whole") is None


def test_resources_are_summed_over_the_processes(tmp_path: Path) -> None:
    assert resources.of_run(tmp_path) is None

    def process(name: str, first: float, cpu: float, resident: int) -> dict[str, Any]:
        seconds = [first + 0.25 * step for step in range(1000)]
        return {
            "process": name,
            "host": "h",
            "seconds": seconds,
            "cpu_cores": [cpu] * 1000,
            "resident_bytes": [resident] * 1000,
            "heap_bytes": [5] * 1000,
            "direct_bytes": [6] * 1000,
            "gc_ms": list(range(1000)),
            "network": {"lo": {"received_bytes": [0] * 1000, "sent_bytes": list(range(1000))}},
        }

    content = {"processes": [process("driver", 0.0, 0.5, 100), process("0", 10.0, 1.0, 300)]}
    (tmp_path / "resources.json").write_text(json.dumps(content))
    found = resources.of_run(tmp_path)
    assert found is not None
    assert len(found["seconds"]) == 120
    at = dict(zip(found["seconds"], zip(found["cpu_cores"], found["resident_bytes"], strict=True), strict=True))
    assert at[0.0] == (0.5, 100)
    middle = min(at, key=lambda moment: abs(moment - 100))
    assert at[middle] == (1.5, 400)
    assert found["processes"][1]["gc_ms"] == 999
    assert found["processes"][1]["network_sent_bytes"] == {"lo": 999}
    # A byte a sample, four samples a second, told by the driver; both see the same interface. Not after it has ended.
    rates = dict(zip(found["seconds"], found["network_sent_bytes_per_s"], strict=True))
    assert {rate for moment, rate in rates.items() if 10 < moment < 240} <= {3, 4}
    assert rates[found["seconds"][-1]] == 0


def test_interfaces_that_are_not_told_are_left_out(tmp_path: Path) -> None:
    other = {name: [1, 1] for name in ("cpu_cores", "resident_bytes", "heap_bytes", "direct_bytes", "gc_ms")}
    sent = {"lo": [-1, -1], "eth0": [0, 2_000_000], "late": [7]}
    network = {name: {"received_bytes": counts, "sent_bytes": counts} for name, counts in sent.items()}
    for interfaces, rates in ((network, [1_000_000] * 2), ({"lo": network["lo"]}, None)):
        process = {"process": "0", "host": "h", "seconds": [0.0, 2.0], **other, "network": interfaces}
        (tmp_path / "resources.json").write_text(json.dumps({"processes": [process]}))
        found = resources.of_run(tmp_path)
        assert found is not None
        assert found.get("network_sent_bytes_per_s") == rates


@pytest.mark.parametrize(("told", "threads"), [("0", 1), ("", 1), ("3", 3), (None, 1)])
def test_a_run_that_failed_is_kept_with_its_reason_and_no_secret(
    tmp_path: Path, told: str | None, threads: int
) -> None:
    plan = fakes.plan_of(tmp_path)
    cell = cells_of(plan)[0]
    settings = {**cell.run.settings, **({} if told is None else {"engine.threads": told})}
    made = record.of_failure(
        plan, replace(cell, run=replace(cell.run, settings=settings)), "spark.x.password=abc broke"
    )
    assert (made["status"], made["threads"], made["workers"], made["cores"]) == ("failed", threads, 2, 2 * threads)
    assert made["batch"] == 32
    assert "abc" not in made["error"]
    assert made["error"].endswith("broke")
