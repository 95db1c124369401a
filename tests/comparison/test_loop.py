"""Cells in turn, their records, and what a kill at any moment leaves."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fakes
import pytest

from sparkdl_bench import machine
from sparkdl_bench.comparison import loop, store
from sparkdl_bench.comparison.cells import Cell, cells_of, in_order
from sparkdl_bench.comparison.plan import Plan, load_plan
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.files import replace_text

ROOT = Path(__file__).resolve().parents[2]


class FakeExecutor:
    """Trains nothing; cells of the groups in `bad` fail."""

    def __init__(self, plan: Plan, bad: tuple[str, ...] = ()) -> None:
        self.plan, self.bad = plan, bad
        self.ran: list[str] = []
        self.closed = 0

    def run(self, cell: Cell) -> Mapping[str, Any]:
        self.ran.append(cell.id)
        return fakes.failure(self.plan, cell) if cell.group in self.bad else fakes.success(self.plan, cell)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture(autouse=True)
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "load", lambda: machine.Load(0.0, 0.0))


def run(plan: Plan, folder: store.ComparisonFolder, executor: FakeExecutor, **how: Any) -> str:
    text = io.StringIO()
    cells = in_order(plan, cells_of(plan))
    with loop.shown(text, len(cells)) as display:
        loop.run_cells(cells, folder, executor, display, **how)
    return text.getvalue()


def test_every_cell_runs_once_and_its_record_comes_back(tmp_path: Path) -> None:
    plan = fakes.plan_of(tmp_path)
    cells = in_order(plan, cells_of(plan))
    folder = store.create(tmp_path / "out", plan, cells)
    executor = FakeExecutor(plan)
    said = run(plan, folder, executor)
    assert executor.ran == [cell.id for cell in cells]
    assert executor.closed == 1
    assert "[12/12]" in said
    assert " left)" in said
    record = folder.record(cells[0])
    assert record["schema"] == store.SCHEMA
    assert record["metrics"]["seconds_to_accuracy"] == 3.0
    assert record["metrics"]["ms_per_step"] == pytest.approx(2.1)
    assert [each["id"] for each in folder.records()]


def test_no_cell_begins_after_the_time_and_the_rest_follows_another_time(tmp_path: Path) -> None:
    plan = fakes.plan_of(tmp_path)
    folder = store.create(tmp_path / "out", plan, cells_of(plan))
    executor = FakeExecutor(plan)
    assert "The time is over: 0 of 12 trials are measured." in run(plan, folder, executor, begun_until=0.0)
    assert executor.ran == []
    assert executor.closed == 1
    said = run(plan, folder, executor, begun_until=time.monotonic() + 1000)
    assert "The time is over" not in said
    assert len(executor.ran) == len(folder.records()) == 12


def test_a_failed_cell_is_recorded_and_the_rest_runs(tmp_path: Path) -> None:
    plan = fakes.plan_of(tmp_path)
    folder = store.create(tmp_path / "out", plan, [])
    executor = FakeExecutor(plan, bad=("slow, batch 64",))
    said = run(plan, folder, executor)
    assert len(executor.ran) == 12
    assert said.count("FAILED. It did not work.") == 3
    states = [record["status"] for record in folder.records()]
    assert (states.count("failed"), states.count("success")) == (3, 9)
    # They stay as they are, unless they are asked for again.
    again = FakeExecutor(plan)
    run(plan, folder, again)
    assert again.ran == []
    run(plan, folder, again, retry_failed=True)
    assert len(again.ran) == 3
    assert all(record["status"] == "success" for record in folder.records())


def test_more_trials_go_on_with_what_is_there(tmp_path: Path) -> None:
    plan = fakes.plan_of(tmp_path)
    cells = cells_of(plan)
    before = store.create(tmp_path / "out", plan, cells)
    before.add(cells[0], fakes.success(plan, cells[0]))
    more = fakes.plan_of(tmp_path, fakes.CONF.replace("trials = 3", "trials = 7"))
    found = store.resume(tmp_path / "out", more)
    assert found is not None
    found.grow(more, cells_of(more))
    again = store.open_folder(before.path)
    assert (again.content["plan"]["trials"], again.mark) == (7, before.mark)
    assert again.content["order"][: len(cells)] == before.content["order"]
    assert sorted(again.content["order"]) == sorted(cell.id for cell in cells_of(more))
    assert len(again.records()) == 1
    assert found.has(cells[0])


def test_resume_takes_the_newest_of_the_same_plan_and_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = fakes.plan_of(tmp_path)
    store.create(tmp_path / "out", plan, [])
    newest = store.create(tmp_path / "out", plan, [])
    found = store.resume(tmp_path / "out", plan)
    assert found is not None
    assert found.path == newest.path
    assert found.mark == newest.mark
    longer = fakes.plan_of(tmp_path, fakes.CONF.replace("trials = 3", "trials = 3\ntimeout = 5000"))
    found = store.resume(tmp_path / "out", longer)  # with more time a cell that was stopped may run again
    assert found is not None
    assert found.path == newest.path
    other = fakes.plan_of(tmp_path, fakes.CONF.replace("warmup_steps = 2", "warmup_steps = 3"))
    assert store.resume(tmp_path / "out", other) is None
    fewer = fakes.plan_of(tmp_path, fakes.CONF.replace("trials = 3", "trials = 2"))
    assert store.resume(tmp_path / "out", fewer) is None
    monkeypatch.setattr(machine, "commit", lambda: "another")
    assert store.resume(tmp_path / "out", plan) is None


def test_no_secret_is_kept(tmp_path: Path) -> None:
    own = 'set = { transport = "block-manager", "spark.ssl.keyPassword" = "nopqrst" }'
    conf = fakes.write_conf(tmp_path, fakes.CONF.replace('set = { transport = "block-manager" }', own))
    plan = load_plan(conf, ["spark.authenticate.secret=abcdefg", "spark.ssl.rpc.keyStorePassword=hijklm"])
    folder = store.create(tmp_path / "out", plan, [])
    run(plan, folder, FakeExecutor(plan))
    kept = "".join(file.read_text() for file in folder.path.rglob("*.json"))
    assert "spark.authenticate.secret" in kept
    assert "spark.ssl.keyPassword" in kept
    assert not [secret for secret in ("abcdefg", "hijklm", "nopqrst") if secret in kept]


def test_two_processes_do_not_measure_into_one_folder(tmp_path: Path) -> None:
    plan = fakes.plan_of(tmp_path)
    folder = store.create(tmp_path / "out", plan, [])
    with folder.locked(), pytest.raises(ConfigurationError, match="Another process measures"), folder.locked():
        pass


PROGRAM = """
import json, os, pathlib, sys, time
sys.path.insert(0, {tests!r})
import fakes, io
from sparkdl_bench import machine
from sparkdl_bench.comparison import execute, loop, record, store
from sparkdl_bench.comparison.cells import cells_of, in_order
from sparkdl_bench.comparison.plan import load_plan
from sparkdl_bench.peers import _process

