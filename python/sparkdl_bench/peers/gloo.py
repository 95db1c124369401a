"""gloo's all-reduce, as torch.distributed uses it on CPU: TCP between processes, also on one host."""

from __future__ import annotations

from dataclasses import dataclass

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.peers import Case, CollectiveCase
from sparkdl_bench.peers._base import EnvironmentPeer
from sparkdl_bench.peers._torch import TORCH


@dataclass(frozen=True)
class Gloo(EnvironmentPeer):
    def check(self, case: Case) -> None:
        super().check(case)
        if isinstance(case, CollectiveCase) and case.host_local:
            raise ConfigurationError(
                "gloo has no shared-memory channel: it uses TCP also between processes of one host."
            )


PEER = Gloo(
    name="gloo",
    doc="gloo (torch.distributed): all-reduce over TCP on loopback, one process a rank",
    kinds=frozenset({"allreduce"}),
    environment=TORCH,
    program="gloo_allreduce",
)
