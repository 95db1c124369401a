"""The fault campaign without Spark: its law knows each kind of violation, its records go on, its draw is its seed's."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import psutil
import pytest
from click.testing import CliRunner

from faults import campaign, kind, law, left, records, strangers
from faults.kind import Scene
from faults.kinds import checkpoints, clock
from faults.law import Ended, Expectation, judge
from faults.records import Record
from faults.training import EndedEarlyError, Training, moved_to, newest_checkpoint, summary_of, weights_of
from faults.ways import WAYS, Way
from sparkdl_bench import cli
from sparkdl_bench.bench import store
from sparkdl_bench.errors import ConfigurationError, RunFailedError, WriteError
from suites.faults import command

RIGHT, WRONG = "a" * 64, "b" * 64
EXPECTED = Expectation(RIGHT)
FAILED = {"status": "failed", "error": "Executor 1 was lost."}
GOOD = Ended(0, "", RIGHT, {"status": "success"})
BAD = Ended(1, "3 s  starting\nThe run failed: executor 1 was lost. Start it again.\n", "", FAILED)
TRACE = 'Traceback (most recent call last):\n  File "x.py", line 1\nValueError: y\n'


class TestLaw:
    def test_the_same_bits_hold(self) -> None:
        assert judge(GOOD, None, EXPECTED, []).outcome == law.SAME

    def test_a_named_error_holds_and_its_sentence_is_kept(self) -> None:
        verdict = judge(BAD, None, EXPECTED, [])
        assert verdict == law.Verdict(law.NAMED, "", "The run failed: executor 1 was lost. Start it again.")

    def test_a_run_that_goes_on_to_the_same_bits_holds(self) -> None:
        verdict = judge(BAD, GOOD, EXPECTED, [])
        assert verdict.outcome == law.RESUMED
        assert "executor 1 was lost" in verdict.error

    @pytest.mark.parametrize(
        ("first", "again", "left_behind", "reason"),
        [
            (replace(GOOD, weights=WRONG), None, [], "the run ended well with other weights"),
            (replace(GOOD, weights=""), None, [], "left no weights"),
            (replace(BAD, status=None, seconds=150.0), None, [], "the run hung: it did not end within 150 s"),
            (replace(BAD, said=""), None, [], "without a named error"),
            (replace(BAD, said="5 s  starting\n"), None, [], "without a named error"),
            (replace(BAD, said=TRACE), None, [], "without a named error"),
            (replace(BAD, said="Lost.\n\tat org.apache.spark.X.run(X.scala:3)\n"), None, [], "without a named error"),
            (replace(BAD, said='Exception in thread "main" java.lang.Error\n'), None, [], "without a named error"),
            (
                replace(BAD, said="Internal error: KeyError: 1. This is a bug of sparkdl-bench; --debug shows\n"),
                None,
                [],
                "without a named error",
            ),
            (replace(BAD, summary=None), None, [], "summary.json is missing"),
            (replace(BAD, summary={"status": "success"}), None, [], "says success"),
            (BAD, replace(GOOD, weights=WRONG), [], "the resumed run ended well with other weights"),
            (BAD, replace(BAD, status=None), [], "the resumed run hung"),
            (BAD, replace(BAD, said=TRACE), [], "the resumed run ended with status 1 and without a named error"),
            (BAD, BAD, [], "though nothing disturbed it"),
            (GOOD, None, ["process 7: java"], "left behind: process 7: java"),
            (BAD, GOOD, ["shared memory /dev/shm/x"], "left behind: shared memory"),
        ],
    )
    def test_each_violation_is_recognised(
        self, first: Ended, again: Ended | None, left_behind: list[str], reason: str
    ) -> None:
        verdict = judge(first, again, EXPECTED, left_behind)
        assert verdict.outcome == law.VIOLATION
        assert reason in verdict.reason

    def test_of_a_command_that_was_killed_the_summary_speaks(self) -> None:
        killed = Ended(-9, "", "", {"status": "cancelled", "error": "The command was killed."})
        expected = replace(EXPECTED, parent_killed=True)
        assert judge(killed, None, expected, []) == law.Verdict(law.NAMED, "", "The command was killed.")
        assert judge(replace(killed, summary=None), None, expected, []).outcome == law.VIOLATION
        assert judge(replace(killed, summary={"status": "success"}), None, expected, []).outcome == law.VIOLATION

    def test_nobody_of_a_run_that_was_killed_whole_must_speak_but_the_next_run_must(self) -> None:
        killed = Ended(-9, "", "", None)
        expected = replace(EXPECTED, whole_killed=True, summary=False)
        assert judge(killed, None, expected, []).held
        assert judge(killed, GOOD, expected, []).outcome == law.RESUMED
        assert judge(killed, replace(GOOD, weights=WRONG), expected, []).outcome == law.VIOLATION

    def test_only_what_was_damaged_may_be_refused(self) -> None:
        refused = replace(BAD, status=2, said="The checkpoint is damaged. Remove it.\n")
        assert judge(BAD, refused, replace(EXPECTED, may_refuse=True), []).outcome == law.NAMED
        assert judge(BAD, replace(refused, said=TRACE), replace(EXPECTED, may_refuse=True), []).outcome == law.VIOLATION

    def test_other_bits_are_right_with_fewer_workers_alone(self) -> None:
        expected = replace(EXPECTED, changed_workers=True)
        fewer = replace(GOOD, weights=WRONG, summary={"status": "success", "workers": 1, "workers_at_start": 2})
        assert judge(fewer, None, expected, []).held
        assert not judge(fewer, None, EXPECTED, []).held
        as_many = replace(fewer, summary={"status": "success", "workers": 2, "workers_at_start": 2})
        assert not judge(as_many, None, expected, []).held


PLAN = {"seed": 3, "kinds": {"a": ["w"]}}
FAULT = Record(0, "a", "w", 3, "early", law.SAME, seconds=1.5)


class TestRecords:
    def test_a_campaign_goes_on_where_it_was(self, tmp_path: Path) -> None:
        begun = records.create(tmp_path, PLAN)
        begun.add_undisturbed("w", RIGHT, 12.0)
        begun.add(FAULT)
        begun.add(replace(FAULT, number=2, outcome=law.VIOLATION, reason="hung", left=["process 1"]))
        found = records.newest(tmp_path, PLAN)
        assert found is not None
        assert found.path == begun.path
        assert found.faults == begun.faults
        assert found.numbers == {0, 2}
        assert found.undisturbed == {"w": RIGHT}

    def test_another_plan_or_commit_is_another_campaign(self, tmp_path: Path) -> None:
        begun = records.create(tmp_path, PLAN)
        assert records.newest(tmp_path, {**PLAN, "seed": 4}) is None
        lines = begun.path.read_text().splitlines()
        header = {**json.loads(lines[0]), "commit": "another"}
        begun.path.write_text(json.dumps(header) + "\n")
        assert records.newest(tmp_path, PLAN) is None

    def test_a_line_that_was_cut_is_made_again(self, tmp_path: Path) -> None:
        begun = records.create(tmp_path, PLAN)
        begun.add(FAULT)
        whole = begun.path.read_text()
        begun.path.write_text(whole + '{"fault": {"number": 1, "ki')
        found = records.newest(tmp_path, PLAN)
        assert found is not None
        assert found.numbers == {0}
        assert begun.path.read_text() == whole

    @pytest.mark.parametrize(
        "text", ["", "{}\n", "[\n", '{"schema": 99, "plan": {}}\n', '{"schema": 1, "plan": {}}\n{}\n']
    )
    def test_what_is_no_campaign_is_refused(self, tmp_path: Path, text: str) -> None:
        file = tmp_path / "x.jsonl"
        file.write_text(text)
        with pytest.raises(ConfigurationError, match=r"x\.jsonl' is no file of records of a fault campaign"):
            records.load(file)

    def test_a_file_that_cannot_be_written_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(WriteError, match=r"cannot be written.*--results DIR"):
            records.Records(tmp_path, PLAN).add(FAULT)

    def test_evidence_needs_a_commit(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(store.machine, "commit", lambda: "abc+changes")
        with pytest.raises(ConfigurationError, match="Commit the changes first"):
            records.create(tmp_path / "benchmarks" / "results", PLAN)


SUITED = {"a": ["x", "y", "z"], "b": ["x"], "c": ["x", "y"]}


class TestDraw:
    def test_the_seed_decides(self) -> None:
        assert campaign.draw(1, 50, SUITED) == campaign.draw(1, 50, SUITED)
        assert campaign.draw(1, 50, SUITED) != campaign.draw(2, 50, SUITED)

    def test_a_longer_campaign_begins_as_a_shorter_one(self) -> None:
        assert campaign.draw(1, 50, SUITED)[:7] == campaign.draw(1, 7, SUITED)

    def test_each_kind_comes_once_a_round_and_each_way_in_its_turn(self) -> None:
        drawn = campaign.draw(5, 18, SUITED)
        assert [each.number for each in drawn] == list(range(18))
        for start in range(0, 18, 3):
            assert {each.kind for each in drawn[start : start + 3]} == set(SUITED)
        for name, ways in SUITED.items():
            counts = [sum(each.kind == name and each.way == way for each in drawn) for way in ways]
            assert counts == [6 // len(ways)] * len(ways)

    def test_without_a_kind_there_is_nothing_to_draw(self) -> None:
        with pytest.raises(ConfigurationError, match="No kind of fault is left"):
            campaign.draw(0, 5, {})


class TestKinds:
    def test_kinds_are_found_by_scanning(self) -> None:
        found = kind.find()
        files = [each for each in (Path(kind.__file__).parent / "kinds").glob("*.py") if each.stem != "__init__"]
        assert {type(each).__module__.rpartition(".")[2] for each in found.values()} == {each.stem for each in files}
        assert len(found) >= 22
        assert all(each.doc.endswith(".") for each in found.values())

    def test_every_kind_suits_a_way(self) -> None:
        assert campaign.suited(kind.find(), WAYS).keys() == kind.find().keys()

    def test_runs_over_block_manager_and_shuffle_lose_executors_too(self) -> None:
        ways = campaign.suited(kind.find(), WAYS)
        for name in ("executor-killed", "executor-stopped-beyond", "driver-killed", "link-cut", "checkpoint-flipped"):
            assert {"block-manager-sliced", "shuffle-two"} <= set(ways[name]), name

    def test_a_clock_cannot_be_set_without_the_library(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (step, *_) = clock.KINDS
        monkeypatch.delenv(clock.LIBRARY, raising=False)
        assert "SPARKDL_FAKETIME does not name" in str(step.obstacle())
        monkeypatch.setenv(clock.LIBRARY, str(tmp_path / "none.so"))
        assert "which is no file" in str(step.obstacle())
        (tmp_path / "none.so").touch()
        assert step.obstacle() is None
        suited = {way.name for way in WAYS.values() if step.suits(way)}
        assert {"tcp-sliced", "shuffle-two"} <= suited
        assert not {"numpy-engine", "mpi-sliced"} & suited

    def test_the_variables_of_a_java_are_its_alone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        real = tmp_path / "real"
        (real / "bin").mkdir(parents=True)
        (real / "lib").mkdir()
        for program in ("java", "keytool"):
            (real / "bin" / program).write_text(f'#!/bin/sh\necho {program} "$STEP" "$@"\n')
            (real / "bin" / program).chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(real))
        home = clock.java_with({"STEP": "two words"}, tmp_path / "home")

        def said(program: str) -> str:
            words = [str(home / "bin" / program), "-x", "a b"]
            return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()

        assert said("java") == "java two words -x a b"
        assert said("keytool") == "keytool  -x a b"
        assert (home / "lib").samefile(real / "lib")

    @pytest.mark.parametrize("name", [each.name for each in checkpoints.KINDS])
    def test_a_damaged_checkpoint_is_another_one(self, tmp_path: Path, name: str) -> None:
        (damaged,) = (each for each in checkpoints.KINDS if each.name == name)
        for number in range(20):
            folder = tmp_path / str(number)
            folder.mkdir()
            for file in ("rank-0-of-2.r-0", "rank-1-of-2.r-0", "manifest.json"):
                (folder / file).write_bytes(file.encode() * 10)
                (folder / f"{file}.json").write_bytes(file.encode())
            before = {each.name: each.read_bytes() for each in folder.iterdir()}
            damaged._damage(folder, random.Random(number))  # type: ignore[attr-defined]
            assert {each.name: each.read_bytes() for each in folder.iterdir()} != before


class TestLeft:
    def test_a_process_that_stays_is_found(self) -> None:
        with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
            try:
                found = left.processes(lambda: [psutil.Process(process.pid)], 0.3)
                assert len(found) == 1
                assert found[0].startswith(f"process {process.pid}: ")
            finally:
                process.kill()

    def test_a_process_that_ends_in_time_is_not(self) -> None:
        answers = iter([[psutil.Process()], [psutil.Process()]])
        assert left.processes(lambda: next(answers, []), 5.0) == []

    def test_shared_memory_belongs_to_its_process(self, tmp_path: Path) -> None:
        mark = f"{'a' * 32}-4026531836-4026531834-77-12345-"
        (tmp_path / f"sparkdl-host-local-{mark}99").touch()
        (tmp_path / "sparkdl-host-local-99").touch()
        assert left.shared_memory([76, 78], tmp_path) == []
        assert left.shared_memory([77], tmp_path) == [f"shared memory {tmp_path}/sparkdl-host-local-{mark}99"]

    def test_files_of_ours_are_and_those_of_spark_are_not(self, tmp_path: Path) -> None:
        (tmp_path / "spark-1").mkdir()
        (tmp_path / "sparkdl-engine-1").touch()
        assert left.temporary(tmp_path) == [f"temporary {tmp_path}/sparkdl-engine-1"]
        assert left.temporary(tmp_path, tmp_path / "sparkdl-engine-1") == []
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / ".summary.json.partial").touch()
        assert left.partial(tmp_path) == [f"half-written {tmp_path}/a/.summary.json.partial"]
        assert left.lock(tmp_path) == []
        (tmp_path / "owner.json").touch()
        assert left.lock(tmp_path) == [f"lock {tmp_path}/owner.json"]


# A command in place of `sparkdl-bench run`: it writes what a run writes.
STAND_IN = """
import json, pathlib, sys, time
import numpy as np
run = pathlib.Path(sys.argv[1]) / "20260101-000000-fault"
(run / "model").mkdir(parents=True)
np.savez(run / "model" / "weights.npz", w=np.arange(4, dtype=np.float32))
(run / "summary.json").write_text(json.dumps({"status": "success"}))
"""


class StandIn(Training):
    """A training whose command is a program of this test's."""

    def __init__(self, folder: Path, program: str, limit_s: float = 30.0) -> None:
        self.folder, self.way, self._limit_s = folder, WAYS["tcp-ring"], limit_s
        self.results, self.mark, self.pids = folder / "results", os.urandom(8).hex(), set()
        self._said, self._started = folder / "stderr.txt", time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-c", program, str(self.results)],
                stderr=said,
                env={**os.environ, "SPARKDL_FAULT_RUN": self.mark},
                start_new_session=True,
            )


