"""Predictions in a session of Spark Connect: a real server, and a client that has no JVM of ours."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pyspark
import pytest

from programs import execute, our_environment
from trained import perceptron

for needed in ("grpc", "pandas", "pyarrow"):
    pytest.importorskip(needed)
if pyspark.__version__.startswith("3."):
    pytest.skip("pip's pyspark 3.5 has no server of Spark Connect", allow_module_level=True)

PROGRAM = """
import json, sys
import sparkdl_bench
from pyspark.sql import SparkSession, functions
from sparkdl_bench.ml import SparkDLClassifier

model = sparkdl_bench.load_model(sys.argv[1])
spark = SparkSession.builder.remote("local[2]").getOrCreate()
said = {}


def refused(name, call):
    try:
        call()
    except sparkdl_bench.ConfigurationError as error:
        said[name] = str(error)


rows = [(number, number / 7 - 2, float(number % 5)) for number in range(40)]
rows += [(40, None, 1.0), (41, float("nan"), 1.0)]
frame = spark.createDataFrame(rows, "id int, x double, y double")
found = model.transform(frame, label="name", handle_invalid="keep").orderBy("id")
said["columns"] = found.columns
said["kinds"] = [field.dataType.simpleString() for field in found.schema.fields]
said["rows"] = [
    [row["id"], row["prediction"], row["name"], row["probability"] and row["probability"].toArray().tolist()]
    for row in found.collect()
]
lists = frame.select("id", functions.array("x", "y").alias("values"))
said["skipped"] = sorted(row["id"] for row in model.transform(lists, "values", handle_invalid="skip").collect())
from pyspark.ml.functions import array_to_vector
vectors = frame.limit(40).select("id", array_to_vector(functions.array("x", "y")).alias("v"))
said["vectors"] = [row["prediction"] for row in model.transform(vectors, "v").orderBy("id").collect()]
refused("taken", lambda: model.transform(frame.withColumn("prediction", functions.lit(1))))
refused("missing", lambda: model.transform(frame.drop("x")))
refused("engine", lambda: model.transform(frame, engine__name="numpy"))
refused("fit", lambda: SparkDLClassifier(featuresCol="x", labelCol="y").fit(frame))
refused("trainer", lambda: sparkdl_bench.Trainer(data=frame).fit(spark))
try:
    model.transform(frame).collect()
except Exception as error:
    said["error"] = str(error)
spark.stop()
print("SAID " + json.dumps(said))
"""


@pytest.mark.long
def test_a_model_predicts_through_the_dataframe_api_alone(tmp_path: Path) -> None:
    model = perceptron(columns=["x", "y"], labels=["cat", "dog", "owl"])
    model.save(tmp_path / "model")
    command = [sys.executable, "-c", PROGRAM, tmp_path / "model"]
    output = execute(command, our_environment(PYSPARK_PYTHON=sys.executable), tmp_path, timeout=180)
    lines = [line for line in output.splitlines() if line.startswith("SAID ")]
    assert lines, output[-6000:]
    said = json.loads(lines[0].removeprefix("SAID "))
    assert said["columns"] == ["id", "x", "y", "rawPrediction", "probability", "prediction", "name"]
    assert said["kinds"][3:] == ["vector", "vector", "double", "string"]
    inputs = np.array([[number / 7 - 2, number % 5] for number in range(40)], np.float32)
    labels, probabilities = model.predict(inputs)
    assert [row[0] for row in said["rows"]] == list(range(42))
    assert [row[2] for row in said["rows"]] == [*labels, None, None]
    assert [row[1] for row in said["rows"][:40]] == probabilities.argmax(axis=1).tolist()
    np.testing.assert_allclose([row[3] for row in said["rows"][:40]], probabilities)
    assert [row[1:] for row in said["rows"][40:]] == [[None, None, None]] * 2
    assert said["skipped"] == list(range(40))
    assert said["vectors"] == probabilities.argmax(axis=1).tolist()
    assert "A row has no prediction" in said["error"]
    assert "has a column 'prediction' already" in said["taken"]
    assert "has no column 'x'" in said["missing"]
    assert "there is no engine to choose" in said["engine"]
    assert "fit takes a DataFrame of a classic Spark session, and this is a DataFrame of a Spark Connect" in said["fit"]
    assert "its transform takes DataFrames of Spark Connect" in said["fit"]
    assert "Spark Connect" in said["trainer"]
