"""TorchDistributor: Spark's own way to start PyTorch DDP, as processes of a barrier stage that talk over gloo."""

from __future__ import annotations

from dataclasses import replace

from sparkdl_bench.peers._base import EnvironmentPeer
from sparkdl_bench.peers._environment import Environment
from sparkdl_bench.peers._java import Java
from sparkdl_bench.peers._torch import TRAINS

PEER = EnvironmentPeer(
    name="torch-distributor",
    doc="Spark's TorchDistributor: PyTorch DDP over gloo, started by a barrier stage, one process per task",
    kinds=frozenset({"fit"}),
    environment=Environment(
        name="torch-spark",
        requirements=("pyspark==4.3.0", "torch==2.15.0", "numpy==2.2.6", "pandas==2.3.3", "pyarrow==26.0.1"),
        imports=("pyspark.ml.torch.distributor", "torch"),
        oldest_python=(3, 11),
        newest_python=(3, 13),
        java=Java(17, 21),
        disk_gb=6.2,
    ),
    program="torch_distributor",
    fit_program="torch_distributor",
    abilities=replace(TRAINS, most_workers=None),
    on_spark=True,
)
