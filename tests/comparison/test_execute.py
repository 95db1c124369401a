"""What becomes of a cell that does not come to a good end, and from when its time counts; nothing is trained here."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import fakes
import pytest
from test_record import write_run

from sparkdl_bench import machine
from sparkdl_bench.comparison import application, execute, loop, store
from sparkdl_bench.comparison.cells import Cell, cells_of
from sparkdl_bench.comparison.execute import ProcessExecutor
from sparkdl_bench.comparison.plan import Plan
from sparkdl_bench.errors import RunFailedError, RunTimedOutError
from sparkdl_bench.peers._process import run_to_end

PEER = fakes.CONF + '\n[[variant]]\nname = "ddp"\npeer = "pytorch-ddp"\n'


def executor_of(folder: Path, monkeypatch: pytest.MonkeyPatch, conf: str = fakes.CONF) -> tuple[ProcessExecutor, Cell]:
    """An executor and its first cell, which is a peer's where there is one."""
    monkeypatch.setenv(execute.MARK_VARIABLE, "")  # set by each executor for all that comes after it
    plan = fakes.plan_of(folder, conf)
    cells = cells_of(plan)
    made = ProcessExecutor(plan, store.create(folder / "out", plan, cells), folder)
    return made, next((cell for cell in cells if cell.peer), cells[0])


def test_a_run_that_is_stopped_is_told_where_a_comparison_has_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor, cell = executor_of(tmp_path, monkeypatch)
    sleeps = [sys.executable, "-c", "import time; time.sleep(60)"]
    monkeypatch.setattr(execute, "run_to_end", lambda name, _command, _timeout_s: run_to_end(name, sleeps, 0.2))
    made = executor.run(cell)
    assert made["status"] == "failed"
    assert f"'{cell.group}' did not end within 0 s" in made["error"]
    assert made["error"].endswith("Allow more time with `timeout` in the comparison file, or train fewer epochs.")
    assert "--timeout" not in made["error"]


def test_a_peer_that_is_stopped_is_told_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Peer:
        def run(self, *_: object) -> None:
            raise RunTimedOutError("'ddp' did not end.", "Allow more time with --timeout.")

    executor, cell = executor_of(tmp_path, monkeypatch, PEER)
    monkeypatch.setattr(execute.peers, "find", lambda _: Peer())
    monkeypatch.setattr(execute.peer_case, "prepare", lambda *_: None)
    assert executor.run(cell)["error"] == f"'ddp' did not end. {application.MORE_TIME}"


@pytest.mark.parametrize("error", [RuntimeError("no luck"), TypeError("no luck"), MemoryError("no luck")])
def test_whatever_a_cell_ends_with_is_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    executor, cell = executor_of(tmp_path, monkeypatch)

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(execute, "run_to_end", fail)
    made = executor.run(cell)
    assert made["status"] == "failed"
    assert f"{type(error).__name__}('no luck')" in made["error"]
    assert f"runs/{cell.id}" in made["error"]


def test_a_user_s_interrupt_ends_the_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    executor, cell = executor_of(tmp_path, monkeypatch)
    monkeypatch.setattr(execute, "run_to_end", interrupted)
    with pytest.raises(KeyboardInterrupt):
        executor.run(cell)


def test_an_application_that_cannot_be_stopped_ends_no_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stubborn:
        key = "another"
        closed = 0

        def close(self) -> None:
            self.closed += 1
            raise RunFailedError("Processes 1, 2 could not be stopped.")

    executor, cell = executor_of(tmp_path, monkeypatch, fakes.CONF.replace("trials = 3", "trials = 3\nfresh = false"))
    stubborn = Stubborn()
    monkeypatch.setattr(executor, "_application", stubborn)
    made = executor.run(cell)
    assert made["error"] == "Processes 1, 2 could not be stopped."
    executor.close()  # it is not asked again
    assert stubborn.closed == 1


def test_a_shared_application_s_start_and_warm_up_are_no_part_of_its_first_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    trained: list[str] = []
    spans: list[tuple[float, float]] = []

    class Shared:
        """Starts in 50 s and trains in 20 s."""

        def __init__(self, key: str, *_: object) -> None:
            self.key = key
            clock[0] += 50.0

        def train(self, settings: Mapping[str, str], _timeout_s: float) -> None:
            trained.append(settings["results"])
            clock[0] += 20.0
            write_run(Path(settings["results"]))

    def of_run(_plan: Plan, _cell: Cell, _folder: Path, begun_s: float, ended_s: float, **_: bool) -> dict[str, str]:
        spans.append((begun_s, ended_s))
        return {"status": "success"}

    executor, cell = executor_of(tmp_path, monkeypatch, fakes.CONF.replace("trials = 3", "trials = 3\nfresh = false"))
    measured = replace(cell, trial=1)
    monkeypatch.setattr(execute, "Application", Shared)
    monkeypatch.setattr(execute.record, "of_run", of_run)
    monkeypatch.setattr(time, "time", lambda: clock[0])
    assert executor.run(measured)["status"] == "success"
    # It started, and warmed up since the plan has warm-ups, before the cell began.
    assert len(trained) == 2
    assert spans == [(1070.0, 1090.0)]


def test_what_a_killed_comparison_has_left_trained_ended_with_its_last_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans: list[tuple[float, float]] = []

    def of_run(_plan: Plan, _cell: Cell, _folder: Path, begun_s: float, ended_s: float, **_: bool) -> dict[str, str]:
        spans.append((begun_s, ended_s))
        return {"status": "success"}

    executor, cell = executor_of(tmp_path, monkeypatch)
    place = executor._folder.runs(cell)
    begun = execute._begin(place)
    run = write_run(place)
    for name, after in (("steps.json", 3.0), ("summary.json", 7.0)):
        os.utime(run / name, (begun + after, begun + after))
    monkeypatch.setattr(execute.record, "of_run", of_run)
    # A minute before; the machine's load of now says nothing of then.
    (place / execute._BEGUN).write_text(json.dumps({"begun": begun - 60}))
    monkeypatch.setattr(machine, "load", lambda: machine.Load(0.9, 1.0))
    found = loop._timed(cell, executor)
    assert spans == [(begun - 60, pytest.approx(begun + 7.0, abs=1e-3))]
    assert found["status"] == "success"
    assert found["seconds"] == pytest.approx(67.0, abs=0.01)
    assert datetime.fromisoformat(found["started"]).timestamp() == pytest.approx(begun - 60, abs=0.01)
    assert found["load"] == {}
