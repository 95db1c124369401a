"""ONNX: the whole way from a row as it is stored to class scores and probabilities, for ONNX Runtime and its like.

Input `rows` is batch × the row's shape, outputs are `scores` and `probabilities`, batch × classes (of a regression
`scores` alone, batch × 1). The initialisers are the weights, by their own names; labels, layers and preprocessing stand
in the file's metadata, too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.exports import DamagedError, ExportFormat, _layers, is_counter, library
from sparkdl_bench.models import INPUT, Layer, ModelSpec
from sparkdl_bench.saved import SavedModel, Weights
from sparkdl_bench.version import __version__

# Of operators and of the file: old enough for ONNX Runtime 1.12 (2022).
_OPSET, _FILE_VERSION = 17, 8
# What one message of protocol buffers may hold; a graph's operators need far less than the difference to 2 GiB.
_MOST_BYTES = 2**31 - 2**24
_FLOATS = ("FLOAT", "FLOAT16", "DOUBLE")


class _Graph:
    """See `_layers.Graph`."""

    def __init__(self, onnx: Any, spec: ModelSpec) -> None:
        self._onnx, self._spec = onnx, spec
        self.nodes: list[Any] = []
        self.scope = ""

    def node(self, operator: str, inputs: Sequence[str], **attributes: Any) -> str:
        output = f"{self.scope}/{operator}_{len(self.nodes)}"
        self.nodes.append(self._onnx.helper.make_node(operator, list(inputs), [output], name=output, **attributes))
        return output

    def constant(self, values: npt.NDArray[Any]) -> str:
        return self.node("Constant", [], value=self._onnx.numpy_helper.from_array(values))

    def weights(self, layer: Layer) -> list[str]:
        places = (*self._spec.parameters, *self._spec.statistics)
        return [place.name for place in places if place.name.rpartition(".")[0] == layer.name]

    def named(self, output: str, name: str) -> None:
        """Gives one of the nodes' outputs the name that users see."""
        self.nodes.append(self._onnx.helper.make_node("Identity", [output], [name], name=name))


def _write(spec: ModelSpec, model: SavedModel, path: Path) -> None:
    onnx = library("onnx", "onnx", "Writing ONNX")
    held = sum(array.nbytes for array in model.weights.values())
    if held > _MOST_BYTES:
        raise ConfigurationError(
            f"The weights of the model {spec.name} take {held:,} bytes, and a file of ONNX holds {_MOST_BYTES:,} at "
            "most. Export safetensors."
        )
    rows = model.input or {"shape": list(spec.input_shape)}
    graph = _Graph(onnx, spec)
    values = {INPUT: _prepared(graph, onnx, spec, rows)}
    shapes = {INPUT: spec.input_shape}
    for layer in spec.layers:
        mapping, graph.scope = _layers.find(layer), layer.name
        inputs = [shapes[name] for name in layer.inputs]
        values[layer.name] = mapping.onnx(graph, layer, [values[name] for name in layer.inputs], inputs)
        shapes[layer.name] = mapping.shape(layer, inputs)
    last, graph.scope = spec.layers[-1].name, "result"
    scores = graph.node("Flatten", [values[last]], axis=1)
    graph.named(scores, "scores")
    if rows.get("binary"):
        graph.named(graph.node("Sigmoid", [scores]), "probabilities")
    elif "probabilities" in _outputs(spec, rows):
        graph.named(graph.node("Softmax", [scores], axis=1), "probabilities")
    path.write_bytes(_file(onnx, spec, model, rows, graph).SerializeToString(deterministic=True))


