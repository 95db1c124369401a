"""The SGD step of a model of ours in PyTorch, with its own modules and optimiser: one process, or DDP over gloo."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]
from torch import nn  # type: ignore[import-not-found, unused-ignore]

from ._harness import batches, read_arguments, time_steps, training_rows, write
from ._ranks import run_ranks

INPUT = "input"


class Model(nn.Module):  # type: ignore[misc, unused-ignore]
    """The layers of a specification (docs/reference/models.md), each a module of `torch.nn` where there is one."""

    def __init__(self, specification: dict[str, Any]) -> None:
        super().__init__()
        self.steps: list[tuple[str, list[str]]] = []
        self.parts = nn.ModuleDict()
        before = INPUT
        for layer in specification["layers"]:
            self.steps.append((layer["name"], layer.get("inputs") or [before]))
            if layer["kind"] not in _KINDS:
                raise SystemExit(f"This program has no layer of kind '{layer['kind']}' (layer '{layer['name']}').")
            self.parts[_key(layer["name"])] = _KINDS[layer["kind"]](layer.get("options", {}))
            before = layer["name"]

    def start(self, tensors: dict[str, Any]) -> None:
        """Takes the initial weights, by the names of the specification (`fc1.weight`)."""
        with torch.no_grad():
            for name, values in tensors.items():
                layer, _, part = name.rpartition(".")
                getattr(self.parts[_key(layer)], part).copy_(torch.from_numpy(values))

    def forward(self, x: Any) -> Any:
        values = {INPUT: x}
        for name, inputs in self.steps:
            values[name] = self.parts[_key(name)](*(values[each] for each in inputs))
        return values[self.steps[-1][0]]


class _Add(nn.Module):  # type: ignore[misc, unused-ignore]
    def forward(self, x: Any, y: Any) -> Any:
        return x + y


class _Concat(nn.Module):  # type: ignore[misc, unused-ignore]
    def forward(self, *inputs: Any) -> Any:
        return torch.cat(inputs, 1)


class _Linear(nn.Linear):  # type: ignore[misc, unused-ignore]
    def forward(self, x: Any) -> Any:
        return super().forward(x.flatten(1))


class _BatchNorm(nn.BatchNorm2d):  # type: ignore[misc, unused-ignore]
    def _check_input_dim(self, input: Any) -> None:  # noqa: A002 (torch's name)
        """Rows of one dimension as well."""


class _GlobalAvgPool(nn.Module):  # type: ignore[misc, unused-ignore]
    def forward(self, x: Any) -> Any:
        return x.mean((2, 3))


def _key(name: str) -> str:
    return name.replace(".", "_").replace("/", "_")


def _pool(kind: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda options: kind(
        options["kernel"],
        options.get("stride", options["kernel"]),
        options.get("padding", 0),
        ceil_mode=bool(options.get("ceil", 0)),
    )


def _conv(options: dict[str, Any]) -> Any:
    return nn.Conv2d(
        options["in"],
        options["out"],
        options["kernel"],
        options.get("stride", 1),
        options.get("padding", 0),
        groups=options.get("groups", 1),
        bias=bool(options.get("bias", 1)),
    )


_KINDS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "linear": lambda options: _Linear(options["in"], options["out"], bias=bool(options.get("bias", 1))),
    "conv2d": _conv,
    "max-pool": _pool(nn.MaxPool2d),
    "avg-pool": _pool(nn.AvgPool2d),
    "global-avg-pool": lambda _: _GlobalAvgPool(),
    "batch-norm": lambda options: _BatchNorm(
        options["channels"], options.get("eps", 1e-5), options.get("momentum", 0.1)
    ),
    "local-response-norm": lambda options: nn.LocalResponseNorm(
        options.get("size", 5), options.get("alpha", 1e-4), options.get("beta", 0.75), options.get("k", 1.0)
    ),
    "dropout": lambda options: nn.Dropout(options.get("rate", 0.5)),
    "relu": lambda _: nn.ReLU(),
    "tanh": lambda _: nn.Tanh(),
    "sigmoid": lambda _: nn.Sigmoid(),
    "log-softmax": lambda _: nn.LogSoftmax(1),
    "flatten": lambda _: nn.Flatten(),
    "add": lambda _: _Add(),
    "concat": lambda _: _Concat(),
}


def main() -> None:
    case, out = read_arguments()
    if case["workers"] == 1:
        write(out, *_train(case, 0))
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
    specification = json.loads(case["specification"])
    model: Any = Model(specification)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if case["workers"] > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=case["learning_rate"])
    x, y = (torch.from_numpy(values) for values in training_rows(case))
    x = x.reshape(-1, *specification["input_shape"])
    pieces = batches(case, len(y), rank, case["workers"])
    losses: list[float] = []

    def step(index: int) -> None:
        rows = pieces[index % len(pieces)]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    samples_ms = time_steps(step, case["warmup_steps"], case["steps"])
    facts = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "mkl": torch.backends.mkl.is_available(),
        "onednn": torch.backends.mkldnn.is_available(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "backend": dist.get_backend() if case["workers"] > 1 else "none",
        "parameters": parameters,
        "first_loss": losses[0],
        "last_loss": losses[-1],
    }
    return samples_ms, facts


if __name__ == "__main__":
    main()
