"""PyTorch in one process: the yardstick that every distributed way must beat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.peers import Case, TrainCase
from sparkdl_bench.peers._base import EnvironmentPeer, thread_variables
from sparkdl_bench.peers._torch import TORCH


@dataclass(frozen=True)
class PyTorch(EnvironmentPeer):
    def check(self, case: Case) -> None:
        super().check(case)
        if case.workers != 1:
            raise ConfigurationError(
                f"The peer 'pytorch' is one process, but the case has {case.workers} workers. Set workers to 1 (threads may be "
                "more), or run the peer 'pytorch-ddp'."
            )

    def variables(self, case: Case, directory: Path) -> Mapping[str, str]:
        return thread_variables(case.threads if isinstance(case, TrainCase) else 1)


PEER = PyTorch(
    name="pytorch",
    doc="PyTorch, one process: forward, backward and SGD step of a multilayer perceptron",
    kinds=frozenset({"train"}),
    environment=TORCH,
    program="torch_mlp",
)
