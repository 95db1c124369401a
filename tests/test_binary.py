"""`binary-cross-entropy` with one output, and the metrics of classes in a run's records, held against scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from sparkdl_bench import ConfigurationError, FitResult, Trainer, load_model
from sparkdl_bench.ml import SparkDLRegressor

metrics = pytest.importorskip("sklearn.metrics")

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# pyspark leaves the sockets of `collect` to the garbage collector.
pytestmark = [
    pytest.mark.usefixtures("sockets_end_here"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    # scikit-learn tells of classes that no prediction has; the numbers are what is compared.
    pytest.mark.filterwarnings("ignore::UserWarning:sklearn"),
]
COLUMNS = "x double, y double, label int, word string, three int"


def made(count: int = 300) -> list[tuple[float, float, int, str, int]]:
    """Labels that no line tells apart wholly."""
    rng = np.random.default_rng(21)
    points = rng.normal(size=(count, 2))
    scores = points[:, 0] - 0.5 * points[:, 1] + 0.5 * rng.normal(size=count)
    labels, three = (scores > 0.4).astype(int), np.digitize(scores, [-0.5, 0.8])
    return [
        (float(x), float(y), int(label), ["no", "yes"][label], int(other))
        for (x, y), label, other in zip(points, labels, three, strict=True)
    ]


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(made(), COLUMNS).coalesce(1).cache()


def fit(spark: SparkSession, frame: DataFrame, results: Path, label: str = "label", **more: Any) -> FitResult:
    data = {"table": frame, "test_table": frame, "label": label, "columns": ["x", "y"], **more.pop("data", {})}
    given: dict[str, Any] = {"loss": "binary-cross-entropy", "workers": 2, "batch": 50, "epochs": 6} | more
    return Trainer({"name": "mlp", "hidden": [4]}, data, learning_rate=0.5, seed=3, results=str(results), **given).fit(
        spark
    )


def wanted(labels: Any, found: Any, scores: Any = None) -> dict[str, float]:
    """What scikit-learn says."""
    told = {"accuracy": metrics.accuracy_score(labels, found)}
    for name in ("precision", "recall", "f1"):
        of = getattr(metrics, f"{name}_score")
        told[f"{name}_macro"] = of(labels, found, average="macro", zero_division=0)
        if scores is not None:
            told[name] = of(labels, found, zero_division=0)
    if scores is not None:
        told["auc"] = metrics.roc_auc_score(labels, scores)
    return told


def check(record: dict[str, Any], told: dict[str, float]) -> None:
    for name, value in told.items():
        assert record[f"test_{name}"] == pytest.approx(value, abs=1e-6), name


@pytest.mark.on_one_line
@pytest.mark.parametrize("engine", ["libtorch", "numpy", "torch"])
def test_one_output_tells_no_from_yes(engine: str, spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
    if engine == "torch":
        pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'sparkdl-bench[torch]'")
    fitted = fit(spark, frame, tmp_path, engine=engine, keep_best="accuracy")
    model = fitted.model()
    rows = made()
    points, labels = np.array([row[:2] for row in rows], np.float32), np.array([row[2] for row in rows])
    scores = model.scores(points)
    assert scores.shape == (300, 1)
    final, likely = fitted.summary["final"], 1 / (1 + np.exp(-scores[:, 0].astype(float)))
    check(final, wanted(labels, scores[:, 0] > 0, scores[:, 0]))
    assert final["test_accuracy"] > 0.7
    assert final["test_loss"] == pytest.approx(metrics.log_loss(labels, likely), abs=1e-5)
    assert fitted.history[-1]["test_auc"] == final["test_auc"]
    best = fitted.summary["best"]
    assert best["test_accuracy"] == max(epoch["test_accuracy"] for epoch in fitted.history)
    assert best["test_f1"] == fitted.history[best["epoch"] - 1]["test_f1"]
    told, probabilities = model.predict(points)
    np.testing.assert_array_equal(told, (scores[:, 0] > 0).astype(int))
    np.testing.assert_allclose(probabilities, np.stack([1 - likely, likely], axis=1), atol=1e-12)


@pytest.mark.on_one_line
def test_predictions_are_those_of_two_classes(spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
    fitted = fit(spark, frame, tmp_path / "results", "word", data={"label_names": ["no", "yes"]})
    fitted.save(tmp_path / "model")
    model = load_model(tmp_path / "model")
    assert (model.classes, model.labels, model.is_binary, model.is_regression) == (2, ["no", "yes"], True, False)
    assert not model.is_multilabel
    rows = model.transform(frame, label="said").collect()
    points = np.array([[row["x"], row["y"]] for row in rows], np.float32)
    scores = model.scores(points)[:, 0].astype(float)
    likely = 1 / (1 + np.exp(-scores))
    np.testing.assert_allclose(
        [row["rawPrediction"].toArray() for row in rows], np.stack([-scores, scores], 1), atol=1e-5
    )
    np.testing.assert_allclose(
        [row["probability"].toArray() for row in rows], np.stack([1 - likely, likely], 1), atol=1e-6
    )
    assert [row["prediction"] for row in rows] == list((scores > 0).astype(float))
    assert [row["said"] for row in rows] == [["no", "yes"][int(score > 0)] for score in scores]
    assert list(model.predict(points)[0]) == [row["said"] for row in rows]
    told = wanted([row["label"] for row in rows], scores > 0, scores)
    measured = model.evaluate(frame, label="word")
    check({f"test_{name}": value for name, value in measured.items()}, told)
    check(fitted.summary["final"], told)


@pytest.mark.on_one_line
def test_as_exported(spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model = fit(spark, frame, tmp_path / "results", epochs=1).model()
    model.export(tmp_path / "model.onnx")
    points = np.array([row[:2] for row in made(20)], np.float32)
    found = runtime.InferenceSession(str(tmp_path / "model.onnx")).run(["probabilities"], {"rows": points})[0]
    np.testing.assert_allclose(found[:, 0], model.predict(points)[1][:, 1], atol=1e-6)


@pytest.mark.on_one_line
@pytest.mark.parametrize(("label", "classes"), [("label", 2), ("three", 3)])
@pytest.mark.parametrize("engine", ["libtorch", "numpy"])
def test_metrics_of_classes(
    label: str, classes: int, engine: str, spark: SparkSession, frame: DataFrame, tmp_path: Path
) -> None:
    fitted = fit(spark, frame, tmp_path, label, loss="cross-entropy", engine=engine, data={"classes": classes})
    rows = frame.collect()
    scores = fitted.model().scores(np.array([[row["x"], row["y"]] for row in rows], np.float32))
    labels = [row[label] for row in rows]
    told = wanted(labels, scores.argmax(axis=1), scores[:, 1] - scores[:, 0] if classes == 2 else None)
    check(fitted.summary["final"], told)
    assert ("test_auc" in fitted.summary["final"]) == (classes == 2)


@pytest.mark.on_one_line
def test_a_transport_of_one_job_a_step_merges_the_same(spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
    fitted = fit(spark, frame, tmp_path, transport="shuffle", epochs=1)
    scores = fitted.model().scores(np.array([row[:2] for row in made()], np.float32))[:, 0]
    check(fitted.summary["final"], wanted([row[2] for row in made()], scores > 0, scores))


@pytest.mark.on_one_line
def test_answers_that_nobody_has_given(spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
    """A step takes all rows, so that the mean of a step is that of the set."""
    some = frame.selectExpr("x", "y", "if(three = 1, -1, label) as label")
    one = fit(spark, some, tmp_path, batch=300, ignore_label=-1)
    kept = some.filter("label >= 0")
    other = fit(spark, kept, tmp_path, batch=kept.count())
    for name, values in other.weights().items():
        np.testing.assert_allclose(one.weights()[name], values, atol=1e-5)
    for name in ("test_loss", "test_accuracy", "test_auc", "test_f1"):
        assert one.summary["final"][name] == pytest.approx(other.summary["final"][name], rel=1e-5)


@pytest.mark.on_one_line
def test_what_is_no_answer(spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"the label is '2'; with this loss .* labels are 0 for no, 1 for yes"):
        fit(spark, frame, tmp_path, "three")
    with pytest.raises(ConfigurationError, match=r"data.label_names is 'a,b,c', .* labels are 0 or 1"):
        fit(spark, frame, tmp_path, data={"label_names": ["a", "b", "c"]})
    with pytest.raises(ConfigurationError, match=r"loss.name=binary-cross-entropy has no classes"):
        fit(spark, frame, tmp_path, class_weights="balanced")
    with pytest.raises(ConfigurationError, match=r"the data source 'digits' gives classes alone"):
        Trainer("softmax", "digits", loss="bce", results=str(tmp_path)).fit(spark)
    with pytest.raises(ConfigurationError, match="which tells classes apart"):
        SparkDLRegressor(featuresCols=["x", "y"], loss="binary-cross-entropy").fit(frame)
