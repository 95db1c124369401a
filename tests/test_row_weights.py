"""`weightCol`: a row's weight in the loss, as Spark ML's own estimators have it."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.feature import VectorAssembler

from sparkdl_bench import ConfigurationError, ml
from sparkdl_bench.ml import SparkDLClassifier, SparkDLRegressor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# pyspark leaves the sockets of `collect` to the garbage collector.
pytestmark = [
    pytest.mark.usefixtures("sockets_end_here"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
COLUMNS = "x double, y double, label double, w double"
# Each row's weight, by turns.
WEIGHTS = [2.0, 1.0, 0.0]


def made() -> list[tuple[float, ...]]:
    rng = np.random.default_rng(11)
    points = rng.normal(size=(60, 2))
    labels = (points[:, 0] - 0.5 * points[:, 1] + 2 * rng.normal(size=60) > 0).astype(float)
    return [
        (float(x), float(y), float(label), WEIGHTS[at % 3])
        for at, ((x, y), label) in enumerate(zip(points, labels, strict=True))
    ]


def estimator(kind: type[Any], frame: DataFrame, results: Path, **more: Any) -> Any:
    settings = {"learning_rate": 0.5, "results": str(results), "seed": 3, **more.pop("settings", {})}
    return kind(
        model={"name": "mlp", "hidden": []} if kind is SparkDLRegressor else "softmax",
        featuresCols=["x", "y"],
        batch=frame.count(),
        epochs=more.pop("epochs", 6),
        settings=settings,
        **more,
    )


@pytest.mark.on_one_line
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (SparkDLClassifier, {}),
        (SparkDLClassifier, {"engine": "numpy"}),
        (SparkDLRegressor, {"engine": "torch", "learning_rate": 0.1}),
        (SparkDLClassifier, {"placement": "sharded"}),
        (SparkDLRegressor, {"learning_rate": 0.1}),
    ],
)
def test_weight_2_is_the_row_twice_and_weight_0_is_none(
    kind: type[Any], settings: dict[str, Any], spark: SparkSession, tmp_path: Path
) -> None:
    """A step takes all rows, so that the mean of a step is that of the set."""
    if settings.get("engine") == "torch":
        pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'sparkdl-bench[torch]'")
    rows = made()
    weighted = spark.createDataFrame(rows, COLUMNS).coalesce(1)
    repeated = spark.createDataFrame([row for row in rows for _ in range(int(row[-1]))], COLUMNS).coalesce(1)
    one = estimator(kind, weighted, tmp_path / "results", weightCol="w", settings=settings).fit(weighted)
    other = estimator(kind, repeated, tmp_path / "results", settings=settings).fit(repeated)
    plain = estimator(kind, weighted, tmp_path / "results", settings=settings).fit(weighted)
    points = np.array([row[:2] for row in rows], np.float32)
    found, wanted, unweighted = (each.net.scores(points) for each in (one, other, plain))
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert np.abs(unweighted - wanted).max() > 1e-2


@pytest.mark.on_one_line
def test_the_minimum_is_that_of_pyspark(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(made(), COLUMNS).coalesce(1)
    ours = estimator(
        SparkDLClassifier, frame, tmp_path / "results", weightCol="w", epochs=150, settings={"learning_rate": 2.0}
    )
    vectors = VectorAssembler(inputCols=["x", "y"], outputCol="features").transform(frame)
    theirs = LogisticRegression(weightCol="w", tol=1e-9, maxIter=200).fit(vectors)
    probabilities = [
        np.array([row[0][1] for row in model.transform(rows).select("probability").collect()])
        for model, rows in ((ours.fit(frame), frame), (theirs, vectors))
    ]
    np.testing.assert_allclose(*probabilities, atol=2e-3)


@pytest.mark.on_one_line
@pytest.mark.parametrize(
    ("wrong", "shown"), [(-1.0, "-1.0"), (float("nan"), "NaN"), (None, "null"), (float("inf"), "Infinity")]
)
def test_what_is_no_weight_is_refused(wrong: float | None, shown: str, spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([*made(), (0.0, 0.0, 1.0, wrong)], COLUMNS).coalesce(1)
    for kind in (SparkDLClassifier, SparkDLRegressor):
        own = estimator(kind, frame, tmp_path / "results", weightCol="w")
        with pytest.raises(ConfigurationError, match=f"the weight is {shown}; weights .* at least 0"):
            own.fit(frame)
    own.setHandleInvalid("skip").fit(frame)


@pytest.mark.on_one_line
def test_columns_that_are_no_weights_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(made(), COLUMNS).selectExpr("*", "'a' as word", "0 as nothing")
    own = estimator(SparkDLClassifier, frame, tmp_path / "results")
    for column, why in (("v", "'v' .weightCol. is not there"), ("word", "'word' .weightCol. is string")):
        with pytest.raises(ConfigurationError, match=why):
            own.setWeightCol(column).fit(frame)
    with pytest.raises(ConfigurationError, match=r"The weights .* are 0, so no row counts"):
        own.setWeightCol("nothing").fit(frame)


class Of:
    """A column of one row, with what of Spark's the rule asks it."""

    def __init__(self, value: float | None) -> None:
        self.value = value

    def between(self, low: float, high: float) -> bool | None:
        return None if self.value is None else low <= self.value <= high


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        *((0.0, True), (5e-324, True), (0.5, True), (sys.float_info.max, True)),
        *((-5e-324, False), (-1.0, False), (float("inf"), False), (float("nan"), False), (None, False)),
    ],
)
def test_a_weight_is_a_finite_number_of_at_least_0(
    monkeypatch: pytest.MonkeyPatch, value: float | None, is_one: bool
) -> None:
    """The rule itself, at its ends; no Spark computes it."""
    own = types.SimpleNamespace(
        col=lambda _: Of(value), lit=lambda each: each, coalesce=lambda one, other: other if one is None else one
    )
    monkeypatch.setattr(ml, "functions", own)
    assert ml._is_weight() is is_one
