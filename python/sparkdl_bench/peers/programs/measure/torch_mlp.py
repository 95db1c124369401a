"""A PyTorch multilayer perceptron's SGD step: one process, or DistributedDataParallel over gloo."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]
import torch.nn.functional as functional  # type: ignore[import-not-found, unused-ignore]

from ._harness import batches, read_arguments, time_steps, training_rows, write
from ._perceptron import perceptron
from ._ranks import run_ranks


def main() -> None:
    case, out = read_arguments()
    if case["workers"] == 1:
        samples_ms, facts = _train(case, 0)
        write(out, samples_ms, facts)
    else:
        run_ranks(_rank, case, out)


def _rank(rank: int, case: dict[str, Any], rendezvous: str, out: Path) -> None:
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=case["workers"])
    samples_ms, facts = measured(rank, case)
    if rank == 0:
        write(out, samples_ms, facts)
    dist.barrier()  # no rank leaves while another still needs it


def measured(rank: int, case: dict[str, Any]) -> tuple[list[float], dict[str, Any]]:
    """Milliseconds per step, the mean over the ranks, and facts; in a group of any backend."""
    samples_ms, facts = _train(case, rank)
    # A step ends for each rank at its own time; the mean over the ranks sums up to the loop's wall-clock time.
    mean_ms = torch.tensor(samples_ms, dtype=torch.float64)
    dist.all_reduce(mean_ms)
    return (mean_ms / case["workers"]).tolist(), facts


def _train(case: dict[str, Any], rank: int) -> tuple[list[float], dict[str, Any]]:
    torch.set_num_threads(case["threads"])
    torch.manual_seed(0)
    model = perceptron(case)
    if case["workers"] > 1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=case["learning_rate"])
    x, y = (torch.from_numpy(values) for values in training_rows(case))
    pieces = batches(case, len(y), rank, case["workers"])
    losses: list[float] = []

    def step(index: int) -> None:
        rows = pieces[index % len(pieces)]
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    samples_ms = time_steps(step, case["warmup_steps"], case["steps"])
    if not losses[-1] < 100:
        raise SystemExit(f"training diverged: loss {losses[-1]} after {len(losses)} steps")
    return samples_ms, _facts(case, losses)


def _facts(case: dict[str, Any], losses: list[float]) -> dict[str, Any]:
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "mkl": torch.backends.mkl.is_available(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "backend": dist.get_backend() if case["workers"] > 1 else "none",
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "finished_at": time.time(),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS", ""),
    }


if __name__ == "__main__":
    main()
