"""PyTorch DistributedDataParallel over gloo: the usual way to train on several CPU machines without Spark."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.peers import Case
from sparkdl_bench.peers._base import EnvironmentPeer
from sparkdl_bench.peers._torch import TORCH, TRAINS


@dataclass(frozen=True)
class PyTorchDdp(EnvironmentPeer):
    def check(self, case: Case) -> None:
        super().check(case)
        if case.workers < 2:
            raise ConfigurationError(
                "The peer 'pytorch-ddp' needs at least 2 workers (processes); for 1 there is the peer 'pytorch'."
            )


PEER = PyTorchDdp(
    name="pytorch-ddp",
    doc="PyTorch DistributedDataParallel over gloo on loopback, one process a worker: any model of ours",
    kinds=frozenset({"train", "fit"}),
    environment=TORCH,
    program="torch_mlp",
    fit_program="torch_fit",
    abilities=replace(TRAINS, least_workers=2, most_workers=None),
    tuning="gradients as views of DDP's buckets, a static graph, fused optimiser, subnormal numbers flushed to zero",
)
