"""The perceptron of `numpy_fit` on several ranks: each its share of a batch, one all-reduce of all gradients by MPI."""

from __future__ import annotations

import time

import numpy as np
from mpi4py import MPI  # type: ignore[import-not-found, unused-ignore]

from ._channel import maps_segment, own_connections, told
from ._fit import Clock, Rows, Start, learning_rate, own_share, pool_threads, tested
from ._harness import read_arguments, write
from .numpy_fit import Perceptron

PHASES = ("data", "compute", "wait", "update")


def main() -> None:
    case, out = read_arguments()
    world = MPI.COMM_WORLD
    if world.size != case["workers"]:
        raise SystemExit(f"mpiexec started {world.size} ranks instead of {case['workers']}")
    clock = Clock()
    rows, start = Rows.read(case), Start.read(case)
    net = Perceptron.of(case, start)
    samples_ms: list[float] = []
    phases_ns = dict.fromkeys(PHASES, 0)
    world.Barrier()
    clock.prepared()
    for epoch in range(case["epochs"]):
        order, losses = start.orders[epoch], 0.0
        for first in range(0, len(order), case["batch"]):
            begun = time.perf_counter_ns()
            batch = order[first : first + case["batch"]]
            own = own_share(batch, world.rank, world.size)
            x, y = rows.x_train[own], rows.y_train[own]
            read = time.perf_counter_ns()
            losses += net.gradients(x, y, len(batch))
            computed = time.perf_counter_ns()
            world.Allreduce(MPI.IN_PLACE, net.flat, op=MPI.SUM)
            summed = time.perf_counter_ns()
            net.update(learning_rate(case, len(samples_ms)))
            ended = time.perf_counter_ns()
            parts = (read - begun, computed - read, summed - computed, ended - summed)
            for name, nanoseconds in zip(PHASES, parts, strict=True):
                phases_ns[name] += nanoseconds
            samples_ms.append((ended - begun) / 1e6)
        losses = world.allreduce(losses)
        with clock.evaluating():
            test_loss, accuracy = tested(net.scores(rows.x_test), rows.y_test) if world.rank == 0 else (0.0, 0.0)
            world.Barrier()
        clock.tested(losses / len(order), test_loss, accuracy)
    # A step ends for each rank at its own time; the mean over the ranks sums up to the loop's wall-clock time.
    means = np.asarray([*samples_ms, *(total / 1e6 / len(samples_ms) for total in phases_ns.values())])
    world.Allreduce(MPI.IN_PLACE, means, op=MPI.SUM)
    means /= world.size
    channel = told(world.allgather(own_connections()), world.allgather(maps_segment()))
    if world.rank == 0:
        steps = len(samples_ms)
        facts = {
            **clock.facts(len(rows.y_train), pool_threads(1)),
            "numpy": np.__version__,
            "library": MPI.Get_library_version().split(",")[0],
            "channel": channel,
            "phases_ms": dict(zip(PHASES, means[steps:].tolist(), strict=True)),
        }
        write(out, means[:steps].tolist(), facts)


if __name__ == "__main__":
    main()