machine.load = lambda: machine.Load(0.0, 0.0)
plan = load_plan(pathlib.Path({conf!r}))
cells = in_order(plan, cells_of(plan))
folder = store.resume(pathlib.Path({out!r}), plan) or store.create(pathlib.Path({out!r}), plan, cells)
finished = pathlib.Path({log!r})

# No more cells than the test lets begin: a test that is held up still finds some to kill.
def may_begin():
    while len(list(folder.path.glob("cells/*.json"))) >= int(pathlib.Path({allowed!r}).read_text()):
        time.sleep(0.002)

# A peer that trains nothing either: its program's one line, which a kill may cut short.
class Peer:
    def run(self, case, timeout_s, directory, out):
        may_begin()
        history = [dict(epoch=1, seconds=0.9, train_loss=1.0, test_loss=1.0, accuracy=0.95)]
        facts = dict(threads=1, seconds_total=1.2, seconds_prepare=0.1, seconds_evaluation=0.1, history=history)
        line = json.dumps(dict(samples_ms=[1.0, 1.0], facts=facts))
        with out.open("w") as lines:
            lines.write(line[:40])
            lines.flush()
            time.sleep(0.01)
            lines.write(line[40:])
        with finished.open("a") as lines:
            lines.write(out.parent.name + "\\n")
        time.sleep(0.005)
        return _process.left_whole("fake", out)

execute.peers.find = lambda name: Peer()
execute.peer_case.prepare = lambda *_: None

class Executor(execute.ProcessExecutor):
    # As the real one, but what it starts is no Spark application: files that come one after the other.
    def _fresh(self, cell, settings, place):
        may_begin()
        run = place / "20260102-030405-000-test"
        run.mkdir()
        time.sleep(0.01)
        def event(at, key, **metadata):
            return json.dumps(dict(time_ms=at * 1e3, key=key, value=None, metadata=metadata)) + "\\n"
        now = time.time()
        events = event(now, "run_start") + event(now + 1, "eval_accuracy", epoch_num=1)
        events += event(now + 1, "epoch_stop", epoch_num=1) + event(now + 1.2, "run_stop")
        (run / "events.jsonl").write_text(events)
        (run / "run.json").write_text("{{}}")
        final = dict(seconds_total=1.2)
        history = [dict(epoch=1, seconds=0.9, train_loss=1.0, test_loss=1.0, test_accuracy=0.95)]
        summary = dict(status="success", final=final, workers=2, batch=32, variant={{}}, bytes={{}}, history=history,
                       phases_ms=dict(compute=1.0))
        (run / "steps.json").write_text("[1.0, 1.0]")
        time.sleep(0.01)
        # The last file of a run: from here on the cell is finished, and may never run again.
        (run / "summary.json.partial").write_text(json.dumps(summary))
        (run / "summary.json.partial").rename(run / "summary.json")  # at once, as a run does
        with finished.open("a") as lines:
            lines.write(cell.id + "\\n")
            lines.flush()
        time.sleep(0.005)

