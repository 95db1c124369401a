"""What each kind of layer is in ONNX and in PyTorch: one entry of `KINDS` a kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.exports import library
from sparkdl_bench.models import Layer

Shape: TypeAlias = "tuple[int, ...]"
Inputs: TypeAlias = "Sequence[str]"


class Graph(Protocol):
    """What a layer adds its operators to."""

    def node(self, operator: str, inputs: Inputs, **attributes: Any) -> str:
        """Adds an operator of one output and returns the output's name."""
        ...

    def constant(self, values: npt.NDArray[Any]) -> str:
        """Adds a constant that is no weight of the model, and returns its name."""
        ...

    def weights(self, layer: Layer) -> list[str]:
        """The names of the layer's parameters and statistics, in the layout's order."""
        ...


def _first_shape(_: Layer, shapes: Sequence[Shape]) -> Shape:
    return shapes[0]


def _no_module(_nn: Any, _layer: Layer, _shapes: Sequence[Shape]) -> Any:
    return None


def _call(module: Any, inputs: Sequence[Any]) -> Any:
    return module(*inputs)


@dataclass(frozen=True)
class LayerMapping:
    """One kind of layer in other programs. Shapes are those of a row.

    Attributes:
        onnx: of (graph, layer, names of inputs, shapes of inputs) adds operators, and returns the output's name.
        shape: of (layer, shapes of inputs) is that of the output.
        module: of (torch.nn, layer, shapes of inputs) makes PyTorch's module, or None where it is none.
        apply: of (module, inputs) computes the output with PyTorch.
    """

    onnx: Callable[[Graph, Layer, Inputs, Sequence[Shape]], str]
    shape: Callable[[Layer, Sequence[Shape]], Shape] = _first_shape
    module: Callable[[Any, Layer, Sequence[Shape]], Any] = _no_module
    apply: Callable[[Any, Sequence[Any]], Any] = _call


def find(layer: Layer) -> LayerMapping:
    if layer.kind not in KINDS:
        raise ConfigurationError(
            f"Layer '{layer.name}' is of kind '{layer.kind}', which has no counterpart here in ONNX or PyTorch. Kinds "
            f"that have one: {', '.join(KINDS)}. safetensors and npz take any model: they hold weights alone."
        )
    return KINDS[layer.kind]