def _prepared(graph: _Graph, onnx: Any, spec: ModelSpec, rows: dict[str, Any]) -> str:
    """As RowInput.features in the JVM: the factor in double precision, the rest in single."""
    graph.scope = "rows"
    shape = [int(size) for size in rows["shape"]]
    found = "rows"
    if (factor := float(rows.get("factor", 1))) != 1:
        double = graph.node("Cast", [found], to=onnx.TensorProto.DOUBLE)
        scaled = graph.node("Mul", [double, graph.constant(np.asarray(factor, np.float64))])
        found = graph.node("Cast", [scaled], to=onnx.TensorProto.FLOAT)
    for operator, name in (("Sub", "subtract"), ("Mul", "multiply")):
        if rows.get(name):
            found = graph.node(operator, [found, graph.constant(np.asarray(rows[name], np.float32).reshape(shape))])
    if crop := int(rows.get("crop", 0)):
        starts = np.array([(each - crop) // 2 for each in shape[1:]], np.int64)
        places = (starts, starts + crop, np.array([2, 3], np.int64))
        found = graph.node("Slice", [found, *(graph.constant(each) for each in places)])
        shape = [shape[0], crop, crop]
    if tuple(shape) != tuple(spec.input_shape):
        found = graph.node("Reshape", [found, graph.constant(np.array([-1, *spec.input_shape], np.int64))])
    return found


def _outputs(spec: ModelSpec, rows: dict[str, Any]) -> tuple[str, ...]:
    """A regression, which has one output, gives its number as the score; answers have a probability each."""
    return ("scores",) if spec.classes == 1 and not rows.get("binary") else ("scores", "probabilities")


def _file(onnx: Any, spec: ModelSpec, model: SavedModel, rows: dict[str, Any], graph: _Graph) -> Any:
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    places = (*spec.parameters, *spec.statistics)
    built = helper.make_graph(
        graph.nodes,
        spec.name,
        [helper.make_tensor_value_info("rows", kind, ["batch", *rows["shape"]])],
        [helper.make_tensor_value_info(name, kind, ["batch", spec.classes]) for name in _outputs(spec, rows)],
        [onnx.numpy_helper.from_array(np.asarray(model.weights[each.name], np.float32), each.name) for each in places],
    )
    made = helper.make_model(
        built,
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_FILE_VERSION,
        producer_name="sparkdl-bench",
        producer_version=__version__,
    )
    about = {"model": model.specification, "input": rows, "labels": rows.get("labels", [])}
    helper.set_model_props(made, {f"sparkdl_bench.{name}": json.dumps(value) for name, value in about.items()})
    onnx.checker.check_model(made)
    return made


def _read(path: Path) -> Weights:
    onnx = library("onnx", "onnx", "Reading ONNX")
    if path.stat().st_size >= 2**31:
        raise DamagedError(f"it has {path.stat().st_size:,} bytes, and a file of ONNX has fewer than 2 GiB")
    try:
        graph = onnx.load(path, load_external_data=False).graph
    except library("google.protobuf.message", "onnx", "Reading ONNX").DecodeError as error:
        raise DamagedError(f"it is no message of ONNX ({error})") from error
    return {tensor.name: _array(onnx, tensor) for tensor in graph.initializer if not is_counter(tensor.name)}


def _array(onnx: Any, tensor: Any) -> npt.NDArray[np.float32]:
    kinds = {getattr(onnx.TensorProto, kind): kind for kind in _FLOATS}
    if tensor.data_type not in kinds:
        raise DamagedError(
            f"the initialiser '{tensor.name}' is of ONNX's type {tensor.data_type}, no floating-point number"
        )
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raise DamagedError(f"the initialiser '{tensor.name}' lies in another file; write the model as one file")
    wanted = math.prod(tensor.dims)
    size = {"FLOAT": 4, "FLOAT16": 2, "DOUBLE": 8}[kinds[tensor.data_type]]
    fields = (tensor.float_data, tensor.int32_data, tensor.double_data)
    held = len(tensor.raw_data) / size if tensor.raw_data else max(map(len, fields))
    if min(tensor.dims, default=0) < 0 or wanted != held:
        raise DamagedError(
            f"the initialiser '{tensor.name}' is to have {list(tensor.dims)} values, and there are {held:g}"
        )
    return np.array(onnx.numpy_helper.to_array(tensor), np.float32)


FORMAT = ExportFormat("onnx", "ONNX: from stored rows to scores and probabilities", (".onnx",), _write, _read)
