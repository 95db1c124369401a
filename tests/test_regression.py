"""A regression from a DataFrame and from files: its records, its metrics, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from sparkdl_bench import ConfigurationError, FitResult, Trainer, load_model
from sparkdl_bench.results import RunResults

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# pyspark leaves the sockets of `collect` to the garbage collector.
pytestmark = [
    pytest.mark.usefixtures("sockets_end_here"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
ROWS = 600


def made() -> tuple[Any, Any]:
    rng = np.random.default_rng(5)
    points = rng.uniform(-1, 1, (ROWS, 2))
    return points, points[:, 0] ** 2 - 0.7 * points[:, 1] + 0.02 * rng.normal(size=ROWS)


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    points, labels = made()
    rows = [(float(x), float(y), float(label)) for (x, y), label in zip(points, labels, strict=True)]
    return spark.createDataFrame(rows, "x double, y double, label double").coalesce(1).cache()


@pytest.fixture(scope="module")
def fitted(spark: SparkSession, frame: DataFrame, tmp_path_factory: pytest.TempPathFactory) -> FitResult:
    return trainer({"table": frame, "test_table": frame}, tmp_path_factory.mktemp("results")).fit(spark)


def trainer(data: Any, results: Path, **changes: Any) -> Trainer:
    given: dict[str, Any] = {"loss": "mean-squared", "batch": 32, "epochs": 6, "learning_rate": 0.1, "momentum": 0.9}
    given |= {"keep_best": "loss", "seed": 2, **changes}
    model = {"name": "mlp", "hidden": [16]}
    return Trainer(model, data, results=str(results), **given)


def test_metrics_are_those_of_the_predictions(fitted: FitResult, frame: DataFrame) -> None:
    """By the formulas of scikit-learn's mean_absolute_error, mean_squared_error and r2_score."""
    found = fitted.model().transform(frame)
    assert found.columns == ["x", "y", "label", "prediction"]
    rows = np.array([(row["label"], row["prediction"]) for row in found.collect()])
    labels, errors = rows[:, 0].astype(np.float32).astype(np.float64), rows[:, 1] - rows[:, 0]
    final = fitted.summary["final"]
    assert final["test_accuracy"] is None
    assert final["test_mae"] == pytest.approx(np.abs(errors).mean(), abs=1e-6)
    assert final["test_rmse"] == pytest.approx(np.sqrt((errors**2).mean()), abs=1e-6)
    r2 = 1 - (errors**2).sum() / ((labels - labels.mean()) ** 2).sum()
    assert final["test_r2"] == pytest.approx(r2, abs=1e-6)
    assert r2 > 0.9
    assert final["test_loss"] == pytest.approx(final["test_rmse"] ** 2, rel=1e-5)
    assert [epoch["test_rmse"] for epoch in fitted.history][-1] == final["test_rmse"]


def test_records_and_texts_tell_errors_and_no_accuracy(fitted: FitResult) -> None:
    results = RunResults(fitted.results_dir)
    keys = {event["key"] for event in results.events}
    assert "eval_rmse" in keys
    assert "eval_accuracy" not in keys
    best = results.summary["best"]
    losses = [epoch["test_loss"] for epoch in fitted.history]
    assert best["test_accuracy"] is None
    assert best["test_rmse"] == fitted.history[int(np.argmin(losses))]["test_rmse"]
    assert "test RMSE 0." in repr(fitted)
    assert "accuracy" not in repr(fitted)
    assert fitted.plot().is_file()
    assert '"test_rmse"' in (fitted.results_dir / "page.html").read_text(encoding="utf-8")
    assert results.run["data"]["classes"] == 1


def test_a_saved_model_predicts_numbers_without_spark(fitted: FitResult, frame: DataFrame, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    model = load_model(tmp_path / "model")
    assert model.is_regression
    points, _ = made()
    numbers, probabilities = model.predict(points.astype(np.float32))
    assert probabilities.shape == (ROWS, 0)
    wanted = [row["prediction"] for row in fitted.model().transform(frame).collect()]
    np.testing.assert_allclose(numbers, wanted, atol=1e-5)


@pytest.mark.on_one_line
def test_engines_agree_and_files_are_as_good_as_frames(spark: SparkSession, fitted: FitResult, tmp_path: Path) -> None:
    points, labels = made()
    lines = [f"{label!r},{x!r},{y!r}" for (x, y), label in zip(points.tolist(), labels.tolist(), strict=True)]
    file = tmp_path / "rows.csv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    data = {"source": "csv", "path": str(file), "test_path": str(file), "cache_dir": str(tmp_path / "cache")}
    own = trainer(data, tmp_path / "results", engine="numpy", transport="block-manager").fit(spark)
    for name, value in fitted.weights().items():
        np.testing.assert_allclose(own.weights()[name], value, atol=2e-4)
    assert own.summary["final"]["test_mae"] == pytest.approx(fitted.summary["final"]["test_mae"], abs=1e-4)


def test_what_goes_together_with_no_regression(spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"a label with a fraction is for regression: set loss\.name=mean-sq"):
        trainer({"table": frame}, tmp_path, loss="cross-entropy").fit(spark)
    with pytest.raises(ConfigurationError, match="the data source 'digits' gives classes alone"):
        trainer("digits", tmp_path).fit(spark)
    with pytest.raises(ConfigurationError, match=r"keep_best = accuracy .* Set keep_best = loss"):
        trainer({"table": frame}, tmp_path, keep_best="accuracy").fit(spark)
    with pytest.raises(ConfigurationError, match=r"'data\.classes' is '3', and loss\.name=mean-squared is for labels"):
        trainer({"table": frame, "classes": 3}, tmp_path).fit(spark)
