"""A ReLU perceptron in NumPy from scratch, one process: forward, backward and SGD written out."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ._fit import Clock, Rows, Start, flag, learning_rate, option, pool_threads, tested
from ._harness import read_arguments, write

PHASES = ("data", "compute", "update")


def main() -> None:
    case, out = read_arguments()
    clock = Clock()
    rows, start = Rows.read(case), Start.read(case)
    net = Perceptron.of(case, start)
    samples_ms: list[float] = []
    phases_ns = dict.fromkeys(PHASES, 0)
    clock.prepared()
    for epoch in range(case["epochs"]):
        order, losses = start.orders[epoch], 0.0
        for first in range(0, len(order), case["batch"]):
            begun = time.perf_counter_ns()
            picked = order[first : first + case["batch"]]
            x, y = rows.x_train[picked], rows.y_train[picked]
            read = time.perf_counter_ns()
            losses += net.gradients(x, y, len(y))
            computed = time.perf_counter_ns()
            net.update(learning_rate(case, len(samples_ms)))
            ended = time.perf_counter_ns()
            for name, nanoseconds in zip(PHASES, (read - begun, computed - read, ended - computed), strict=True):
                phases_ns[name] += nanoseconds
            samples_ms.append((ended - begun) / 1e6)
        with clock.evaluating():
            test_loss, accuracy = tested(net.scores(rows.x_test), rows.y_test)
        clock.tested(losses / len(order), test_loss, accuracy)
    facts = {
        **clock.facts(len(rows.y_train), pool_threads(1)),
        "numpy": np.__version__,
        "blas": str(np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]),
        "phases_ms": {name: total / 1e6 / len(samples_ms) for name, total in phases_ns.items()},
    }
    write(out, samples_ms, facts)


class Perceptron:
    """Linear layers with ReLU between them, cross-entropy behind them.

    Args:
        layers: weight (out × in) and bias of each.

    Attributes:
        flat: all gradients, one after the other.
    """

    @classmethod
    def of(cls, case: dict[str, Any], start: Start) -> Perceptron:
        """As the case has it, from its initial weights."""
        momentum, decay = option(case, "momentum", 0), option(case, "weight_decay", 0)
        return cls(start.perceptron(), momentum, decay, flag(case, "nesterov"))

    def __init__(self, layers: list[tuple[Any, Any]], momentum: float, decay: float, nesterov: bool) -> None:
        self.tensors = [tensor.copy() for layer in layers for tensor in layer]
        self.flat = np.zeros(sum(tensor.size for tensor in self.tensors), np.float32)
        ends = np.cumsum([tensor.size for tensor in self.tensors])
        self.gradient = [
            self.flat[end - tensor.size : end].reshape(tensor.shape)
            for end, tensor in zip(ends, self.tensors, strict=True)
        ]
        self._velocity = [np.zeros_like(tensor) for tensor in self.tensors] if momentum else []
        self._momentum, self._decay, self._nesterov = np.float32(momentum), np.float32(decay), nesterov

    def gradients(self, x: Any, y: Any, batch: int) -> float:
        """The sum of the rows' losses; leaves the gradient of it divided by `batch`."""
        values = self._forward(x)
        scores = values[-1]
        scores -= scores.max(axis=1, keepdims=True)
        rows = np.arange(len(y))
        own = scores[rows, y].copy()
        np.exp(scores, out=scores)
        sums = scores.sum(axis=1, keepdims=True)
        loss = float((np.log(sums[:, 0]) - own).sum())
        scores /= sums
        scores[rows, y] -= 1
        backward = scores / np.float32(batch)
        for layer in reversed(range(len(self.tensors) // 2)):
            np.matmul(backward.T, values[layer], out=self.gradient[2 * layer])
            backward.sum(axis=0, out=self.gradient[2 * layer + 1])
            if layer:
                backward = backward @ self.tensors[2 * layer]
                backward *= values[layer] > 0
        return loss

    def update(self, rate: float) -> None:
        step = np.float32(rate)
        for index, (weights, gradient) in enumerate(zip(self.tensors, self.gradient, strict=True)):
            if self._decay:
                gradient += self._decay * weights
            if self._velocity:
                velocity = self._velocity[index]
                velocity *= self._momentum
                velocity += gradient
                gradient = gradient + self._momentum * velocity if self._nesterov else velocity
            weights -= step * gradient

    def scores(self, x: Any) -> Any:
        return self._forward(x)[-1]

    def _forward(self, x: Any) -> list[Any]:
        values = [x]
        last = len(self.tensors) // 2 - 1
        for layer in range(last + 1):
            out = values[-1] @ self.tensors[2 * layer].T
            out += self.tensors[2 * layer + 1]
            if layer < last:
                np.maximum(out, 0, out=out)
            values.append(out)
        return values


if __name__ == "__main__":
    main()