@dataclass(frozen=True)
class _Window:
    kernel: int
    stride: int
    padding: int
    ceil: bool

    @classmethod
    def of(cls, layer: Layer) -> _Window:
        kernel = layer.whole("kernel")
        return cls(kernel, layer.whole("stride", kernel), layer.whole("padding", 0, 0), layer.flag("ceil", False))

    def size(self, length: int) -> int:
        """Windows along a side; each begins inside the input or its padding before it, as PyTorch has it."""
        span = length + 2 * self.padding - self.kernel
        count = (-(-span // self.stride) if self.ceil else span // self.stride) + 1
        return count - 1 if self.ceil and (count - 1) * self.stride >= length + self.padding else count

    def beyond(self, length: int) -> int:
        """By how much the last window goes beyond the padding behind the input."""
        return max(0, (self.size(length) - 1) * self.stride + self.kernel - length - 2 * self.padding)

    def attributes(self, shape: Shape) -> dict[str, list[int]]:
        """ONNX's, with that overhang as padding: what `ceil_mode` does at the edge differs between its versions."""
        _, height, width = shape
        after = [self.padding + self.beyond(each) for each in (height, width)]
        return {
            "kernel_shape": [self.kernel, self.kernel],
            "strides": [self.stride, self.stride],
            "pads": [self.padding, self.padding, *after],
        }

    def torch(self) -> dict[str, Any]:
        return {
            "kernel_size": self.kernel,
            "stride": self.stride,
            "padding": self.padding,
            "ceil_mode": self.ceil,
        }


def _pooled(layer: Layer, shapes: Sequence[Shape]) -> Shape:
    window, (channels, height, width) = _Window.of(layer), shapes[0]
    return channels, window.size(height), window.size(width)


def _max_pool(graph: Graph, layer: Layer, inputs: Inputs, shapes: Sequence[Shape]) -> str:
    return graph.node("MaxPool", inputs, **_Window.of(layer).attributes(shapes[0]))


def _avg_pool(graph: Graph, layer: Layer, inputs: Inputs, shapes: Sequence[Shape]) -> str:
    window = _Window.of(layer)
    mean = graph.node("AveragePool", inputs, count_include_pad=1, **window.attributes(shapes[0]))
    rows, columns = (_overcounted(window, length) for length in shapes[0][1:])
    if not window.ceil or (rows.max() == 1 and columns.max() == 1):
        return mean
    return graph.node("Mul", [mean, graph.constant(np.outer(rows, columns).astype(np.float32))])


def _overcounted(window: _Window, length: int) -> npt.NDArray[np.float64]:
    """Of each window along a side: its kernel by what of it lies in the input and its padding, which alone counts."""
    starts = np.arange(window.size(length)) * window.stride
    counted = np.minimum(starts + window.kernel, length + 2 * window.padding) - starts
    return np.asarray(window.kernel / counted, np.float64)


def _linear(graph: Graph, layer: Layer, inputs: Inputs, shapes: Sequence[Shape]) -> str:
    flat = inputs[0] if len(shapes[0]) == 1 else graph.node("Flatten", inputs, axis=1)
    return graph.node("Gemm", [flat, *graph.weights(layer)], transB=1)


def _conv2d(graph: Graph, layer: Layer, inputs: Inputs, shapes: Sequence[Shape]) -> str:  # noqa: ARG001
    kernel, stride, padding = _convolution(layer)
    return graph.node(
        "Conv",
        [*inputs, *graph.weights(layer)],
        kernel_shape=[kernel, kernel],
        strides=[stride, stride],
        pads=[padding] * 4,
        group=layer.whole("groups", 1),
    )


def _convolution(layer: Layer) -> tuple[int, int, int]:
    return layer.whole("kernel"), layer.whole("stride", 1), layer.whole("padding", 0, 0)


def _convolved(layer: Layer, shapes: Sequence[Shape]) -> Shape:
    kernel, stride, padding = _convolution(layer)
    return (layer.whole("out"), *((each + 2 * padding - kernel) // stride + 1 for each in shapes[0][1:]))


def _conv2d_module(nn: Any, layer: Layer, _: Sequence[Shape]) -> Any:
    kernel, stride, padding = _convolution(layer)
    return nn.Conv2d(
        layer.whole("in"),
        layer.whole("out"),
        kernel,
        stride,
        padding,
        groups=layer.whole("groups", 1),
        bias=layer.flag("bias", True),
    )


def _batch_norm(graph: Graph, layer: Layer, inputs: Inputs, shapes: Sequence[Shape]) -> str:  # noqa: ARG001
    eps = layer.number("eps", 1e-5)
    return graph.node("BatchNormalization", [*inputs, *graph.weights(layer)], epsilon=eps)


def _batch_norm_module(nn: Any, layer: Layer, shapes: Sequence[Shape]) -> Any:
    kind = nn.BatchNorm2d if len(shapes[0]) == 3 else nn.BatchNorm1d
    return kind(layer.whole("channels"), layer.number("eps", 1e-5), layer.number("momentum", 0.1))


def _response(layer: Layer) -> tuple[int, float, float, float]:
    size = layer.whole("size", 5)
    if size % 2 == 0:
        raise ConfigurationError(
            f"Layer '{layer.name}' of kind '{layer.kind}' has size={size}, and the number of neighbouring channels "
            "must be odd, such as 5."
        )
    return size, layer.number("alpha", 1e-4), layer.number("beta", 0.75), layer.number("k", 1.0)


def _local_response_norm(graph: Graph, layer: Layer, inputs: Inputs, shapes: Sequence[Shape]) -> str:  # noqa: ARG001
    size, alpha, beta, k = _response(layer)
    return graph.node("LRN", inputs, size=size, alpha=alpha, beta=beta, bias=k)


def _alike(
    operator: str, module: Callable[[Any, Layer, Sequence[Shape]], Any] = _no_module, **attributes: Any
) -> LayerMapping:
    """A kind that is one operator without weights, whose output has its input's shape."""
    return LayerMapping(
        lambda graph, _layer, inputs, _shapes: graph.node(operator, inputs, **attributes), module=module
    )


def _joined(_: Layer, shapes: Sequence[Shape]) -> Shape:
    return (sum(shape[0] for shape in shapes), *shapes[0][1:])


# By kind, as `sparkdl_bench.models.layers.KINDS` has them.
KINDS: Mapping[str, LayerMapping] = {
    "add": LayerMapping(
        lambda graph, _layer, inputs, _shapes: graph.node("Add", inputs),
        apply=lambda _, inputs: inputs[0] + inputs[1],
    ),
    "avg-pool": LayerMapping(_avg_pool, _pooled, lambda nn, layer, _: nn.AvgPool2d(**_Window.of(layer).torch())),
    "batch-norm": LayerMapping(_batch_norm, module=_batch_norm_module),
    "concat": LayerMapping(
        lambda graph, _layer, inputs, _shapes: graph.node("Concat", inputs, axis=1),
        _joined,
        apply=lambda _, inputs: library("torch", "torch", "A module of PyTorch's").cat(list(inputs), 1),
    ),
    "conv2d": LayerMapping(_conv2d, _convolved, _conv2d_module),
    "dropout": _alike("Identity", lambda nn, layer, _: nn.Dropout(layer.number("rate", 0.5))),
    "flatten": LayerMapping(
        lambda graph, _layer, inputs, _shapes: graph.node("Flatten", inputs, axis=1),
        lambda _, shapes: (math.prod(shapes[0]),),
        lambda nn, _layer, _shapes: nn.Flatten(),
    ),
    "global-avg-pool": LayerMapping(
        lambda graph, _layer, inputs, _shapes: graph.node("Flatten", [graph.node("GlobalAveragePool", inputs)], axis=1),
        lambda _, shapes: shapes[0][:1],
        apply=lambda _, inputs: inputs[0].mean((2, 3)),
    ),
    "linear": LayerMapping(
        _linear,
        lambda layer, _: (layer.whole("out"),),
        lambda nn, layer, _: nn.Linear(layer.whole("in"), layer.whole("out"), layer.flag("bias", True)),
        lambda module, inputs: module(inputs[0].flatten(1)),
    ),
    "local-response-norm": LayerMapping(
        _local_response_norm, module=lambda nn, layer, _: nn.LocalResponseNorm(*_response(layer))
    ),
    "log-softmax": _alike("LogSoftmax", lambda nn, _layer, _shapes: nn.LogSoftmax(1), axis=1),
    "max-pool": LayerMapping(_max_pool, _pooled, lambda nn, layer, _: nn.MaxPool2d(**_Window.of(layer).torch())),
    "relu": _alike("Relu", lambda nn, _layer, _shapes: nn.ReLU()),
    "sigmoid": _alike("Sigmoid", lambda nn, _layer, _shapes: nn.Sigmoid()),
    "tanh": _alike("Tanh", lambda nn, _layer, _shapes: nn.Tanh()),
}