MOVED = """
print(f"The results folder x can no longer be written (a full disk), so this run's results are in {run}. Copy what you "
      "need from there, and make room.", file=sys.stderr)
"""


class TestTraining:
    def test_results_that_had_to_lie_elsewhere_are_found_where_the_run_says(self, tmp_path: Path) -> None:
        elsewhere = tmp_path / "sparkdl-bench-results-1"
        program = STAND_IN.replace("sys.argv[1]", repr(str(elsewhere)))
        assert StandIn(tmp_path / "silent", program).end().weights == ""
        ended = StandIn(tmp_path / "told", program.replace("(run /", f"{MOVED}(run /", 1)).end()
        assert ended.weights
        assert ended.summary == {"status": "success"}
        assert moved_to(ended.said) == elsewhere

    def test_it_ends_with_its_weights_and_summary(self, tmp_path: Path) -> None:
        one, other = StandIn(tmp_path / "1", STAND_IN), StandIn(tmp_path / "2", STAND_IN)
        ended = one.end()
        assert ended.status == 0
        assert ended.summary == {"status": "success"}
        assert len(ended.weights) == 64
        assert ended.weights == other.end().weights

    def test_other_weights_have_another_digest(self, tmp_path: Path) -> None:
        StandIn(tmp_path / "1", STAND_IN).end()
        StandIn(tmp_path / "2", STAND_IN.replace("arange(4", "arange(1, 5")).end()
        StandIn(tmp_path / "3", STAND_IN.replace(", w=", ", v=")).end()
        digests = {weights_of(tmp_path / number / "results") for number in "123"}
        assert len(digests - {""}) == 3
        assert weights_of(tmp_path / "none") == ""
        assert summary_of(tmp_path / "none") is None

    def test_a_run_that_does_not_end_hangs_and_is_stopped(self, tmp_path: Path) -> None:
        hanging = StandIn(tmp_path, "import time; time.sleep(100)", limit_s=1.0)
        ended = hanging.end()
        assert ended.status is None
        assert judge(ended, None, EXPECTED, []).outcome == law.VIOLATION
        assert not hanging.processes()

    @pytest.mark.long
    def test_processes_that_left_their_group_are_found_and_stopped(self, tmp_path: Path) -> None:
        child = (
            "import subprocess, sys; sleeping = [sys.executable, '-c', 'import time; time.sleep(100)']; "
            "subprocess.Popen(sleeping, start_new_session=True)"
        )
        training = StandIn(tmp_path, child)
        training.end()
        assert len(left.processes(training.processes, 0.2)) == 1
        training.stop()
        assert not training.processes()

    def test_a_whole_checkpoint_has_a_manifest(self, tmp_path: Path) -> None:
        assert newest_checkpoint(tmp_path) == 0
        for step in (5, 500, 1000):
            (tmp_path / f"step-{step:012d}").mkdir()
        (tmp_path / "step-000000000500" / "manifest.json").touch()
        assert newest_checkpoint(tmp_path) == 500


