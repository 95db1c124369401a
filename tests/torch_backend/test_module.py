"""`SparkDLClassifier` and `SparkDLRegressor` with a PyTorch module in place of a net by name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip(
    "torch", reason="PyTorch is not installed: `make test-torch` runs these tests in its own environment"
)

import torch
from click.testing import CliRunner
from pyspark import cloudpickle
from pyspark.ml import Pipeline
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.evaluation import MulticlassClassificationEvaluator, RegressionEvaluator
from pyspark.ml.feature import IndexToString, StringIndexer, VectorAssembler
from pyspark.ml.linalg import Vectors
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder
from pyspark.sql import functions
from torch import nn

from sparkdl_bench import load_model, load_weights
from sparkdl_bench.cli import cli
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.ml import SparkDLClassificationModel, SparkDLClassifier, SparkDLRegressor
from sparkdl_bench.torch import ModuleModel
from trained import perceptron

pytestmark = [
    pytest.mark.usefixtures("sockets_end_here"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:unclosed running multiprocessing pool:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"),
]
cloudpickle.register_pickle_by_value(sys.modules[__name__])
NAMES = ["cat", "dog", "owl"]


class Branching(nn.Module):
    """A user's own class, with a skip connection that no name of ours stands for."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, 8), nn.Linear(8 + width, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.cat([torch.tanh(self.first(x)), x], dim=1))


def net(width: int = 2, outputs: int = 3) -> nn.Module:
    torch.manual_seed(5)
    return Branching(width, outputs)


@pytest.fixture(scope="module")
def words(spark: SparkSession) -> DataFrame:
    rng = np.random.default_rng(7)
    labels = rng.choice(3, 300, p=[0.2, 0.5, 0.3])
    points = rng.normal(size=(300, 2)) * 0.4 + np.array([[0, 0], [2, 0], [0, 2]])[labels]
    rows = [(1e3 * float(x), float(y), NAMES[label]) for (x, y), label in zip(points, labels, strict=True)]
    return spark.createDataFrame(rows, "x double, y double, kind string").cache()


@pytest.fixture(scope="module")
def rows(words: DataFrame) -> DataFrame:
    indexed = StringIndexer(inputCol="kind", outputCol="label").fit(words).transform(words)
    return VectorAssembler(inputCols=["x", "y"], outputCol="features").transform(indexed).cache()


def classifier(results: Path, **more: Any) -> SparkDLClassifier:
    settings = {"learning_rate": 0.5, "results": str(results), "seed": 3, **more.pop("settings", {})}
    return SparkDLClassifier(**{"model": net(), "batch": 32, "epochs": 6, "settings": settings, **more})


@pytest.fixture(scope="module")
def trained(rows: DataFrame, tmp_path_factory: pytest.TempPathFactory) -> SparkDLClassificationModel:
    return classifier(tmp_path_factory.mktemp("results")).fit(rows)


def accuracy(frame: DataFrame) -> float:
    return float(MulticlassClassificationEvaluator(metricName="accuracy").evaluate(frame))


def test_columns_are_those_of_spark_ml(trained: SparkDLClassificationModel, rows: DataFrame) -> None:
    found, theirs = trained.transform(rows), LogisticRegression(maxIter=3).fit(rows).transform(rows)
    assert {field.name: field.dataType for field in found.schema} == {
        field.name: field.dataType for field in theirs.schema
    }
    assert accuracy(found) > 0.95
    assert (trained.numClasses, trained.numFeatures, sorted(trained.labels)) == (3, 2, NAMES)
    for row in found.limit(3).collect():
        assert trained.predict(row["features"]) == row["prediction"]
        np.testing.assert_allclose(trained.predictProbability(row["features"]), row["probability"], atol=1e-6)
    assert trained.net.evaluate(rows)["accuracy"] == pytest.approx(accuracy(found))


