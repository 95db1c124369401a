"""A PyTorch multilayer perceptron trained for whole epochs: one process, or DistributedDataParallel over gloo."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]
import torch.nn.functional as functional  # type: ignore[import-not-found, unused-ignore]

from ._harness import read_arguments, write
from ._ranks import run_ranks
from ._same_start import row_order, weights

# The phases of a step (docs/reference/metrics.md). Putting gradients into DDP's buckets and starting their all-reduces
# is part of the backward pass, so of `compute`; `wait` is what of the all-reduces the backward pass does not hide.
PHASES = ("data", "compute", "wait", "update")


def main() -> None:
    case, out = read_arguments()
    if case["workers"] == 1:
        samples_ms, facts = _Fit(case, 0, _orders(case)).run()
        write(out, samples_ms, facts)
    else:
        run_ranks(_rank, case, out)


def _rank(rank: int, case: dict[str, Any], rendezvous: str, out: Path) -> None:
    orders = _orders(case)
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=case["workers"])
    samples_ms, facts = _Fit(case, rank, orders).run()
    sums_ms = torch.tensor([*samples_ms, *facts["phases_ms"].values()], dtype=torch.float64)
    dist.all_reduce(sums_ms)
    if rank == 0:
        means_ms = (sums_ms / case["workers"]).tolist()
        steps = len(samples_ms)
        write(out, means_ms[:steps], {**facts, "phases_ms": dict(zip(PHASES, means_ms[steps:], strict=True))})
    dist.barrier()  # no rank leaves while another still needs it


def _orders(case: dict[str, Any]) -> list[Any]:
    """The rows of each epoch. Made before the clock starts, because Python is slow at what others do at once."""
    with np.load(case["data_path"]) as data:
        rows = len(data["y_train"])
    return [torch.from_numpy(row_order(case["seed"], epoch, rows)) for epoch in range(case["epochs"])]


class _Fit:
    """One rank's training. The clock starts here: the process is up, as a run's executors are, no row has been read."""

    def __init__(self, case: dict[str, Any], rank: int, orders: list[Any]) -> None:
        self.start = time.perf_counter()
        self.case, self.rank, self.orders = case, rank, orders
        torch.set_num_threads(case["threads"])
        data = np.load(case["data_path"])
        self.train = [torch.from_numpy(data[name]) for name in ("x_train", "y_train")]
        self.test = [torch.from_numpy(data[name]) for name in ("x_test", "y_test")]
        widths = [self.train[0].shape[1], *case["hidden"], int(self.train[1].max()) + 1]
        layers: list[Any] = []
        for wide, narrow in pairwise(widths):
            layers += [torch.nn.Linear(wide, narrow), torch.nn.ReLU()]
        self.plain: Any = torch.nn.Sequential(*layers[:-1])
        linear = [layer for layer in self.plain if isinstance(layer, torch.nn.Linear)]
        with torch.no_grad():
            for layer, (weight, bias) in zip(linear, weights(widths, case["seed"]), strict=True):
                layer.weight.copy_(torch.from_numpy(weight))
                layer.bias.copy_(torch.from_numpy(bias))
        several = case["workers"] > 1
        self.model = torch.nn.parallel.DistributedDataParallel(self.plain) if several else self.plain
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=case["learning_rate"], momentum=case["momentum"])
        self.samples_ms: list[float] = []
        self.phases_ns = dict.fromkeys(PHASES, 0)
        self.computed_ns = 0
        self.evaluation_s = 0.0
        self.history: list[dict[str, Any]] = []

    def run(self) -> tuple[list[float], dict[str, Any]]:
        prepared_s = time.perf_counter() - self.start
        for epoch in range(self.case["epochs"]):
            own_losses = self._epoch(epoch)
            before = time.perf_counter()
            train_loss, test_loss, accuracy = self._evaluate(own_losses)
            now = time.perf_counter()
            self.evaluation_s += now - before
            self.history.append(
                {
                    "epoch": epoch + 1,
                    "seconds": round(now - self.start, 4),
                    "train_loss": train_loss,
                    "test_loss": test_loss,
                    "accuracy": accuracy,
                }
            )
        facts = {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "mkl": torch.backends.mkl.is_available(),
            "backend": "gloo" if self.case["workers"] > 1 else "none",
            "train_rows": len(self.train[1]),
            "seconds_total": time.perf_counter() - self.start,
            "seconds_prepare": prepared_s,
            "seconds_evaluation": self.evaluation_s,
            "phases_ms": {name: total / 1e6 / len(self.samples_ms) for name, total in self.phases_ns.items()},
            "history": self.history,
        }
        return self.samples_ms, facts

    def _epoch(self, epoch: int) -> float:
        """The sum of this rank's training losses over an epoch."""
        x, y = self.train
        batch, workers = self.case["batch"], self.case["workers"]
        order = self.orders[epoch]
        losses: float = 0.0
        for first in range(0, len(y), batch):
            begun = time.perf_counter_ns()
            rows = order[first : first + batch]
            own = rows[self.rank * len(rows) // workers : (self.rank + 1) * len(rows) // workers]
            x_own, y_own = x[own], y[own]
            read = time.perf_counter_ns()
            self.optimizer.zero_grad()
            loss = functional.cross_entropy(self.model(x_own), y_own, reduction="sum")
            # DDP averages over the ranks; this makes it the mean over the batch, whatever a rank's share.
            share = loss * workers / len(rows)
            if workers > 1:
                share.register_hook(self._tell_when_computed)
            share.backward()
            synchronised = time.perf_counter_ns()
            self.optimizer.step()
            updated = time.perf_counter_ns()
            losses += loss.item()
            ended = time.perf_counter_ns()
            computed = self.computed_ns if workers > 1 else synchronised
            working = (computed - read) + (ended - updated)
            self._count(read - begun, working, synchronised - computed, updated - synchronised)
        return losses

    def _tell_when_computed(self, _gradient: Any) -> None:
        """When the backward pass begins: so at its end before DDP's callback, which waits for the all-reduces.

        Takes some 8 µs a step.
        """
        torch.autograd.Variable._execution_engine.queue_callback(self._computed)

    def _computed(self) -> None:
        self.computed_ns = time.perf_counter_ns()

    def _count(self, *phases_ns: int) -> None:
        for name, nanoseconds in zip(PHASES, phases_ns, strict=True):
            self.phases_ns[name] += nanoseconds
        self.samples_ms.append(sum(phases_ns) / 1e6)

    def _evaluate(self, own_losses: float) -> tuple[float, float, float]:
        """Mean training loss of the epoch, mean loss (nats) and accuracy over the test rows, each rank a share."""
        x, y = (each[self.rank :: self.case["workers"]] for each in self.test)
        with torch.no_grad():
            scores = self.plain(x)
        loss = functional.cross_entropy(scores, y, reduction="sum").item()
        right = float((scores.argmax(1) == y).sum())
        sums = torch.tensor([loss, right, len(y), own_losses], dtype=torch.float64)
        if self.case["workers"] > 1:
            dist.all_reduce(sums)
        return float(sums[3] / len(self.train[1])), float(sums[0] / sums[2]), float(sums[1] / sums[2])


if __name__ == "__main__":
    main()
