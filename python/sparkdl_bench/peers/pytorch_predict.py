"""PyTorch predicting: one process a worker, each with its own rows in memory and nothing to send."""

from __future__ import annotations

from sparkdl_bench.peers._base import EnvironmentPeer
from sparkdl_bench.peers._torch import TORCH

PEER = EnvironmentPeer(
    name="pytorch-predict",
    doc="PyTorch, one process per worker: probabilities and classes of a multilayer perceptron, of rows in memory",
    kinds=frozenset({"predict"}),
    environment=TORCH,
    program="torch_predict",
)
