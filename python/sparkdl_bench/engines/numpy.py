"""Multi-layer perceptrons in NumPy alone: linear layers and activations, written out. The plainest yardstick."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

import numpy as np

from sparkdl_bench.engines import Batch, EngineVariant, Evaluation, Memory, Values
from sparkdl_bench.engines._losses import CROSS_ENTROPY, Loss, log_softmax
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.models import Layer, ModelSpec

KINDS = ("linear", "relu", "tanh", "sigmoid", "flatten", "log-softmax")


class NumpyEngine:
    """See `Engine`. Suffixes are shapes: B rows, I and O inputs and outputs of a layer, C classes.

    Args:
        memory: that it computes in; None: its own, with the initial weights of `seed`.
        loss: what training makes small.

    Raises:
        ConfigurationError: the model is no chain of the layers that it has.
    """

    def __init__(
        self,
        spec: ModelSpec,
        seed: int,
        double: bool,
        memory: Memory | None = None,
        loss: Loss = CROSS_ENTROPY,
    ) -> None:
        for index, layer in enumerate(spec.layers):
            if layer.kind not in KINDS or (index > 0 and layer.inputs != (spec.layers[index - 1].name,)):
                raise ConfigurationError(
                    f"The engine 'numpy' computes chains of {', '.join(KINDS)}; layer '{layer.name}' is of kind "
                    f"'{layer.kind}' and reads {', '.join(layer.inputs)}. Take the engine 'torch' or 'libtorch'."
                )
        self._spec, self._loss = spec, loss
        self._type: Any = np.float64 if double else np.float32
        memory = memory or Memory.fresh(spec, seed, double)
        self.parameters: Values = memory.parameters
        self.gradients: Values = memory.gradients
        self.statistics: Values = memory.statistics
        self._offsets = {each.name: each for each in spec.parameters}
        # Behind it nobody needs the gradient of what a layer reads.
        self._first = next((index for index, layer in enumerate(spec.layers) if layer.kind == "linear"), 0)

    @property
    def facts(self) -> Mapping[str, str]:
        return {"device": "cpu", "python": platform.python_version(), "numpy": np.__version__}

    def step(self, batch: Batch, weight: float) -> float:
        values = self._forward(batch)
        loss, gradient = self._loss.of(values[-1], batch.labels, batch.weights)
        gradient *= self._type(weight)
        for index in reversed(range(len(self._spec.layers))):
            self._keep_gradients(self._spec.layers[index], values[index], gradient)
            if index > self._first:
                gradient = self._backward(self._spec.layers[index], values[index + 1], gradient)
        return loss

    def evaluate(self, batch: Batch) -> Evaluation:
        logits_BC = self._forward(batch)[-1]
        loss, _ = self._loss.of(logits_BC, batch.labels, batch.weights)
        rows, correct = self._loss.measured(logits_BC, batch.labels)
        return Evaluation(rows, loss, correct, logits_BC)

    def predict(self, batch: Batch) -> Values:
        return self._forward(batch)[-1]

    def _forward(self, batch: Batch) -> list[Values]:
        values: list[Values] = [batch.features.reshape(len(batch.labels), -1).astype(self._type, copy=False)]
        for layer in self._spec.layers:
            values.append(self._output(layer, values[-1]))
        return values

    def _output(self, layer: Layer, x_BI: Values) -> Values:
        if layer.kind == "linear":
            y_BO: Values = x_BI @ self._tensor(self.parameters, f"{layer.name}.weight").T
            if layer.integer("bias", 1):
                y_BO += self._tensor(self.parameters, f"{layer.name}.bias")
            return y_BO
        if layer.kind == "relu":
            return np.maximum(x_BI, 0)
        if layer.kind == "tanh":
            return np.tanh(x_BI)
        if layer.kind == "sigmoid":
            return np.asarray(1 / (1 + np.exp(-x_BI)))
        if layer.kind == "log-softmax":
            return log_softmax(x_BI)
        return x_BI

    def _keep_gradients(self, layer: Layer, x_BI: Values, dy_BO: Values) -> None:
        """Writes those of the layer's own parameters."""
        if layer.kind == "linear":
            np.matmul(dy_BO.T, x_BI, out=self._tensor(self.gradients, f"{layer.name}.weight"))
            if layer.integer("bias", 1):
                self._tensor(self.gradients, f"{layer.name}.bias")[:] = dy_BO.sum(axis=0)

    def _backward(self, layer: Layer, y: Values, dy: Values) -> Values:
        """The gradient of the layer's input."""
        if layer.kind == "linear":
            return np.asarray(dy @ self._tensor(self.parameters, f"{layer.name}.weight"))
        if layer.kind == "relu":
            return np.where(y > 0, dy, self._type(0))
        if layer.kind == "tanh":
            return np.asarray(dy * (1 - y * y))
        if layer.kind == "sigmoid":
            return np.asarray(dy * y * (1 - y))
        if layer.kind == "log-softmax":
            return np.asarray(dy - np.exp(y) * dy.sum(axis=1, keepdims=True))
        return dy

    def _tensor(self, flat: Values, name: str) -> Values:
        place = self._offsets[name]
        return flat[place.offset : place.offset + place.length].reshape(place.shape)


def _over(spec: ModelSpec, seed: int, memory: Memory, device: str, loss: Loss) -> NumpyEngine:
    if device != "cpu":
        raise ConfigurationError(
            f"The engine 'numpy' was to compute on device '{device}', and it has the CPU alone. Take device cpu, or "
            "the engine 'torch'."
        )
    return NumpyEngine(spec, seed, False, memory, loss)


ENGINE = EngineVariant("numpy", "NumPy alone: multi-layer perceptrons, from scratch", NumpyEngine, _over)
