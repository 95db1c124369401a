"""PyTorch DistributedDataParallel over gloo: the usual way to train on several CPU machines without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.peers import Case, TrainCase
from sparkdl_bench.peers._base import EnvironmentPeer, thread_variables
from sparkdl_bench.peers._torch import TORCH


@dataclass(frozen=True)
class PyTorchDdp(EnvironmentPeer):
    def check(self, case: Case) -> None:
        super().check(case)
        if case.workers < 2:
            raise ConfigurationError(
                "The peer 'pytorch-ddp' needs at least 2 workers (processes); with 1 the peer 'pytorch' is the right one."
            )

    def variables(self, case: Case, directory: Path) -> Mapping[str, str]:
        return thread_variables(case.threads if isinstance(case, TrainCase) else 1)


PEER = PyTorchDdp(
    name="pytorch-ddp",
    doc="PyTorch DistributedDataParallel over gloo on loopback: one process a worker, SGD step of a multilayer perceptron",
    kinds=frozenset({"train"}),
    environment=TORCH,
    program="torch_mlp",
)
