"""H2O's deep learning in Sparkling Water: H2O's own cluster inside Spark's executors."""

from __future__ import annotations

from sparkdl_bench.peers._abilities import PERCEPTRON, Abilities
from sparkdl_bench.peers._base import EnvironmentPeer
from sparkdl_bench.peers._environment import Environment
from sparkdl_bench.peers._java import Java

_ROW = "H2O's deep learning updates its weights after each row, in each thread"
_OWN = "updates after each row have hyperparameters of H2O's own: a rate of 0.005, no momentum, no weight decay"

PEER = EnvironmentPeer(
    name="h2o",
    doc="H2O's deep learning in Sparkling Water on Spark 3.5: a row at a time, models averaged after each pass",
    kinds=frozenset({"fit"}),
    environment=Environment(
        name="h2o",
        requirements=("h2o_pysparkling_3.5==3.46.0.6.post1", "pyspark==3.5.9", "numpy==1.26.4", "setuptools==80.9.0"),
        imports=("pysparkling.ml",),
        newest_python=(3, 11),
        java=Java(8, 17),
        disk_gb=0.9,
    ),
    program="h2o_fit",
    fit_program="h2o_fit",
    abilities=Abilities({}, PERCEPTRON, chain=True, most_workers=None),
    fixed={
        "batch": _ROW,
        "batch_per_worker": _ROW,
        **{f"optimizer.{name}": _OWN for name in ("name", "learning_rate", "momentum", "nesterov", "weight_decay")},
    },
    on_spark=True,
)
