"""What the two peers of Spark MLlib's perceptron share."""

from __future__ import annotations

from sparkdl_bench.peers._abilities import PERCEPTRON, Abilities
from sparkdl_bench.peers._base import EnvironmentPeer
from sparkdl_bench.peers._environment import Environment
from sparkdl_bench.peers._java import Java

SPARK = Environment(
    name="spark",
    requirements=("pyspark==4.1.4", "numpy==2.2.6"),
    imports=("pyspark.ml", "numpy"),
    newest_python=(3, 13),
    java=Java(17, 21),
    disk_gb=0.6,
)
_ALL_ROWS = "MLlib's perceptron has all rows in each step"
_OWN = "MLlib's perceptron has two solvers, each a peer of its own"


def peer(solver: str, doc: str) -> EnvironmentPeer:
    program = f"mllib_{solver.replace('-', '')}"
    steps = {"optimizer.learning_rate": "l-bfgs finds its own step length"} if solver == "l-bfgs" else {}
    return EnvironmentPeer(
        name=f"mllib-{solver}",
        doc=f"Spark MLlib's MultilayerPerceptronClassifier with {doc}; sigmoid layers, all rows in each step",
        kinds=frozenset({"fit"}),
        environment=SPARK,
        program=program,
        fit_program=program,
        abilities=Abilities({}, PERCEPTRON | {"sigmoid"}, chain=True, most_workers=None),
        fixed={
            "batch": _ALL_ROWS,
            "batch_per_worker": _ALL_ROWS,
            "model.activation": "the hidden layers of MLlib's perceptron are sigmoid",
            "optimizer.name": _OWN,
            "optimizer.momentum": _OWN,
            "optimizer.weight_decay": _OWN,
            "optimizer.nesterov": _OWN,
            **steps,
        },
        tuning="the JDK's vector module for MLlib's linear algebra, as its guide has it without a native BLAS",
        on_spark=True,
    )
