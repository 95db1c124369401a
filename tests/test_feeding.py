"""`sparkdl_bench.dataset`: ranks of a launch read their parts of a DataFrame."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import sparkdl_bench
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.feeding import RowDataset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.usefixtures("sockets_end_here"),
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"),
]
ROWS, BATCH = 103, 8
STEPS = 13
ABOUT: dict[str, Any] = {
    "settings": {},
    "rows": ROWS,
    "shape": [2],
    "classes": 3,
    "identity": "x",
    "batch": BATCH,
    "seed": 1,
    "drop_last": False,
    "with_ids": False,
}


def taking(counts: tuple[int, ...]) -> Any:
    """A rank's function: what it is given in so many steps of each pass, and where the dataset stands then."""

    def take(data: RowDataset) -> tuple[list[Any], dict[str, Any]]:
        taken: list[Any] = []
        for count in counts:
            for number, (features, labels, ids) in enumerate(data, start=1):
                np.testing.assert_array_equal(features[:, 0], ids)
                np.testing.assert_array_equal(features[:, 1], ids * 0.5)
                taken.append((ids.tolist(), labels.tolist(), str(labels.dtype)))
                if number == count:
                    break
        return taken, data.state_dict()

    return take


def launched(spark: SparkSession, data: RowDataset, workers: int, counts: tuple[int, ...], results: Any) -> Any:
    done = sparkdl_bench.launch(taking(counts), spark, workers=workers, sync="none", args=(data,), results=results)
    steps = [[row for taken, _ in done for row in taken[step][0]] for step in range(len(done[0][0]))]
    assert len({len(taken) for taken, _ in done}) == 1, "the ranks had different numbers of steps"
    assert all(state == done[0][1] for _, state in done)
    return steps, done[0][1], done[0][0]


def test_ranks_get_the_same_batches_whatever_their_number_and_go_on_with_another(
    spark: SparkSession, tmp_path: Any
) -> None:
    frame = spark.range(ROWS).selectExpr("cast(id % 3 as int) as class", "double(id) as a", "id * 0.5 as b")
    data = sparkdl_bench.dataset(frame, label="class", classes=3, batch=BATCH, with_ids=True, kind="numpy")
    assert (data.rows, data.shape, data.classes, len(data)) == (ROWS, (2,), 3, STEPS)
    both, state, taken = launched(spark, data, 2, (STEPS, STEPS), tmp_path)
    epochs = [sorted(row for step in both[at : at + STEPS] for row in step) for at in (0, STEPS)]
    assert epochs == [list(range(ROWS))] * 2
    assert both[:STEPS] != both[STEPS:]
    assert all(labels == [each % 3 for each in ids] and kind == "int64" for ids, labels, kind in taken)
    assert (state["epoch"], state["step"]) == (2, 0)
    first, state, _ = launched(spark, data, 2, (STEPS, 5), tmp_path)
    data.load_state_dict(state)
    # A pass goes on to the end of its epoch.
    rest, _, _ = launched(spark, data, 1, (STEPS,), tmp_path)
    assert first + rest == both


def test_numbers_as_labels_and_what_a_frame_lacks(spark: SparkSession, tmp_path: Any) -> None:
    frame = spark.range(20).selectExpr("id / 4 as label", "double(id) as a", "id * 0.5 as b")
    data = sparkdl_bench.dataset(frame, batch=10, with_ids=True, kind="numpy", drop_last=True)
    assert data.classes is None
    _, _, taken = launched(spark, data, 1, (2,), tmp_path)
    assert all(labels == [each / 4 for each in ids] and kind == "float32" for ids, labels, kind in taken)
    with pytest.raises(ConfigurationError, match="no column 'price'"):
        sparkdl_bench.dataset(frame, label="price", batch=10)
    with pytest.raises(ConfigurationError, match="kind = 'arrow'; valid are auto, torch, numpy"):
        sparkdl_bench.dataset(frame, batch=10, kind="arrow")


def test_a_state_goes_on_with_the_same_rows_alone() -> None:
    data = RowDataset(ABOUT, "numpy")
    assert len(data) == STEPS
    state = {**data.state_dict(), "epoch": 3, "step": 4}
    data.load_state_dict(state)
    assert pickle.loads(pickle.dumps(data)).state_dict() == state
    for name, other in (("seed", 2), ("batch", 9), ("identity", "y")):
        with pytest.raises(ConfigurationError, match=f"with {name} = {other}"):
            data.load_state_dict({**state, name: other})
    with pytest.raises(ConfigurationError, match="it is damaged"):
        data.load_state_dict({**state, "step": STEPS})
    with pytest.raises(ConfigurationError, match="A state has epoch, step"):
        data.load_state_dict({})


def test_outside_of_a_launch_and_with_ranks_without_rows_it_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="this process is none"):
        next(iter(RowDataset(ABOUT, "numpy")))
    data = RowDataset({**ABOUT, "rows": 17}, "numpy")
    data._check(1)
    with pytest.raises(ConfigurationError, match="the last step of an epoch has 1 rows"):
        data._check(2)
    with pytest.raises(ConfigurationError, match="a step has 8"):
        data._check(9)
    RowDataset({**ABOUT, "rows": 17, "drop_last": True}, "numpy")._check(2)
    for other, steps, rows in ((data.with_empty_shares(), 3, 17), (data.with_whole_steps(), 2, 16)):
        again = pickle.loads(pickle.dumps(other))
        again._check(2)
        assert (len(again), again.rows_per_epoch, again.rows) == (steps, rows, 17)
        with pytest.raises(ConfigurationError, match="a step has 8"):
            again._check(9)
    with pytest.raises(ConfigurationError, match="leaves none of them"):
        RowDataset({**ABOUT, "rows": 7, "drop_last": True}, "numpy")._check(2)
