"""The benchmark of loading: its yardsticks, its plan, what it says of memory."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import idx
from conftest import ROOT
from sparkdl_bench.bench import loading, store
from sparkdl_bench.bench.loading import LoadContestant, load_idx, write_csv
from sparkdl_bench.bench.store import Trial
from sparkdl_bench.commands.bench import command as bench_command
from sparkdl_bench.errors import ConfigurationError
from suites import data


@pytest.mark.parametrize("compressed", [True, False])
def test_numpy_reads_what_was_written(tmp_path: Path, compressed: bool) -> None:
    train, test = idx.write_both(tmp_path, compressed=compressed)
    for found, wanted in zip(load_idx(tmp_path), (train.images, train.labels, test.images, test.labels), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_csv_has_the_label_and_then_the_pixels(tmp_path: Path) -> None:
    train, _ = idx.write_both(tmp_path)
    write_csv(tmp_path, tmp_path / "some.csv", 50)
    table = np.loadtxt(tmp_path / "some.csv", delimiter=",", dtype=np.int64)
    np.testing.assert_array_equal(table[:, 0], train.labels[:50])
    np.testing.assert_array_equal(table[:, 1:], train.images[:50].reshape(50, -1))


def test_a_trial_is_a_process_with_a_sample_a_load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"))
    train, test = idx.write_both(tmp_path)
    trial = LoadContestant("numpy", "numpy", {"data.path": str(tmp_path)}, samples=3).measure(60)
    assert len(trial.samples_ms) == 3
    assert min(trial.samples_ms) > 0
    assert trial.facts["held_bytes"] == sum(part.images.nbytes + part.labels.nbytes for part in (train, test))


def test_the_plan_compares_contestants_that_it_has(tmp_path: Path) -> None:
    groups = data.DataPlan().groups(str(tmp_path), "hdfs://host:1")
    names = {each.name for group in groups for each in group}
    assert {name for comparison in data.COMPARISONS for name in (comparison.ours, comparison.theirs)} <= names
    assert all("hdfs://host:1" in each.case["data.path"] for each in groups[1])


def test_memory_is_the_median_of_the_trials_worst(tmp_path: Path) -> None:
    file = store.create(tmp_path, "data", {"trials": 3})
    for number, peaks in enumerate(([100, 300], [200, 200], [50, 600]), start=1):
        file.add("idx-memory", number, Trial([1.0], 1, {"peak_bytes": peaks, "held_bytes": 100}))
    assert data.memory_ratio(file, "idx-memory") == 3.0


def test_without_mnist_the_suite_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SPARKDL_DATA", raising=False)
    done = CliRunner().invoke(bench_command, ["data", "--results", str(tmp_path)])
    assert isinstance(done.exception, ConfigurationError)
    assert "SPARKDL_DATA" in str(done.exception)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    now = [7_000_000_000]
    monkeypatch.setattr(loading.time, "perf_counter_ns", lambda: now[0])
    return now


class Loads:
    """A session of Spark, its reader, frames and our own API. The n-th load takes n ms, letting one go a second."""

    def __init__(self, clock: list[int]) -> None:
        self.clock = clock
        self.asked: list[Any] = []
        self.loaded = 0

    @property
    def read(self) -> Loads:
        return self

    def schema(self, columns: Any) -> Loads:
        self.asked.append([each.name for each in columns])
        return self

    def csv(self, path: str) -> Loads:
        self.asked.append(path)
        return self

    def cache(self) -> Loads:
        return self

    def count(self) -> int:
        self.loaded += 1
        self.clock[0] += 1_000_000 * self.loaded
        return 50

    def unpersist(self, blocking: bool) -> None:
        self.asked.append(blocking)
        self.clock[0] += 1_000_000_000

    def load_data(self, case: Mapping[str, str], samples: int, memory: bool) -> dict[str, Any]:
        self.asked.append((case, samples, memory))
        return {"samples_ms": [float(len(self.asked))] * samples}


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch, clock: list[int]) -> Loads:
    made = Loads(clock)

    @contextmanager
    def open_session(settings: Any) -> Iterator[Loads]:
        made.asked.append(settings)
        yield made

    def start_jvm(properties: Mapping[str, str], natives: bool = True) -> tuple[None, dict[str, Any]]:
        return None, {**properties, "natives": natives}

    own = types.SimpleNamespace(start_jvm=start_jvm, open_session=open_session, check_session=lambda each: each)
    monkeypatch.setattr(loading, "session", own)
    return made


def test_each_load_is_timed_by_itself_and_letting_go_is_not(clock: list[int]) -> None:
    steps: list[str] = []

    def load() -> None:
        steps.append("load")
        clock[0] += 1_500_000 * len(steps)

    def unload() -> None:
        steps.append("unload")
        clock[0] += 10**12

    assert loading._timed(load, 3, unload) == [1.5, 4.5, 7.5]
    assert steps == ["load", "unload"] * 3
    steps.clear()
    assert loading._timed(load, 2) == [1.5, 3.0]


def test_spark_s_own_reader_is_timed_after_one_load_that_is_not_counted(spark: Loads) -> None:
    found = loading._spark({"data.path": "/some.csv", "columns": "3"}, 2, {"spark.master": "local[2]"})
    assert found == {"samples_ms": [2.0, 3.0], "rows": 50}
    # It needs none of our native code; each load is let go before the next one.
    settings, *rest = spark.asked
    assert settings == {"spark.master": "local[2]", "natives": False}
    assert rest == [["c0", "c1", "c2"], "/some.csv", True] * 3


@pytest.mark.parametrize("memory", [True, False])
def test_ours_loads_once_before_it_counts(spark: Loads, memory: bool) -> None:
    case = {"data.path": "/mnist"}
    found = loading._ours(case, 4, {"spark.master": "local[2]"}, memory)
    settings, first, second = spark.asked
    assert settings == {"spark.master": "local[2]", "natives": True}
    assert (first, second) == ((case, 1, memory), (case, 4, memory))
    assert found == {"samples_ms": [3.0] * 4}


def test_numpy_loads_once_before_it_counts(monkeypatch: pytest.MonkeyPatch, clock: list[int]) -> None:
    loads = [0]

    def load_idx(folder: Path) -> list[Any]:
        assert folder == Path("/mnist")
        loads[0] += 1
        clock[0] += 1_000_000 * loads[0]
        return [np.zeros(3, np.uint8), np.zeros(4, np.uint8)]

    monkeypatch.setattr(loading, "load_idx", load_idx)
    assert loading._numpy({"data.path": "/mnist"}, 3) == {"samples_ms": [2.0, 3.0, 4.0], "held_bytes": 7}


@pytest.mark.parametrize(
    ("how", "called"),
    [
        ("numpy", ("_numpy", {"a": "b"}, 3)),
        ("spark", ("_spark", {"a": "b"}, 3, {"c": "d"})),
        ("ours", ("_ours", {"a": "b"}, 3, {"c": "d"}, False)),
        ("ours-memory", ("_ours", {"a": "b"}, 3, {"c": "d"}, True)),
    ],
)
def test_each_way_is_the_one_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, how: str, called: tuple[Any, ...]
) -> None:
    given: list[Any] = []
    for name in ("_numpy", "_spark", "_ours"):
        monkeypatch.setattr(
            loading,
            name,
            lambda *arguments, name=name: given.append((name, *arguments)) or {"samples_ms": [1.0], "x": 2},
        )

    def run_to_end(name: str, command: list[str], timeout_s: float, variables: dict[str, str]) -> None:
        given.append((name, command[:3], timeout_s, variables))
        monkeypatch.setattr(sys, "argv", command[2:])
        loading.main()

    monkeypatch.setattr(loading, "run_to_end", run_to_end)
    contestant = LoadContestant("mine", how, {"a": "b"}, 3, {"c": "d"})
    assert contestant.prepare() is None  # type: ignore[func-returns-value]
    trial = contestant.measure(8.0)
    command = [sys.executable, "-m", "sparkdl_bench.bench.loading"]
    assert given == [("mine", command, 8.0, {"SPARK_LOCAL_IP": "127.0.0.1"}), called]
    assert (trial.samples_ms, trial.steps, trial.facts) == ([1.0], 1, {"x": 2})


def test_rows_that_are_not_there_are_not_written(tmp_path: Path) -> None:
    train, _ = idx.write_both(tmp_path)
    write_csv(tmp_path, tmp_path / "all.csv", 5000)
    assert len(np.loadtxt(tmp_path / "all.csv", delimiter=",")) == len(train.labels) < 5000


@pytest.mark.parametrize(("peaks", "said"), [([300, 100], "3.00 × the decoded rows (≤ 3: met)"), ([301], "NOT met")])
def test_the_suite_says_what_loading_takes_beside_its_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, peaks: list[int], said: str
) -> None:
    """Trials that are made up; nothing is loaded, and no file system is started."""

    def run_trials(groups: Any, trials: int, file: store.ResultFile, *_: Any) -> None:
        for number in range(1, trials + 1):
            for each in [each for group in groups for each in group]:
                facts = {"peak_bytes": peaks, "held_bytes": 100}
                file.add(each.name, number, Trial([float(number)], 1, facts))

    uploads: list[Any] = []
    monkeypatch.setattr(data, "run_trials", run_trials)
    monkeypatch.setattr(data, "warn_if_busy", lambda: None)
    monkeypatch.setattr(data, "_upload", lambda *arguments: uploads.append(arguments))
    clock = iter([60.0, 60.0 + 90.0])
    monkeypatch.setattr(data, "time", types.SimpleNamespace(monotonic=lambda: next(clock)))
    words = ["data", "--results", str(tmp_path), "--data", str(tmp_path), "--hdfs", "hdfs://host:1/", "--trials", "3"]
    done = CliRunner().invoke(bench_command, words)
    assert done.exit_code == 0, done.output
    assert said in done.output
    assert "1.5 minutes." in done.output
    assert uploads == [(str(tmp_path), "hdfs://host:1", 60000)]
    (path,) = tmp_path.glob("*/*.json")
    content = json.loads(path.read_text())
    assert content["memory"] == {"idx": max(peaks) / 100, "csv": max(peaks) / 100}
    assert [(each["ratio"], each["met"]) for each in content["outcomes"]] == [(1.0, True)] * 2
    assert content["plan"]["csv_rows"] == 60000