with folder.locked():
    executor = Executor(plan, folder, pathlib.Path("."))
    executor.stop_leftovers()
    with loop.shown(io.StringIO(), len(cells)) as display:
        loop.run_cells(cells, folder, executor, display)
print(folder.path)
"""


def test_kills_at_random_moments_lose_no_finished_cell_and_run_none_twice(tmp_path: Path) -> None:
    peer = '[[variant]]\nname = "ddp"\npeer = "pytorch-ddp"\n'
    conf = fakes.write_conf(tmp_path, fakes.CONF.replace("trials = 3", "trials = 30") + peer)
    out, log, allowed = tmp_path / "out", tmp_path / "finished.log", tmp_path / "allowed"
    program = PROGRAM.format(
        tests=str(Path(__file__).parent), conf=str(conf), out=str(out), log=str(log), allowed=str(allowed)
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    chance = random.Random(5)
    kills, kept = 0, 0
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        replace_text(allowed, str(_count(out) + 8 if kills < 10 else 1_000_000))
        child = subprocess.Popen(
            [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        before = _count(out)
        assert before >= kept  # no finished cell is lost by a kill
        kept = before
        if kills < 10:
            # Not while it still starts: wait for a cell of its own, then any moment within the next few.
            while _count(out) <= before and child.poll() is None:
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.12))
            if child.poll() is None:
                child.send_signal(signal.SIGKILL)
                kills += 1
        stdout, stderr = child.communicate(timeout=200)
        if child.returncode == 0:
            break
        assert child.returncode == -signal.SIGKILL, stderr
    assert kills == 10
    assert child.returncode == 0
    plan = load_plan(conf)
    folder = store.open_folder(Path(stdout.strip()))
    cells = cells_of(plan)
    assert len(list(out.iterdir())) == 1  # every start went on with the first one's folder
    assert sorted(record["id"] for record in folder.records()) == sorted(cell.id for cell in cells)
    assert all(record["status"] == "success" for record in folder.records())
    ran = log.read_text().split()
    assert sorted(ran) == sorted(set(ran)), "a finished cell ran twice"
    # A kill may fall between the run's last file and its line here.
    assert len(cells) - len(ran) <= kills


def _count(out: Path) -> int:
    return len(list(out.glob("*/cells/*.json")))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_bar_with_the_time_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    plan = fakes.plan_of(tmp_path)
    cells = in_order(plan, cells_of(plan))
    folder = store.create(tmp_path / "out", plan, cells)
    stream = Terminal()
    with loop.shown(stream, len(cells)) as display:
        loop.run_cells(cells, folder, FakeExecutor(plan), display)
    said = stream.getvalue()
    assert "/12" in said
    assert " left" in said
    assert "[12/12]" in said


def test_the_time_left_is_the_mean_of_each_group(tmp_path: Path) -> None:
    cells = cells_of(fakes.plan_of(tmp_path))
    estimate = loop.Estimate()
    assert estimate.seconds_left(cells) is None
    estimate.add("fast, batch 32", 1.0)
    estimate.add("slow, batch 32", 3.0)
    # Three cells of each of two known groups, and six of groups of which nothing is known yet.
    assert estimate.seconds_left(cells) == 3 * 1.0 + 3 * 3.0 + 6 * 2.0


def test_a_folder_that_is_none_says_so(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps({"schema": 99}))
    with pytest.raises(ConfigurationError, match="schema 99"):
        store.open_folder(tmp_path)


@pytest.mark.parametrize(("waited", "said"), [(33.71, "33.7 s from the command"), (None, "29.0 s")])
def test_a_finished_cell_says_what_reports_count(waited: float | None, said: str) -> None:
    # A session that several runs share has no command of each run's own.
    none = dict.fromkeys(("ms_per_step", "test_accuracy", "seconds_to_accuracy"), None)
    metrics = {**none, "seconds_total": 29.0, "seconds_waited": waited}
    record = {"group": "a", "trial": 1, "warmup": False, "status": "success", "metrics": metrics, "load": {}}
    assert loop.describe(record) == f"a, trial 1: {said}"


@pytest.mark.parametrize(("busy", "said"), [(0.1, ""), (0.11, ", the machine was 11% busy before"), (0.44, "44% busy")])
def test_a_cell_that_began_on_a_busy_machine_says_so(busy: float, said: str) -> None:
    none = dict.fromkeys(("ms_per_step", "test_accuracy", "seconds_to_accuracy"), None)
    head = {"group": "a", "trial": 1, "warmup": False, "status": "success", "load": {"busy": busy}}
    told = loop.describe({**head, "metrics": {**none, "seconds_total": 29.0}})
    assert (said in told) if said else told.endswith("29.0 s")
