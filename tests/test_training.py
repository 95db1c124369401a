"""The Python entry point: `Trainer.fit` in a session of the user's own, on two real executors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import idx
import sparkdl_bench
from sparkdl_bench import ConfigurationError, DivergedError, FitResult, Trainer
from sparkdl_bench.progress import Progress
from sparkdl_bench.results import RunResults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def trainer(results: Path, **settings: Any) -> Trainer:
    settings = {"data": "digits", "batch": 32, "hidden": [32], "learning_rate": 0.1, "momentum": 0.9, **settings}
    return Trainer("mlp", results=results, **settings)


@pytest.fixture(scope="module")
def fitted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> FitResult:
    return trainer(tmp_path_factory.mktemp("results"), epochs=6, seed=3).fit(spark)


def test_it_learns(fitted: FitResult) -> None:
    assert fitted.summary["status"] == "success"
    assert fitted.summary["final"]["test_accuracy"] >= 0.93
    assert [record["epoch"] for record in fitted.history] == [1, 2, 3, 4, 5, 6]
    losses = [record["train_loss"] for record in fitted.history]
    assert losses[-1] < losses[0] / 2


def test_what_it_leaves(fitted: FitResult) -> None:
    results = RunResults(fitted.results_dir)
    assert results.run["configuration"]["model.hidden"] == "32"
    assert {"commit", "versions", "host", "seeds", "spark"} <= results.run.keys()
    assert results.summary["workers"] == 2
    assert results.summary["batch"] == 32
    assert results.summary["variant"]["transport"] == "block-stream"
    assert (results.run["transport"], results.run["transport_asked"]) == ("block-stream", "auto")
    assert results.run["transport_reason"] == "this session's executors can push to each other, which is fastest"
    assert sum(results.summary["bytes"].values()) > 0
    assert sum(results.summary["phases_ms"].values()) > 0
    keys = [event["key"] for event in results.events]
    assert keys[0] == "run_start"
    assert keys[-1] == "run_stop"
    assert keys.count("eval_accuracy") == 6


def test_weights_have_the_models_names_and_shapes(fitted: FitResult) -> None:
    assert {name: array.shape for name, array in fitted.weights().items()} == {
        "fc1.weight": (32, 64),
        "fc1.bias": (32,),
        "fc2.weight": (10, 32),
        "fc2.bias": (10,),
    }
    assert all(array.dtype == np.float32 for array in fitted.weights().values())


def test_the_weights_are_the_callers(fitted: FitResult) -> None:
    fitted.weights()["fc1.bias"][:] = 7
    assert not np.any(fitted.weights()["fc1.bias"] == 7)


def test_save_and_load(fitted: FitResult, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    loaded = sparkdl_bench.load(tmp_path / "model")
    assert [layer["name"] for layer in loaded.specification["layers"] if layer["kind"] == "linear"] == ["fc1", "fc2"]
    for name, array in fitted.weights().items():
        np.testing.assert_array_equal(loaded.weights[name], array)


def test_plot(fitted: FitResult) -> None:
    drawn = fitted.results_dir / "plot.png"
    assert drawn.read_bytes().startswith(b"\x89PNG")  # by fit itself
    assert fitted.plot() == drawn


@pytest.mark.parametrize("compressed", [False, True])
def test_a_folder_of_idx_files_and_the_accuracy_that_numpy_finds(
    spark: SparkSession, tmp_path: Path, compressed: bool
) -> None:
    _, test = idx.write_both(tmp_path / "data", compressed=compressed)
    moments: list[Progress] = []
    result = trainer(tmp_path, data=tmp_path / "data", epochs=3, hidden=[16], data__classes=5).fit(
        spark, moments.append
    )
    weights = result.weights()
    hidden = np.maximum(test.images.reshape(-1, 20) / 255 @ weights["fc1.weight"].T + weights["fc1.bias"], 0)
    logits = hidden @ weights["fc2.weight"].T + weights["fc2.bias"]
    right = int(np.sum(np.argmax(logits, axis=1) == test.labels))
    # One row may fall the other way: NumPy adds in another order.
    assert abs(result.summary["final"]["test_accuracy"] * len(test.labels) - right) < 1.5
    assert right > 0.9 * len(test.labels)
    assert moments[-1].state == "done"
    assert moments[-1].step == moments[-1].steps == 3 * 32


def test_the_same_seed_gives_the_same_bits(spark: SparkSession, tmp_path: Path) -> None:
    first, second = (trainer(tmp_path, epochs=1, seed=5).fit(spark).weights() for _ in range(2))
    other = trainer(tmp_path, epochs=1, seed=6).fit(spark).weights()
    for name in first:
        assert first[name].tobytes() == second[name].tobytes()
    assert any(first[name].tobytes() != other[name].tobytes() for name in first)


def _truncate(folder: Path) -> None:
    path = folder / idx.TRAIN[0]
    path.write_bytes(path.read_bytes()[:-7])


def _wrong_magic(folder: Path) -> None:
    path = folder / idx.TEST[1]
    path.write_bytes(b"\x00\x00\x08\x03" + path.read_bytes()[4:])


def _label_outside(folder: Path) -> None:
    data = idx.stripes(100, seed=3)
    data.labels[77] = 9
    idx.write(folder, idx.TRAIN, data)


def _counts_differ(folder: Path) -> None:
    data = idx.stripes(100, seed=3)
    idx.write(folder, idx.TRAIN, idx.Set(data.images, data.labels[:-1]))


def _missing(folder: Path) -> None:
    (folder / idx.TEST[0]).unlink()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_truncate, [idx.TRAIN[0]]),
        (_wrong_magic, [idx.TEST[1], "magic"]),
        (_label_outside, [idx.TRAIN[1], "9"]),
        (_counts_differ, ["100", "99"]),
        (_missing, [idx.TEST[0]]),
    ],
)
def test_bad_data_is_named_before_any_spark_job(
    spark: SparkSession, jobs: Callable[[], int], tmp_path: Path, damage: Callable[[Path], None], words: list[str]
) -> None:
    idx.write_both(tmp_path / "data")
    damage(tmp_path / "data")
    before = jobs()
    with pytest.raises(ConfigurationError) as caught:
        trainer(tmp_path / "results", data=tmp_path / "data", data__classes=5).fit(spark)
    for word in words:
        assert word in str(caught.value)
    assert jobs() == before
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epocsh": 3}, "Did you mean 'epochs'"),
        ({"transport": "block-manger"}, "Did you mean 'block-manager'"),
        ({"batch": "many"}, "'many'"),
        ({"batch": 1}, "batch = 1"),
        ({"workers": 3}, "2 task slots"),
        ({"data": "/no/such/folder"}, "/no/such/folder"),
    ],
)
def test_bad_settings_are_named_before_any_spark_job(
    spark: SparkSession, jobs: Callable[[], int], tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    before = jobs()
    with pytest.raises(ConfigurationError) as caught:
        trainer(tmp_path / "results", **settings).fit(spark)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert jobs() == before
    assert not (tmp_path / "results").exists()


def test_a_divergence_is_told_without_the_jvms_stack(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(DivergedError, match=r"^The training diverged in step \d+ of") as caught:
        trainer(tmp_path, epochs=1, learning_rate=1e30, transport="block-stream").fit(spark)
    assert caught.value.__cause__ is None
    assert "What it wrote is in" in str(caught.value)
    (folder,) = tmp_path.iterdir()
    assert RunResults(folder).summary["status"] == "diverged"


def test_the_best_weights_come_back_as_well(spark: SparkSession, tmp_path: Path) -> None:
    fitted = trainer(tmp_path, epochs=3, keep_best="loss").fit(spark)
    losses = [record["test_loss"] for record in fitted.history]
    best = fitted.summary["best"]["epoch"]
    assert losses[best - 1] == min(losses)
    shorter = trainer(tmp_path, epochs=best).fit(spark).weights()
    for name, weights in fitted.weights("best").items():
        np.testing.assert_array_equal(weights, shorter[name])
    fitted.save(tmp_path / "best", which="best")
    assert repr(fitted).startswith("FitResult(test accuracy ")
