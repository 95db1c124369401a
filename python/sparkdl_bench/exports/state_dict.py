"""PyTorch's state_dict, and a module that takes it. Reading never executes what a file holds (`weights_only`)."""

from __future__ import annotations

import pickle
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sparkdl_bench.exports import DamagedError, ExportFormat, _layers, is_counter, library
from sparkdl_bench.models import INPUT, ModelSpec
from sparkdl_bench.saved import SavedModel, Weights


def module(spec: ModelSpec, model: SavedModel) -> Any:
    """A `torch.nn.Module` in evaluation mode that computes class scores, rows × classes, from rows as they are stored.

    Its state_dict has the weights' own names. Layers are modules of PyTorch's, and what is done to a row before the
    first one is done here, too; none of it is in the state_dict.
    """
    torch = _torch("A module of PyTorch's")
    steps = []
    shapes = {INPUT: spec.input_shape}
    root = torch.nn.Module()
    for layer in spec.layers:
        mapping = _layers.find(layer)
        inputs = [shapes[name] for name in layer.inputs]
        shapes[layer.name] = mapping.shape(layer, inputs)
        child = mapping.module(torch.nn, layer, inputs)
        if child is not None:
            _place(torch, root, layer.name, child)
        steps.append((layer, mapping.apply, child))
    rows = model.input or {"shape": list(spec.input_shape)}

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self._modules.update(root._modules)
            for name in ("subtract", "multiply"):
                values = torch.from_numpy(np.asarray(rows.get(name, []), np.float32)) if rows.get(name) else None
                self.register_buffer(f"_{name}", values, persistent=False)

        def forward(self, stored: Any) -> Any:
            found = (stored.flatten(1).double() * float(rows.get("factor", 1))).float()
            if self._subtract is not None:
                found = (found - self._subtract) * self._multiply
            if crop := int(rows.get("crop", 0)):
                _, height, width = rows["shape"]
                top, left = (height - crop) // 2, (width - crop) // 2
                found = found.reshape(-1, *rows["shape"])[:, :, top : top + crop, left : left + crop]
            values = {INPUT: found.reshape(-1, *spec.input_shape)}
            for layer, apply, child in steps:
                values[layer.name] = apply(child, [values[name] for name in layer.inputs])
            return values[spec.layers[-1].name].flatten(1)

    net = Net()
    net.load_state_dict(_tensors(torch, model.weights))
    return net.eval()


def _place(torch: Any, root: Any, name: str, child: Any) -> None:
    """Under the modules that the dots of the name stand for; a name such as `type`, nn.Module's own, does no harm."""
    *outer, last = name.split(".")
    parent = root
    for part in outer:
        parent = parent._modules.setdefault(part, torch.nn.Module())
    child._modules.update(parent._modules[last]._modules if last in parent._modules else {})
    parent._modules[last] = child


def _write(spec: ModelSpec, model: SavedModel, path: Path) -> None:  # noqa: ARG001 (every format's signature)
    torch = _torch("Writing a state_dict")
    with path.open("wb") as file:
        torch.save(_tensors(torch, model.weights), file)


def _tensors(torch: Any, weights: Weights) -> dict[str, Any]:
    return {name: torch.from_numpy(np.array(array, np.float32)) for name, array in weights.items()}


def _read(path: Path) -> Weights:
    torch = _torch("Reading a state_dict")
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, ValueError, EOFError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(_first_sentence(error)) from error
    except (pickle.UnpicklingError, zipfile.BadZipFile, struct.error, OverflowError, IndexError) as error:
        raise DamagedError(f"it holds more than tensors by name, or is damaged: {_first_sentence(error)}") from error
    if isinstance(found, Mapping) and isinstance(found.get("state_dict"), Mapping):
        found = found["state_dict"]
    if not isinstance(found, Mapping):
        raise DamagedError(f"it holds a {type(found).__name__}, not tensors by name")
    weights: Weights = {}
    for name, tensor in found.items():
        if is_counter(str(name)):
            continue
        if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point() or tensor.layout != torch.strided:
            kind = tensor.dtype if isinstance(tensor, torch.Tensor) else type(tensor).__name__
            raise DamagedError(f"'{name}' is of type {kind}, and must be a dense tensor of floating-point numbers")
        weights[str(name)] = tensor.detach().to(torch.float32).contiguous().numpy()
    return weights


def _first_sentence(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _torch(purpose: str) -> Any:
    return library("torch", "torch", purpose)


FORMAT = ExportFormat("state-dict", "PyTorch's state_dict: the weights alone", (".pt", ".pth"), _write, _read)
