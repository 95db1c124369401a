"""MPI with NumPy: the perceptron of the peer `numpy` on several ranks, one all-reduce of all gradients a step."""

from __future__ import annotations

from dataclasses import replace

from sparkdl_bench.peers import mpi
from sparkdl_bench.peers._abilities import PERCEPTRON, SGD, Abilities

PEER = replace(
    mpi.PEER,
    name="mpi-numpy",
    doc="NumPy on several ranks, gradients summed by Open MPI through shared memory, one process per rank",
    kinds=frozenset({"fit"}),
    program="mpi_fit",
    fit_program="mpi_fit",
    host_local_choices=(False,),
    abilities=Abilities({"sgd": SGD}, PERCEPTRON, chain=True, schedules=True, most_workers=None),
)
