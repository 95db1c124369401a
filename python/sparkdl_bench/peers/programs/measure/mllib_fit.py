"""Spark MLlib's MultilayerPerceptronClassifier as a user calls it: one `fit`, with the run's epochs as iterations.

It has sigmoid hidden layers and all rows in each step. What it makes of the test rows can be asked at its end alone.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import numpy as np

from ._fit import Clock, Rows, Start, learning_rate, tested
from ._harness import read_arguments, write
from ._spark import job_ends_ms, session, vector_frame

# Without native libraries: MLlib's guide on linear algebra (VectorBLAS of dev.ludovic.netlib).
_VECTORS = "--add-modules=jdk.incubator.vector"


def train(solver: str) -> None:
    """Runs the program with `l-bfgs` or `gd`."""
    case, out = read_arguments()
    options = {f"spark.{each}.extraJavaOptions": _VECTORS for each in ("driver", "executor")} if case["tuned"] else {}
    with session(case, f"mllib-{solver}", options) as spark:
        write(out, *_train(spark, case, solver))


def _train(spark: Any, case: dict[str, Any], solver: str) -> tuple[list[float], dict[str, Any]]:
    from pyspark.ml.classification import MultilayerPerceptronClassifier  # type: ignore[import-not-found, unused-ignore]
    from pyspark.ml.linalg import Vectors  # type: ignore[import-not-found, unused-ignore]

    clock = Clock()
    start = Start.read(case)
    partitions = case["workers"] * case["threads"]
    train, test = (vector_frame(spark, case, part, partitions) for part in ("train", "test"))
    layers = start.perceptron()
    classifier = MultilayerPerceptronClassifier(
        layers=[layers[0][0].shape[1], *(len(bias) for _, bias in layers)],
        solver=solver,
        maxIter=case["epochs"],
        stepSize=learning_rate(case, 0),
        initialWeights=Vectors.dense(initial_weights(layers)),
    )
    clock.prepared()
    begun_ms = time.time() * 1e3
    model = classifier.fit(train)
    fitted_ms = time.time() * 1e3 - begun_ms
    with clock.evaluating():
        scored = model.transform(test).select("label", "rawPrediction").collect()
        scores = np.asarray([row[1].toArray() for row in scored])
        test_loss, accuracy = tested(scores, np.asarray([int(row[0]) for row in scored]))
    losses = [float(each) for each in model.summary().objectiveHistory]
    clock.tested(losses[-1] if losses else None, test_loss, accuracy)
    clock.history[-1]["epoch"] = max(1, len(losses) - 1)
    rows = len(Rows.read(case).y_train)
    # Each pass over the rows is one job; a line search may need several for an iteration.
    ends = [end for end in job_ends_ms(spark, "treeAggregate") if end >= begun_ms]
    passes = [later - earlier for earlier, later in pairwise(ends)] or [fitted_ms]
    facts = {
        **clock.facts(rows, case["threads"]),
        "spark": spark.version,
        "optimizer": solver,
        "activation": "sigmoid",
        "batch": rows,
        "order": "none: all rows in each step",
        "iterations": max(0, len(losses) - 1),
        "passes": len(ends),
        "train_losses": losses,
    }
    return passes, facts


def initial_weights(layers: list[tuple[Any, Any]]) -> list[float]:
    """As MLlib lays them out: for each layer the weights, out × in by columns, then the bias."""
    return [float(value) for weight, bias in layers for value in (*weight.ravel(order="F"), *bias)]
