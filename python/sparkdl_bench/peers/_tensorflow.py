"""What the peers share that start TensorFlow's own distributed training on Spark 3.5."""

from __future__ import annotations

from sparkdl_bench.peers._abilities import Abilities
from sparkdl_bench.peers._base import EnvironmentPeer
from sparkdl_bench.peers._environment import Environment
from sparkdl_bench.peers._java import Java
from sparkdl_bench.peers._keras import LAYERS, OPTIMIZERS

TENSORFLOW = Environment(
    name="tensorflow-spark",
    requirements=(
        "tensorflow-cpu==2.15.1",
        "tensorflowonspark==2.2.5",
        "pyspark==3.5.9",
        "numpy==1.26.4",
        "setuptools==80.9.0",
    ),
    without_dependencies=("spark-tensorflow-distributor==1.0.0",),
    imports=("tensorflow", "tensorflowonspark", "spark_tensorflow_distributor"),
    newest_python=(3, 11),
    java=Java(8, 17),
    disk_gb=2.0,
)


def peer(name: str, program: str, doc: str) -> EnvironmentPeer:
    return EnvironmentPeer(
        name=name,
        doc=doc,
        kinds=frozenset({"fit"}),
        environment=TENSORFLOW,
        program=program,
        fit_program=program,
        abilities=Abilities(OPTIMIZERS, LAYERS, chain=True, schedules=True, most_workers=None, divides=True),
        on_spark=True,
    )
