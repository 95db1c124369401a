"""Layers, and the tensors that they hold.

What a kind of layer holds is what its `LayerKind` says in the JVM (`jvm/src/main/scala/sparkdlbench/model/`), so that a
list of layers alone decides every tensor's name, shape and place here too; docs/reference/models.md has the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.nearest import suggestion

INPUT = "input"
ZERO = "zero"
_MOST_VALUES = 2**31 - 1


@dataclass(frozen=True)
class Layer:
    """One layer.

    Attributes:
        options: numbers by name.
        inputs: names of the layers that it reads (`input` is the model's input), always stated.
        initializer: of its weights; empty where it has none.
    """

    name: str
    kind: str
    options: Mapping[str, float]
    inputs: tuple[str, ...]
    initializer: str = ""
    bias_initializer: str = ZERO

    def integer(self, option: str, default: int | None = None) -> int:
        return int(self.number(option, default))

    def number(self, option: str, default: float | None = None) -> float:
        value = self.options.get(option, default)
        if value is None:
            stated = ", ".join(sorted(self.options)) or "none"
            raise ConfigurationError(
                f"Layer '{self.name}' of kind '{self.kind}' lacks its option '{option}'; it has: {stated}."
            )
        return float(value)

    def whole(self, option: str, default: int | None = None, least: int = 1) -> int:
        """An option that must be a whole number."""
        value = self.number(option, default)
        if not value.is_integer() or value < least or value > _MOST_VALUES:
            raise self._invalid(option, value, f"a whole number, at least {least}")
        return int(value)

    def flag(self, option: str, default: bool) -> bool:
        """An option that must be 0 or 1."""
        value = self.number(option, float(default))
        if value not in (0, 1):
            raise self._invalid(option, value, "0 or 1")
        return value == 1

    def factor(self, option: str) -> float:
        """An option that must be a number of at least 0; 1 where it is not there."""
        value = self.number(option, 1)
        if not 0 <= value < float("inf"):
            raise self._invalid(option, value, "a number, at least 0")
        return value

    def _invalid(self, option: str, value: float, valid: str) -> ConfigurationError:
        return ConfigurationError(
            f"Layer '{self.name}' of kind '{self.kind}' has {option}={value:g}, which is not valid. Valid: {valid}."
        )


@dataclass(frozen=True)
class Tensor:
    """A parameter's or a statistic's place in its flat buffer: values `offset` until `offset + length`.

    Attributes:
        rate: factor of the run's learning rate for this parameter.
        decay: factor of its weight decay.
    """

    name: str
    shape: tuple[int, ...]
    offset: int
    initializer: str
    rate: float = 1.0
    decay: float = 1.0

    @property
    def length(self) -> int:
        return math.prod(self.shape)


Shapes: TypeAlias = "list[tuple[str, tuple[int, ...]]]"


def _nothing(_: Layer) -> Shapes:
    return []


@dataclass(frozen=True)
class Kind:
    """One kind of layer.

    Attributes:
        options: that it reads, those of its tensors (`weight_lr_mult`, …) apart.
        parameters: its tensors in layout order, as (suffix, shape).
        statistics: its running statistics, likewise, and what each starts from.
    """

    options: tuple[str, ...] = ()
    parameters: Callable[[Layer], Shapes] = _nothing
    statistics: Callable[[Layer], list[tuple[str, tuple[int, ...], str]]] = lambda _: []


def _bias(layer: Layer) -> Shapes:
    return [("bias", (layer.whole("out"),))] if layer.flag("bias", True) else []


def _linear(layer: Layer) -> Shapes:
    return [("weight", (layer.whole("out"), layer.whole("in"))), *_bias(layer)]


def _conv2d(layer: Layer) -> Shapes:
    channels, out, kernel = layer.whole("in"), layer.whole("out"), layer.whole("kernel")
    groups = layer.whole("groups", 1)
    if channels % groups or out % groups:
        raise ConfigurationError(
            f"Layer '{layer.name}' of kind 'conv2d' has groups={groups}, which must divide its options in={channels} "
            f"and out={out}."
        )
    return [("weight", (out, channels // groups, kernel, kernel)), *_bias(layer)]


def _batch_norm(layer: Layer) -> Shapes:
    shape = (layer.whole("channels"),)
    return [("weight", shape), ("bias", shape)]


def _running(layer: Layer) -> list[tuple[str, tuple[int, ...], str]]:
    shape = (layer.whole("channels"),)
    return [("running_mean", shape, ZERO), ("running_var", shape, "one")]


_WINDOW = ("kernel", "stride", "padding", "ceil")
KINDS: Mapping[str, Kind] = {
    "add": Kind(),
    "avg-pool": Kind(_WINDOW),
    "batch-norm": Kind(("channels", "eps", "momentum", "sync"), _batch_norm, _running),
    "concat": Kind(),
    "conv2d": Kind(("in", "out", "kernel", "stride", "padding", "groups", "bias"), _conv2d),
    "dropout": Kind(("rate",)),
    "flatten": Kind(),
    "global-avg-pool": Kind(),
    "linear": Kind(("in", "out", "bias"), _linear),
    "local-response-norm": Kind(("size", "alpha", "beta", "k")),
    "log-softmax": Kind(),
    "max-pool": Kind(_WINDOW),
    "relu": Kind(),
    "sigmoid": Kind(),
    "tanh": Kind(),
}


def parameters(layers: Sequence[Layer]) -> tuple[Tensor, ...]:
    """The parameters in the order of the layers, densely packed.

    Raises:
        ConfigurationError: a layer's kind or an option of it is not there, or not valid.
    """
    tensors = []
    for layer in layers:
        for suffix, shape in _kind(layer).parameters(layer):
            initializer = layer.bias_initializer if suffix == "bias" else layer.initializer
            rate, decay = (layer.factor(option) for option in _multipliers(suffix))
            tensors.append(Tensor(f"{layer.name}.{suffix}", shape, 0, initializer, rate, decay))
        _check_options(layer)
    return _packed(tensors)


def statistics(layers: Sequence[Layer]) -> tuple[Tensor, ...]:
    """Running statistics in the order of the layers, densely packed in a buffer of their own."""
    return _packed(
        Tensor(f"{layer.name}.{suffix}", shape, 0, initial)
        for layer in layers
        for suffix, shape, initial in _kind(layer).statistics(layer)
    )


def _packed(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    packed: list[Tensor] = []
    offset = 0
    for each in tensors:
        packed.append(Tensor(each.name, each.shape, offset, each.initializer, each.rate, each.decay))
        offset += each.length
    if offset > _MOST_VALUES:
        raise ConfigurationError(
            f"The model has {offset:,} parameters, and one flat buffer holds {_MOST_VALUES:,} at most. Make its layers "
            "smaller."
        )
    return tuple(packed)


def _multipliers(suffix: str) -> tuple[str, str]:
    return f"{suffix}_lr_mult", f"{suffix}_decay_mult"


def _check_options(layer: Layer) -> None:
    kind = _kind(layer)
    own = [option for suffix, _ in kind.parameters(layer) for option in _multipliers(suffix)]
    valid = [*kind.options, *own]
    for name in sorted(layer.options):
        if name not in valid:
            raise ConfigurationError(
                f"Layer '{layer.name}' of kind '{layer.kind}' has the option '{name}', which that kind does not know."
                f"{suggestion(name, valid)} Its options: {', '.join(valid) or 'none'}."
            )


def _kind(layer: Layer) -> Kind:
    kind = KINDS.get(layer.kind)
    if kind is None:
        raise ConfigurationError(
            f"Layer '{layer.name}' is of the unknown kind '{layer.kind}'.{suggestion(layer.kind, KINDS)} Valid kinds: "
            f"{', '.join(KINDS)}."
        )
    return kind