def test_two_workers_give_what_one_process_gives(rows: DataFrame, tmp_path: Path) -> None:
    """Without DDP, by a plain loop over the same steps: the batch is the whole set."""
    near = rows.selectExpr("x / 1000 as x", "y", "label")
    estimator = classifier(tmp_path, batch=near.count(), epochs=5, standardization=False, featuresCols=["x", "y"])
    found = estimator.fit(near).net.state_dict()
    module = net()
    taken = near.collect()
    x = torch.tensor([[row.x, row.y] for row in taken], dtype=torch.float32)
    y = torch.tensor([int(row.label) for row in taken])
    for _ in range(5):
        module.zero_grad()
        nn.functional.cross_entropy(module(x), y).backward()
        with torch.no_grad():
            for each in module.parameters():
                each -= 0.5 * each.grad
    for name, value in module.state_dict().items():
        np.testing.assert_allclose(found[name], value, atol=1e-5)
        assert not torch.allclose(value, net().state_dict()[name], atol=1e-3)


def test_a_pipeline_from_words_to_words_and_what_is_written(words: DataFrame, tmp_path: Path) -> None:
    indexer = StringIndexer(inputCol="kind", outputCol="label")
    back = IndexToString(inputCol="prediction", outputCol="said")
    pipeline = Pipeline(stages=[indexer, classifier(tmp_path / "results", featuresCols=["x", "y"]), back])
    fitted = pipeline.fit(words)
    said = fitted.transform(words)
    assert said.filter("said = kind").count() > 280
    stage = fitted.stages[1]
    stage.write().save(str(tmp_path / "stage"))
    read = SparkDLClassificationModel.load(str(tmp_path / "stage"))
    assert isinstance(read.net, ModuleModel)
    assert read.net.module is None
    indexed = fitted.stages[0].transform(words)
    assert (
        read.transform(indexed).select("prediction").collect()
        == stage.transform(indexed).select("prediction").collect()
    )
    one = indexed.first()
    assert read.predict(Vectors.dense([one["x"], one["y"]])) in (0.0, 1.0, 2.0)
    stage.net.save(tmp_path / "net")
    points = np.array([[0.0, 0.0], [2e3, 0.0]], np.float32)
    np.testing.assert_allclose(load_model(tmp_path / "net").scores(points), stage.net.scores(points), atol=1e-5)
    for what in (pipeline.getStages()[1], pipeline):
        with pytest.raises(ConfigurationError, match="an estimator is written as text"):
            what.write().save(str(tmp_path / "estimator"))


def test_weights_count_as_rows_do(rows: DataFrame, tmp_path: Path) -> None:
    weighted = rows.withColumn("w", functions.when(rows["x"] > 1000, 2.0).when(rows["y"] > 1, 0.0).otherwise(1.0))
    repeated = weighted.filter("w > 0").union(weighted.filter("w > 1")).cache()

    def fit(frame: DataFrame, **more: Any) -> np.ndarray:
        found = classifier(tmp_path, batch=frame.count(), settings={"learning_rate": 0.2}, **more).fit(frame)
        return found.net.scores(np.array([[0, 0], [2e3, 0], [0, 2]], np.float32))

    # Spark ML's own deviations are those of a sample, so that rows twice are not quite rows of weight 2.
    np.testing.assert_allclose(fit(weighted, weightCol="w"), fit(repeated), atol=2e-2)
    assert np.abs(fit(weighted) - fit(repeated)).max() > 0.1
    with pytest.raises(ConfigurationError, match="rows have a weight"):
        fit(weighted.withColumn("w", functions.lit(-1.0)), weightCol="w")


def test_rows_to_test_on_choose_the_epoch(rows: DataFrame, tmp_path: Path) -> None:
    held = rows.withColumn("held", functions.rand(3) < 0.3)
    found = classifier(tmp_path, validationIndicatorCol="held", settings={"early_stopping": 2}).fit(held)
    assert accuracy(found.transform(rows)) > 0.9
    again = classifier(tmp_path, epochs=0, initialModel=found).fit(rows)
    for name, value in found.net.state_dict().items():
        assert torch.equal(value, again.net.state_dict()[name])


