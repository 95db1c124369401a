"""All-reduce (sum, fp32) with torch.distributed over gloo: one process a rank, TCP on loopback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]

from ._channel import own_connections, told
from ._harness import read_arguments, time_steps, write
from ._ranks import run_ranks


def main() -> None:
    case, out = read_arguments()
    run_ranks(_rank, case, out)


def _rank(rank: int, case: dict[str, Any], rendezvous: str, out: Path) -> None:
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=case["workers"])
    samples_ms, correct = measured(rank, case)
    connections: list[Any] = [None] * case["workers"]
    dist.all_gather_object(connections, own_connections())
    if rank == 0:
        write(
            out,
            samples_ms,
            {
                "correct": correct,
                "torch": torch.__version__,
                "channel": told(connections, [False] * case["workers"]),
            },
        )
    dist.barrier()  # no rank leaves while another still needs it


def measured(rank: int, case: dict[str, Any]) -> tuple[list[float], bool]:
    """Milliseconds, the mean over the ranks, and whether all had the right sums; in a group of any backend."""
    torch.set_num_threads(1)
    correct = _is_correct(rank, case)
    # Zeros stay zeros when summed in place, so nothing needs to be refilled between the timed calls; written once, so
    # that every page really is memory of its own.
    values = torch.ones(case["elements"]).mul_(0)
    if case.get("in_shared_memory"):
        values.share_memory_()
    dist.barrier()
    samples_ms = time_steps(lambda _: dist.all_reduce(values), case["warmup"], case["iterations"])
    correct = _is_correct(rank, case) and correct
    verdicts = torch.tensor([float(correct)])
    dist.all_reduce(verdicts)
    mean_ms = torch.tensor(samples_ms, dtype=torch.float64)
    dist.all_reduce(mean_ms)
    return (mean_ms / case["workers"]).tolist(), verdicts.item() == case["workers"]


def _is_correct(rank: int, case: dict[str, Any]) -> bool:
    """Whole numbers below 2^24: their fp32 sums are exact in any order."""
    ranks = case["workers"]
    pattern = torch.arange(case["elements"]) % 1000
    values = (pattern + rank).to(torch.float32)
    dist.all_reduce(values)
    return bool(torch.equal(values, (pattern * ranks + ranks * (ranks - 1) // 2).to(torch.float32)))


if __name__ == "__main__":
    main()
