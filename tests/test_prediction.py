"""Trained models on DataFrames and arrays: the same numbers as a reference, in batch and in a stream."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import trained
from sparkdl_bench import ConfigurationError, Model, Trainer, load_model, models, saved

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkdl_bench import FitResult

# pyspark leaves the sockets of `collect` to the garbage collector.
pytestmark = [
    pytest.mark.usefixtures("sockets_end_here"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
NAMES = ["setosa", "other", "third"]


def net(tmp_path: Path, *layers: str) -> dict[str, Any]:
    path = tmp_path / "net.json"
    path.write_text(f'{{"name": "net", "input_shape": [1, 4, 4], "classes": 3, "layers": [{", ".join(layers)}]}}')
    return {"name": "file", "spec": str(path)}


CONV = (
    '{"name": "conv", "kind": "conv2d", "options": {"in": 1, "out": 4, "kernel": 3}, "initializer": "he-normal"}',
    '{"name": "relu", "kind": "relu"}',
    '{"name": "fc", "kind": "linear", "options": {"in": 16, "out": 3}, "initializer": "xavier-uniform"}',
)


def table(spark: SparkSession, count: int = 300) -> DataFrame:
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, count)
    rows = rng.normal(size=(count, 3)) * [1, 10, 0.1] + labels[:, None] * [2, -20, 0.2]
    values = [
        (index, *map(float, row), NAMES[label]) for index, (row, label) in enumerate(zip(rows, labels, strict=True))
    ]
    return spark.createDataFrame(values, "id int, a double, b double, c double, kind string")


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return table(spark).cache()


@pytest.fixture(scope="module")
def fitted(spark: SparkSession, frame: DataFrame, tmp_path_factory: pytest.TempPathFactory) -> FitResult:
    return Trainer(
        {"name": "mlp", "hidden": [16]},
        frame.drop("id"),
        label="kind",
        label_names=NAMES,
        normalize="standard",
        columns=["c", "a", "b"],
        batch=32,
        epochs=4,
        learning_rate=0.3,
        keep_best="accuracy",
        results=tmp_path_factory.mktemp("results"),
    ).fit(spark)


def reference(model: Model, weights: saved.Weights, rows: np.ndarray) -> np.ndarray:
    """The scores of a perceptron after standardisation, in fp64, from the saved numbers alone."""
    about = model._saved.input
    x = (rows - np.asarray(about["subtract"])) * np.asarray(about["multiply"])
    hidden = np.maximum(x @ weights["fc1.weight"].astype(float).T + weights["fc1.bias"], 0)
    return hidden @ weights["fc2.weight"].astype(float).T + weights["fc2.bias"]


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("which", ["last", "best"])
def test_the_numbers_are_the_references_on_executors_and_here(
    fitted: FitResult, frame: DataFrame, tmp_path: Path, which: str
) -> None:
    model = fitted.model(which)
    assert (model.columns, model.labels, model.shape) == (["c", "a", "b"], NAMES, (3,))
    found = model.transform(frame, label="name").orderBy("id").collect()
    rows = np.array([[row["c"], row["a"], row["b"]] for row in found])
    wanted = reference(model, fitted.weights(which), rows)
    np.testing.assert_allclose([row["rawPrediction"].toArray() for row in found], wanted, atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose([row["probability"].toArray() for row in found], softmax(wanted), atol=1e-5)
    assert [row["prediction"] for row in found] == list(wanted.argmax(axis=1))
    names = [NAMES[index] for index in wanted.argmax(axis=1)]
    assert [row["name"] for row in found] == names
    assert np.mean([row["name"] == row["kind"] for row in found]) > 0.8
    fitted.save(tmp_path / "model", which)
    for each in (model, load_model(tmp_path / "model")):
        labels, probabilities = each.predict(rows)
        assert list(labels) == names
        np.testing.assert_allclose(probabilities, softmax(wanted), atol=1e-5)


@pytest.mark.on_one_line
def test_a_convolution_net_is_the_references(spark: SparkSession, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    images = rng.integers(0, 255, size=(90, 16))
    rows = [(index, [float(value) for value in row], int(row[:8].mean() // 86)) for index, row in enumerate(images)]
    frame = spark.createDataFrame(rows, "id int, pixels array<double>, label int")
    data = {"table": frame.drop("id"), "classes": 3, "shape": [1, 4, 4], "held_as": "uint8", "normalize": "mean"}
    fitted = Trainer(net(tmp_path, *CONV), data, label="label", epochs=2, batch=16, results=tmp_path).fit(spark)
    weights = {name: values.astype(float) for name, values in fitted.weights().items()}
    about = fitted.model()._saved.input
    x = (images / 255 - np.asarray(about["subtract"])).reshape(-1, 4, 4)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
    conv = np.einsum("bhwij,oij->bohw", windows, weights["conv.weight"][:, 0]) + weights["conv.bias"][:, None, None]
    scores = np.maximum(conv, 0).reshape(len(x), -1) @ weights["fc.weight"].T + weights["fc.bias"]
    found = fitted.model().transform(frame).orderBy("id").collect()
    np.testing.assert_allclose([row["rawPrediction"].toArray() for row in found], scores, atol=1e-5)
    labels, probabilities = fitted.model().predict(images.reshape(-1, 1, 4, 4))
    assert list(labels) == list(scores.argmax(axis=1))
    np.testing.assert_allclose(probabilities, softmax(scores), atol=1e-5)


def test_a_stream_gets_the_same_predictions(fitted: FitResult, frame: DataFrame, tmp_path: Path) -> None:
    spark = frame.sparkSession
    frame.repartition(5).write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema(frame.schema).option("maxFilesPerTrigger", 2).parquet(str(tmp_path / "rows"))
    predicted = fitted.model().transform(stream)
    assert predicted.isStreaming
    writing = predicted.writeStream.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True)
    query = writing.format("parquet").start(str(tmp_path / "out"))
    assert query.awaitTermination(120)
    streamed = spark.read.parquet(str(tmp_path / "out")).orderBy("id").collect()
    assert streamed == fitted.model().transform(frame).orderBy("id").collect()


@pytest.mark.on_one_line
def test_engines_that_are_python_processes_predict_the_same(fitted: FitResult, frame: DataFrame) -> None:
    own, other = (
        [row["rawPrediction"].toArray() for row in fitted.model().transform(frame, **engine).orderBy("id").collect()]
        for engine in ({}, {"engine__name": "numpy"})
    )
    np.testing.assert_allclose(own, other, atol=1e-5)


def test_no_view_is_left_behind(fitted: FitResult, frame: DataFrame) -> None:
    spark = frame.sparkSession
    before = {each.name for each in spark.catalog.listTables("global_temp")}
    fitted.model().transform(frame)
    with pytest.raises(ConfigurationError, match="has no column 'b', which the model was trained on"):
        fitted.model().transform(frame.drop("b"))
    assert {each.name for each in spark.catalog.listTables("global_temp")} == before


def test_rows_without_values_follow_the_rule(fitted: FitResult, frame: DataFrame) -> None:
    from pyspark.sql import functions

    holes = frame.withColumn("b", functions.when(functions.col("id") % 50 == 7, None).otherwise(functions.col("b")))
    with pytest.raises(Exception, match=r"Row \d+ of partition \d+ has no prediction: column 'b' is null"):
        fitted.model().transform(holes).collect()
    assert fitted.model().transform(holes, handle_invalid="skip").count() == 294
    kept = fitted.model().transform(holes, handle_invalid="keep").filter("prediction is null").collect()
    assert sorted(row["id"] for row in kept) == list(range(7, 300, 50))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"features": "a"}, r"1 numeric column \(a\), and the model takes rows of 3 values. It was trained on c, a, b"),
        ({"features": ["a", "b", "kind"]}, "Column 'kind' is of type string"),
        ({"prediction": "a"}, "has a column 'a' already"),
        ({"handle_invalid": "drop"}, "handle_invalid is 'drop'"),
        ({"batch": 0}, "batch is 0"),
        ({"threads": 2}, "transform has no argument 'threads'"),
        ({"engine__nme": "numpy"}, r"engine\.nme"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_job(
    fitted: FitResult, frame: DataFrame, jobs: Any, arguments: dict[str, Any], words: str
) -> None:
    before = jobs()
    with pytest.raises(ConfigurationError, match=words) as refusal:
        fitted.model().transform(frame, **arguments)
    assert "\n" not in str(refusal.value)
    assert jobs() == before


def softmax_model(columns: list[str]) -> Model:
    layer = '{"name": "fc", "kind": "linear", "options": {"in": 2, "out": 2}, "initializer": "zero"}'
    text = f'{{"name": "flat", "input_shape": [2], "classes": 2, "layers": [{layer}]}}'
    spec = models.read(text)
    specification = {
        "name": "flat",
        "input_shape": [2],
        "classes": 2,
        "layers": [{"name": "fc", "kind": "linear", "options": {"in": 2, "out": 2}, "initializer": "zero"}],
    }
    weights = {place.name: np.ones(place.shape, np.float32) for place in spec.parameters}
    weights["fc.weight"][1] = 2
    return Model(saved.SavedModel(specification, weights, {"shape": [2], "columns": columns, "labels": ["no", "yes"]}))


def test_arrays_need_no_spark() -> None:
    model = softmax_model(["a", "b"])
    labels, probabilities = model.predict([[1, 1], [-1, -1]])
    assert list(labels) == ["yes", "no"]
    np.testing.assert_allclose(probabilities[0], [1 / (1 + np.e**2), 1 / (1 + np.e**-2)], rtol=1e-6)
    assert list(model.predict([3, 3])[0]) == ["yes"]
    empty, none = model.predict(np.zeros((0, 2)))
    assert (empty.shape, none.shape) == ((0,), (0, 2))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[1, 2, 3]], r"has the shape \(1, 3\), and the model takes rows of 2 values"),
        ([[1, np.nan]], r"Value 1 \(column 'b'\) of row 0 is nan"),
        ([["x", "y"]], "no array of numbers"),
    ],
)
def test_arrays_that_do_not_fit(rows: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        softmax_model(["a", "b"]).predict(rows)


@pytest.mark.parametrize(
    "rows",
    [
        {"columns": ["a", "b"]},
        {"shape": [3]},
        {"shape": "2"},
        {"shape": [1, 2], "crop": 1},
        {"shape": [2], "labels": ["one"]},
        {"shape": [2], "subtract": [1], "multiply": [1]},
        {"shape": [2], "subtract": [1, 1]},
        {"shape": [2], "factor": "0.5"},
        {"shape": [2], "factor": float("inf")},
        {"shape": [-1, -2]},
    ],
)
def test_rows_that_do_not_become_the_models_are_refused(tmp_path: Path, rows: dict[str, Any]) -> None:
    model = softmax_model([])
    saved.save(tmp_path, model.specification, model._saved.weights, rows)
    with pytest.raises(ConfigurationError, match=r"input\.json of the saved model flat does not say"):
        load_model(tmp_path)


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    model = softmax_model([])
    saved.save(tmp_path, model.specification, {"fc.weight": np.zeros((2, 3), np.float32)})
    with pytest.raises(ConfigurationError, match=r"'fc\.weight' has the shape \(2, 3\)"):
        load_model(tmp_path)
    with pytest.raises(ConfigurationError, match="3 labels, and the model tells 2 classes apart"):
        model.with_labels(["a", "b", "c"])


def test_a_frame_of_pandas_is_taken_by_its_names() -> None:
    pandas = pytest.importorskip("pandas")
    model = trained.perceptron(columns=["a", "b"])
    values = np.array([[1.0, 5.0], [2.0, -7.0]])
    wanted = model.scores(values)
    frame = pandas.DataFrame({"b": values[:, 1], "id": ["first", "second"], "a": values[:, 0]})
    np.testing.assert_array_equal(model.scores(frame), wanted)
    np.testing.assert_array_equal(model.scores(pandas.DataFrame(values)), wanted)  # which has no names
    with pytest.raises(ConfigurationError, match=r"^The frame has no column 'b', which is .* Its columns are id, a\."):
        model.scores(frame.drop(columns="b"))
    lists = trained.perceptron(columns=["features"])
    np.testing.assert_array_equal(lists.scores(pandas.DataFrame({"id": [1, 2], "features": [*values]})), wanted)
    np.testing.assert_array_equal(lists.scores(pandas.DataFrame(values, columns=["x", "y"])), wanted)
