"""Data sources through the entry points of Python: DataFrames, files, statistics."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import CommandLine
from sparkdl_bench import frames
from sparkdl_bench.comparison import look_table
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.trainer import Trainer, data_to_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCES = ["digits", "idx", "csv", "table"]


def table(rows: int = 600) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Three classes of points in four dimensions, far apart."""
    random = np.random.default_rng(0)
    labels = np.arange(rows) % 3
    return random.normal(size=(rows, 4)) + 4 * np.eye(3, 4)[labels], labels


def frame(spark: SparkSession) -> DataFrame:
    values, labels = table()
    rows = [(int(label), [float(value) for value in row]) for label, row in zip(labels, values, strict=True)]
    return spark.createDataFrame(rows, "y int, x array<double>").repartition(5)


def trainer(data: Any, tmp_path: Path, **settings: Any) -> Trainer:
    common = {"workers": 2, "batch": 30, "epochs": 3, "learning_rate": 0.3, "classes": 3, "label": "y"}
    cache = {"data__cache_dir": (tmp_path / "cache").as_uri()}
    return Trainer("softmax", data, results=str(tmp_path / "results"), **{**common, **cache, **settings})


def test_a_data_frame_trains_and_its_rows_can_be_had_again(spark: SparkSession, tmp_path: Path) -> None:
    fitted = trainer(frame(spark), tmp_path).fit(spark)
    assert fitted.summary["final"]["test_accuracy"] > 0.95
    assert Path(fitted.decoded_dir.removeprefix("file:")).is_dir()
    # A DataFrame alone is standardised; a dict says all itself.
    decoded = {"source": "table", "decoded_dir": fitted.decoded_dir, "normalize": "standard"}
    again = trainer(decoded, tmp_path).fit(spark)
    other = trainer(decoded, tmp_path, workers=1).fit(spark)
    for name, weights in fitted.weights().items():
        np.testing.assert_array_equal(weights, again.weights()[name])
        np.testing.assert_allclose(weights, other.weights()[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("package", ["ml", "mllib"])
def test_vectors_and_rows_of_their_own_to_test_on(spark: SparkSession, tmp_path: Path, package: str) -> None:
    Vectors = import_module(f"pyspark.{package}.linalg").Vectors
    values, labels = table()
    rows = [
        (int(label), Vectors.dense(row) if index % 2 else Vectors.sparse(4, range(4), list(row)))
        for index, (label, row) in enumerate(zip(labels, values, strict=True))
    ]
    whole = spark.createDataFrame(rows, ["y", "x"])
    fitted = trainer({"table": whole, "test_table": whole.limit(60)}, tmp_path).fit(spark)
    assert fitted.summary["final"]["test_accuracy"] > 0.95
    run = json.loads((fitted.results_dir / "run.json").read_text())
    assert (run["data"]["train_rows"], run["data"]["test_rows"]) == (600, 60)


def test_names_of_frames_go_with_the_call(spark: SparkSession) -> None:
    def names() -> set[str]:
        return {each.name for each in spark.catalog.listTables("global_temp")}

    before = names()
    with frames.named({"table": frame(spark), "label": "y"}) as data:
        assert isinstance(data, dict)
        assert data["label"] == "y"
        assert str(data["table"]).startswith("global_temp.sparkdl_")
        assert names() > before
    assert names() == before
    with frames.named("digits") as data:
        assert data == "digits"


def test_two_columns_of_one_name_are_refused(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1.0, 2.0, 0), (2.0, 1.0, 1)], ["x", "X", "label"])
    said = (
        "The DataFrame has more than one column 'x' (Spark ignores case), and Spark cannot tell them apart. Rename "
        "one: frame.toDF(…) takes new names for all columns."
    )
    with pytest.raises(ConfigurationError) as refused:
        Trainer(model="mlp", data=frame, workers=1).fit(spark)
    assert str(refused.value) == said
    with pytest.raises(ConfigurationError) as refused:
        look_table.of_frame(frame, None)
    assert str(refused.value) == said


def test_a_bad_row_of_a_frame_is_told(spark: SparkSession, tmp_path: Path) -> None:
    bad = frame(spark).union(spark.createDataFrame([(1, [1.0, 2.0])], "y int, x array<double>"))
    with pytest.raises(ConfigurationError, match="the row has 2 values") as told:
        trainer(bad, tmp_path).fit(spark)
    assert "of the training rows (DataFrame)" in str(told.value)
    assert "byte offset" not in str(told.value)
    fitted = trainer(bad, tmp_path, data__on_error="skip").fit(spark)
    run = json.loads((fitted.results_dir / "run.json").read_text())
    assert run["data"]["skipped"]["count"] == 1


