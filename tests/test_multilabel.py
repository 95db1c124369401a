"""Rows with several labels, each 0 or 1: sources, engines, metrics held against scikit-learn, estimators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyspark.ml.functions import array_to_vector
from pyspark.ml.linalg import Vectors

from sparkdl_bench import ConfigurationError, FitResult, Trainer, load_model
from sparkdl_bench.ml import SparkDLClassificationModel, SparkDLClassifier

metrics = pytest.importorskip("sklearn.metrics")

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# pyspark leaves the sockets of `collect` to the garbage collector.
pytestmark = [
    pytest.mark.on_one_line,
    pytest.mark.usefixtures("sockets_end_here"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
NAMES = ["red", "green", "blue"]
ROWS = 240


def made() -> tuple[Any, Any, Any]:
    """Points, rows × labels and weights; the last label is rare."""
    rng = np.random.default_rng(31)
    points = rng.normal(size=(ROWS, 2)).astype(np.float32)
    ways = np.array([[1, 0, 0.5], [0.3, -1, 0.5]])
    labels = (points @ ways + 0.4 * rng.normal(size=(ROWS, 3)) > [0, 0.2, 1]).astype(int)
    return points, labels, 1.0 + np.arange(ROWS) % 3


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    rows = [
        (float(x), float(y), *map(int, labels), [float(each) for each in labels], float(weight))
        for (x, y), labels, weight in zip(*made(), strict=True)
    ]
    columns = "x double, y double, red int, green int, blue int, labels array<double>, w double"
    return spark.createDataFrame(rows, columns).coalesce(1).cache()


def fit(spark: SparkSession, frame: DataFrame, results: Path, label: str = "labels", **more: Any) -> FitResult:
    data = {"table": frame, "test_table": frame, "label": label, "columns": ["x", "y"], **more.pop("data", {})}
    given: dict[str, Any] = {"workers": 2, "batch": 40, "epochs": 3, "learning_rate": 3.0, "seed": 3} | more
    return Trainer("softmax", data, loss="binary-cross-entropy", results=str(results), **given).fit(spark)


def wanted(labels: Any, found: Any) -> dict[str, float]:
    told = {"accuracy": metrics.accuracy_score(labels, found)}
    for name in ("precision", "recall", "f1"):
        for average in ("micro", "macro"):
            of = getattr(metrics, f"{name}_score")
            told[f"{name}_{average}"] = of(labels, found, average=average, zero_division=0)
    return told


@pytest.mark.parametrize(
    ("label", "more"),
    [
        ("labels", {}),
        ("red,green,blue", {}),
        ("labels", {"engine": "numpy"}),
        ("labels", {"engine": "torch"}),
        ("labels", {"placement": "sharded"}),
        ("labels", {"transport": "shuffle", "normalize": "standard"}),
    ],
)
def test_metrics_are_scikit_learns(
    label: str, more: dict[str, Any], spark: SparkSession, frame: DataFrame, tmp_path: Path
) -> None:
    if more.get("engine") == "torch":
        pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'sparkdl-bench[torch]'")
    fitted = fit(spark, frame, tmp_path, label, **more)
    points, labels, _ = made()
    model = fitted.model()
    assert (model.classes, model.is_multilabel) == (3, True)
    assert model.labels == (NAMES if "," in label else [])
    found, probabilities = model.predict(points)
    scores = model.scores(points).astype(float)
    np.testing.assert_array_equal(found, scores > 0)
    np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-scores)), atol=1e-12)
    final = fitted.summary["final"]
    for name, value in wanted(labels, found).items():
        assert final[f"test_{name}"] == pytest.approx(value, abs=1e-6), name
    assert final["test_accuracy"] > 0.5
    loss = np.mean([metrics.log_loss(labels[:, at], probabilities[:, at]) for at in range(3)])
    assert final["test_loss"] == pytest.approx(loss, abs=1e-5)
    assert fitted.history[-1]["test_loss"] < fitted.history[0]["test_loss"]


def test_sources_and_placements_train_the_same(spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
    """A step takes all rows, so that their order counts for nothing."""
    points, labels, _ = made()
    lines = ["x,red,y,green,blue"]
    lines += [f"{x},{r},{y},{g},{b}" for (x, y), (r, g, b) in zip(points.tolist(), labels.tolist(), strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    csv = {"source": "csv", "path": str(tmp_path / "rows.csv"), "header": True, "label": "red,green,blue"}
    whole = {"batch": ROWS, "epochs": 2}
    runs = [
        fit(spark, frame, tmp_path / "results", **whole),
        fit(spark, frame.withColumn("labels", array_to_vector("labels")), tmp_path / "results", **whole),
        fit(spark, frame, tmp_path / "results", **whole, placement="sharded"),
        Trainer(
            "softmax",
            {**csv, "test_path": str(tmp_path / "rows.csv")},
            loss="bce",
            results=str(tmp_path / "results"),
            workers=2,
            learning_rate=3.0,
            seed=3,
            **whole,
        ).fit(spark),
    ]
    for run in runs[1:]:
        for name, values in runs[0].weights().items():
            np.testing.assert_allclose(run.weights()[name], values, atol=1e-5)
    assert runs[3].model().labels == NAMES
    assert runs[3].model().columns == ["x", "y"]


@pytest.mark.parametrize("more", [{}, {"engine": "numpy"}, {"placement": "sharded"}])
def test_weights_and_labels_that_nobody_has_given(
    more: dict[str, Any], spark: SparkSession, frame: DataFrame, tmp_path: Path
) -> None:
    """The gradient of one whole step is that of the formula."""
    points, labels, weights = made()
    masked = frame.selectExpr("x", "y", "w", "array(if(x > 0.5, -1D, labels[0]), labels[1], labels[2]) as labels")
    given = {"batch": ROWS, "epochs": 1, "learning_rate": 1.0, "ignore_label": -1, "data": {"weight": "w"}}
    fitted = fit(spark, masked, tmp_path, **given, **more)
    counted = np.ones((ROWS, 3))
    counted[points[:, 0] > 0.5, 0] = 0
    share = counted * weights[:, np.newaxis] / (counted * weights[:, np.newaxis]).sum()
    # All weights begin at 0, where each answer is as likely as the other.
    slopes = share * (0.5 - labels)
    found = fitted.weights()
    names = {len(values.shape): name for name, values in found.items()}
    np.testing.assert_allclose(found[names[1]], -slopes.sum(axis=0), atol=1e-5)
    np.testing.assert_allclose(found[names[2]], -slopes.T @ points, atol=1e-5)
    assert fitted.history[0]["train_loss"] == pytest.approx(np.log(2), rel=1e-5)
    probabilities = fitted.model().predict(points)[1]
    likely = np.where(labels == 1, probabilities, 1 - probabilities)
    assert fitted.summary["final"]["test_loss"] == pytest.approx(-(share * np.log(likely)).sum(), rel=1e-5)
    right = ((probabilities > 0.5) == labels) | (counted == 0)
    assert fitted.summary["final"]["test_accuracy"] == pytest.approx(right.all(axis=1).mean())


def test_predictions_on_a_frame(spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    fit(spark, frame, tmp_path / "results", "red,green,blue").save(tmp_path / "model")
    model = load_model(tmp_path / "model")
    points, labels, weights = made()
    found, probabilities = model.predict(points)
    rows = model.transform(frame, label="said").collect()
    np.testing.assert_allclose([row["rawPrediction"].toArray() for row in rows], model.scores(points), atol=1e-5)
    np.testing.assert_allclose([row["probability"].toArray() for row in rows], probabilities, atol=1e-6)
    np.testing.assert_array_equal([row["prediction"].toArray() for row in rows], found)
    assert [row["said"] for row in rows] == [
        ",".join(name for name, has in zip(NAMES, row, strict=True) if has) for row in found
    ]
    for weighted in (False, True):
        w = weights if weighted else None
        measured = model.evaluate(frame, label="labels", weight="w" if weighted else "")
        assert measured["rows"] == ROWS
        assert measured["accuracy"] == pytest.approx(metrics.accuracy_score(labels, found, sample_weight=w), abs=1e-6)
        for average in ("micro", "macro"):
            f1 = metrics.f1_score(labels, found, average=average, sample_weight=w, zero_division=0)
            assert measured[f"f1_{average}"] == pytest.approx(f1, abs=1e-6)
        losses = [metrics.log_loss(labels[:, at], probabilities[:, at], sample_weight=w) for at in range(3)]
        assert measured["log_loss"] == pytest.approx(np.mean(losses), abs=1e-6)
    with pytest.raises(ConfigurationError, match="of type int, and a row may have several labels"):
        model.evaluate(frame, label="red")
    with pytest.raises(ConfigurationError, match="and a row has 3 labels, each 0 or 1"):
        model.evaluate(frame.selectExpr("x", "y", "array(red, green) as label"))
    model.export(tmp_path / "model.onnx")
    told = runtime.InferenceSession(str(tmp_path / "model.onnx")).run(["probabilities"], {"rows": points})[0]
    np.testing.assert_allclose(told, probabilities, atol=1e-6)


@pytest.mark.parametrize("vectors", [False, True])
def test_the_estimator_takes_lists(vectors: bool, spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
    own = frame.withColumn("labels", array_to_vector("labels")) if vectors else frame
    settings = {"learning_rate": 3.0, "results": str(tmp_path / "results"), "seed": 3}
    estimator = SparkDLClassifier(
        featuresCols=["x", "y"], labelCol="labels", model="softmax", epochs=3, batch=40, settings=settings
    )
    model = estimator.fit(own)
    model.write().save(str(tmp_path / "model"))
    read = SparkDLClassificationModel.load(str(tmp_path / "model"))
    points, labels, _ = made()
    said = np.array([row["prediction"].toArray() for row in read.transform(own).collect()])
    np.testing.assert_array_equal(said, model.net.predict(points)[0])
    assert (said == labels).mean() > 0.8
    assert read.numClasses == 3
    row = Vectors.dense(points[0])
    np.testing.assert_allclose(read.predictProbability(row).toArray(), read.net.predict(points[:1])[1][0])
    with pytest.raises(ConfigurationError, match="which no single number says"):
        read.predict(row)
    with pytest.raises(ConfigurationError, match="Such rows have the loss binary-cross-entropy"):
        estimator.copy().setSettings({**settings, "loss": "cross-entropy"}).fit(own)


def test_what_is_no_label(spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
    short = frame.selectExpr("x", "y", "if(y > 0, labels, array(1D)) as labels").orderBy("y", ascending=False)
    with pytest.raises(ConfigurationError, match="the row has 1 labels, and the first row has 3"):
        fit(spark, short.coalesce(1), tmp_path)
    with pytest.raises(ConfigurationError, match="the label is 'NaN'"):
        fit(spark, frame.selectExpr("x", "y", "if(x > 0, array(1D, null), array(0D, 1D)) as labels"), tmp_path)
    with pytest.raises(ConfigurationError, match="a list holds several labels of a row"):
        Trainer("softmax", {"table": frame, "label": "labels", "columns": ["x", "y"]}, results=str(tmp_path)).fit(spark)
    with pytest.raises(ConfigurationError, match=r"a row has 3 labels\. Name each of them"):
        fit(spark, frame, tmp_path, data={"label_names": ["a", "b"]})
    with pytest.raises(ConfigurationError, match="names the column 'pink', which is not there"):
        fit(spark, frame, tmp_path, "red,pink")
