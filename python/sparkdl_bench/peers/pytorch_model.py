"""PyTorch with any model of ours, one process or DDP over gloo: `torch.nn` modules made from the specification."""

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
        if not getattr(case, "specification", ""):
            raise ConfigurationError(
                f"The peer '{self.name}' trains the model in the case's specification, and there is none. Give one, or "
                "run the peer 'pytorch' or 'pytorch-ddp' (a multilayer perceptron)."
            )


PEER = PyTorchModel(
    name="pytorch-model",
    doc="PyTorch: forward, backward and SGD step of any model of ours; with several workers DDP over gloo",
    kinds=frozenset({"train"}),
    environment=TORCH,
    program="torch_model",
)
