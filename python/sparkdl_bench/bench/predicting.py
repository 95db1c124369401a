"""How long predictions on a DataFrame take: a process of its own for each trial, as the other benchmarks have.

`python -m sparkdl_bench.bench.predicting CASE.json OUT.json` is that process.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparkdl_bench import models, saved, session
from sparkdl_bench.bench.store import Trial
from sparkdl_bench.peers import PredictCase
from sparkdl_bench.peers._base import thread_variables
from sparkdl_bench.peers._process import run_to_end
from sparkdl_bench.prediction import Model

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class PredictContestant:
    """One way to predict the rows of a DataFrame whose partitions lie in the executors' memory.

    Attributes:
        how: `transform`, ours; or `udf`, a Python UDF that NumPy computes in, row by row.
    """

    name: str
    how: str
    case: PredictCase

    def prepare(self) -> None:
        return

    def measure(self, timeout_s: float) -> Trial:
        with tempfile.TemporaryDirectory(prefix=f"sparkdl-predict-{self.how}-") as name:
            given, out = Path(name, "case.json"), Path(name, "out.json")
            given.write_text(json.dumps({"how": self.how, "case": asdict(self.case)}), encoding="utf-8")
            command = [sys.executable, "-m", "sparkdl_bench.bench.predicting", str(given), str(out)]
            variables = {
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYSPARK_PYTHON": sys.executable,
                **thread_variables(self.case.threads),
            }
            run_to_end(self.name, command, timeout_s, variables)
            found = json.loads(out.read_text(encoding="utf-8"))
        return Trial(found.pop("samples_ms"), 1, found)


def perceptron(case: PredictCase) -> Model:
    """The net of the case, with seeded weights."""
    widths = [case.features, *case.hidden, case.classes]
    layers: list[dict[str, Any]] = []
    for index, (wide, narrow) in enumerate(pairwise(widths), start=1):
        layers.append({"name": f"fc{index}", "kind": "linear", "options": {"in": wide, "out": narrow}})
        layers.append({"name": f"relu{index}", "kind": "relu"})
    written = {"name": "mlp", "input_shape": [case.features], "classes": case.classes, "layers": layers[:-1]}
    random = np.random.default_rng(0)
    weights = {
        place.name: (random.standard_normal(place.shape) / np.sqrt(case.features)).astype(np.float32)
        for place in models.read(written).parameters
    }
    return Model(saved.SavedModel(written, weights, {"shape": [case.features]}))


def rows_in_memory(spark: SparkSession, case: PredictCase) -> DataFrame:
    """The frame of `case.rows` rows, an array `x` each: those held, as often as it needs."""
    from pyspark.sql import functions

    made = spark.range(0, case.held_rows, 1, case.workers).select(
        functions.expr(
            f"transform(sequence(0, {case.features - 1}), "
            "i -> CAST(pmod(id * 7919 + i * 104729, 1000) / 1000 AS FLOAT))"
        ).alias("x")
    )
    held = made.persist()
    held.count()
    times, rest = divmod(case.rows, case.held_rows)
    parts = [held] * times + ([held.limit(rest)] if rest else [])
    return reduce(lambda some, more: some.union(more), parts)


def _transformed(frame: DataFrame, model: Model, case: PredictCase) -> Callable[[], float]:
    from pyspark.sql import functions

    predicted = model.transform(frame, "x", raw_prediction="", batch=case.batch)
    # The size of the probabilities is asked for so that they are computed.
    wanted = [functions.sum("prediction"), functions.count("probability")]
    return lambda: float(predicted.agg(*wanted).collect()[0][0])


def _by_udf(frame: DataFrame, model: Model) -> Callable[[], float]:
    from pyspark.sql import functions
    from pyspark.sql.types import DoubleType

    spec = models.read(model.specification)
    arrays = [model._saved.weights[place.name] for place in spec.parameters]
    shared = frame.sparkSession.sparkContext.broadcast(arrays)

    def predict(values: list[float]) -> float:
        found = np.asarray(values, np.float32)
        held = shared.value
        for at in range(0, len(held), 2):
            found = held[at] @ found + held[at + 1]
            if at + 2 < len(held):
                found = np.maximum(found, 0)
        return float(found.argmax())

    predicted = frame.select(functions.udf(predict, DoubleType())("x").alias("prediction"))
    return lambda: float(predicted.agg(functions.sum("prediction")).collect()[0][0])


def measured(how: str, case: PredictCase) -> dict[str, Any]:
    """Milliseconds per 1,000 rows of each pass, and the sum of the predictions, by which the ways are seen to agree."""
    properties = {
        "spark.master": f"local-cluster[{case.workers},1,3072]",
        "spark.executor.memory": "3g",
        "spark.ui.enabled": "false",
    }
    _, settings = session.start_jvm(properties)
    with session.open_session(settings) as spark:
        frame, model = rows_in_memory(spark, case), perceptron(case)
        once = _transformed(frame, model, case) if how == "transform" else _by_udf(frame, model)
        once()
        samples, sums = [], []
        for _ in range(case.samples):
            start = time.perf_counter_ns()
            sums.append(once())
            samples.append((time.perf_counter_ns() - start) / 1e3 / case.rows)
    return {"samples_ms": samples, "sum": sums[-1], "rows": case.rows}


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    fields: dict[str, Any] = {name: value for name, value in given["case"].items() if name != "kind"}
    fields["hidden"] = tuple(fields["hidden"])
    Path(sys.argv[2]).write_text(json.dumps(measured(given["how"], PredictCase(**fields))), encoding="utf-8")


if __name__ == "__main__":
    main()