class _Stand(kind.Kind):
    """A kind whose training is a stand-in."""

    name, doc = "stand-in", "Nothing."

    def inflict(self, scene: Scene) -> str:
        return "never"


class _Late(_Stand):
    """A kind whose fault comes too late."""

    def inflict(self, scene: Scene) -> str:
        scene.training.end()
        raise EndedEarlyError("The run was over.")


class TestDisturb:
    def _disturbed(
        self, tmp_path: Path, programs: list[str], weights: str | None = None, by: kind.Kind | None = None
    ) -> tuple[law.Verdict, list[str]]:
        class Stage(Scene):
            def _start(self, name: str, more: Any) -> Training:
                self.trainings.append(StandIn(self.folder / name, programs[len(self.trainings)]))
                return self.trainings[-1]

        stage = Stage(tmp_path / "scene", WAYS["tcp-ring"], random.Random(0))
        StandIn(tmp_path / "right", STAND_IN).end()
        _, verdict, behind = campaign.disturb(
            by or _Stand(), stage, weights or weights_of(tmp_path / "right" / "results")
        )
        return verdict, behind

    def test_the_same_bits(self, tmp_path: Path) -> None:
        assert self._disturbed(tmp_path, [STAND_IN])[0].outcome == law.SAME

    def test_other_bits(self, tmp_path: Path) -> None:
        assert self._disturbed(tmp_path, [STAND_IN], WRONG)[0].outcome == law.VIOLATION

    def test_a_failure_is_followed_by_a_run_that_goes_on(self, tmp_path: Path) -> None:
        step = tmp_path / "scene" / "checkpoints" / "step-000000000500"
        fails = (
            "import json, pathlib, sys; run = pathlib.Path(sys.argv[1]) / '1'; run.mkdir(parents=True); "
            "(run / 'summary.json').write_text(json.dumps({'status': 'failed'})); "
            f"step = pathlib.Path({str(step)!r}); step.mkdir(parents=True); (step / 'manifest.json').touch(); "
            "sys.exit('Executor 1 was lost.')"
        )
        assert self._disturbed(tmp_path, [fails, STAND_IN])[0] == law.Verdict(law.RESUMED, "", "Executor 1 was lost.")

    def test_a_run_that_fails_before_the_fault_comes_shows_nothing(self, tmp_path: Path) -> None:
        fails = (
            "import json, pathlib, sys; run = pathlib.Path(sys.argv[1]) / '1'; run.mkdir(parents=True); "
            "(run / 'summary.json').write_text(json.dumps({'status': 'failed'})); sys.exit('No Python was found.')"
        )
        verdict, _ = self._disturbed(tmp_path / "1", [fails], by=_Late())
        assert (verdict.outcome, verdict.reason) == (law.VIOLATION, "the run failed before the fault came")
        assert self._disturbed(tmp_path / "2", [STAND_IN], by=_Late())[0].outcome == law.SAME

    def test_a_lock_that_stays_is_a_violation(self, tmp_path: Path) -> None:
        lock = tmp_path / "scene" / "checkpoints" / "owner.json"
        verdict, behind = self._disturbed(tmp_path, [f"{STAND_IN}\npathlib.Path({str(lock)!r}).touch()"])
        assert verdict.outcome == law.VIOLATION
        assert behind == [f"lock {lock}"]


