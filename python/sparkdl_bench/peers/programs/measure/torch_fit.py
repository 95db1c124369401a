"""A model of ours trained in PyTorch for whole epochs: one process, or DistributedDataParallel over gloo."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]
import torch.nn.functional as functional  # type: ignore[import-not-found, unused-ignore]

from ._fit import Clock, Rows, Start, flag, learning_rate, option, own_share
from ._harness import read_arguments, write
from ._ranks import run_ranks
from .torch_model import Model

# The phases of a step (docs/reference/metrics.md). Putting gradients into DDP's buckets and starting their all-reduces
# is part of the backward pass, so of `compute`; `wait` is what of the all-reduces the backward pass does not hide.
PHASES = ("data", "compute", "wait", "update")
# Test rows of one pass: the values of a convolutional net's layers take memory.
EVALUATED_ROWS = 1000


def main() -> None:
    case, out = read_arguments()
    if case["workers"] == 1:
        samples_ms, facts = Fit(case, 0).run()
        write(out, samples_ms, facts)
    else:
        run_ranks(_rank, case, out)


def _rank(rank: int, case: dict[str, Any], rendezvous: str, out: Path) -> None:
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=case["workers"])
    samples_ms, facts = means(case, *Fit(case, rank).run())
    if rank == 0:
        write(out, samples_ms, facts)
    dist.barrier()  # no rank leaves while another still needs it


def means(case: dict[str, Any], samples_ms: list[float], facts: dict[str, Any]) -> tuple[list[float], dict[str, Any]]:
    """The ranks' means of the times of the steps and of the phases."""
    sums_ms = torch.tensor([*samples_ms, *facts["phases_ms"].values()], dtype=torch.float64)
    dist.all_reduce(sums_ms)
    means_ms = (sums_ms / case["workers"]).tolist()
    steps = len(samples_ms)
    return means_ms[:steps], {**facts, "phases_ms": dict(zip(PHASES, means_ms[steps:], strict=True))}


class Fit:
    """One rank's training, in a process group where there are several."""

    def __init__(self, case: dict[str, Any], rank: int, started_ms: float | None = None) -> None:
        self.clock = Clock(started_ms)
        self.case, self.rank = case, rank
        torch.set_num_threads(case["threads"])
        if case["tuned"]:
            torch.set_flush_denormal(True)
        torch.manual_seed(case["seed"])  # of dropout, whose masks are PyTorch's own
        rows, start = Rows.read(case), Start.read(case)
        shape = start.specification["input_shape"]
        self.train = [torch.from_numpy(rows.x_train).reshape(-1, *shape), torch.from_numpy(rows.y_train)]
        self.test = [torch.from_numpy(rows.x_test).reshape(-1, *shape), torch.from_numpy(rows.y_test)]
        self.orders = [torch.from_numpy(order.astype("int64")) for order in start.orders]
        self.plain: Any = Model(dict(start.specification))
        self.plain.start(start.tensors())
        several = case["workers"] > 1
        self.model = torch.nn.parallel.DistributedDataParallel(self.plain, **_ddp(case)) if several else self.plain
        self.optimizer = optimizer(case, self.model.parameters())
        self.samples_ms: list[float] = []
        self.phases_ns = dict.fromkeys(PHASES, 0)
        self.computed_ns = 0

    def run(self) -> tuple[list[float], dict[str, Any]]:
        self.clock.prepared()
        for epoch in range(self.case["epochs"]):
            own_losses = self._epoch(epoch)
            with self.clock.evaluating():
                measured = self._evaluate(own_losses)
            self.clock.tested(*measured)
        facts = {
            **self.clock.facts(len(self.train[1]), torch.get_num_threads()),
            "torch": torch.__version__,
            "mkl": torch.backends.mkl.is_available(),
            "backend": "gloo" if self.case["workers"] > 1 else "none",
            "phases_ms": {name: total / 1e6 / len(self.samples_ms) for name, total in self.phases_ns.items()},
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
            own = own_share(rows, self.rank, workers)
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
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate(self.case, len(self.samples_ms))
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
        loss = right = 0.0
        self.plain.eval()
        with torch.no_grad():
            for first in range(0, len(y), EVALUATED_ROWS):
                scores, labels = self.plain(x[first : first + EVALUATED_ROWS]), y[first : first + EVALUATED_ROWS]
                loss += functional.cross_entropy(scores, labels, reduction="sum").item()
                right += float((scores.argmax(1) == labels).sum())
        self.plain.train()
        sums = torch.tensor([loss, right, len(y), own_losses], dtype=torch.float64)
        if self.case["workers"] > 1:
            dist.all_reduce(sums)
        return float(sums[3] / len(self.train[1])), float(sums[0] / sums[2]), float(sums[1] / sums[2])


def optimizer(case: dict[str, Any], parameters: Any) -> Any:
    """PyTorch's own of the run's name; the learning rate is set before each step."""
    name, decay = case["optimizer"].get("name", "sgd"), option(case, "weight_decay", 0)
    rate, fused = learning_rate(case, 0), True if case["tuned"] else None
    if name == "sgd":
        momentum, nesterov = option(case, "momentum", 0), flag(case, "nesterov")
        return torch.optim.SGD(
            parameters, lr=rate, momentum=momentum, weight_decay=decay, nesterov=nesterov, fused=fused
        )
    if name == "adagrad":
        return torch.optim.Adagrad(
            parameters, lr=rate, eps=option(case, "epsilon", 1e-8), weight_decay=decay, fused=fused
        )
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    betas = option(case, "beta1", 0.9), option(case, "beta2", 0.999)
    epsilon = option(case, "epsilon", 1e-8)
    return kinds[name](parameters, lr=rate, betas=betas, eps=epsilon, weight_decay=decay, fused=fused)


def _ddp(case: dict[str, Any]) -> dict[str, bool]:
    """What DDP's guide recommends for a net whose graph stays, and which saves a copy of the gradients."""
    return {"gradient_as_bucket_view": True, "static_graph": True} if case["tuned"] else {}


if __name__ == "__main__":
    main()
