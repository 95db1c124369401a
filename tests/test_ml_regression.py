"""`SparkDLRegressor` beside LinearRegression: the same idioms of Spark ML, on the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import RegressionEvaluator
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.regression import LinearRegression
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder

from sparkdl_bench import ConfigurationError, DivergedError
from sparkdl_bench.ml import SparkDLRegressionModel, SparkDLRegressor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# pyspark leaves the sockets of `collect`, and CrossValidator's threads, to the garbage collector.
pytestmark = [
    pytest.mark.usefixtures("sockets_end_here"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:unclosed running multiprocessing pool:ResourceWarning"),
]


@pytest.fixture(scope="module")
def plain(spark: SparkSession) -> DataFrame:
    rng = np.random.default_rng(7)
    points = rng.uniform(-1, 1, (300, 2))
    labels = 0.8 * points[:, 0] - 0.5 * points[:, 1] + 0.1
    rows = [(float(x), float(y), float(label)) for (x, y), label in zip(points, labels, strict=True)]
    return spark.createDataFrame(rows, "x double, y double, label double").cache()


@pytest.fixture(scope="module")
def rows(plain: DataFrame) -> DataFrame:
    return VectorAssembler(inputCols=["x", "y"], outputCol="features").transform(plain).cache()


def regressor(results: Path) -> SparkDLRegressor:
    settings = {"learning_rate": 0.1, "momentum": 0.9, "results": str(results), "seed": 3}
    return SparkDLRegressor(model={"name": "mlp", "hidden": [8]}, batch=32, epochs=6, settings=settings)


@pytest.fixture
def ours(tmp_path: Path) -> SparkDLRegressor:
    return regressor(tmp_path / "results")


@pytest.fixture(params=["ours", "pyspark's"])
def estimator(request: pytest.FixtureRequest, ours: SparkDLRegressor) -> Any:
    return ours if request.param == "ours" else LinearRegression(maxIter=5)


def r2(frame: DataFrame) -> float:
    return float(RegressionEvaluator(metricName="r2").evaluate(frame))


def test_fit_transform_and_persistence(estimator: Any, rows: DataFrame, tmp_path: Path) -> None:
    estimator.write().overwrite().save(str(tmp_path / "estimator"))
    read = type(estimator).load(str(tmp_path / "estimator"))
    assert {p.name: v for p, v in read.extractParamMap().items()} == {
        p.name: v for p, v in estimator.extractParamMap().items()
    }
    model = read.fit(rows)
    found = model.transform(rows)
    assert found.columns == [*rows.columns, "prediction"]
    assert found.schema["prediction"].dataType.typeName() == "double"
    assert r2(found) > 0.9
    assert (model.numFeatures, model.uid) == (2, estimator.uid)
    for row in found.limit(5).collect():
        assert model.predict(row["features"]) == pytest.approx(row["prediction"], abs=1e-5)
    model.setPredictionCol("mine")
    model.write().overwrite().save(str(tmp_path / "model"))
    again = type(model).load(str(tmp_path / "model"))
    assert (again.uid, again.getPredictionCol()) == (model.uid, "mine")
    assert again.transform(rows).collect() == model.transform(rows).collect()


def test_a_divergence_names_scales_of_their_own(ours: SparkDLRegressor, plain: DataFrame) -> None:
    rows = plain.selectExpr("x * 1e5 AS income", "y * 1e-3 + 7 AS share", "label")
    ours = ours.setFeaturesCols(["income", "share"]).setStandardization(False)
    with pytest.raises(DivergedError) as diverged:
        ours.fit(rows)
    assert "The rows' values are in units of their own; data.normalize = standard scales them." in str(diverged.value)
    assert "A regression's loss grows with the labels' unit: train on labels near -1 to 1" in str(diverged.value)
    for standardised in (
        ours.copy({ours.standardization: True}),
        ours.copy({ours.settings: {**ours.getSettings(), "normalize": "standard"}}),
    ):
        assert r2(standardised.fit(rows).transform(rows)) > 0.5  # in a few epochs


def test_params_and_copy(estimator: Any) -> None:
    other = estimator.copy({estimator.predictionCol: "other"})
    assert (other.getPredictionCol(), estimator.getPredictionCol()) == ("other", "prediction")
    assert other.uid == estimator.uid
    assert "loss" in estimator.explainParams()
    with pytest.raises(TypeError):
        estimator.copy({getattr(estimator, "epochs", getattr(estimator, "maxIter", None)): "many"})
    estimator.setParams(labelCol="y")
    assert estimator.getLabelCol() == "y"


@pytest.mark.parametrize("kind", ["ours", "pyspark's"])
def test_a_pipeline_and_cross_validation(kind: str, ours: SparkDLRegressor, plain: DataFrame, tmp_path: Path) -> None:
    assembler = VectorAssembler(inputCols=["x", "y"], outputCol="features")
    if kind == "ours":
        estimator: Any = ours
        grid = ParamGridBuilder().addGrid(estimator.loss, ["mean-squared", "huber"]).build()
    else:
        estimator = LinearRegression()
        grid = ParamGridBuilder().addGrid(estimator.maxIter, [1, 3]).build()
    validator = CrossValidator(
        estimator=Pipeline(stages=[assembler, estimator]),
        estimatorParamMaps=grid,
        evaluator=RegressionEvaluator(metricName="rmse"),
        numFolds=2,
        parallelism=2,
        seed=1,
    )
    best = validator.fit(plain)
    assert len(best.avgMetrics) == 2
    best.bestModel.write().overwrite().save(str(tmp_path / "pipeline"))
    assert r2(PipelineModel.load(str(tmp_path / "pipeline")).transform(plain)) > 0.8


def test_what_cannot_be_learned_from_is_told(ours: SparkDLRegressor, rows: DataFrame) -> None:
    with pytest.raises(ConfigurationError, match=r"Column 'features' \(labelCol\) is of type .*predicts numbers"):
        ours.copy().setLabelCol("features").fit(rows)
    with pytest.raises(ConfigurationError, match="has no column 'price'"):
        ours.copy().setLabelCol("price").fit(rows)
    with pytest.raises(ConfigurationError, match="loss is 'cross-entropy', which tells classes apart"):
        ours.copy().setLoss("cross-entropy").fit(rows)
    with pytest.raises(ConfigurationError, match=r"SparkDLRegressor\(loss='huber'\)"):
        ours.copy().setSettings({"loss": "huber"}).fit(rows)
    with pytest.raises(ConfigurationError, match="SparkDLRegressor has no parameter 'maxIter'"):
        SparkDLRegressor(maxIter=3)
    with pytest.raises(ConfigurationError, match="This SparkDLRegressionModel has no trained net"):
        _ = SparkDLRegressionModel().numFeatures
