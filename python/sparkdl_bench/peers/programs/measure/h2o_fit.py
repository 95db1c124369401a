"""A perceptron trained by H2O's deep learning in Sparkling Water: H2O's own cluster inside Spark's executors.

Its method is asynchronous within a node, a row at a time, and averages the nodes' models after each pass over the rows
(`trainSamplesPerIteration` = 0), when it also scores the test rows. A rate and a momentum of steps of a batch mean
something else a row at a time, so these are H2O's own, and it trains for as many passes as it is asked for.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ._fit import Clock, Rows, Start, tested
from ._harness import read_arguments, write
from ._spark import session, vector_frame

# Of each row; H2O's default where the rate does not adapt.
RATE = 0.005
_OPENED = " ".join(f"--add-{way}=java.base/sun.net.www.protocol.http=ALL-UNNAMED" for way in ("exports", "opens"))


def main() -> None:
    case, out = read_arguments()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings = {
        **{f"spark.{each}.extraJavaOptions": _OPENED for each in ("driver", "executor")},
        "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",  # H2O's nodes listen where Spark does
        "spark.ext.h2o.client.ip": "127.0.0.1",
        "spark.ext.h2o.extra.properties": "-ip 127.0.0.1 -web_ip 127.0.0.1",
        "spark.ext.h2o.log.level": "WARN",
        "spark.ext.h2o.nthreads": str(case["threads"]),
        "spark.sql.debug.maxToStringFields": "2",
    }
    with session(case, "h2o", settings) as spark:
        pass_ms, facts = _train(spark, case)
        write(out, [pass_ms], facts, steps=case["epochs"])  # its passes are not timed one by one


def _train(spark: Any, case: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    from pysparkling import H2OConf, H2OContext  # type: ignore[import-not-found, unused-ignore]
    from pysparkling.ml import H2ODeepLearningClassifier  # type: ignore[import-not-found, unused-ignore]

    H2OContext.getOrCreate(H2OConf().setBasePort(54400))  # as a Spark session is up before a clock starts
    clock = Clock()
    start, rows = Start.read(case), len(Rows.read(case).y_train)
    partitions = case["workers"] * case["threads"]
    train, test = (vector_frame(spark, case, part, partitions) for part in ("train", "test"))
    layers = start.perceptron()
    trainer = H2ODeepLearningClassifier(
        featuresCols=["features"],
        labelCol="label",
        columnsToCategorical=["label"],
        hidden=[len(bias) for _, bias in layers[:-1]],
        epochs=float(case["epochs"]),
        activation="Rectifier",
        adaptiveRate=False,
        rate=RATE,
        rateAnnealing=0.0,
        momentumStart=0.0,
        momentumStable=0.0,
        stoppingRounds=0,  # else it ends by itself where its score stands still
        standardize=False,
        initialWeightDistribution="UniformAdaptive",
        trainSamplesPerIteration=0,
        seed=case["seed"] + 1,
        keepBinaryModels=False,
    )
    clock.prepared()
    before = clock.seconds
    model = trainer.fit(train)
    fitted_s = clock.seconds - before
    with clock.evaluating():
        scored = model.transform(test).select("label", "detailed_prediction.probabilities").collect()
        names = sorted(scored[0][1].asDict(), key=float)
        probabilities = np.asarray([[row[1][name] for name in names] for row in scored], np.float64)
        labels = np.asarray([int(row[0]) for row in scored])
        test_loss, accuracy = tested(np.log(np.maximum(probabilities, 1e-30)), labels)
    clock.tested(None, test_loss, accuracy)
    clock.history[-1]["epoch"] = case["epochs"]
    facts = {
        **clock.facts(rows, case["threads"]),
        "spark": spark.version,
        "batch": rows,  # what is timed are passes over all rows
        "updates": "after each row",
        "optimizer": f"H2O's own: a rate of {RATE} a row, no momentum, no weight decay, no early stopping",
        "order": "H2O's own",
        "weights": "H2O's own, uniform by the layer's size",
        "standardize": False,
    }
    return fitted_s * 1e3 / case["epochs"], facts


if __name__ == "__main__":
    main()
