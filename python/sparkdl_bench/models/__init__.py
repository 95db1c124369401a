"""The engine-neutral model specification, as the JVM writes it: layers, parameters, running statistics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.models import initializers

Array = npt.NDArray[np.float32]
INPUT = "input"


@dataclass(frozen=True)
class Layer:
    """One layer.

    Attributes:
        options: numbers by name.
        inputs: names of the layers that it reads (`input` is the model's input), always stated.
    """

    name: str
    kind: str
    options: Mapping[str, float]
    inputs: tuple[str, ...]

    def integer(self, option: str, default: int | None = None) -> int:
        return int(self.number(option, default))

    def number(self, option: str, default: float | None = None) -> float:
        value = self.options.get(option, default)
        if value is None:
            raise ConfigurationError(f"Layer '{self.name}' of kind '{self.kind}' lacks its option '{option}'.")
        return float(value)


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
        return int(np.prod(self.shape))


@dataclass(frozen=True)
class ModelSpec:
    """A model; rows of `input_shape` go in, `classes` scores come out."""

    name: str
    input_shape: tuple[int, ...]
    classes: int
    layers: tuple[Layer, ...]
    parameters: tuple[Tensor, ...]
    statistics: tuple[Tensor, ...]

    @property
    def parameter_count(self) -> int:
        return _length(self.parameters)

    @property
    def statistics_count(self) -> int:
        return _length(self.statistics)

    def initial_parameters(self, seed: int) -> Array:
        """The parameters that every engine starts from, flat."""
        return _filled(self.parameters, seed)

    def initial_statistics(self) -> Array:
        return _filled(self.statistics, 0)


def read(source: str | Path | Mapping[str, Any]) -> ModelSpec:
    """A specification from JSON: its text, a file, or what `FitResult.specification` holds."""
    if isinstance(source, Path):
        source = source.read_text(encoding="utf-8")
    try:
        root: Mapping[str, Any] = json.loads(source) if isinstance(source, str) else source
        return ModelSpec(
            str(root["name"]),
            tuple(int(size) for size in root["input_shape"]),
            int(root["classes"]),
            tuple(_layers(root["layers"])),
            tuple(_tensor(each) for each in root["parameters"]),
            tuple(_tensor(each) for each in root.get("statistics", ())),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"The text is not a model specification as ModelSpec.toJson writes it: {error!r}. docs/models.md lists its "
            "fields."
        ) from error


def _layers(nodes: Any) -> list[Layer]:
    layers: list[Layer] = []
    for node in nodes:
        before = layers[-1].name if layers else INPUT
        inputs = tuple(str(name) for name in node.get("inputs", ())) or (before,)
        options = {str(name): float(value) for name, value in node.get("options", {}).items()}
        layers.append(Layer(str(node["name"]), str(node["kind"]), options, inputs))
    return layers


def _tensor(node: Mapping[str, Any]) -> Tensor:
    shape = tuple(int(size) for size in node["shape"])
    return Tensor(
        str(node["name"]),
        shape,
        int(node["offset"]),
        str(node["initializer"]),
        float(node.get("lr_mult", 1)),
        float(node.get("decay_mult", 1)),
    )


def _length(tensors: tuple[Tensor, ...]) -> int:
    return tensors[-1].offset + tensors[-1].length if tensors else 0


def _filled(tensors: tuple[Tensor, ...], seed: int) -> Array:
    flat = np.empty(_length(tensors), np.float32)
    for index, tensor in enumerate(tensors):
        values = initializers.values(tensor.initializer, tensor.shape, seed, index)
        flat[tensor.offset : tensor.offset + tensor.length] = values
    return flat
