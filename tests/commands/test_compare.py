"""`sparkdl-bench compare` and `report` as a user calls them: real runs on the digits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import CommandLine
from sparkdl_bench import peers
from sparkdl_bench.comparison import peer_case, store
from sparkdl_bench.config import load_run_file
from sparkdl_bench.peers._process import marked
from sparkdl_bench.results import RunResults

pytestmark = pytest.mark.on_one_line

ROOT = Path(__file__).resolve().parents[2]
CONF = """
title = "Digits"
base = "{base}"
trials = {trials}
fresh = {fresh}
warmup_trials = 0
warmup_steps = 20
target_accuracy = 0.5
baseline = {{ codec = "fp32" }}

[set]
epochs = 2
transport = "{transport}"

[matrix]
codec = ["fp32", "bf16"]
"""


def write(folder: Path, **values: object) -> Path:
    path = folder / "digits.toml"
    base = ROOT / "conf/runs/digits-mlp.toml"
    chosen = {"base": base, "trials": 1, "fresh": "true", "transport": "block-stream", **values}
    path.write_text(CONF.format(**chosen), encoding="utf-8")
    return path


def records_of(results: Path) -> list[dict[str, object]]:
    [folder] = results.iterdir()
    return store.open_folder(folder).records()


def check(results: Path, done: subprocess.CompletedProcess[str], fresh: bool) -> None:
    """A whole comparison: what it said last, and what it keeps of each cell."""
    assert done.returncode == 0, done.stderr
    assert "codec fp32" in done.stdout
    assert "[2/2]" in done.stderr
    records = records_of(results)
    assert {record["group"] for record in records} == {"codec fp32", "codec bf16"}
    assert all(record["status"] == "success" for record in records)
    for record in records:
        metrics, layers = record["metrics"], record["layers_s"]
        assert isinstance(metrics, dict)
        assert isinstance(layers, dict)
        assert metrics["test_accuracy"] > 0.8
        assert 0 < metrics["seconds_to_accuracy"] <= metrics["seconds_total"]
        assert layers["start"] > 0
        waits = [metrics[name] for name in ("seconds_before_clock", "seconds_waited_to_accuracy", "seconds_waited")]
        if fresh:
            assert waits[2] == pytest.approx(sum(layers.values()), rel=0.01)
            assert metrics["seconds_to_accuracy"] + waits[0] == pytest.approx(waits[1], abs=0.001)
            assert waits[0] > 1  # a JVM and executors start
        else:
            assert waits == [None, None, None]
        # Most of the epochs' time has a name: it is the steps' and the evaluations'.
        epochs_s = sum(epoch["seconds"] for epoch in RunResults(_folder_of(results, record)).history)
        assert layers["idle"] + abs(layers["other"]) < 0.35 * epochs_s
        # A session of its own waits for executors; the last of those that share one finds them there.
        assert layers["cluster manager"] >= 0
        if fresh or record is records[-1]:
            assert (layers["cluster manager"] > 0) == fresh
        # The layers add up to the process's wall clock, but for what a busy machine takes to see that it has ended.
        if fresh:
            assert sum(layers.values()) == pytest.approx(record["seconds"], rel=0.02, abs=1.0)
            assert abs(layers["other"]) < 0.02 * sum(layers.values())
            assert layers["evaluation"] > 0
            # Tasks are launched and their code is unpacked before the first step of a single stage, too.
            assert layers["task launch"] + layers["serialisation"] + layers["job submission"] > 0


def _folder_of(results: Path, record: Mapping[str, object]) -> Path:
    [folder] = results.iterdir()
    return folder / str(record["folder"])


def test_a_comparison_whose_cells_share_an_application(command_line: CommandLine, tmp_path: Path) -> None:
    results = tmp_path / "out"
    conf = write(tmp_path, fresh="false", transport="block-manager")
    check(results, command_line.run("compare", str(conf), "--results", str(results)), fresh=False)


# test_loop.py kills at random moments, with stand-ins for what trains.
@pytest.mark.campaign
def test_a_killed_comparison_goes_on_to_its_report_and_leaves_no_process(
    command_line: CommandLine, tmp_path: Path
) -> None:
    conf, results, page = write(tmp_path), tmp_path / "out", tmp_path / "report.html"
    process = command_line.start("compare", str(conf), "--results", str(results))
    _wait(lambda: len(list(results.glob("*/cells/*.json"))) == 1 and len(list(results.glob("*/runs/*"))) == 2)
    [folder] = results.iterdir()
    mark = store.open_folder(folder).mark
    # Its Python and its JVM are there: the second cell has seconds of work before it.
    _wait(lambda: len(marked(mark, "SPARKDL_COMPARISON")) > 1)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=200)
    [first] = folder.glob("cells/*.json")
    before = first.read_text()
    done = command_line.run("compare", str(conf), "--results", str(results), "--resume")
    check(results, done, fresh=True)
    assert "1 of 2 cells are there already." in done.stderr
    assert first.read_text() == before
    assert len(records_of(results)) == 2
    # One whole run a cell, and nothing of the killed one goes on.
    assert len(list(folder.glob("runs/*/*/steps.json"))) == 2
    assert marked(store.open_folder(folder).mark, "SPARKDL_COMPARISON") == []
    made = command_line.run("report", str(folder), "-o", str(page))
    assert made.returncode == 0, made.stderr
    assert 'id="c1-answer"' in page.read_text()
    # It is finished: going on runs nothing.
    again = command_line.run("compare", str(conf), "--results", str(results), "--resume")
    assert again.returncode == 0, again.stderr
    assert "2 of 2 cells are there already." in again.stderr


def test_a_terminated_comparison_leaves_no_process(command_line: CommandLine, tmp_path: Path) -> None:
    results = tmp_path / "out"
    process = command_line.start("compare", str(write(tmp_path)), "--results", str(results))
    _wait(lambda: len(list(results.glob("*/runs/*"))) == 1)
    [folder] = results.iterdir()
    mark = store.open_folder(folder).mark
    _wait(lambda: len(marked(mark, "SPARKDL_COMPARISON")) > 2)  # the run's own processes are there
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=200)
    assert process.returncode == 143
    assert marked(mark, "SPARKDL_COMPARISON") == []


@pytest.mark.long
def test_a_failed_cell_is_recorded_and_the_status_is_1(command_line: CommandLine, tmp_path: Path) -> None:
    conf = tmp_path / "faulty.toml"
    text = write(tmp_path).read_text()
    # That a run diverges is not known before it begins.
    for old, new in (
        ('codec = ["fp32", "bf16"]', '"optimizer.learning_rate" = [0.1, 1e30]'),
        ('baseline = { codec = "fp32" }', ""),
    ):
        assert old in text
        text = text.replace(old, new)
    conf.write_text(text)
    done = command_line.run("compare", str(conf), "--results", str(tmp_path / "out"))
    assert done.returncode == 1
    assert "1 of 2 cells failed" in done.stderr
    assert sorted(str(record["status"]) for record in records_of(tmp_path / "out")) == ["failed", "success"]


def test_a_wrong_value_is_found_before_any_run(command_line: CommandLine, tmp_path: Path) -> None:
    conf = tmp_path / "wrong.toml"
    conf.write_text(write(tmp_path).read_text().replace('"bf16"', '"bf17"'))
    done = command_line.run("compare", str(conf), "--results", str(tmp_path / "out"))
    assert done.returncode == 2
    assert "codec bf17" in done.stderr
    assert "bf16" in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_torch_peers_start_as_we_do(command_line: CommandLine, tmp_path: Path) -> None:
    """The same weights, and half of the rows, the same ones: the same losses as a run of ours, up to rounding."""
    directory = peers.default_directory()
    reason = peers.find("pytorch").missing(directory)
    if reason:
        pytest.skip(reason)
    settings = {**load_run_file(ROOT / "conf/runs/digits-mlp.toml").settings, "data.share": "0.5", "epochs": "3"}
    case = peer_case.prepare({**settings, "workers": "1"}, {}, tmp_path / "data")
    single = peers.find("pytorch").run(case, 300, directory)
    ddp = peers.find("pytorch-ddp").run(replace(case, workers=2), 300, directory)
    for measured, waits in ((single, False), (ddp, True)):
        phases = measured.facts["phases_ms"]
        assert isinstance(phases, dict)
        mean_ms = sum(sample.ms for sample in measured.samples) / len(measured.samples)
        assert sum(phases.values()) == pytest.approx(mean_ms, rel=0.02)
        assert (phases["wait"] > 0) == waits
    alone, both = single.facts["history"], ddp.facts["history"]
    changed = ("epochs=3", "data.share=0.5", f"results={tmp_path / 'ours'}", "master=local[2]")
    sets = [word for assignment in changed for word in ("--set", assignment)]
    run = command_line.run("run", str(ROOT / "conf/runs/digits-mlp.toml"), *sets)
    assert run.returncode == 0, run.stderr
    [folder] = (tmp_path / "ours").iterdir()
    ours = json.loads((folder / "summary.json").read_text())["history"]
    for mine, one, two in zip(ours, alone, both, strict=True):  # type: ignore[call-overload]
        assert one["train_loss"] == pytest.approx(mine["train_loss"], rel=0.02)
        assert two["train_loss"] == pytest.approx(one["train_loss"], rel=0.02)
    assert alone[0]["train_loss"] == pytest.approx(ours[0]["train_loss"], rel=1e-4)  # type: ignore[index]


def _wait(ready: object, seconds: float = 200.0) -> None:
    assert callable(ready)
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_processes_are_found_by_their_mark() -> None:
    mark = f"test-mark-{os.getpid()}"
    child = subprocess.Popen(["sleep", "300"], env={**os.environ, "SPARKDL_COMPARISON": mark})
    try:
        _wait(lambda: [process.pid for process in marked(mark, "SPARKDL_COMPARISON")] == [child.pid])
    finally:
        child.kill()
        child.wait(100)
    assert marked(mark, "SPARKDL_COMPARISON") == []