class TestCampaign:
    def test_recorded_faults_are_not_done_again_and_no_fault_begins_late(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun = records.create(tmp_path, PLAN)
        begun.add(replace(FAULT, kind="stand-in", way="tcp-ring"))
        begun.add_undisturbed("tcp-ring", RIGHT, 1.0)
        done = campaign.Campaign({"stand-in": _Stand()}, WAYS, begun, 3, tmp_path / "kept", 9.0, lambda _: None)
        drawn = [campaign.Drawn(number, "stand-in", "tcp-ring") for number in range(3)]
        verdicts = iter([law.Verdict(law.NAMED, "", "Lost."), law.Verdict(law.VIOLATION, "hung")])
        monkeypatch.setattr(campaign, "disturb", lambda *_: ("early", next(verdicts), []))
        done.run(drawn, time.monotonic() - 1)
        assert begun.numbers == {0}
        done.run(drawn, time.monotonic() + 60)
        assert begun.numbers == {0, 1, 2}
        assert [each.outcome for each in begun.faults] == [law.SAME, law.NAMED, law.VIOLATION]
        assert [each.name for each in (tmp_path / "kept").iterdir()] == ["2-stand-in-tcp-ring"]
        assert "1 of 3 faults broke the law" in campaign.missed(begun.faults)
        assert "number 3, stand-in on tcp-ring: hung." in campaign.missed(begun.faults)
        assert campaign.missed(begun.faults[:2]) == ""

    def test_a_training_that_fails_undisturbed_is_no_measure(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Scene, "start", lambda self: StandIn(self.folder / "first", "import sys; sys.exit('No.')"))
        begun = records.create(tmp_path, PLAN)
        done = campaign.Campaign({"stand-in": _Stand()}, WAYS, begun, 3, None, 9.0, lambda _: None)
        with pytest.raises(RunFailedError, match=r"failed though nothing disturbed it.*No\."):
            done.run([campaign.Drawn(0, "stand-in", "tcp-ring")], time.monotonic() + 60)
        assert begun.faults == []


class TestCommand:
    @pytest.fixture
    def invoke(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., click.testing.Result]:
        monkeypatch.setattr(Way, "missing", lambda _: None)
        monkeypatch.setattr("suites.faults.find", lambda: {"stand-in": _Stand()})
        return lambda *words: CliRunner().invoke(command, list(words))

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["--kinds", "stand-on"], "There is no kind 'stand-on'; valid are stand-in. Did you mean 'stand-in'?"),
            (["--ways", "tcp-rings"], "There is no way 'tcp-rings'"),
        ],
    )
    def test_unknown_names_are_refused(self, invoke: Any, words: list[str], said: str) -> None:
        with pytest.raises(ConfigurationError) as told:
            raise invoke(*words).exception
        assert said in str(told.value)

    @pytest.mark.parametrize("words", [["--faults", "0"], ["--minutes", "0"], ["--timeout", "0"]])
    def test_numbers_out_of_bounds_are_refused(self, invoke: Any, words: list[str]) -> None:
        assert invoke(*words).exit_code == 2

    def test_the_list_does_nothing(self, invoke: Any, tmp_path: Path) -> None:
        result = invoke("--list", "--results", str(tmp_path))
        assert result.exit_code == 0
        assert "stand-in: Nothing." in result.output
        assert not list(tmp_path.iterdir())

    def test_the_end_is_a_table_and_a_violation_a_failure(
        self, invoke: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(campaign.Campaign, "_undisturbed", lambda *_: RIGHT)
        verdicts = iter([law.Verdict(law.SAME), law.Verdict(law.VIOLATION, "it hung"), law.Verdict(law.SAME)])
        monkeypatch.setattr(campaign, "disturb", lambda *_: ("early", next(verdicts), []))
        words = ["--ways", "tcp-ring", "--results", str(tmp_path)]
        assert invoke(*words, "--faults", "1").exit_code == 0
        # A longer campaign of the same plan goes on with the shorter one's file.
        result = invoke(*words, "--faults", "3", "--resume")
        assert isinstance(result.exception, RunFailedError)
        assert "1 of 3 faults broke the law" in str(result.exception)
        assert "Faults: same bits, or a named error" in result.output
        (file,) = tmp_path.rglob("*.jsonl")
        assert len(records.load(file).faults) == 3

    def test_a_kind_that_cannot_be_is_left_out_and_named(self, invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_Stand, "obstacle", lambda _: "it needs root")
        result = invoke("--faults", "1")
        assert "Left out: stand-in, because it needs root" in result.output
        assert isinstance(result.exception, ConfigurationError)

    def test_it_is_a_suite_of_the_command_line(self) -> None:
        result = CliRunner().invoke(cli.cli, ["bench", "faults", "--help"])
        assert result.exit_code == 0
        assert "--minutes" in result.output


class TestStrangers:
    def test_they_come_to_every_port_until_they_are_told_to_stop(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
            ports = {each.getsockname()[1] for each in (one, other)}
            addresses = strangers.listening([psutil.Process()])
            assert {("127.0.0.1", port) for port in ports} <= set(addresses)
            manners = list(strangers.MANNERS.values())
            visiting = [("127.0.0.1", port) for port in sorted(ports)]
            guests = strangers.Strangers(lambda: visiting, manners, random.Random(1))
            guests.start()
            received = {}
            for server in (one, other):
                server.settimeout(20)
                connection, _ = server.accept()
                with connection:
                    received[server.getsockname()[1]] = True
            guests.stop()
            assert not guests.is_alive()
            assert received.keys() == ports
            assert guests.visits.keys() == ports

    @pytest.mark.parametrize(("name", "held"), [("knock", False), ("noise", False), ("half", True), ("drip", True)])
    def test_each_manner_does_what_it_says(self, name: str, held: bool) -> None:
        here, there = socket.socketpair()
        with here, there:
            there.settimeout(5)
            sizes = set()
            for number in range(6):
                chance = random.Random(number)
                if name == "noise":
                    chance.choice = lambda options: options[1]  # type: ignore[method-assign,assignment]
                assert strangers.MANNERS[name](here, chance) is held
                sizes.add(len(there.recv(1 << 20)) if name != "knock" else 0)
            assert sizes == {"knock": {0}, "noise": {64}, "drip": {1}}.get(name, sizes)
            assert name != "half" or min(sizes) > 8


def test_the_digest_sees_shapes_and_types(tmp_path: Path) -> None:
    digests = set()
    arrays = [np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float32), np.zeros((2, 3), np.int32)]
    for number, array in enumerate(arrays):
        model = tmp_path / str(number) / "run" / "model"
        model.mkdir(parents=True)
        np.savez(model / "weights.npz", w=array)
        digests.add(weights_of(tmp_path / str(number)))
    assert len(digests) == 3
