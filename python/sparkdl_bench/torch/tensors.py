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
    """Refuses what is not plain values in this process's memory or on a GPU."""
    for tensor in tensors:
        if not (tensor.is_cpu or tensor.is_cuda) or tensor.layout != torch.strided:
            raise ConfigurationError(
                f'The backend "sparkdl" exchanges dense tensors on the CPU or a GPU, and this one is {tensor.layout} '
                f"on {tensor.device}. Move it with .cpu() or .to_dense()."
            )
        if tensor.is_conj() or tensor.is_neg():
            raise ConfigurationError(
                "A tensor is a lazy conjugate or negative of another one, whose memory holds other values. Give "
                "tensor.resolve_conj().resolve_neg()."
            )


def devices(tensors: Sequence[torch.Tensor]) -> list[torch.device]:
    """The GPUs that they lie on; none of most."""
    return list(dict.fromkeys(tensor.device for tensor in tensors if tensor.is_cuda))


def settled(tensors: Sequence[torch.Tensor]) -> Callable[[], None]:
    """What waits until the GPUs have done what this thread has given them up to now, which may write the tensors.

    Another thread's copies to and from the host would not wait for it.
    """
    events = [torch.cuda.current_stream(device).record_event() for device in devices(tensors)]

    def wait() -> None:
        for event in events:
            event.synchronize()

    return wait


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """Its values one after the other in the host's memory: itself where they lie so, else a copy."""
    if tensor.is_cpu and tensor.is_contiguous():
        return tensor
    return tensor.detach().cpu().contiguous()


def read(tensor: torch.Tensor) -> Bytes:
    """Its values' bytes, one after the other; its own memory where they lie so.

    By its address: `Tensor.numpy` would keep the tensor from being resized for ever, and costs more.
    """
    own = flat(tensor)
    size = own.nbytes
    if not size:
        return np.empty(0, np.uint8)
    memory: Any = (ctypes.c_ubyte * size).from_address(own.data_ptr())
    memory.tensor = own  # lives as long as the array
    return np.frombuffer(memory, np.uint8)


@contextmanager
def written(tensor: torch.Tensor, stage: torch.Tensor | None = None) -> Iterator[Bytes]:
    """Bytes to write into, which become the tensor's values at the end.

    Args:
        stage: they lie in this one, of the tensor's type and shape.
    """
    own = tensor.detach()
    held = flat(own) if stage is None else stage.copy_(own)
    yield read(held)
    if held is not own:
        own.copy_(held)


@contextmanager
def all_written(tensors: Sequence[torch.Tensor]) -> Iterator[list[Bytes]]:
    """The same of several."""
    opened: list[tuple[torch.Tensor, torch.Tensor]] = []
    for tensor in tensors:
        own = tensor.detach()
        opened.append((own, flat(own)))
    yield [read(held) for _, held in opened]
    for own, held in opened:
        if held is not own:
            own.copy_(held)


Operation = Callable[[], list[torch.Tensor]]
