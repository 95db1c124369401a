"""`bench start`: from which moment to which a wait counts, with stand-ins for what trains."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sparkdl_bench.bench import waiting
from sparkdl_bench.comparison.cells import cells_of
from sparkdl_bench.comparison.plan import load_plan
from sparkdl_bench.errors import RunFailedError
from sparkdl_bench.peers import Measurement, Sample
from suites import start

# When a stand-in's run reaches what, s after its clock, which starts 1 s after the command.
CLOCK_S = 1.0
HISTORY = ((2.0, 0.90), (3.0, 0.955), (4.0, 0.97))


def write_run(results: Path, began: float) -> None:
    folder = results / "20260101-000000-x"
    folder.mkdir(parents=True)
    clock_ms = round((began + CLOCK_S) * 1e3)
    events = [{"schema": 1, "time_ms": clock_ms, "key": "run_start", "metadata": {"clock_started_ms": clock_ms}}]
    events += [
        {"schema": 1, "time_ms": clock_ms + round(at * 1e3), "key": "eval_accuracy", "value": accuracy, "metadata": {}}
        for at, accuracy in HISTORY
    ]
    (folder / "events.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events))
    final = {"seconds_prepare": 0.5, "ms_per_step_median": 3.0}
    (folder / "summary.json").write_text(json.dumps({"schema": 1, "status": "success", "final": final, "variant": {}}))
    (folder / "run.json").write_text(json.dumps({"schema": 1, "versions": {}}))


def test_a_wait_ends_with_the_first_evaluation_that_has_the_target() -> None:
    assert waiting.reached("x", HISTORY, 0.95) == 3.0
    assert waiting.reached("x", HISTORY, 0.955) == 3.0
    assert waiting.reached("x", [(1.0, None), *HISTORY], 0.9) == 2.0
    with pytest.raises(RunFailedError, match=r"'x' reached an accuracy of 97\.0% at most, and 98% is what is waited"):
        waiting.reached("x", HISTORY, 0.98)


def test_a_command_s_wait_begins_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_: str, words: list[str], __: float) -> None:
        conf = Path(words[-1])
        began.append(time.time())
        write_run(conf.parent / "results", began[0])
        assert f'"results" = "{conf.parent}/results"' in conf.read_text()

    began: list[float] = []
    monkeypatch.setattr(waiting, "run_to_end", run)
    trial = waiting.Command("ours", {"workers": "2"}, {"spark.master": "local[2]"}, 0.95).measure(9)
    assert trial.samples_ms == [pytest.approx(4000, abs=100)]
    assert trial.facts["seconds_before_clock"] == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("before", [0, 2])
def test_a_fit_s_wait_leaves_out_the_session_and_what_it_trained_before(
    monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    class Session:
        def __init__(self, _: str, spark: Mapping[str, str], __: str) -> None:
            assert spark == {"spark.master": "local[2]"}
            asked.append("begin")
            time.sleep(0.3)

        def train(self, settings: Mapping[str, str], _: float) -> None:
            asked.append(Path(settings["results"]).name)
            write_run(Path(settings["results"]), time.time())

        def close(self) -> None:
            asked.append("close")

    asked: list[str] = []
    monkeypatch.setattr(waiting, "Application", Session)
    trial = waiting.Fit("ours", {}, {"spark.master": "local[2]"}, 0.95, before).measure(9)
    assert asked == ["begin", *(f"before-{number}" for number in range(before)), "results", "close"]
    assert trial.samples_ms == [pytest.approx(4000, abs=100)]


def test_a_peer_s_wait_begins_with_its_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    facts = {
        "clock_started_ms": 11_000.0,
        "seconds_prepare": 0.5,
        "history": [{"seconds": at, "accuracy": accuracy} for at, accuracy in HISTORY],
    }
    done = waiting.peer_run.Trained(Measurement([Sample(2.0, 5)], facts), 10.0, 20.0, 0.0)
    monkeypatch.setattr(waiting.peer_case, "prepare", lambda *_: None)
    monkeypatch.setattr(waiting.peer_run, "train", lambda *_: done)
    trial = waiting.PeerCommand("theirs", "pytorch", {}, {}, 0.95, tmp_path).measure(9)
    assert trial.samples_ms == [pytest.approx(4000)]
    assert trial.facts["seconds_before_clock"] == 1.0
    assert trial.facts["steps"] == 5


def test_every_comparison_is_of_contestants_that_there_are(tmp_path: Path) -> None:
    plan = load_plan(start.CONF, (f"data.path={tmp_path}",), 1)
    group = start.contestants(plan, tmp_path)
    names = [each.name for each in group]
    assert len(set(names)) == len(names) == 3 * 2 + 3
    for each in start.COMPARISONS:
        assert {each.ours, each.theirs} <= set(names)
    ours: Any = group[0]
    assert ours.target == 0.95
    assert {cell.run.settings["epochs"] for cell in cells_of(plan)} == {"2"}
