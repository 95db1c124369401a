"""PyTorch's tensors and reductions as `worker.Group` takes them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from sparkdl_bench.errors import ConfigurationError

Bytes = npt.NDArray[np.uint8]
_ELEMENTS = {
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.bool: "bool",
}
_REDUCTIONS = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "average",
    dist.ReduceOp.PRODUCT: "product",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
    dist.ReduceOp.BAND: "band",
    dist.ReduceOp.BOR: "bor",
    dist.ReduceOp.BXOR: "bxor",
}


def reduction(op: Any) -> str:
    """The name of a reduction of `torch.distributed`."""
    name = next((name for known, name in _REDUCTIONS.items() if op == known), None)
    if name is None:
        raise ConfigurationError(
            f'The backend "sparkdl" has no reduction {op}. Valid are {", ".join(str(each) for each in _REDUCTIONS)}.'
        )
    return name


def elements(tensor: torch.Tensor) -> str:
    """The name of the type of its values."""
    if tensor.dtype not in _ELEMENTS:
        valid = ", ".join(str(each).removeprefix("torch.") for each in _ELEMENTS)
        raise ConfigurationError(
            f'The backend "sparkdl" cannot reduce values of type {tensor.dtype}. Valid are {valid}. Convert the tensor.'
        )
    return _ELEMENTS[tensor.dtype]


def check(tensors: Sequence[torch.Tensor]) -> None:
    """Refuses what does not lie in this process's memory as plain values."""
    for tensor in tensors:
        if not tensor.is_cpu or tensor.layout != torch.strided:
            raise ConfigurationError(
                f'The backend "sparkdl" exchanges dense tensors on the CPU, and this one is {tensor.layout} on '
                f'{tensor.device}. Move it with .cpu() or .to_dense(), or use "cpu:sparkdl,cuda:nccl".'
            )
        if tensor.is_conj() or tensor.is_neg():
            raise ConfigurationError(
                "A tensor is a lazy conjugate or negative of another one, whose memory holds other values. Give "
                "tensor.resolve_conj().resolve_neg()."
            )


def read(tensor: torch.Tensor) -> Bytes:
    """Its values' bytes, one after the other; its own memory where they lie so.

    By its address: `Tensor.numpy` would keep the tensor from being resized for ever, and costs more.
    """
    flat = tensor if tensor.is_contiguous() else tensor.detach().contiguous()
    size = flat.nbytes
    if not size:
        return np.empty(0, np.uint8)
    memory: Any = (ctypes.c_ubyte * size).from_address(flat.data_ptr())
    memory.tensor = flat  # lives as long as the array
    return np.frombuffer(memory, np.uint8)


@contextmanager
def written(tensor: torch.Tensor) -> Iterator[Bytes]:
    """Bytes to write into, which become the tensor's values at the end."""
    own = tensor.detach()
    flat = own if own.is_contiguous() else own.contiguous()
    yield read(flat)
    if flat is not own:
        own.copy_(flat)


@contextmanager
def all_written(tensors: Sequence[torch.Tensor]) -> Iterator[list[Bytes]]:
    """The same of several."""
    opened: list[tuple[torch.Tensor, torch.Tensor]] = []
    for tensor in tensors:
        own = tensor.detach()
        opened.append((own, own if own.is_contiguous() else own.contiguous()))
    yield [read(flat) for _, flat in opened]
    for own, flat in opened:
        if flat is not own:
            own.copy_(flat)


Operation = Callable[[], list[torch.Tensor]]
