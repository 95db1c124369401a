"""A PyTorch multilayer perceptron's predictions: as many processes as workers, each with rows of its own in memory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]

from ._harness import read_arguments, write
from ._perceptron import perceptron
from ._ranks import run_ranks


def main() -> None:
    case, out = read_arguments()
    run_ranks(_rank, case, out)


def _rank(rank: int, case: dict[str, Any], rendezvous: str, out: Path) -> None:
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=case["workers"])
    torch.set_num_threads(case["threads"])
    torch.manual_seed(0)
    model = perceptron(case).eval()
    x = torch.rand(case["held_rows"] // case["workers"], case["features"])
    own = case["rows"] // case["workers"]

    def once() -> tuple[float, float]:
        """Milliseconds from the start that all share to the slowest rank's end, and the sum of the predictions."""
        dist.barrier()
        start = time.perf_counter_ns()
        total = _predict(model, x, own, case["batch"])
        dist.barrier()
        return (time.perf_counter_ns() - start) / 1e6, total

    once()
    taken = [once() for _ in range(case["samples"])]
    if rank == 0:
        facts = {"torch": torch.__version__, "threads": torch.get_num_threads(), "sum": taken[-1][1]}
        write(out, [ms * 1000 / case["rows"] for ms, _ in taken], facts)
    dist.barrier()  # no rank leaves while another still needs it


def _predict(model: Any, x: Any, rows: int, batch: int) -> float:
    """Probabilities and the most likely class of so many rows, those in memory again and again."""
    total, done = 0.0, 0
    with torch.inference_mode():
        while done < rows:
            start = done % len(x)
            some = x[start : min(start + batch, len(x), start + rows - done)]
            probabilities = torch.softmax(model(some), dim=1)
            total += float(probabilities.argmax(dim=1).sum())
            done += len(some)
    return total


if __name__ == "__main__":
    main()
