"""`loss.ignore_label`: rows that count neither in the loss nor in the metrics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from sparkdl_bench import ConfigurationError, Trainer
from sparkdl_bench.ml import SparkDLClassifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# pyspark leaves the sockets of `collect` to the garbage collector.
pytestmark = [
    pytest.mark.usefixtures("sockets_end_here"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
COLUMNS = "x double, y double, label int, w double"


def made(ignored: int) -> list[tuple[float, float, int, float]]:
    """Every third row is one that nobody has labelled."""
    rng = np.random.default_rng(12)
    points = rng.normal(size=(60, 2))
    labels = (points[:, 0] > 0).astype(int) + 2 * (points[:, 1] > 0.5)
    return [
        (float(x), float(y), ignored if at % 3 == 1 else int(label) % 3, 1.0 + at % 4)
        for at, ((x, y), label) in enumerate(zip(points, labels, strict=True))
    ]


def fit(spark: SparkSession, frame: DataFrame, results: Path, **more: Any) -> Any:
    """A step takes all rows, so that the mean of a step is that of the set."""
    data = {"table": frame, "test_table": frame, "label": "label", "columns": ["x", "y"], "classes": 3}
    return Trainer(
        "softmax",
        {name: value for name, value in {**data, **more.pop("data", {})}.items() if value},
        workers=1,
        batch=frame.count(),
        epochs=4,
        learning_rate=0.5,
        seed=3,
        results=results,
        **more,
    ).fit(spark)


@pytest.mark.on_one_line
@pytest.mark.parametrize(
    ("ignored", "more"),
    [
        (-1, {}),
        (2, {}),
        (255, {"data": {"weight": "w"}, "class_weights": "balanced"}),
        (-1, {"engine": "numpy", "data": {"weight": "w"}}),
        (-1, {"placement": "sharded"}),
    ],
)
def test_they_are_as_if_they_were_not_there(
    ignored: int, more: dict[str, Any], spark: SparkSession, tmp_path: Path
) -> None:
    rows = made(ignored)
    whole = spark.createDataFrame(rows, COLUMNS).coalesce(1)
    kept = spark.createDataFrame([row for row in rows if row[2] != ignored], COLUMNS).coalesce(1)
    one = fit(spark, whole, tmp_path, **dict(more), ignore_label=ignored)
    other = fit(spark, kept, tmp_path, **dict(more))
    for name, values in other.weights().items():
        np.testing.assert_allclose(one.weights()[name], values, atol=1e-5)
    for found, wanted in zip(one.history, other.history, strict=True):
        assert found["train_loss"] == pytest.approx(wanted["train_loss"], rel=1e-5)
        assert found["test_loss"] == pytest.approx(wanted["test_loss"], rel=1e-5)
        assert found["test_accuracy"] == pytest.approx(wanted["test_accuracy"])


@pytest.mark.on_one_line
def test_classes_are_counted_without_them(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(made(255), COLUMNS).coalesce(1)
    assert fit(spark, frame, tmp_path, data={"classes": None}, ignore_label=255).model().classes == 3
    settings = {"ignore_label": 255, "results": str(tmp_path), "seed": 3}
    fitted = SparkDLClassifier(featuresCols=["x", "y"], model="softmax", epochs=1, settings=settings).fit(frame)
    assert fitted.numClasses == 3


@pytest.mark.on_one_line
def test_the_same_with_several_workers_that_keep_the_best(spark: SparkSession, tmp_path: Path) -> None:
    rows = made(-1)
    frame = spark.createDataFrame(rows, COLUMNS).coalesce(1)
    fitted = fit(spark, frame, tmp_path, ignore_label=-1, keep_best="accuracy")
    points = np.array([row[:2] for row in rows if row[2] != -1], np.float32)
    labels = np.array([row[2] for row in rows if row[2] != -1])
    predicted, _ = fitted.model("best").predict(points)
    assert fitted.summary["best"]["test_accuracy"] == pytest.approx((predicted == labels).mean())


@pytest.mark.on_one_line
def test_what_cannot_be_ignored(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(made(-1), COLUMNS).coalesce(1)
    with pytest.raises(ConfigurationError, match=r"the label is '-1'; with `data.classes` = 3 labels are 0 to 2\b"):
        fit(spark, frame, tmp_path)
    with pytest.raises(ConfigurationError, match=r"labels are 0 to 2, and 255 \(`loss.ignore_label`\)"):
        fit(spark, frame, tmp_path, ignore_label=255)
    with pytest.raises(ConfigurationError, match=r"loss.name=huber is for regression"):
        fit(
            spark,
            frame.drop("label").selectExpr("*", "x as label"),
            tmp_path,
            data={"classes": None},
            loss="huber",
            ignore_label=1,
        )
    with pytest.raises(ConfigurationError, match=r"All 20 rows to train on have the label -1 .*no row counts"):
        fit(spark, frame.filter("label = -1"), tmp_path, ignore_label=-1)
