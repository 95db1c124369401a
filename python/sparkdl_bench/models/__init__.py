"""The engine-neutral model specification, as the JVM has it: layers, parameters, running statistics."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from sparkdl_bench import toml_depth
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.models import initializers, layers
from sparkdl_bench.models.layers import INPUT, ZERO, Layer, Tensor
from sparkdl_bench.nearest import suggestion

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["INPUT", "Array", "Layer", "ModelSpec", "Tensor", "initializers", "read"]

Array = npt.NDArray[np.float32]
_FILES = (".toml", ".json")
_LAYER_FIELDS = ("name", "kind", "options", "initializer", "bias_initializer", "inputs")


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
    """A specification; nothing has to be trained, and no Spark session has to be there.

    Args:
        source: the path of a TOML or JSON file (your own, as `model.spec` names it, or what
            `sparkdl-bench list model NAME --json` prints), JSON text, or what `FitResult.specification` holds. Where
            it says nothing of parameters and statistics, they follow from its layers, as in the JVM.

    Raises:
        ConfigurationError: the file cannot be read, or is no specification; the message names the layer and the key.
    """
    if isinstance(source, str) and source.endswith(_FILES):
        source = Path(source)
    if isinstance(source, Path):
        try:
            return _spec(_parsed(source))
        except ConfigurationError as error:
            raise ConfigurationError(f"In '{source}': {error}") from error
    if isinstance(source, str):
        try:
            source = json.loads(source)
        except (ValueError, RecursionError) as error:
            _refuse(f"it is not JSON ({error})", error)
    return _spec(source)


def _parsed(path: Path) -> Any:
    toml = path.suffix == ".toml"
    try:
        text = path.read_text(encoding="utf-8")
        if toml:
            toml_depth.check(text, str(path))
        return tomllib.loads(text) if toml else json.loads(text)
    except OSError as error:
        raise ConfigurationError(
            f"The model specification cannot be read: {error.strerror}. Give the path of a TOML or JSON file."
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"The model specification is not valid {'TOML' if toml else 'JSON'}: {error}. The suffix .toml means TOML, "
            "any other JSON."
        ) from error


def _spec(root: Any) -> ModelSpec:
    if not isinstance(root, Mapping):
        _refuse(f"it is a {type(root).__name__}, not an object of fields")
    listed = tuple(_layers(_field(root, "layers", "it")))
    name = str(_field(root, "name", "it"))
    shape = _sizes(_field(root, "input_shape", "it"), "its input_shape")
    classes = _whole(_field(root, "classes", "it"), "its number of classes", 1)
    _check_graph(name, listed)
    parameters, statistics = (_tensors(root, field, listed) for field in ("parameters", "statistics"))
    return ModelSpec(name, shape, classes, listed, parameters, statistics)


def _layers(nodes: Any) -> list[Layer]:
    found: list[Layer] = []
    for number, node in enumerate(_list(nodes, "its field 'layers' ([[layers]] in TOML)"), start=1):
        if not isinstance(node, Mapping):
            _refuse(f"its layer number {number} is {node!r}, not an object of fields")
        found.append(_layer(node, f"its layer number {number}", found[-1].name if found else INPUT))
    return found


def _layer(node: Mapping[str, Any], place: str, before: str) -> Layer:
    name = str(_field(node, "name", place))
    for field in node:
        if field not in _LAYER_FIELDS:
            _refuse(
                f"layer '{name}' has the field '{field}'.{suggestion(field, _LAYER_FIELDS)} Fields of a layer: "
                f"{', '.join(_LAYER_FIELDS)}; what belongs to its kind stands in 'options'"
            )
    kind = str(_field(node, "kind", f"layer '{name}'"))
    stated = node.get("options", {})
    if not isinstance(stated, Mapping):
        _refuse(f"layer '{name}' has options={stated!r}, not numbers by name")
    inputs = _list(node.get("inputs", []), f"the field 'inputs' of layer '{name}'")
    return Layer(
        name,
        kind,
        {str(key): _number(value, f"the option '{key}' of layer '{name}'") for key, value in stated.items()},
        tuple(str(each) for each in inputs) or (before,),
        str(node.get("initializer", "")),
        str(node.get("bias_initializer", ZERO)),
    )


def _check_graph(model: str, listed: Sequence[Layer]) -> None:
    """Every layer has a name of its own, reads what comes before it, and is read, the last one apart."""
    if not listed:
        raise ConfigurationError(f"Model '{model}' has no layers; it needs at least one.")
    known = {INPUT}
    for layer in listed:
        if layer.name in known:
            raise ConfigurationError(
                f"Model '{model}' has two layers called '{layer.name}' (or one called '{INPUT}', the name of its "
                "input); give each its own name."
            )
        for name in layer.inputs:
            if name not in known:
                raise ConfigurationError(
                    f"Layer '{layer.name}' reads '{name}', and no layer of that name comes before it. A layer is "
                    f"listed after those that it reads; the model's input is called '{INPUT}'."
                )
        known.add(layer.name)
    read_by_some = {name for layer in listed for name in layer.inputs}
    unread = [f"'{layer.name}'" for layer in listed[:-1] if layer.name not in read_by_some]
    if unread:
        raise ConfigurationError(
            f"Nothing in model '{model}' reads the output of {', '.join(unread)}; the last layer alone gives the "
            "model's result. Name those layers as inputs of later ones, or remove them."
        )


def _tensors(root: Mapping[str, Any], field: str, listed: Sequence[Layer]) -> tuple[Tensor, ...]:
    """They follow from the layers; where they are stated too, both must agree."""
    stated = tuple(_tensor(node, field) for node in _list(root[field], f"its {field}")) if field in root else None
    if "parameters" in root and any(layer.kind not in layers.KINDS for layer in listed):
        return stated or ()  # a kind that somebody has added to the JVM alone
    made = layers.parameters(listed) if field == "parameters" else layers.statistics(listed)
    if stated is not None and stated != made:
        differing = next((pair for pair in zip(stated, made, strict=False) if pair[0] != pair[1]), None)
        told = f"{differing[0]}, but its layers make {differing[1]}" if differing else f"{len(stated)}, not {len(made)}"
        _refuse(f"its {field} are {told}")
    return made


def _tensor(node: Any, field: str) -> Tensor:
    if not isinstance(node, Mapping):
        _refuse(f"its {field} hold {node!r}, not an object of fields")
    name = str(_field(node, "name", f"one of its {field}"))
    place = f"'{name}' of its {field}"
    return Tensor(
        name,
        _sizes(_field(node, "shape", place), f"the shape of {place}"),
        _whole(_field(node, "offset", place), f"the offset of {place}", 0),
        str(_field(node, "initializer", place)),
        _number(node.get("lr_mult", 1), f"the lr_mult of {place}"),
        _number(node.get("decay_mult", 1), f"the decay_mult of {place}"),
    )


def _list(value: Any, what: str) -> Sequence[Any]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        _refuse(f"{what} is {value!r}, not a list")
    return value


def _sizes(value: Any, what: str) -> tuple[int, ...]:
    return tuple(_whole(size, f"a size of {what}", 1) for size in _list(value, what))


def _whole(value: Any, what: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        _refuse(f"{what} is {value!r}, not a whole number of at least {least}")
    return value


def _number(value: Any, what: str) -> float:
    if not isinstance(value, (bool, int, float)):
        _refuse(f"{what} is {value!r}, not a number")
    try:
        return float(value)
    except OverflowError as error:
        _refuse(f"{what} is a whole number of {len(str(value))} digits, too large for a floating-point one", error)


def _field(node: Mapping[str, Any], name: str, place: str) -> Any:
    if name not in node:
        _refuse(f"{place} lacks the field '{name}'")
    return node[name]


def _refuse(reason: str, cause: Exception | None = None) -> NoReturn:
    raise ConfigurationError(
        f"The text is not a model specification: {reason}. docs/reference/models.md lists the fields, and "
        "`sparkdl-bench list model NAME --json` prints an example."
    ) from cause


def _length(tensors: tuple[Tensor, ...]) -> int:
    return tensors[-1].offset + tensors[-1].length if tensors else 0


def _filled(tensors: tuple[Tensor, ...], seed: int) -> Array:
    flat = np.empty(_length(tensors), np.float32)
    for index, tensor in enumerate(tensors):
        values = initializers.values(tensor.initializer, tensor.shape, seed, index)
        flat[tensor.offset : tensor.offset + tensor.length] = values
    return flat
