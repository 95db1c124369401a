"""What Python's estimators and models write, the JVM's of the same names read, and the other way round."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.feature import StringIndexer

from sparkdl_bench.ml import SparkDLClassificationModel, SparkDLClassifier, SparkDLRegressionModel, SparkDLRegressor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.usefixtures("sockets_end_here"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    words = spark.range(120).selectExpr(
        "cast(id % 11 as double) / 11 as x", "cast(id % 7 as double) / 7 as y", "if(id % 11 < 5, 'few', 'many') as kind"
    )
    return StringIndexer(inputCol="kind", outputCol="label").fit(words).transform(words).cache()


def classifier(results: Path) -> SparkDLClassifier:
    return SparkDLClassifier(
        featuresCols=["x", "y"],
        model={"name": "mlp", "hidden": [8, 4]},
        batch=30,
        epochs=1,
        classWeights=[1.0, 2.0],
        standardization=False,
        settings={"learning_rate": 0.5, "schedule": {"name": "cosine"}, "results": str(results)},
    )


@pytest.fixture(scope="module")
def trained(rows: DataFrame, tmp_path_factory: pytest.TempPathFactory) -> SparkDLClassificationModel:
    return classifier(tmp_path_factory.mktemp("results")).fit(rows)


def in_jvm(spark: SparkSession, kind: str) -> Any:
    return getattr(spark._jvm.sparkdl_bench.ml, kind)


def predictions(model: Any, rows: DataFrame) -> list[Any]:
    return [row.asDict() for row in model.transform(rows).orderBy("x", "y").collect()]


def test_a_model_of_python_in_the_jvm(
    trained: SparkDLClassificationModel, rows: DataFrame, spark: SparkSession, tmp_path: Path
) -> None:
    trained.write().save(str(tmp_path / "python"))
    java = in_jvm(spark, "SparkDLClassificationModel").load(str(tmp_path / "python"))
    assert (java.uid(), java.numClasses(), list(java.getFeaturesCols())) == (trained.uid, 2, ["x", "y"])
    assert list(java.labels()) == trained.labels
    java.write().save(str(tmp_path / "jvm"))
    back = SparkDLClassificationModel.load(str(tmp_path / "jvm"))
    assert back.uid == trained.uid
    assert back.getFeaturesCols() == ["x", "y"]
    assert predictions(back, rows) == predictions(trained, rows)


def test_an_estimator_of_python_in_the_jvm(rows: DataFrame, spark: SparkSession, tmp_path: Path) -> None:
    ours = classifier(tmp_path / "results")
    ours.write().save(str(tmp_path / "python"))
    java = in_jvm(spark, "SparkDLClassifier").load(str(tmp_path / "python"))
    fitted = java.fit(rows._jdf)
    assert fitted.numFeatures() == 2
    java.write().save(str(tmp_path / "jvm"))
    back = SparkDLClassifier.load(str(tmp_path / "jvm"))
    assert back.getBatch() == 30
    assert back.getWorkers() == 2
    assert back.getClassWeights() == [1.0, 2.0]
    assert back.getInitialModel() is None
    assert java.getStandardization() is back.getStandardization() is False
    again = back.fit(rows)
    assert again.net.columns == ["x", "y"]


def test_a_pipeline_that_the_jvm_wrote(
    trained: SparkDLClassificationModel, rows: DataFrame, spark: SparkSession, tmp_path: Path
) -> None:
    words = rows.drop("label")
    indexer = StringIndexer(inputCol="kind", outputCol="label").fit(words)
    PipelineModel([indexer, trained])._to_java().write().save(str(tmp_path / "fitted"))
    read = PipelineModel.load(str(tmp_path / "fitted"))
    assert isinstance(read.stages[1], SparkDLClassificationModel)
    assert predictions(read, words) == predictions(trained, rows)
    Pipeline(stages=[classifier(tmp_path)])._to_java().write().save(str(tmp_path / "unfitted"))
    (stage,) = Pipeline.load(str(tmp_path / "unfitted")).getStages()
    assert isinstance(stage, SparkDLClassifier)
    assert stage.getSettings()["schedule.name"] == "cosine"
    assert stage.getEpochs() == 1


def test_a_regression(rows: DataFrame, spark: SparkSession, tmp_path: Path) -> None:
    estimator = SparkDLRegressor(
        featuresCols=["x", "y"], labelCol="x", loss="huber", epochs=1, settings={"results": str(tmp_path / "results")}
    )
    model = estimator.fit(rows)
    model.write().save(str(tmp_path / "python"))
    in_jvm(spark, "SparkDLRegressionModel").load(str(tmp_path / "python")).write().save(str(tmp_path / "jvm"))
    assert predictions(SparkDLRegressionModel.load(str(tmp_path / "jvm")), rows) == predictions(model, rows)
    assert SparkDLRegressor._from_java(estimator._to_java()).getLoss() == "huber"