def test_rows_with_holes_by_the_rule(rows: DataFrame, tmp_path: Path) -> None:
    holed = rows.select(functions.when(rows["y"] > 2, None).otherwise(rows["x"]).alias("x"), "y", "label")
    whole = holed.filter("x is not null").count()
    fitted = classifier(tmp_path, featuresCols=["x", "y"], handleInvalid="skip").fit(holed)
    assert fitted.transform(holed).count() == whole < 300
    assert fitted.setHandleInvalid("keep").transform(holed).filter("prediction is null").count() == 300 - whole


def test_a_regression_and_cross_validation(rows: DataFrame, tmp_path: Path) -> None:
    line = rows.select("features", (rows["x"] * 5e-4 + rows["y"] * 0.25).alias("label"))
    ours = SparkDLRegressor(
        model=net(outputs=1),
        batch=32,
        epochs=10,
        settings={"learning_rate": 0.02, "optimizer": "adam", "schedule": "cosine", "results": str(tmp_path)},
    )
    found = ours.fit(line).transform(line)
    assert found.columns == ["features", "label", "prediction"]
    assert RegressionEvaluator(metricName="r2").evaluate(found) > 0.9
    grid = ParamGridBuilder().addGrid(ours.epochs, [0, 10]).build()
    search = CrossValidator(estimator=ours, estimatorParamMaps=grid, evaluator=RegressionEvaluator(), numFolds=2)
    before, after = search.fit(line).avgMetrics
    assert after < before


