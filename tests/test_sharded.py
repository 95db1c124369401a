"""A sharded set: each row of each epoch is visited once, also where executors are killed; the suite of that."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from sparkdl_bench.bench import store
from sparkdl_bench.bench.visits import MOST_EPOCHS, CountedSet, once
from sparkdl_bench.commands.bench import command as bench_command
from sparkdl_bench.errors import ConfigurationError, RunFailedError
from suites import kills, placement, sharded

pytestmark = pytest.mark.on_one_line


def trained(counted: CountedSet, visited: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The weights that softmax regression has after so many visits, by (epoch, row): gradients at even scores."""
    epochs, classes = len(visited), counted.classes + 1
    weights = np.zeros((classes, counted.width))
    for epoch, times in enumerate(visited):
        rate = counted.rate(epochs) / counted.batch / 8**epoch
        of_class = times.reshape(counted.width, counted.classes).T
        weights[:-1] += rate * of_class
        weights -= rate * of_class.sum(axis=0) / classes
    return weights.astype(np.float32)


@pytest.mark.parametrize("epochs", [1, 2, 4])
def test_weights_tell_the_visits_of_each_row_and_epoch(epochs: int) -> None:
    counted = CountedSet(width=128, classes=5)
    visited = np.ones((epochs, counted.rows), np.int64)
    assert once(counted.visits(trained(counted, visited), epochs))
    visited[epochs - 1, 17], visited[0, 3] = 0, 2
    found = counted.visits(trained(counted, visited), epochs)
    assert not once(found)
    np.testing.assert_array_equal(found, visited)


def test_what_was_visited_in_part_is_told() -> None:
    counted = CountedSet(width=64, classes=3)
    weights = trained(counted, np.ones((1, counted.rows), np.int64))
    weights[1, 5] *= 2.6
    with pytest.raises(RunFailedError, match="no whole numbers of visits"):
        counted.visits(weights, 1)
    with pytest.raises(RunFailedError, match=r"Weights of shape \(2, 2\)"):
        counted.visits(weights[:2, :2], 1)


@pytest.mark.parametrize("size", [81_920, 3_000_000, 10**9, 12 * 10**9])
def test_a_set_has_about_the_size_that_was_asked_for_and_whole_batches(size: int) -> None:
    counted = CountedSet.of_bytes(size)
    assert counted.rows * counted.width == pytest.approx(size, rel=0.2)
    assert counted.rows % counted.batch == 0
    assert counted.batch >= 64


def test_sizes_and_epochs_that_cannot_be_counted_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="too small to count in"):
        CountedSet.of_bytes(1000)
    with pytest.raises(ConfigurationError, match="over 1 to"):
        kills.SET.settings(MOST_EPOCHS + 1)


def test_what_a_measured_set_misses_is_said() -> None:
    plan = sharded.ShardedPlan(gigabytes=1.0)
    share = plan.share_bytes
    held: dict[str, Any] = {
        "visited_once": True,
        "visits_of_a_row_by_epoch": [[1, 1], [1, 1]],
        "bytes_read": [[share * 1.05, share], [share, share]],
        "most_anonymous_bytes": plan.memory_bytes,
        "most_local_disk_bytes": 0,
        "ratio": 0.9,
    }
    assert sharded.missed(held, plan) == []
    missing = {
        "visited_once": False,
        "bytes_read": [[share * 1.2, share], [share, share]],
        "most_anonymous_bytes": plan.memory_bytes + 1,
        "most_local_disk_bytes": plan.disk_bytes + 1,
        "ratio": 0.8,
    }
    for name, value in missing.items():
        assert len(sharded.missed({**held, name: value}, plan)) == 1, name
    assert len(sharded.missed({**held, "bytes_read": [[share, share]]}, plan)) == 1


def test_accuracies_of_placements_are_compared_by_welch() -> None:
    same, other = [0.97, 0.971, 0.969], [0.95, 0.951, 0.949]
    assert not placement.difference(same, [0.9705, 0.969, 0.97]).differs
    assert placement.difference(same, other).differs
    text = placement.PlacementPlan().conf("sharded", 3, Path("/data"), Path("/results"))
    assert '"placement" = "sharded"' in text
    assert '"seed" = 3' in text
    with pytest.raises(ConfigurationError, match="Two runs or more"):
        placement.difference([0.9], [0.9])


@pytest.mark.long
def test_each_row_of_each_epoch_is_visited_once_also_where_an_executor_is_killed(tmp_path: Path) -> None:
    outcome, run = kills.killed_run(kills.Trainings(tmp_path, timeout_s=300), "run", random.Random(3), whole=False)
    assert not outcome.error
    assert outcome.visits == [(1, 1)] * kills.EPOCHS
    # The last epoch begins after the latest kill.
    read = [each["metadata"]["bytes_by_rank"] for each in run.events("data_read")][-1]
    share = kills.SET.rows * (4 * kills.SET.width + 4) / 2
    assert [each / share for each in read] == pytest.approx([1, 1], abs=sharded.READ_TOLERANCE)


def test_what_killed_runs_miss_is_said() -> None:
    held = kills.KilledRun(70, (2, 3), True, [(1, 1)] * kills.EPOCHS, "", 9.0)
    assert kills.missed([held, held]) == ""
    for other in ({"killed": False}, {"visits": []}, {"visits": [(1, 2), *held.visits[1:]]}):
        assert "1 of 2 runs were not killed" in kills.missed([held, replace(held, **other)])


@pytest.mark.campaign
def test_each_row_is_visited_once_wherever_twenty_runs_are_killed(tmp_path: Path) -> None:
    done = CliRunner().invoke(bench_command, ["kills", "--results", str(tmp_path)])
    assert done.exit_code == 0, done.output


def test_zeros_are_given_back_to_the_disk_and_files_stay_as_they_are(tmp_path: Path) -> None:
    file, content = tmp_path / "rows", bytes(3 << 20) + b"1" + bytes(3 << 20)
    file.write_bytes(content)
    os.utime(file, (0, 0))
    sharded.Digger(tmp_path)._dig_file(file)
    assert file.read_bytes() == content
    assert sharded._folder_bytes(tmp_path) <= len(content)


@pytest.mark.campaign
def test_the_suite_shows_that_a_set_is_read_once_an_epoch_within_its_limits(tmp_path: Path) -> None:
    options = ["--gigabytes", "0.03", "--memory-gigabytes", "0.01", "--trials", "1", "--timeout", "300"]
    done = CliRunner().invoke(
        bench_command, ["sharded", *options, "--folder", str(tmp_path), "--results", str(tmp_path / "results")]
    )
    (path,) = (tmp_path / "results").rglob("*-sharded.json")
    kept = store.load(path)
    found = kept["outcome"]
    # A set of this size says nothing of speed.
    assert "ratio" in found, done.output
    assert found["visited_once"]
    assert len(found["bytes_read"]) == kept["plan"]["epochs"]
    assert all(abs(each / found["share_bytes"] - 1) <= 0.1 for epoch in found["bytes_read"] for each in epoch)
    assert found["parquet_bytes"] > 0.9 * CountedSet.of_bytes(30_000_000).rows * CountedSet.of_bytes(30_000_000).width
    assert 0 < found["most_anonymous_bytes"] < (1024 + 384) << 20
    assert found["most_local_disk_bytes"] < 1 << 30
    assert path.with_suffix(".svg").read_text(encoding="utf-8").count("limit")
    assert json.loads(path.read_text(encoding="utf-8"))["watched"]["local_disk"]
    assert list(tmp_path.glob("sparkdl-bench-sharded-*")) == []
