"""Memory of the host's through which tensors on a GPU are reduced.

A tensor whose length comes again has a place there that is kept: a copy to it and one back, at the speed of the bus,
since its pages are registered with CUDA. The JVM reduces it where it lies (`homes`). Otherwise each all-reduce would
take new memory, fill it page by page, and copy it to and from what the JVM maps.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from sparkdl_bench.torch import homes
from sparkdl_bench.worker.vectors import LEAST_BYTES, MOST_BYTES


class Stages:
    """Those of one group, whose operations follow each other."""

    def __init__(self) -> None:
        # By bytes; None: such a one was reduced once.
        self._known: dict[int, torch.Tensor | None] = {}
        self._bytes = 0
        self._is_on = homes.are_on()

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """A place for this tensor's values, of its type and shape; None where it needs none, or there is none."""
        if not tensor.is_cuda or not self._is_on or tensor.nbytes < LEAST_BYTES:
            return None
        place = self._place(tensor.nbytes)
        return None if place is None else place.view(tensor.dtype).view(tensor.shape)

    def _place(self, size: int) -> torch.Tensor | None:
        if size not in self._known:
            if self._bytes + size <= MOST_BYTES:
                self._known[size] = None
                self._bytes += size
            return None
        if self._known[size] is None and homes.has_room(size):
            place = self._known[size] = torch.empty(size, dtype=torch.uint8).share_memory_()
            if _register(place):
                weakref.finalize(self, _unregister, place)
        return self._known[size]


def _register(place: torch.Tensor) -> bool:
    """Has CUDA know its pages; where that is refused, copies take longer."""
    runtime: Any = torch.cuda.cudart()
    return int(runtime.cudaHostRegister(place.data_ptr(), place.nbytes, 0)) == 0


def _unregister(place: torch.Tensor) -> None:
    runtime: Any = torch.cuda.cudart()
    runtime.cudaHostUnregister(place.data_ptr())
