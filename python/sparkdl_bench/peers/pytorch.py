"""PyTorch in one process: the yardstick that every distributed way must beat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.peers import Case, FitCase
from sparkdl_bench.peers._base import EnvironmentPeer, Launch
from sparkdl_bench.peers._torch import TORCH, TRAINS


@dataclass(frozen=True)
class PyTorch(EnvironmentPeer):
    def check(self, case: Case) -> None:
        super().check(case)
        if case.workers != 1:
            raise ConfigurationError(
                f"The peer 'pytorch' is one process, but the case has {case.workers} workers. Set workers to 1 "
                "(threads may be more), or run the peer 'pytorch-ddp'."
            )

    def variables(self, launch: Launch) -> Mapping[str, str]:
        # PyTorch's tuning guide, of GNU's OpenMP, which its wheels bring.
        tuned = isinstance(launch.case, FitCase) and launch.case.tuned
        bound = {"OMP_PROC_BIND": "CLOSE", "OMP_SCHEDULE": "STATIC"} if tuned else {}
        return {**super().variables(launch), **bound}


PEER = PyTorch(
    name="pytorch",
    doc="PyTorch, one process: any model of ours",
    kinds=frozenset({"train", "fit"}),
    environment=TORCH,
    program="torch_mlp",
    fit_program="torch_fit",
    abilities=TRAINS,
    tuning="OpenMP threads bound to cores, fused optimiser, subnormal numbers flushed to zero",
    workers=1,
)
