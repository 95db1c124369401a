"""Metrics of predictions on DataFrames, held against scikit-learn's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import trained
from sparkdl_bench import ConfigurationError, Model, evaluation

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
TOLERANCE = 1e-6


def linear(outputs: int, labels: list[str] | None = None) -> Model:
    """Scores are sums of two values of a row, in different ways."""
    layers = [{"name": "fc", "kind": "linear", "options": {"in": 2, "out": outputs}}]
    written = {"name": "softmax", "input_shape": [2], "classes": outputs, "layers": layers}
    return trained.normal(written, {"shape": [2], "columns": ["x", "y"], "labels": labels or []}, seed=3)


def rows(classes: int, seed: int = 5, count: int = 400) -> list[tuple[float, float, float, float]]:
    """Values, many of them the same so that scores tie; a label, and a weight that is 0 now and then."""
    random = np.random.default_rng(seed)
    points = random.integers(-3, 4, (count, 2)) / 2
    labels = random.integers(0, classes, count) if classes > 1 else points.sum(axis=1) + random.normal(size=count) + 1e4
    weights = random.integers(0, 4, count) / 2
    return [(*map(float, point), float(y), float(w)) for point, y, w in zip(points, labels, weights, strict=True)]


def frame_of(spark: SparkSession, found: list[tuple[float, float, float, float]]) -> DataFrame:
    return spark.createDataFrame(found, "x double, y double, label double, w double").repartition(3)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", [2, 4])
def test_metrics_of_classes(spark: SparkSession, classes: int, weighted: bool) -> None:
    model, found = linear(classes), rows(classes)
    values = np.array(found)
    _, probabilities = model.predict(values[:, :2])
    said, true = probabilities.argmax(axis=1), values[:, 2].astype(int)
    w: Any = values[:, 3] if weighted else None
    measured = model.evaluate(frame_of(spark, found), weight="w" if weighted else "")
    wanted = {
        "rows": np.count_nonzero(values[:, 3]) if weighted else len(found),
        "accuracy": metrics.accuracy_score(true, said, sample_weight=w),
        "log_loss": metrics.log_loss(true, probabilities, sample_weight=w, labels=range(classes)),
    }
    for average in ("macro", "weighted", *(["binary"] if classes == 2 else [])):
        scores = metrics.precision_recall_fscore_support(true, said, average=average, sample_weight=w)[:3]
        for name, score in zip(("precision", "recall", "f1"), scores, strict=True):
            wanted[name if average == "binary" else f"{name}_{average}"] = score
    if classes == 2:
        wanted["auc"] = metrics.roc_auc_score(true, probabilities[:, 1], sample_weight=w)
    assert measured == pytest.approx(wanted, abs=TOLERANCE)


@pytest.mark.parametrize("weighted", [False, True])
def test_metrics_of_numbers(spark: SparkSession, weighted: bool) -> None:
    model, found = linear(1), rows(1)
    values = np.array(found)
    said, true = model.predict(values[:, :2])[0], values[:, 2]
    w: Any = values[:, 3] if weighted else None
    measured = model.evaluate(frame_of(spark, found), weight="w" if weighted else "")
    wanted = {
        "rows": np.count_nonzero(values[:, 3]) if weighted else len(found),
        "mae": metrics.mean_absolute_error(true, said, sample_weight=w),
        "rmse": math.sqrt(metrics.mean_squared_error(true, said, sample_weight=w)),
        "r2": metrics.r2_score(true, said, sample_weight=w),
    }
    assert measured == pytest.approx(wanted, rel=TOLERANCE)


@pytest.mark.on_one_line
def test_labels_in_words_and_rows_with_holes(spark: SparkSession) -> None:
    model, found = linear(2, ["no", "yes"]), rows(2)
    numbers = frame_of(spark, found)
    words = numbers.selectExpr("x", "y", "CASE WHEN label = 1 THEN 'yes' ELSE 'no' END AS label")
    holes = spark.createDataFrame(
        [(None, 1.0, "yes"), (1.0, float("nan"), "no"), (1.0, 1.0, None)], "x double, y double, label string"
    )
    measured = model.evaluate(words.union(holes))
    assert measured == pytest.approx(model.evaluate(numbers))
    one = model.evaluate(words.filter("label = 'yes'"))
    assert math.isnan(one["auc"])
    assert one["recall"] == pytest.approx(one["accuracy"])


@pytest.mark.on_one_line
def test_what_cannot_be_measured_is_told(spark: SparkSession) -> None:
    model, numbers = linear(2), frame_of(spark, rows(4))
    with pytest.raises(ConfigurationError, match=r"Column 'label' \(label\) holds [23]\.0, and the model tells the cl"):
        model.evaluate(numbers)
    with pytest.raises(ConfigurationError, match=r"no column 'class' \(label\)"):
        model.evaluate(numbers, label="class")
    with pytest.raises(ConfigurationError, match=r"no column 'much' \(weight\)"):
        model.evaluate(numbers, weight="much")
    with pytest.raises(ConfigurationError, match=r"holds cat, and the model tells the classes 0 to 1 apart\. Leave"):
        model.evaluate(numbers.selectExpr("x", "y", "'cat' AS label"))
    for label in ("'cat'", "double('Infinity')"):
        with pytest.raises(ConfigurationError, match=r"holds (cat|Infinity), and labels of a regression are finite"):
            linear(1).evaluate(numbers.selectExpr("x", "y", f"{label} AS label"))
    for weight, told in (("null", "null"), ("'NaN'", "NaN"), ("-w - 1", r"-1\.0"), ("'Infinity'", "Infinity")):
        odd = numbers.selectExpr("x", "y", "label % 2 AS label", f"double({weight}) AS w")
        for net in (model, linear(1)):
            with pytest.raises(ConfigurationError, match=rf"Column 'w' \(weight\) holds {told}\. Weights are finite"):
                net.evaluate(odd, weight="w")
    with pytest.raises(ConfigurationError, match=r"Column 'w' \(weight\) is of type string"):
        model.evaluate(numbers.selectExpr("x", "y", "label", "'1' AS w"), weight="w")
    for net in (model, linear(1)):
        with pytest.raises(ConfigurationError, match="and a weight above 0, so there is nothing to measure"):
            net.evaluate(numbers.selectExpr("x", "y", "label", "0 AS w"), weight="w")
    with pytest.raises(ConfigurationError, match="there is nothing to measure"):
        model.evaluate(numbers.filter("x > 100"))


@pytest.mark.on_one_line
def test_labels_find_their_classes_as_in_training(spark: SparkSession) -> None:
    numbers = frame_of(spark, rows(2))
    wanted = linear(2).evaluate(numbers)
    assert linear(2).evaluate(numbers.withColumn("label", numbers["label"].cast("string"))) == pytest.approx(wanted)
    others = numbers.selectExpr("x", "y", "label + 1 AS label")  # 1.0 and 2.0, with names that are their values
    for label in ("label", "int(label)", "string(label)", "concat(' ', int(label), '\t')"):
        assert linear(2, ["1", "2"]).evaluate(others.selectExpr("x", "y", f"{label} AS label")) == pytest.approx(wanted)
    swapped = linear(2, ["1", "0"]).evaluate(numbers)
    assert swapped == pytest.approx(linear(2).evaluate(numbers.selectExpr("x", "y", "1 - label AS label")))
    with pytest.raises(ConfigurationError, match=r"holds 0, and the model tells the classes 0 to 1 apart \(1, 2\)"):
        linear(2, ["1", "2"]).evaluate(numbers.selectExpr("x", "y", "0 AS label"))


@pytest.mark.on_one_line
def test_rows_of_weight_0_count_as_nothing(spark: SparkSession) -> None:
    found = frame_of(spark, rows(2)).filter("w > 0")
    more = found.union(found.selectExpr("x", "y", "7 AS label", "0 AS w"))
    assert linear(2).evaluate(more, weight="w") == pytest.approx(linear(2).evaluate(found, weight="w"))
    several = linear(1)
    assert several.evaluate(more, weight="w") == pytest.approx(several.evaluate(found, weight="w"))


def test_names_and_their_values_are_places() -> None:
    by_name, by_value = evaluation.places(["3", " b", "3.0", "-0.0", "²", "NaN", "1e999", "+-"])
    assert by_name["3"] == 0
    assert (by_name[" b"], by_name["b"], by_name["3.0"]) == (1, 1, 2)
    assert by_value == {3.0: 0, 0.0: 3}


def test_odd_labels_and_weights_are_named() -> None:
    evaluation.refuse_labels("y", 0, None, "")
    evaluation.refuse_weights("w", 0, None)
    with pytest.raises(ConfigurationError) as refused:
        evaluation.refuse_labels("y", 2, "owl", "the model tells the classes 0 to 1 apart (cat, dog)")
    assert str(refused.value) == (
        "Column 'y' (label) holds owl, and the model tells the classes 0 to 1 apart (cat, dog). Leave such rows out, "
        "or name another column."
    )
    with pytest.raises(ConfigurationError, match=r"^Column 'w' \(weight\) holds -1\.0\. Weights are finite numbers of"):
        evaluation.refuse_weights("w", 1, "-1.0")
