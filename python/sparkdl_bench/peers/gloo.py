"""gloo's all-reduce, as torch.distributed uses it on CPU: TCP between processes, also on one host."""

from __future__ import annotations

from sparkdl_bench.peers._base import EnvironmentPeer
from sparkdl_bench.peers._torch import TORCH

PEER = EnvironmentPeer(
    name="gloo",
    doc="gloo (torch.distributed): all-reduce over TCP on loopback, one process a rank",
    kinds=frozenset({"allreduce"}),
    environment=TORCH,
    program="gloo_allreduce",
)