@pytest.mark.usefixtures("sockets_end_here")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_the_classes_of_a_frame_are_those_that_it_holds(spark: SparkSession, tmp_path: Path) -> None:
    named = frame(spark).selectExpr("CASE y WHEN 0 THEN 'low' WHEN 1 THEN 'high' ELSE 'mid' END AS kind", "x", "y")
    settings = {"epochs": 1, "batch": 30, "results": str(tmp_path)}
    # Without a session: the active one.
    fitted = Trainer("softmax", named.select("kind", "x"), label="kind", **settings).fit()
    run = json.loads((fitted.results_dir / "run.json").read_text())
    assert run["configuration"]["data.label_names"] == "high,low,mid"
    assert (3,) in [values.shape for values in fitted.weights().values()]
    for column, found in (
        ("y", {"data.classes": "3"}),
        ("CAST(y AS double) AS y", {"data.classes": "3"}),
        ("CAST(y AS string) AS y", {"data.classes": "3"}),
        ("y = 1 AS y", {"data.classes": "2"}),
        ("0 AS y", {"data.classes": "2"}),
        ("-y AS y", {"data.classes": "2"}),
        ("1e9 * y AS y", {}),
        ("CAST(NULL AS int) AS y", {}),
        ("array(y) AS y", {}),
    ):
        label = {"data.label": "y"}
        assert frames.classed(label, named.selectExpr(column, "x")) == {**label, **found}, column
    for told in ({"data.classes": "7"}, {"data.label_names": "a,b"}, {"loss.name": "huber"}):
        label = {"data.label": "y", **told}
        assert frames.classed(label, named) == label


@pytest.mark.usefixtures("sockets_end_here")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_classes_without_a_row_are_told(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    rows = spark.range(12).selectExpr("id AS x", "id % 3 AS y")
    label = {"data.label": "y"}
    for whole in ("y", "0 AS y", "CAST(y AS double) AS y", "y = 1 AS y", "IF(y = 2, -1, y) AS y", "y / 2 AS y"):
        frames.classed(label, rows.selectExpr(whole, "x"))
    assert "have no row" not in capfd.readouterr().err
    assert frames.classed(label, rows.selectExpr("3 * y + 1 AS y", "x"))["data.classes"] == "8"
    said = "sparkdl-bench: the column 'y' holds 3 different labels and the largest is 7, so 5 of the 8 classes, 0 to 7,"
    assert said in capfd.readouterr().err


@pytest.mark.parametrize(
    ("label", "said"),
    [
        (
            "'a,b' || y",
            "The label's column 'y' holds 'a,b0', which cannot be the name of a class: names are not empty and have no "
            "comma and no space at either end. Rename it, or number the words with StringIndexer of pyspark.ml.feature "
            "and name its output with label='…'.",
        ),
        (
            "'yes'",
            "The label's column 'y' holds one word only, 'yes', so there is nothing to tell apart. Name another column "
            "with label='…', or bring rows of another class.",
        ),
        (
            "'w' || lpad(id, 4, '0')",
            "The label's column 'y' holds more than 1000 different words, such as w0000, w0001, w0002 and 998 more, so "
            "it is no class. Name another column with label='…'.",
        ),
    ],
)
@pytest.mark.usefixtures("sockets_end_here")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_words_that_are_no_classes_are_refused(spark: SparkSession, label: str, said: str) -> None:
    rows = spark.range(1001).selectExpr("id", "id % 3 AS y").selectExpr(f"{label} AS y", "id AS x")
    with pytest.raises(ConfigurationError) as refused:
        frames.classed({"data.label": "y"}, rows)
    assert str(refused.value) == said


def test_wrong_settings_are_refused_without_a_job(spark: SparkSession, tmp_path: Path, jobs: Callable[[], int]) -> None:
    before = jobs()
    with pytest.raises(ConfigurationError, match=r"'data\.label' names the column 'z'"):
        trainer(frame(spark), tmp_path, label="z").fit(spark)
    with pytest.raises(ConfigurationError, match="nowhere"):
        trainer({"source": "csv", "path": str(tmp_path / "nowhere.csv")}, tmp_path).fit(spark)
    with pytest.raises(ConfigurationError, match=r"'data\.classes' is '3', and the data source 'digits' does not"):
        trainer("digits", tmp_path).fit(spark)
    assert jobs() == before


def test_csv_and_its_statistics_from_the_command_line(tmp_path: Path, command_line: CommandLine) -> None:
    values, labels = table()
    lines = [
        ",".join([*(f"{value:.6f}" for value in row), str(label)]) for row, label in zip(values, labels, strict=True)
    ]
    (tmp_path / "points.csv").write_text("a,b,c,d,class\n" + "\n".join(lines) + "\n")
    conf = tmp_path / "points.toml"
    conf.write_text(f"""
workers = 2
batch = 30
epochs = 3
results = {json.dumps(str(tmp_path / "results"))}
[model]
name = "softmax"
[optimizer]
learning_rate = 0.3
[data]
source = "csv"
path = {json.dumps(str(tmp_path / "points.csv"))}
header = true
label = "class"
classes = 3
normalize = "standard"
cache_dir = {json.dumps((tmp_path / "cache").as_uri())}
[spark]
master = "local[2]"
""")
    done = command_line.run("data", "stats", str(conf))
    assert done.returncode == 0, done.stderr
    assert "train: 600 rows" in done.stdout
    (folder,) = (tmp_path / "results").iterdir()
    found = json.loads((folder / "statistics.json").read_text())
    rounded = np.array([[float(word) for word in line.split(",")[:4]] for line in lines], dtype=np.float32)
    np.testing.assert_allclose(found["train"]["mean"], rounded.astype(np.float64).mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(found["train"]["standard_deviation"], rounded.astype(np.float64).std(axis=0), rtol=1e-9)
    assert found["train"]["labels"] == {"0": 200, "1": 200, "2": 200}
    done = command_line.run("run", str(conf))
    assert done.returncode == 0, done.stderr
    accuracy = float(done.stdout.split("test accuracy")[1].split("%")[0])
    assert accuracy > 95
    wrong = command_line.run("data", "stats", str(conf), "--set", "data.label=klass")
    assert wrong.returncode == 2
    assert "'data.label' is 'klass'" in wrong.stderr


@given(st.one_of(st.text(), st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.none(), st.binary()))))
def test_any_data_argument_is_settings_or_an_error_of_ours(data: Any) -> None:
    try:
        found = data_to_settings(data, SOURCES)
    except ConfigurationError:
        return
    assert all(isinstance(key, str) and isinstance(value, str) for key, value in found.items())


