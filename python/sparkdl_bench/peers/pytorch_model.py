"""PyTorch in one process, any model of ours: `torch.nn` modules made from the specification, SGD from `torch.optim`."""

from __future__ import annotations

from dataclasses import dataclass

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.peers import Case
from sparkdl_bench.peers._base import EnvironmentPeer
from sparkdl_bench.peers._torch import TORCH


@dataclass(frozen=True)
class PyTorchModel(EnvironmentPeer):
    def check(self, case: Case) -> None:
        super().check(case)
        if case.workers != 1 or not getattr(case, "specification", ""):
            raise ConfigurationError(
                f"The peer '{self.name}' is one process that trains the model in the case's specification. Set workers "
                "to 1 and give a specification, or run the peer 'pytorch' (a multilayer perceptron)."
            )


PEER = PyTorchModel(
    name="pytorch-model",
    doc="PyTorch, one process: forward, backward and SGD step of any model of ours",
    kinds=frozenset({"train"}),
    environment=TORCH,
    program="torch_model",
)
