"""All-reduce (sum, fp32) with mpi4py: started by mpiexec, one process a rank."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI  # type: ignore[import-not-found, unused-ignore]

from ._channel import maps_segment, own_connections, told
from ._harness import read_arguments, time_steps, write


def main() -> None:
    case, out = read_arguments()
    world = MPI.COMM_WORLD
    if world.size != case["workers"]:
        raise SystemExit(f"mpiexec started {world.size} ranks instead of {case['workers']}")
    correct = _is_correct(world, case)
    values = np.zeros(case["elements"], np.float32)
    values.fill(0)
    world.Barrier()
    samples_ms = time_steps(
        lambda _: world.Allreduce(MPI.IN_PLACE, values, op=MPI.SUM), case["warmup"], case["iterations"]
    )
    correct = _is_correct(world, case) and correct
    connections, segments = world.allgather(own_connections()), world.allgather(maps_segment())
    all_correct = world.allreduce(correct, op=MPI.LAND)
    mean_ms = np.asarray(samples_ms)
    world.Allreduce(MPI.IN_PLACE, mean_ms, op=MPI.SUM)
    if world.rank == 0:
        library = MPI.Get_library_version().split(",")[0]
        facts = {"correct": all_correct, "library": library, "channel": told(connections, segments)}
        write(out, (mean_ms / world.size).tolist(), facts)


def _is_correct(world: Any, case: dict[str, Any]) -> bool:
    """Whole numbers below 2^24: their fp32 sums are exact in any order."""
    pattern = np.arange(case["elements"], dtype=np.int64) % 1000
    values = (pattern + world.rank).astype(np.float32)
    world.Allreduce(MPI.IN_PLACE, values, op=MPI.SUM)
    return bool(np.array_equal(values, (pattern * world.size + world.size * (world.size - 1) // 2).astype(np.float32)))


if __name__ == "__main__":
    main()
