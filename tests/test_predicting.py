"""How predictions are timed, and that both ways compute the same net on the same rows: over a Spark of this file."""

from __future__ import annotations

import json
import sys
import types
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparkdl_bench.bench import predicting
from sparkdl_bench.peers import PredictCase

CASE = PredictCase(rows=250, held_rows=100, batch=7, hidden=(6, 4), features=5, classes=3, workers=2, threads=3)


class Frame:
    """A frame of so many rows, and the session that made it."""

    def __init__(self, rows: int = 0) -> None:
        self.rows = rows
        self.asked: list[Any] = []
        self.sparkSession = self.sparkContext = self
        self.answer: float = 0.0

    def range(self, first: int, last: int, step: int, partitions: int) -> Frame:
        self.asked.append((first, last, step, partitions))
        self.rows = last - first
        return self

    def select(self, column: Any) -> Frame:
        self.asked.append(column)
        return self

    def persist(self) -> Frame:
        self.asked.append("persist")
        return self

    def count(self) -> int:
        self.asked.append("count")
        return self.rows

    def limit(self, rows: int) -> Frame:
        return Frame(rows)

    def union(self, other: Frame) -> Frame:
        return Frame(self.rows + other.rows)

    def broadcast(self, value: Any) -> Any:
        return types.SimpleNamespace(value=value)

    def agg(self, *columns: Any) -> Frame:
        self.asked.append(columns)
        return self

    def collect(self) -> list[list[float]]:
        return [[self.answer, 99.0]]


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Columns are what they were made of; a UDF is the function itself."""
    from pyspark.sql import functions as real

    monkeypatch.setattr(real, "expr", lambda text: types.SimpleNamespace(alias=lambda name: (text, name)))
    monkeypatch.setattr(real, "sum", lambda name: ("sum", name))
    monkeypatch.setattr(real, "count", lambda name: ("count", name))

    def udf(function: Any, kind: Any) -> Any:
        made = types.SimpleNamespace(alias=lambda name: (function, kind.typeName(), name))
        return lambda column: types.SimpleNamespace(alias=lambda name: (*made.alias(name), column))

    monkeypatch.setattr(real, "udf", udf)
    return real


@pytest.mark.parametrize(("rows", "held"), [(250, 100), (200, 100), (100, 100), (101, 100)])
def test_a_pass_has_all_rows_however_few_are_held(functions: Any, rows: int, held: int) -> None:
    spark = Frame()
    case = PredictCase(rows=rows, held_rows=held, features=5)
    assert predicting.rows_in_memory(spark, case).rows == rows  # type: ignore[arg-type, attr-defined]
    made, (text, name), *rest = spark.asked
    assert made == (0, held, 1, 2)
    assert name == "x"
    assert text.startswith("transform(sequence(0, 4), ")
    # They lie in memory before anything is timed.
    assert rest == ["persist", "count"]


def by_hand(weights: dict[str, Any], row: Any) -> Any:
    """The scores, from weights in their order: matrix, bias, matrix, bias, …"""
    values = list(weights.values())
    found = np.asarray(row, np.float32)
    for at in range(0, len(values), 2):
        found = values[at] @ found + values[at + 1]
        found = np.maximum(found, 0) if at + 2 < len(values) else found
    return found


def test_the_net_is_the_case_s_with_weights_that_keep_values_about_one() -> None:
    model = predicting.perceptron(CASE)
    layers = model.specification["layers"]
    assert [(each["name"], each["kind"]) for each in layers] == [
        *(("fc1", "linear"), ("relu1", "relu"), ("fc2", "linear"), ("relu2", "relu"), ("fc3", "linear"))
    ]
    assert [each["options"] for each in layers[::2]] == [{"in": 5, "out": 6}, {"in": 6, "out": 4}, {"in": 4, "out": 3}]
    assert (model.specification["input_shape"], model.specification["classes"]) == ([5], 3)
    weights = model._saved.weights
    assert [each.shape for each in weights.values()] == [(6, 5), (6,), (4, 6), (4,), (3, 4), (3,)]
    assert {each.dtype for each in weights.values()} == {np.dtype(np.float32)}
    # The same in every process.
    again = predicting.perceptron(CASE)._saved.weights
    assert all(np.array_equal(weights[name], again[name]) for name in weights)
    large = predicting.perceptron(PredictCase(hidden=(50,)))._saved.weights
    assert float(np.std(next(iter(large.values())))) == pytest.approx(1 / 28, rel=0.02)


def test_a_udf_predicts_what_the_net_does(functions: Any) -> None:
    frame, model = Frame(), predicting.perceptron(CASE)
    # All scores of a row may be below 0.
    model._saved.weights["fc3.bias"][...] -= 9  # type: ignore[index]
    once = predicting._by_udf(frame, model)  # type: ignore[arg-type]
    ((predict, kind, name, column),) = frame.asked
    assert (kind, column, name) == ("double", "x", "prediction")
    rows = np.random.default_rng(1).standard_normal((40, 5)).astype(np.float32)
    scores = [by_hand(dict(model._saved.weights), row) for row in rows]
    assert [predict(row.tolist()) for row in rows] == [float(np.argmax(each)) for each in scores]
    assert len({float(np.argmax(each)) for each in scores}) > 1
    frame.answer = 41
    assert once() == 41.0
    assert frame.asked[1:] == [(("sum", "prediction"),)]


def test_transform_computes_probabilities_too(functions: Any) -> None:
    frame, predicted = Frame(), Frame()
    predicted.answer = 17
    asked: list[Any] = []

    def transform(*arguments: Any, **options: Any) -> Frame:
        asked.append((arguments, options))
        return predicted

    once = predicting._transformed(frame, types.SimpleNamespace(transform=transform), CASE)  # type: ignore[arg-type]
    assert asked == [((frame, "x"), {"raw_prediction": "", "batch": 7})]
    assert predicted.asked == []
    assert once() == 17.0
    assert predicted.asked == [(("sum", "prediction"), ("count", "probability"))]


@pytest.mark.parametrize("how", ["transform", "udf"])
def test_passes_are_timed_after_one_in_milliseconds_per_1000_rows(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    clock, made, asked = [5_000_000_000], [0], []

    def once() -> float:
        made[0] += 1
        clock[0] += 500_000_000 * made[0]
        return float(made[0])

    @contextmanager
    def open_session(settings: Any) -> Any:
        yield settings

    monkeypatch.setattr(predicting.time, "perf_counter_ns", lambda: clock[0])
    monkeypatch.setattr(predicting.session, "start_jvm", lambda properties: (None, properties))
    monkeypatch.setattr(predicting.session, "open_session", open_session)
    monkeypatch.setattr(predicting, "rows_in_memory", lambda spark, case: asked.append(spark))
    monkeypatch.setattr(predicting, "_transformed", lambda *_: asked.append("transform") or once)
    monkeypatch.setattr(predicting, "_by_udf", lambda *_: asked.append("udf") or once)
    found = predicting.measured(how, CASE)
    # Half a second, then 1.0, 1.5 and 2.0 s of 250 rows.
    assert found == {"samples_ms": [4000.0, 6000.0, 8000.0], "sum": 4.0, "rows": 250}
    settings, chosen = asked
    assert chosen == how
    assert settings == {
        "spark.master": "local-cluster[2,1,3072]",
        "spark.executor.memory": "3g",
        "spark.ui.enabled": "false",
    }


def test_a_trial_is_a_process_that_gets_the_case_and_its_threads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: list[Any] = []

    def run_to_end(name: str, command: list[str], timeout_s: float, variables: dict[str, str]) -> None:
        given.append((name, command[:3], timeout_s, variables))
        monkeypatch.setattr(predicting, "measured", lambda *arguments: given.append(arguments) or told)
        monkeypatch.setattr(sys, "argv", command[2:])
        predicting.main()

    told = {"samples_ms": [1.5, 2.5], "sum": 3.0, "rows": 250}
    monkeypatch.setattr(predicting, "run_to_end", run_to_end)
    trial = predicting.PredictContestant("ours", "transform", CASE).measure(7.0)
    (name, command, timeout_s, variables), arguments = given
    assert (name, timeout_s) == ("ours", 7.0)
    assert command == [sys.executable, "-m", "sparkdl_bench.bench.predicting"]
    assert {variables[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")} == {"3"}
    assert (variables["SPARK_LOCAL_IP"], variables["PYSPARK_PYTHON"]) == ("127.0.0.1", sys.executable)
    # The very case, whole.
    assert arguments == ("transform", CASE)
    assert asdict(arguments[1]) == asdict(CASE)
    assert (trial.samples_ms, trial.steps, trial.facts) == ([1.5, 2.5], 1, {"sum": 3.0, "rows": 250})
    assert predicting.PredictContestant("ours", "transform", CASE).prepare() is None  # type: ignore[func-returns-value]
    assert json.dumps(asdict(CASE))
