"""The set that counts its visits: widths, batches, rates and rows, each from numbers that stand here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparkdl_bench.bench.visits import CountedSet, ParquetCase, once
from sparkdl_bench.errors import ConfigurationError, RunFailedError


@pytest.mark.parametrize(
    ("size", "width", "classes"),
    [
        (20 * 64**2, 64, 20),
        (20 * 128**2 - 1, 64, 80),
        (20 * 128**2, 128, 20),
        (3_000_000, 384, 20),
        (20 * 12_288**2, 12_288, 20),
        # As wide as three channels of 64 x 64, and no wider.
        (10**10, 12_288, 66),
    ],
)
def test_sets_are_wide_and_have_twenty_classes_or_more(size: int, width: int, classes: int) -> None:
    counted = CountedSet.of_bytes(size)
    assert (counted.width, counted.classes, counted.most_batch) == (width, classes, 512)


def test_the_smallest_set_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"A set of 81919 bytes is too small .* valid are 81920 bytes or more"):
        CountedSet.of_bytes(81_919)


@pytest.mark.parametrize(("classes", "batch"), [(5, 64), (20, 256), (8, 512), (16, 512)])
def test_a_batch_divides_the_rows(classes: int, batch: int) -> None:
    counted = CountedSet(64, classes)
    assert (counted.rows, counted.batch, counted.steps_per_epoch) == (64 * classes, batch, 64 * classes // batch)


def test_the_shuffle_buffer_is_small_beside_the_rows() -> None:
    wide = CountedSet(8192, 20)  # 64 MiB hold 8,192 rows
    assert [wide.shuffle_buffer(rows) for rows in (10**6, 100_000, 20 * 513, 20 * 512, 100)] == [
        *(8192, 5000, 513, 512, 512)
    ]


def test_a_run_learns_so_slowly_that_scores_stay_even_and_each_epoch_by_an_eighth() -> None:
    counted = CountedSet(64, 5)
    alone = counted.settings(1)
    assert alone == {
        "batch": 64,
        "epochs": 1,
        "evaluate_every": 0,
        "model.name": "softmax",
        "data.classes": 6,
        "optimizer.name": "sgd",
        "optimizer.learning_rate": 1e-4 / 8,
        "optimizer.momentum": 0.0,
    }
    three = counted.settings(3)
    assert three.pop("schedule.name") == "multistep"
    assert three.pop("schedule.gamma") == 0.125
    assert three.pop("schedule.milestones") == "5,10"
    assert three == {**alone, "epochs": 3, "optimizer.learning_rate": 1e-4 / 512}


def test_six_epochs_can_be_counted_and_no_others() -> None:
    assert CountedSet(64, 5).settings(6)["epochs"] == 6
    for epochs in (0, 7):
        with pytest.raises(ConfigurationError, match=f"over 1 to 6 epochs, not over {epochs}"):
            CountedSet(64, 5).settings(epochs)


def weights(counted: CountedSet, counts: list[list[float]]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Trained so often on each row, by (epoch, row); one row after the other, without any formula of the set's own."""
    classes = counted.classes + 1
    made = np.zeros((classes, counted.width))
    for epoch, times in enumerate(counts):
        step = counted.rate(len(counts)) / counted.batch / 8**epoch
        for row, visits in enumerate(times):
            gradient = np.full(classes, -1 / classes)
            gradient[row % counted.classes] += 1
            made[:, row // counted.classes] += step * visits * gradient
    return made.astype(np.float32)


SMALL = CountedSet(width=4, classes=2, most_batch=2)


@pytest.mark.parametrize("counts", [[[0, 1, 2, 3, 4, 5, 6, 7]], [[1] * 8, [1, 1, 7, 1, 0, 1, 1, 2], [1] * 8]])
def test_each_row_s_visits_are_read_epoch_by_epoch(counts: list[list[float]]) -> None:
    found = SMALL.visits(weights(SMALL, counts), len(counts))
    assert found.tolist() == counts
    assert not once(found)
    assert once(np.ones((2, 8), np.int64))
    for other in (0, 2):
        missed = np.ones((2, 8), np.int64)
        missed[1, 3] = other
        assert not once(missed)


def test_a_quarter_of_a_visit_is_rounding_and_more_is_none() -> None:
    assert SMALL.visits(weights(SMALL, [[1.24, *[1] * 7]]), 1).tolist() == [[1] * 8]
    with pytest.raises(RunFailedError, match=r"no whole numbers of visits: off by up to 0\.27, the least is 1\. .* 7 "):
        SMALL.visits(weights(SMALL, [[1.27, *[1] * 7]]), 1)
    with pytest.raises(RunFailedError, match=r"off by up to 0\.\d+, the least is -1\."):
        SMALL.visits(weights(SMALL, [[-1, *[1] * 7]]), 1)
    for shape in ((2, 4), (3, 5)):
        with pytest.raises(RunFailedError, match=r"where \(3, 4\) was expected"):
            SMALL.visits(np.zeros(shape, np.float32), 1)


def test_the_text_has_each_row_once_and_two_to_test_on(tmp_path: Path) -> None:
    told = SMALL.write_libsvm(tmp_path / "set")
    train, test = tmp_path / "set" / "train.svm", tmp_path / "set" / "test.svm"
    assert train.read_text() == "0 1:1\n1 1:1\n0 2:1\n1 2:1\n0 3:1\n1 3:1\n0 4:1\n1 4:1\n"
    assert test.read_text() == "0 1:1\n1 1:1\n"
    assert told == {
        "data.source": "libsvm",
        "data.path": str(train),
        "data.test_path": str(test),
        "data.shape": "4",
    }


class Frame:
    """A session, a frame and its writer, which note what they are asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    @property
    def write(self) -> Frame:
        return self

    def range(self, *numbers: int) -> Frame:
        self.asked.append(("range", *numbers))
        return self

    def selectExpr(self, *columns: str) -> Frame:
        self.asked.append(columns)
        return self

    def option(self, name: str, value: str) -> Frame:
        self.asked.append((name, value))
        return self

    def parquet(self, path: str) -> None:
        self.asked.append((path,))


def test_parquet_files_hold_rows_as_large_as_they_are(tmp_path: Path) -> None:
    case = ParquetCase(4, 2, 8, "/set", 3, 1024, {})
    spark = Frame()
    case.write(spark)
    train, test = spark.asked[:6], spark.asked[6:]
    zeros, value = "unhex(repeat('00', 4))", "cast(id div 2 as int)"
    columns = (
        "cast(id % 2 as int) as label",
        f"concat(substring({zeros}, 1, {value}), X'FF', substring({zeros}, 1, 3 - {value})) as features",
    )
    options = [("compression", "none"), ("parquet.block.size", "1024"), ("parquet.enable.dictionary", "false")]
    assert train == [("range", 0, 8, 1, 3), columns, *options, ("/set/train",)]
    assert test == [("range", 0, 4, 1, 1), columns, *options, ("/set/test",)]
    assert case.data == {
        "data.source": "parquet",
        "data.path": "/set/train",
        "data.test_path": "/set/test",
        "data.label": "label",
        "data.binary": "raw",
        "data.shape": "4",
    }
    case.save(tmp_path / "case.json")
    assert ParquetCase(**json.loads((tmp_path / "case.json").read_text())) == case