@given(st.one_of(st.integers(), st.none(), st.lists(st.integers())))
def test_what_is_no_data_is_named(data: Any) -> None:
    with pytest.raises(ConfigurationError, match=type(data).__name__):
        data_to_settings(data, SOURCES)


class Column:
    """As much of a DataFrame with one column of labels as `frames.classed` looks at."""

    sparkSession = createOrReplaceGlobalTempView = None

    def __init__(self, kind: str, values: list[str]) -> None:
        self.dtypes, self._values = [("y", kind)], values

    def select(self, *_: str) -> Column:
        return self

    distinct = select

    def limit(self, _: int) -> Column:
        return self

    def collect(self) -> list[tuple[str]]:
        return [(value,) for value in self._values]


@pytest.mark.parametrize(
    ("words", "ignored", "found"),
    [
        (["0", "1", "2", "255"], "255", {"data.classes": "3"}),
        (["0", "1.0", " 2 ", "-1"], "-1", {"data.classes": "3"}),
        (["cat", "dog", "-1"], "-1", {"data.label_names": "cat,dog"}),
        (["0", "1", "²"], "", {"data.label_names": "0,1,²"}),
        (["0", "1", "-1"], "", {"data.label_names": "-1,0,1"}),
        (["9"], "9", {}),
    ],
)
def test_labels_in_words_are_classes_without_the_ignored_one(
    words: list[str], ignored: str, found: dict[str, str]
) -> None:
    settings = {"data.label": "y", **({"loss.ignore_label": ignored} if ignored else {})}
    assert frames.classed(settings, Column("string", words)) == {**settings, **found}


def test_other_words_for_a_loss_say_whether_there_are_classes() -> None:
    table = Column("string", ["cat", "dog"])
    for key, value, has_classes in (
        ("loss.name", "CrossEntropyLoss", True),
        ("criterion", "cross_entropy", True),
        ("loss.name", "BCE", False),
        ("objective", "mse", False),
    ):
        settings = {"data.label": "y", key: value}
        found = {"data.label_names": "cat,dog"} if has_classes else {}
        assert frames.classed(settings, table) == {**settings, **found}, (key, value)
    settings = {"label": "y", "ignore_label": "7"}
    assert frames.classed(settings, Column("string", ["0", "1", "7"])) == {**settings, "data.classes": "2"}
