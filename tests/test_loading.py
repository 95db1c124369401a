"""The benchmark of loading: its yardsticks, its plan, what it says of memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import idx
from conftest import ROOT
from sparkdl_bench.bench import store
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
