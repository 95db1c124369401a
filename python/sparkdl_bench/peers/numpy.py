"""NumPy in one process: a perceptron written out, the plainest yardstick."""

from __future__ import annotations

from sparkdl_bench.peers._abilities import PERCEPTRON, SGD, Abilities
from sparkdl_bench.peers._base import EnvironmentPeer
from sparkdl_bench.peers._environment import Environment

PEER = EnvironmentPeer(
    name="numpy",
    doc="NumPy, one process: a ReLU perceptron from scratch, matrix products by its OpenBLAS",
    kinds=frozenset({"fit"}),
    environment=Environment(
        name="numpy", requirements=("numpy==2.2.6",), imports=("numpy",), newest_python=(3, 13), disk_gb=0.1
    ),
    program="numpy_fit",
    fit_program="numpy_fit",
    workers=1,
    abilities=Abilities({"sgd": SGD}, PERCEPTRON, chain=True, schedules=True),
)
