"""What the suites that kill and watch runs judge by: limits, windows and verdicts, from numbers that stand here."""

from __future__ import annotations

import itertools
import json
import random
import types
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from click.testing import CliRunner

from sparkdl_bench import machine
from sparkdl_bench.bench import store
from sparkdl_bench.bench.killable_run import RunHungError
from sparkdl_bench.bench.store import ResultFile
from sparkdl_bench.errors import ConfigurationError, RunFailedError
from suites import kills, memory, sharded, soak


@pytest.fixture
def result_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ResultFile:
    monkeypatch.setattr(machine, "_java_version", lambda: "17")  # which starts a JVM to ask
    return store.create(tmp_path, "soak", {"trials": 1})


class TestGrowth:
    def held(self, sizes: list[int | None]) -> memory.Resident:
        """A sample a second; the steps took a second each."""
        return memory.Resident([float(at) for at in range(len(sizes))], {"driver": sizes})

    def test_a_window_is_a_twentieth_of_the_last_step_on_either_side(self) -> None:
        seconds = [float(at) for at in range(300)]
        # 20 and 200: ten steps before each and ten after it, and nothing else.
        sizes: list[int | None] = [10**9] * 300
        for step, size in ((20, 100), (200, 110)):
            for at in range(step - 10, step + 11):
                sizes[at] = size
        found = memory.growth("driver", self.held(sizes), seconds, (20, 200))
        assert (found.process, found.first_bytes, found.last_bytes) == ("driver", 100, 110)
        assert found.share == pytest.approx(0.1)
        assert not found.met
        # The whole window counts: six of eleven places at one end make the median.
        for at in range(10, 16):
            sizes[at] = 7
        for at in range(26, 31):
            sizes[at] = 7
        assert memory.growth("driver", self.held(sizes), seconds, (20, 200)).first_bytes == 7

    def test_a_window_ends_with_the_run_and_has_one_step_at_least(self) -> None:
        seconds = [float(at) for at in range(10)]
        sizes: list[int | None] = [5, 1, 1, 9, 9, 9, 9, 3, None, 3]
        found = memory.growth("driver", self.held(sizes), seconds, (1, 9))
        assert (found.first_bytes, found.last_bytes) == (1, 3)
        found = memory.growth("driver", self.held(sizes), seconds, (0, 4))
        assert (found.first_bytes, found.last_bytes) == (3, 9)

    def test_less_than_a_twentieth_is_allowed(self) -> None:
        assert [memory.Growth("x", 100.0, last).met for last in (90.0, 104.9, 105.0, 106.0)] == [
            *(True, True, False, False)
        ]
        plan = memory.MemoryPlan()
        growths = [memory.Growth("driver", 100, 90), memory.Growth("executor 0", 100, 107)]
        assert memory.exceeded(plan, growths[:1]) == memory.exceeded(plan, []) == ""
        assert memory.exceeded(plan, growths).startswith(
            "Resident memory has grown (mlp over block-manager, steps 500 and 5,000): executor 0 by 7.0%; less than 5%"
        )

    def test_a_run_s_growth_is_kept_with_all_samples(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(machine, "_java_version", lambda: "17")
        times = [float(at) for at in range(200)]
        sizes = {"driver": [1_000_000 + 1000 * at for at in range(200)], "executor 0": [2_000_000] * 200}
        watched: list[str] = []

        def watch_run(conf: Path, timeout_s: float) -> memory.Resident:
            watched.append(conf.read_text())
            return memory.Resident(times, sizes)  # type: ignore[arg-type]

        monkeypatch.setattr(memory, "watch_run", watch_run)
        monkeypatch.setattr(memory, "step_times", lambda _: times)
        monkeypatch.setattr(memory.contestant, "only_run", lambda folder: folder)
        plan = memory.MemoryPlan("shuffle", 20, 100)
        driver, executor = memory.measure(plan, "", tmp_path, 9.0)
        assert (driver.first_bytes, driver.last_bytes) == (1_020_000, 1_100_000)
        assert (executor.share, executor.met) == (0.0, True)
        assert '"transport" = "shuffle"' in watched[0]
        assert '"max_steps" = 105' in watched[0]  # a twentieth more, for the last window
        (path,) = tmp_path.glob("*/*-memory.json")
        kept = json.loads(path.read_text())
        assert kept["resident"] == {"times_s": times, "bytes_by_process": sizes}
        assert [(each["met"], each["share"]) for each in kept["growth"]] == [
            (False, pytest.approx(1.1 / 1.02 - 1)),
            (True, 0.0),
        ]
        rows = [line.split("│")[1:-1] for line in capsys.readouterr().out.splitlines() if "│" in line]
        assert [[cell.strip() for cell in row] for row in rows] == [
            ["driver", "1", "1", "+7.8%", "< 5%", "no"],
            ["executor 0", "2", "2", "+0.0%", "< 5%", "yes"],
        ]

    def test_a_process_that_comes_later_has_nothing_before(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Process:
            def __init__(self, words: list[str], rss: int | None) -> None:
                self.words, self.rss = words, rss

            def cmdline(self) -> list[str]:
                if self.rss is None:
                    raise psutil.NoSuchProcess(1)
                return self.words

            def memory_info(self) -> Any:
                return types.SimpleNamespace(rss=self.rss)

        backend = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
        driver = Process(["java", "org.apache.spark.deploy.SparkSubmit"], 7)
        executor = Process(["java", backend, "--executor-id", "3"], 9)
        looks = [[driver, Process(["bash"], 5)], [Process([], None), executor, driver], [executor]]
        resident = memory.Resident([], {})
        clock = iter([1.5, 2.5, 3.5])
        monkeypatch.setattr(memory, "time", types.SimpleNamespace(time=lambda: next(clock)))

        def train(conf: Path, timeout_s: float, look: Any, every_s: float) -> None:
            assert (conf, timeout_s, every_s) == (Path("run.toml"), 9.0, 0.5)
            for processes in looks:
                look(processes)

        monkeypatch.setattr(memory.watched_run, "train", train)
        resident = memory.watch_run(Path("run.toml"), 9.0)
        assert resident.times_s == [1.5, 2.5, 3.5]
        assert resident.bytes_by_process == {"driver": [7, 7, None], "executor 3": [None, 9, 9]}


class TestKilledRuns:
    def test_nineteen_of_twenty_must_hold(self) -> None:
        held = soak.KilledRun([1], 1, True, "", 1.0)
        early = soak.KilledRun([1], 0, True, "", 1.0)
        assert soak.missed([*[held] * 19, early]) == ""
        said = soak.missed([*[held] * 18, early, early])
        assert said.startswith("18 of 20 runs were killed as planned")
        assert said.endswith("The others ended before their kill.")
        assert soak.missed([*[held] * 17, early]) != ""
        failed = [replace(held, identical=False, error=error) for error in ("its words", "others")]
        assert soak.missed([held, *failed]).endswith("The first that failed says: its words")

    @pytest.mark.parametrize(
        ("identical", "error", "hung", "said"),
        [
            (True, "", False, ""),
            # A clean failure is no fault; wrong weights without a word, and what never ends, are.
            (False, "its words", False, ""),
            (False, "", False, "after steps [3] ended without an error and with other weights"),
            (False, "its words", True, "after steps [3] hung. its words"),
        ],
    )
    def test_what_may_never_happen(self, identical: bool, error: str, hung: bool, said: str) -> None:
        fault = soak.KilledRun([3], 1, identical, error, 1.0, hung).fault
        assert (said in fault) if said else fault == ""

    def test_a_run_holds_with_all_its_kills_alone(self) -> None:
        run = soak.KilledRun([3, 9], 2, True, "", 1.0)
        assert run.held
        for other in ({"kills": 1}, {"kills": 3}, {"identical": False}):
            assert not replace(run, **other).held  # type: ignore[arg-type]

    def test_kills_come_at_steps_that_the_seed_gives_before_nine_tenths(
        self, monkeypatch: pytest.MonkeyPatch, result_file: ResultFile, capsys: pytest.CaptureFixture[str]
    ) -> None:
        asked: list[Any] = []
        final = {"steps": 1000, "ms_per_step_median": 2.0}
        undisturbed = types.SimpleNamespace(finish=lambda: "weights", summary=lambda: {"final": final})

        def killed_run(_run: Any, steps: list[int], step_s: float, chance: Any, expected: Any) -> soak.KilledRun:
            asked.append((steps, step_s, expected))
            return soak.KilledRun(steps, len(steps), True, "", 1.0)

        monkeypatch.setattr(soak, "KillableRun", lambda folder, settings, timeout_s: undisturbed)
        monkeypatch.setattr(soak, "killed_run", killed_run)
        found = soak.campaign(soak.SoakPlan(runs=30, kills=4, seed=7), result_file)
        told = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
        assert told == [f"run {at}" for at in range(1, 32)]
        assert [len(steps) for steps, _, _ in asked] == [1] * 30 + [4]
        assert {(step_s, expected) for _, step_s, expected in asked} == {(0.002, "weights")}
        steps = [step for each, _, _ in asked for step in each]
        assert 800 < max(steps) < 900
        assert min(steps) < 100
        assert asked[-1][0] == sorted(asked[-1][0])
        assert asked[3][0] == [random.Random("7/3").randrange(900)]
        assert result_file.content["outcomes"] == [asdict(each) for each in found]
        # Without a run of several kills it is as many as were asked for.
        asked.clear()
        result_file.set("outcomes", [])
        assert len(soak.campaign(soak.SoakPlan(runs=2, kills=0), result_file)) == len(asked) == 2

    def test_a_kill_waits_for_the_checkpoint_before_its_step_and_the_rest_by_the_clock(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        done: list[Any] = []
        monkeypatch.setattr(soak, "CHECKPOINT_EVERY", 100)
        clock = iter([5.0, 7.5, 10.0, 12.0])
        monkeypatch.setattr(
            soak,
            "time",
            types.SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda s: done.append(("sleep", s))),
        )
        weights = {"w": np.ones(2, np.float32)}

        def finish() -> Any:
            if isinstance(ends, Exception):
                raise ends
            return ends

        ends: Any = weights
        run = types.SimpleNamespace(
            wait_for_executors=lambda count: done.append(("executors", count)),
            wait_for_step=lambda step: done.append(("step", step)),
            kill_executor=lambda which: done.append("kill") or which in (0, 1),
            finish=finish,
            stop=lambda: done.append("stop"),
        )
        outcome = soak.killed_run(run, [230, 300], 0.01, random.Random(1), weights)  # type: ignore[arg-type]
        sleeps = [("sleep", pytest.approx(0.3)), ("sleep", 0.0)]
        assert done == [("executors", 2), ("step", 200), sleeps[0], "kill", ("step", 300), sleeps[1], "kill", "stop"]
        assert outcome == soak.KilledRun([230, 300], 2, True, "", 2.5)
        ends = RunHungError("too long")
        outcome = soak.killed_run(run, [], 0.01, random.Random(1), weights)  # type: ignore[arg-type]
        assert outcome == soak.KilledRun([], 0, False, "too long", 2.0, True)

    def test_the_table_adds_up(self, capsys: pytest.CaptureFixture[str]) -> None:
        runs = [
            soak.KilledRun([1], 1, True, "", 3.0),
            soak.KilledRun([1, 2, 3], 2, False, "x", 61.2),
            soak.KilledRun([1], 1, True, "", 9.0),
        ]
        soak.show(runs)
        (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
        assert [cell.strip() for cell in row.split("│")[1:-1]] == ["3", "4", "2", "1", "61 s"]

    @pytest.mark.parametrize("with_memory", [True, False])
    def test_the_suite_fails_for_runs_and_for_memory(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, with_memory: bool
    ) -> None:
        monkeypatch.setattr(machine, "_java_version", lambda: "17")
        miss = soak.KilledRun([1], 0, True, "", 1.0)
        monkeypatch.setattr(soak, "campaign", lambda *_: [miss])
        watched: list[Any] = []
        monkeypatch.setattr(memory, "measure", lambda *arguments: watched.append(arguments) or [])
        words = ["--results", str(tmp_path), *([] if with_memory else ["--no-memory"])]
        done = CliRunner().invoke(soak.command, words)
        assert isinstance(done.exception, RunFailedError)
        assert str(done.exception).startswith("0 of 1 runs were killed as planned")
        assert len(watched) == (3 if with_memory else 0)
        assert all(each[1:] == ("", tmp_path, 3600.0) for each in watched)


class TestShardedRuns:
    HELD = kills.KilledRun(70, (2, 3), True, [(1, 1)] * kills.EPOCHS, "", 9.0)

    def test_every_row_of_every_epoch_counts(self) -> None:
        assert self.HELD.held
        for at in range(kills.EPOCHS):
            for wrong in ((0, 1), (1, 2)):
                visits = list(self.HELD.visits)
                visits[at] = wrong
                assert not replace(self.HELD, visits=visits).held
        assert not replace(self.HELD, visits=self.HELD.visits[1:]).held
        assert not replace(self.HELD, visits=[*self.HELD.visits, (1, 1)]).held
        assert not replace(self.HELD, killed=False).held
        said = kills.missed([self.HELD, replace(self.HELD, killed=False), replace(self.HELD, step=99, visits=[])])
        assert said.startswith("2 of 3 runs were not killed")
        assert "killed=False" in said

    def trainings(self, visited: Any, is_ended: bool = False) -> Any:
        """Starts nothing; what was asked of each run."""
        asked: list[Any] = []

        def start(name: str, workers: int = 2, resume: Path | None = None) -> Any:
            asked.append((name, workers, resume))
            return types.SimpleNamespace(
                wait_for_checkpoint=lambda step: asked.append(("checkpoint", step)),
                process=types.SimpleNamespace(poll=lambda: 0 if is_ended else None),
                stop=lambda: asked.append(f"stop {name}"),
                kill_executor=lambda which: asked.append("kill") or which in (0, 1),
                checkpoints=Path("checkpoints"),
            )

        def visits(_: Any) -> Any:
            if isinstance(visited, Exception):
                raise visited
            return visited

        return types.SimpleNamespace(start=start, visits=visits, asked=asked)

    @pytest.fixture
    def slept(self, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        seconds: list[float] = []
        clock = itertools.count(0.0, 4.0)
        own = types.SimpleNamespace(monotonic=lambda: next(clock), sleep=seconds.append)
        monkeypatch.setattr(kills, "time", own)
        return seconds

    def test_a_whole_run_is_killed_and_another_goes_on_from_its_checkpoints(self, slept: list[float]) -> None:
        visited = np.ones((kills.EPOCHS, 5), np.int64)
        visited[1, 2], visited[1, 3] = 0, 2
        made = self.trainings(visited)
        outcome, run = kills.killed_run(made, "run", random.Random(5), whole=True)
        chance = random.Random(5)
        step, workers = chance.randrange(50, round(0.7 * kills.STEPS)), chance.choice((1, 3))
        assert made.asked == [
            ("run", 2, None),
            ("checkpoint", step - step % 50),
            "stop run",
            ("run-resumed", workers, Path("checkpoints")),
            *("stop run", "stop run-resumed"),
        ]
        assert slept == [pytest.approx(step % 50 * 0.001)]
        assert outcome == kills.KilledRun(step, (2, workers), True, [(1, 1), (0, 2), (1, 1), (1, 1)], "", 4.0)
        assert run.checkpoints == Path("checkpoints")
        # Later ones would often be over before they are killed.
        late = [
            kills.killed_run(self.trainings(visited), "run", random.Random(at), whole=True)[0].step for at in range(200)
        ]
        assert 50 <= min(late) < 0.1 * kills.STEPS + 50
        assert 0.6 * kills.STEPS < max(late) < 0.7 * kills.STEPS
        # One that was over before proves nothing.
        outcome, _ = kills.killed_run(self.trainings(visited, is_ended=True), "run", random.Random(5), whole=True)
        assert not outcome.killed

    def test_an_executor_is_killed_and_its_own_run_goes_on(self, slept: list[float]) -> None:
        made = self.trainings(np.ones((kills.EPOCHS, 5), np.int64))
        outcome, _ = kills.killed_run(made, "run", random.Random(6), whole=False)
        assert made.asked[0] == ("run", 2, None)
        assert made.asked[2:] == ["kill", "stop run"]
        assert (outcome.workers, outcome.held) == ((2, 2), True)
        made = self.trainings(RunFailedError("its words"))
        outcome, _ = kills.killed_run(made, "run", random.Random(6), whole=False)
        assert (outcome.killed, outcome.visits, outcome.error, outcome.held) == (True, [], "its words", False)
        assert made.asked[-1] == "stop run"

    def test_a_run_gets_the_set_its_checkpoints_and_its_workers(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        given: list[Any] = []
        monkeypatch.setattr(kills, "KillableRun", lambda *arguments: given.append(arguments))
        trainings = kills.Trainings(tmp_path, 30.0)
        trainings.start("one")
        trainings.start("two", 3, tmp_path / "there")
        (folder, settings, timeout_s), (_, resumed, _) = given
        assert (folder, timeout_s) == (tmp_path / "one", 30.0)
        assert settings["workers"] == 2
        assert settings["checkpoint"] == {"dir": (tmp_path / "one" / "checkpoints").as_uri(), "every": 50}
        assert settings["data"]["placement"] == "sharded"
        assert settings["data"]["shuffle_buffer"] == kills.SET.shuffle_buffer(kills.SET.rows)
        assert settings["learning_rate"] == kills.SET.rate(kills.EPOCHS)
        assert (settings["momentum"], settings["model"]["name"], settings["batch"]) == (0.0, "softmax", 16)
        assert settings["schedule"]["name"] == "multistep"
        assert "resume" not in settings
        assert (resumed["resume"], resumed["master"]) == ((tmp_path / "there").as_uri(), "local-cluster[3,1,1024]")
        layers = {"bias": np.zeros(16), "weight": np.zeros((16, 1024), np.float32)}
        run = types.SimpleNamespace(finish=lambda: layers)
        assert trainings.visits(run).shape == (4, kills.SET.rows)

    def test_the_suite_kills_by_turns_and_says_what_did_not_hold(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(machine, "_java_version", lambda: "17")
        ways: list[Any] = []

        def killed_run(_: Any, name: str, chance: random.Random, whole: bool) -> tuple[kills.KilledRun, None]:
            ways.append((name, whole, chance.random()))
            return replace(self.HELD, killed=len(ways) != 2, seconds=10.0 * len(ways)), None

        monkeypatch.setattr(kills, "killed_run", killed_run)
        done = CliRunner().invoke(kills.command, ["--runs", "3", "--seed", "9", "--results", str(tmp_path)])
        assert isinstance(done.exception, RunFailedError)
        assert str(done.exception).startswith("1 of 3 runs were not killed")
        assert [line[:7] for line in done.output.splitlines() if line.startswith("run ")] == [
            "run 1: ",
            "run 2: ",
            "run 3: ",
        ]
        assert ways == [(f"run-{at}", at % 2 == 0, random.Random(f"9/{at}").random()) for at in range(3)]
        (row,) = [line for line in done.output.splitlines() if line.startswith("│")]
        assert [cell.strip() for cell in row.split("│")[1:-1]] == ["3", "2", "2", "0", "30 s"]


def test_a_sharded_plan_holds_an_executor_to_its_share_and_its_heap() -> None:
    plan = sharded.ShardedPlan(gigabytes=1.0, memory_gigabytes=0.1)
    counted = plan.counted
    assert plan.share_bytes == counted.rows * (counted.width + 4) / 2
    assert plan.memory_bytes == (1024 + 384) * 2**20
    assert plan.spark["spark.master"] == "local-cluster[2,1,1024]"
    # Whole batches of about 0.1 GB, and never none.
    assert plan.memory_rows % counted.batch == 0
    assert 0 <= 10**8 / counted.width - plan.memory_rows < counted.batch
    assert replace(plan, memory_gigabytes=0.0).memory_rows == counted.batch
    assert replace(plan, memory_gigabytes=99.0).memory_rows == counted.rows


@pytest.mark.parametrize(
    ("change", "misses"),
    [
        ({}, 0),
        ({"ratio": 0.85}, 0),
        ({"ratio": 0.849}, 1),
        ({"bytes_read": [[0.901, 1.0], [1.0, 1.099]]}, 0),
        ({"bytes_read": [[0.899, 1.0], [1.0, 1.0]]}, 1),
        ({"bytes_read": [[1.0, 1.0], [1.0, 1.101]]}, 1),
    ],
)
def test_the_limits_of_a_sharded_set(change: dict[str, Any], misses: int) -> None:
    plan = sharded.ShardedPlan(gigabytes=1.0)
    found: dict[str, Any] = {
        "visited_once": True,
        "visits_of_a_row_by_epoch": [[1, 1], [1, 1]],
        "bytes_read": [[1.0, 1.0], [1.0, 1.0]],
        "most_anonymous_bytes": plan.memory_bytes,
        "most_local_disk_bytes": plan.disk_bytes,
        "ratio": 0.9,
        **change,
    }
    found["bytes_read"] = [[share * plan.share_bytes for share in epoch] for epoch in found["bytes_read"]]
    assert len(sharded.missed(found, plan)) == misses


def test_growth_is_from_an_earlier_step() -> None:
    assert memory.MemoryPlan(first_step=9, last_step=10).title == "mlp over block-manager, steps 9 and 10"
    for first in (10, 11):
        with pytest.raises(ConfigurationError, match=rf"The first step is {first} and the last is 10"):
            memory.MemoryPlan(first_step=first, last_step=10)


def test_options_that_nobody_gives_are_the_plans_own() -> None:
    for command, plan in (
        (soak.command, soak.SoakPlan()),
        (kills.command, kills.KillsPlan()),
        (memory.command, memory.MemoryPlan()),
    ):
        given = {each.name: each.default for each in command.params}
        own = {name: value for name, value in asdict(plan).items() if name in given and name != "batch"}
        assert len(own) >= 2
        assert {name: given[name] for name in own} == own
    # A little more than the last step, so that its window is whole.
    case = memory.case_of(memory.MemoryPlan(last_step=1000), "/mnist")
    assert (case.steps, case.warmup_steps, case.rows, case.workers, case.data_path) == (1050, 0, 20_000, 2, "")