def test_what_it_cannot_is_refused_before_any_job(rows: DataFrame, tmp_path: Path) -> None:
    for more, why in (
        ({"model": net(3)}, r"does not take rows of 2 values .an input of shape .2, 2.."),
        ({"model": net(outputs=2)}, r"output of shape .2, 2. for two rows, and these labels need .2, 3."),
        ({"settings": {"engine": "numpy"}}, "settings has 'engine', which the training of a PyTorch module has not"),
        ({"settings": {"optimizer": "lars"}}, "optimizer is 'lars'; of a PyTorch module valid are sgd"),
        ({"settings": {"beta1": 0.5}}, "The optimizer sgd has no 'beta1'"),
        ({"settings": {"keep_best": "loss"}}, "name a column that tells them, validationIndicatorCol"),
        ({"workers": "2..4"}, "workers is '2..4', a range"),
        ({"classWeights": [1.0]}, "classWeights has 1 numbers, and there are 3 classes"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            classifier(tmp_path, **more).fit(rows)
    assert not list(tmp_path.iterdir())


def test_any_count_of_rows_trains(rows: DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """300 rows in steps of 23: of the last step's one row, rank 1 of 2 has none."""
    assert accuracy(classifier(tmp_path, batch=23).fit(rows).transform(rows)) > 0.9
    assert "left out" not in capsys.readouterr().err
    normalized = nn.Sequential(nn.BatchNorm1d(2), net())
    assert accuracy(classifier(tmp_path, model=normalized, batch=23).fit(rows).transform(rows)) > 0.9
    assert "so that step is left out" in capsys.readouterr().err


def test_a_module_starts_from_a_file_of_weights(rows: DataFrame, tmp_path: Path) -> None:
    torch.save(net().state_dict(), tmp_path / "net.pt")
    other = Branching(2, 3)
    found = classifier(tmp_path, model=other, epochs=0, initialModel=str(tmp_path / "net.pt")).fit(rows)
    assert all(torch.equal(value, net().state_dict()[name]) for name, value in found.net.state_dict().items())
    with pytest.raises(ConfigurationError, match=r"do not fit the module: .*'second\.weight' has the shape \(3, 10\)"):
        classifier(tmp_path, model=net(outputs=2), settings={"classes": 2}, initialModel=str(tmp_path / "net.pt")).fit(
            rows
        )


def test_the_module_that_was_given_stays_as_it_is(rows: DataFrame, tmp_path: Path) -> None:
    given = net()
    estimator = classifier(tmp_path, model=given, epochs=1)
    fitted = estimator.copy().fit(rows)
    assert estimator.getModel() is given
    assert all(torch.equal(value, net().state_dict()[name]) for name, value in given.state_dict().items())
    assert not torch.equal(fitted.net.state_dict()["first.weight"], given.state_dict()["first.weight"])


def untrained(labels: list[str] | None = None, **facts: Any) -> ModuleModel:
    named = {"width": 2, "classes": 3, "labels": labels or [], "columns": ["x", "y"], "subtract": [], "multiply": []}
    return ModuleModel(net(), {**named, **facts})


def test_arrays_are_checked_as_a_plain_models() -> None:
    model = untrained()
    for rows, told in (
        ([[1.0, float("nan")]], r"Value 1 \(column 'y'\) of row 0 is nan"),
        ([["a", "b"]], "no array of numbers"),
        ([[1.0]], r"has the shape \(1, 1\), and the model takes rows of 2 values"),
    ):
        with pytest.raises(ConfigurationError, match=told):
            model.predict(rows)
    with pytest.raises(ConfigurationError, match="There are 2 labels, and the model tells 3 classes apart"):
        model.with_labels(["a", "b"])
    with pytest.raises(ConfigurationError, match="batch is 0; it is how many rows"):
        model._with_batch(0)
    points = np.random.default_rng(1).normal(size=(7, 2)).astype(np.float32)
    np.testing.assert_allclose(model._with_batch(2).scores(points), model.scores(points), rtol=1e-5)


def test_it_is_exported_as_far_as_a_module_can(tmp_path: Path) -> None:
    points = np.random.default_rng(1).normal(size=(5, 2)).astype(np.float32)
    for facts in ({}, {"subtract": [1.0, 2.0], "multiply": [0.5, 4.0]}):
        model = untrained(**facts)
        assert (model.torch_module() is model.module) == (not facts)
        with torch.inference_mode():
            found = model.torch_module()(torch.from_numpy(points)).numpy()
        np.testing.assert_allclose(found, model.scores(points), rtol=1e-5, atol=1e-6)
        model.export(tmp_path / "net.pt2")
        computed = torch.export.load(tmp_path / "net.pt2").module()(torch.from_numpy(points)).detach().numpy()
        np.testing.assert_allclose(computed, model.scores(points), rtol=1e-5, atol=1e-6)
        model.export(tmp_path / "net.pt")
        state = torch.load(tmp_path / "net.pt", weights_only=True)
        assert all(torch.equal(value, model.state_dict()[name]) for name, value in state.items())
        model.export(tmp_path / "net.npz")
        assert load_weights(tmp_path / "net.npz").keys() == state.keys()
        model.save(tmp_path / "model")
        again = load_model(tmp_path / "model")
        again.export(tmp_path / "again.pt2")
        computed = torch.export.load(tmp_path / "again.pt2").module()(torch.from_numpy(points)).detach().numpy()
        np.testing.assert_allclose(computed, model.scores(points), rtol=1e-5, atol=1e-6)
    for given, told in ((("net.onnx",), "The suffix of 'net.onnx'"), (("net", "onnx"), "There is no format 'onnx'")):
        with pytest.raises(
            ConfigurationError, match=rf"^{told}.* of a PyTorch module\. Valid: \.pt2 \(torch-export\); \.pt "
        ):
            model.export(*given)


def test_models_of_both_kinds_replace_each_other_in_a_folder(tmp_path: Path) -> None:
    plain = perceptron()
    plain.save(tmp_path)
    untrained().save(tmp_path)
    assert isinstance(load_model(tmp_path), ModuleModel)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["module.pt2", "torch.json"]
    plain.save(tmp_path)
    assert repr(load_model(tmp_path)) == repr(plain)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["input.json", "model.json", "weights.npz"]


def test_the_command_line_exports_and_predicts_by_it(rows: DataFrame, tmp_path: Path) -> None:
    model = untrained(NAMES)
    predicted = model.transform(rows.select("x", "y"), batch=16, label="kind").limit(5).toPandas()
    labels, _ = model.predict(predicted)  # a frame's columns by their names
    assert list(predicted["kind"]) == list(labels)
    model.save(tmp_path / "model")
    done = CliRunner().invoke(cli, ["export", str(tmp_path / "model"), "-o", str(tmp_path / "net.pt2")])
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(cli, ["export", str(tmp_path / "model"), "-o", str(tmp_path / "net.onnx")])
    assert done.exit_code == 2
    assert "Valid: .pt2 (torch-export)" in done.output
