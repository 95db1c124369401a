"""`SparkDLClassifier` beside LogisticRegression: the same idioms of Spark ML, on the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import IndexToString, StringIndexer, VectorAssembler
from pyspark.ml.linalg import Vectors
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder
from pyspark.sql import functions

from sparkdl_bench import ConfigurationError
from sparkdl_bench.ml import (
    SparkDLClassificationModel,
    SparkDLClassifier,
    SparkDLRegressor,
    _asked,
    _classes_in,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# pyspark leaves the sockets of `collect`, and CrossValidator's threads, to the garbage collector.
pytestmark = [
    pytest.mark.usefixtures("sockets_end_here"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:unclosed running multiprocessing pool:ResourceWarning"),
]
NAMES = ["cat", "dog", "owl"]


@pytest.fixture(scope="module")
def words(spark: SparkSession) -> DataFrame:
    """Points around three centres, and the names of these."""
    rng = np.random.default_rng(7)
    labels = rng.choice(3, 400, p=[0.2, 0.5, 0.3])
    points = rng.normal(size=(400, 2)) * 0.4 + np.array([[0, 0], [2, 0], [0, 2]])[labels]
    rows = [(*map(float, point), NAMES[label]) for point, label in zip(points, labels, strict=True)]
    return spark.createDataFrame(rows, "x double, y double, kind string").cache()


@pytest.fixture(scope="module")
def rows(words: DataFrame) -> DataFrame:
    """With the features as a vector, and the labels as StringIndexer numbers them: dog, owl, cat."""
    indexed = StringIndexer(inputCol="kind", outputCol="label").fit(words).transform(words)
    return VectorAssembler(inputCols=["x", "y"], outputCol="features").transform(indexed).cache()


def classifier(results: Path) -> SparkDLClassifier:
    settings = {"learning_rate": 0.5, "results": str(results), "seed": 3}
    return SparkDLClassifier(model={"name": "mlp", "hidden": [8]}, batch=32, epochs=4, settings=settings)


@pytest.fixture
def ours(tmp_path: Path) -> SparkDLClassifier:
    return classifier(tmp_path / "results")


@pytest.fixture(params=["ours", "pyspark's"])
def estimator(request: pytest.FixtureRequest, ours: SparkDLClassifier) -> Any:
    return ours if request.param == "ours" else LogisticRegression(maxIter=5)


@pytest.fixture(scope="module")
def trained(rows: DataFrame, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """An estimator of ours and what it fitted, which no test changes."""
    estimator = classifier(tmp_path_factory.mktemp("results"))
    return estimator, estimator.fit(rows)


def accuracy(frame: DataFrame, prediction: str = "prediction") -> float:
    return float(MulticlassClassificationEvaluator(metricName="accuracy", predictionCol=prediction).evaluate(frame))


@pytest.mark.parametrize("kind", ["ours", "pyspark's"])
def test_fit_and_transform(kind: str, trained: tuple[Any, Any], rows: DataFrame) -> None:
    pyspark_own = LogisticRegression(maxIter=5)
    estimator, model = trained if kind == "ours" else (pyspark_own, pyspark_own.fit(rows))
    found = model.transform(rows)
    assert found.columns == [*rows.columns, "rawPrediction", "probability", "prediction"]
    assert [found.schema[name].dataType.typeName() for name in found.columns[-3:]] == (
        [rows.schema["features"].dataType.typeName()] * 2 + ["double"]
    )
    assert accuracy(found) > 0.9
    assert (model.numClasses, model.numFeatures) == (3, 2)
    assert model.uid == estimator.uid
    for row in found.limit(5).collect():
        assert model.predict(row["features"]) == row["prediction"]
        np.testing.assert_allclose(model.predictRaw(row["features"]), row["rawPrediction"], atol=1e-5)
        np.testing.assert_allclose(model.predictProbability(row["features"]), row["probability"], atol=1e-5)
    assert sum(row["probability"].toArray().sum() for row in found.limit(5).collect()) == pytest.approx(5)


def test_names_of_columns(estimator: Any, rows: DataFrame) -> None:
    renamed = rows.select(rows["features"].alias("vector"), rows["label"].alias("class"))
    estimator.setFeaturesCol("vector").setLabelCol("class").setPredictionCol("p").setProbabilityCol(
        ""
    ).setRawPredictionCol("r")
    found = estimator.fit(renamed).transform(renamed)
    assert found.columns == ["vector", "class", "r", "p"]
    assert found.filter("p = class").count() > 360


def test_params_and_copy(estimator: Any) -> None:
    assert estimator.getFeaturesCol() == "features"
    assert estimator.explainParam("labelCol").startswith("labelCol: label column name")
    other = estimator.copy({estimator.predictionCol: "other"})
    assert (other.getPredictionCol(), estimator.getPredictionCol()) == ("other", "prediction")
    assert other.uid == estimator.uid
    assert "featuresCol" in estimator.explainParams()
    with pytest.raises(TypeError):
        estimator.copy({getattr(estimator, "epochs", getattr(estimator, "maxIter", None)): "many"})
    assert estimator.isSet("predictionCol") is False
    estimator.setParams(labelCol="y")
    assert estimator.getLabelCol() == "y"


def test_an_estimator_and_its_model_are_kept(estimator: Any, rows: DataFrame, tmp_path: Path) -> None:
    estimator.write().overwrite().save(str(tmp_path / "estimator"))
    read = type(estimator).load(str(tmp_path / "estimator"))
    assert read.uid == estimator.uid
    assert {p.name: v for p, v in read.extractParamMap().items()} == {
        p.name: v for p, v in estimator.extractParamMap().items()
    }
    model = read.fit(rows)
    model.setPredictionCol("mine")
    model.save(str(tmp_path / "model"))
    with pytest.raises(Exception, match="already exists"):
        model.save(str(tmp_path / "model"))
    model.write().overwrite().save(str(tmp_path / "model"))
    again = type(model).load(str(tmp_path / "model"))
    assert (again.uid, again.getPredictionCol(), again.numClasses) == (model.uid, "mine", 3)
    assert again.transform(rows).collect() == model.transform(rows).collect()


def test_a_pipeline_from_words_to_words(estimator: Any, words: DataFrame, tmp_path: Path) -> None:
    indexer = StringIndexer(inputCol="kind", outputCol="label")
    assembler = VectorAssembler(inputCols=["x", "y"], outputCol="features")
    names = IndexToString(inputCol="prediction", outputCol="said", labels=["dog", "owl", "cat"])
    fitted = Pipeline(stages=[indexer, assembler, estimator, names]).fit(words)
    fitted.write().overwrite().save(str(tmp_path / "pipeline"))
    found = PipelineModel.load(str(tmp_path / "pipeline")).transform(words)
    assert found.filter("said = kind").count() > 360


def test_the_names_of_classes_come_from_the_labels_metadata(trained: tuple[Any, Any], rows: DataFrame) -> None:
    _, model = trained
    assert model.labels == ["dog", "owl", "cat"]
    # IndexToString finds them in the prediction's metadata.
    named = IndexToString(inputCol="prediction", outputCol="said").transform(model.transform(rows))
    assert named.filter("said = kind").count() > 360
    assert model.net.predict([[2.0, 0.0]])[0][0] == "dog"


@pytest.mark.parametrize("kind", ["ours", "pyspark's"])
def test_cross_validation_with_more_models_than_slots(kind: str, ours: SparkDLClassifier, rows: DataFrame) -> None:
    if kind == "ours":
        estimator: Any = ours.setWorkers(2)  # as many as the session has slots
        grid = ParamGridBuilder().addGrid(estimator.epochs, [1, 3]).build()
    else:
        estimator = LogisticRegression()
        grid = ParamGridBuilder().addGrid(estimator.maxIter, [1, 3]).build()
    evaluator = MulticlassClassificationEvaluator(metricName="accuracy")
    validator = CrossValidator(
        estimator=estimator, estimatorParamMaps=grid, evaluator=evaluator, numFolds=2, parallelism=2, seed=1
    )
    best = validator.fit(rows)
    assert len(best.avgMetrics) == 2
    assert accuracy(best.transform(rows)) > 0.8


def test_what_cannot_be_learned_from_is_told(ours: SparkDLClassifier, rows: DataFrame) -> None:
    with pytest.raises(ConfigurationError, match=r"Column 'kind' \(labelCol\) holds words\. Number them first"):
        ours.copy().setLabelCol("kind").fit(rows)
    with pytest.raises(ConfigurationError, match="has no column 'class'"):
        ours.copy().setLabelCol("class").fit(rows)
    for wrong in (float("inf"), 0.5, 2.0e9, -1.0):
        with pytest.raises(ConfigurationError, match=r"The largest label in the column 'label' \(labelCol\) is"):
            ours.fit(rows.select("features", functions.lit(wrong).alias("label")))
    with pytest.raises(ConfigurationError, match="handleInvalid is 'drop'"):
        ours.copy().setHandleInvalid("drop").fit(rows)
    with pytest.raises(ConfigurationError, match="no parameter 'maxIter'"):
        SparkDLClassifier(maxIter=3)
    with pytest.raises(ConfigurationError, match="has no trained net"):
        _ = SparkDLClassificationModel().numClasses


def test_the_number_of_classes_in_settings() -> None:
    asked: dict[str, Any] = {"data__classes": np.int64(5), "seed": 1}
    assert (_classes_in(asked), asked) == (5, {"seed": 1})
    assert _classes_in({"classes": "3", "data__classes": 3}) == 3
    assert _classes_in({"seed": 1}) is None
    with pytest.raises(ConfigurationError, match="number of classes twice: classes=3, data__classes=5"):
        _classes_in({"classes": 3, "data__classes": 5})
    with pytest.raises(ConfigurationError, match="settings has classes=some; it is a whole number"):
        _classes_in({"classes": "some"})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("label", r"is the parameter labelCol: SparkDLRegressor\(labelCol=…\)"),
        ("data__weight", "is the parameter weightCol"),
        ("workers", "is the parameter workers"),
        ("data", "is what fit gets"),
    ],
)
def test_settings_say_nothing_that_a_parameter_says(name: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"settings has '{name}', which {said}"):
        SparkDLRegressor(settings={name: "x", "seed": 1})._keywords()


def test_classes_without_a_row_are_told(
    rows: DataFrame, ours: SparkDLClassifier, capfd: pytest.CaptureFixture[str]
) -> None:
    assert (
        ours.copy().setLabelCol("y").setEpochs(1).fit(rows.selectExpr("features", "3 * label + 1 AS y")).numClasses == 8
    )
    said = "sparkdl-bench: the column 'y' holds 3 different labels and the largest is 7, so 5 of the 8 classes, 0 to 7,"
    assert said in capfd.readouterr().err


@pytest.mark.on_one_line
def test_rows_with_holes_train_and_are_predicted_by_the_rule(
    spark: SparkSession, ours: SparkDLClassifier, rows: DataFrame
) -> None:
    holes = spark.createDataFrame(
        [(None, 1.0), (Vectors.dense([1.0, float("nan")]), 0.0)], rows.select("features", "label").schema
    )
    mixed = rows.select("features", "label").union(holes)
    model = ours.setHandleInvalid("skip").fit(mixed)
    assert model.transform(mixed).count() == 400
    assert model.setHandleInvalid("keep").transform(mixed).filter("prediction is null").count() == 2


@pytest.mark.on_one_line
def test_rare_classes_count_by_their_weights(spark: SparkSession, ours: SparkDLClassifier) -> None:
    """Of two classes that overlap, one of 20 rows is found where it counts as much as the other."""
    rng = np.random.default_rng(4)
    labels = (np.arange(400) % 20 == 0).astype(float)
    points = rng.normal(size=400) + labels
    made = [(Vectors.dense([float(x)]), float(y)) for x, y in zip(points, labels, strict=True)]
    frame = spark.createDataFrame(made, ["features", "label"]).cache()

    def found(model: Any) -> int:
        return int(model.transform(frame).filter("label = 1 and prediction = 1").count())

    ours.setModel("softmax")
    assert found(ours.fit(frame)) < 5
    assert found(ours.copy({ours.classWeights: "balanced"}).fit(frame)) > 10
    with pytest.raises(ConfigurationError, match="that is 3 numbers for 2 classes"):
        ours.setClassWeights([1, 2, 3]).fit(frame)


@pytest.mark.parametrize("kind", ["ours", "pyspark's"])
def test_models_of_many_parameters_at_once(kind: str, ours: SparkDLClassifier, rows: DataFrame) -> None:
    """`fitMultiple`, as CrossValidator uses it: an iterator of (index, model), and the estimator stays as it was."""
    estimator: Any = ours if kind == "ours" else LogisticRegression()
    passes = estimator.epochs if kind == "ours" else estimator.maxIter
    models = dict(estimator.fitMultiple(rows, [{passes: 1}, {passes: 3, estimator.predictionCol: "p"}]))
    assert sorted(models) == [0, 1]
    assert [models[index].getPredictionCol() for index in (0, 1)] == ["prediction", "p"]
    assert not estimator.isSet("predictionCol")
    # A dict or a list of them as `params` of `fit`, as every estimator takes them.
    assert [type(each) for each in estimator.fit(rows, [{passes: 1}])] == [type(models[0])]


@pytest.mark.on_one_line
def test_training_goes_on_from_a_model(ours: SparkDLClassifier, rows: DataFrame, tmp_path: Path) -> None:
    first = ours.fit(rows)
    first.net.save(tmp_path / "net")
    untouched = ours.copy({ours.epochs: 0})
    for given in (first, first.net, str(tmp_path / "net"), tmp_path / "net" / "weights.npz"):
        again = untouched.setInitialModel(given).fit(rows)
        assert again.transform(rows).collect() == first.transform(rows).collect()
    with pytest.raises(ConfigurationError, match=r"initialModel of this SparkDLClassifier is a model in memory"):
        untouched.setInitialModel(first).write()
    untouched.setInitialModel(str(tmp_path / "net")).save(str(tmp_path / "estimator"))
    read = SparkDLClassifier.load(str(tmp_path / "estimator"))
    assert read.getInitialModel() == str(tmp_path / "net")
    with pytest.raises(ConfigurationError, match="initialModel is a int"):
        ours.copy().setInitialModel(3).fit(rows)


def test_features_are_standardised_unless_told_otherwise(ours: SparkDLClassifier, rows: DataFrame) -> None:
    """The units of the columns change nothing, nor does a column of one value."""
    near = rows.selectExpr("x", "y", "label")
    far = rows.selectExpr("x * 1e4 - 300 as x", "y * 1e-3 + 7 as y", "label")
    same = near.selectExpr("x", "y", "5.0 as z", "label")
    ours = ours.setFeaturesCols(["x", "y"])

    def likely(estimator: SparkDLClassifier, frame: DataFrame) -> np.ndarray:
        found = estimator.fit(frame).transform(frame).select("probability").collect()
        return np.array([row[0].toArray() for row in found])

    expected = likely(ours, near)
    np.testing.assert_allclose(likely(ours, far), expected, atol=5e-3)
    assert np.isfinite(likely(ours.copy().setFeaturesCols(["x", "y", "z"]), same)).all()
    plain = likely(ours.copy().setStandardization(False), near)
    assert np.abs(plain - expected).max() > 0.01
    for spelling in ("normalize", "data__normalize"):
        told = ours.copy().setSettings({**ours.getSettings(), spelling: "none"})
        np.testing.assert_array_equal(likely(told, near), plain)
    assert ours.getStandardization() is LogisticRegression().getStandardization() is True


@pytest.mark.on_one_line
def test_rows_to_test_on_are_told_by_a_column(ours: SparkDLClassifier, rows: DataFrame) -> None:
    """Rows that would teach the opposite are not trained on where the column says so."""
    wrong = rows.withColumn("label", (rows["label"] + 1) % 3).withColumn("held", functions.lit(True))
    both = rows.withColumn("held", functions.lit(None).cast("boolean")).union(wrong.select(*rows.columns, "held"))
    ours.setValidationIndicatorCol("held").setSettings({**ours.getSettings(), "keep_best": "off"})
    assert accuracy(ours.fit(both).transform(rows)) > 0.9
    for wanted in ("label", "nothing"):
        with pytest.raises(ConfigurationError, match=rf"Column '{wanted}' \(validationIndicatorCol\) is"):
            ours.copy().setValidationIndicatorCol(wanted).fit(both)


@pytest.mark.on_one_line
def test_plain_columns_are_features(ours: SparkDLClassifier, rows: DataFrame, tmp_path: Path) -> None:
    plain = rows.select("x", rows["y"].cast("float").alias("validation"), "label")
    model = ours.setFeaturesCols(["x", "validation"]).fit(plain)
    assert accuracy(model.transform(plain)) > 0.9
    assert (model.numFeatures, model.net.columns) == (2, ["x", "features_1"])
    model.save(str(tmp_path / "model"))
    again = SparkDLClassificationModel.load(str(tmp_path / "model"))
    assert again.getFeaturesCols() == ["x", "validation"]
    assert again.transform(plain).collect() == model.transform(plain).collect()
    with pytest.raises(ConfigurationError, match=r"has no column 'z' \(featuresCols\)"):
        ours.setFeaturesCols(["x", "z"]).fit(plain)


@pytest.mark.parametrize(
    ("settings", "loss"),
    [
        ({"loss": "bce"}, "binary-cross-entropy"),
        ({"loss__name": "BCEWithLogitsLoss"}, "binary-cross-entropy"),
        ({"loss": {"name": "cross_entropy", "delta": 1}}, "cross-entropy"),
        ({"seed": 3, "criterion": "mse"}, "mean-squared"),
        ({"seed": 3, "steps": 2}, None),
    ],
)
def test_a_loss_is_known_by_any_of_its_names(settings: dict[str, Any], loss: str | None) -> None:
    assert _asked(settings, "loss.name") == loss
