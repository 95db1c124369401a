"""Buckets of DistributedDataParallel that are reduced where they lie, without a copy in and one out.

A bucket's memory is the reducer's own, and lives as long as the model. Met for the third time, its storage moves to
memory that processes share (as `Tensor.share_memory_` would do), and the JVM reduces it there. Nothing else is ever
moved: of a tensor of the user's own somebody may hold the address.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from sparkdl_bench.worker.vectors import LEAST_BYTES, Home

# The reducer calls from the autograd engine, which is not Python: what has called that is here.
_ENGINE = ("/torch/autograd/graph.py", "/torch/autograd/__init__.py")
_OFTEN = 3
_MOST_KNOWN = 256
_SHARED = "/dev/shm"  # noqa: S108 (where PyTorch's shared storages lie)
# What stays free there.
_SPARE_BYTES = 16 << 20
_OFF = "SPARKDL_COPY_BUCKETS"


def is_called_by_reducer() -> bool:
    """Whether the caller's caller is DistributedDataParallel's reducer."""
    caller = sys._getframe(1).f_back
    return caller is not None and caller.f_code.co_filename.endswith(_ENGINE)


class _Known:
    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.reference: Any = StorageWeakRef(storage)
        self.met = 1
        self.home: Home | None = None


class Homes:
    """The buckets of one group."""

    def __init__(self) -> None:
        # By the storage's identity, which nobody else has while there is a reference to it.
        self._known: dict[int, _Known] = {}
        self._is_on = not os.environ.get(_OFF) and hasattr(torch.UntypedStorage, "_share_fd_cpu_")

    def of(self, tensor: torch.Tensor) -> Home | None:
        """Where this bucket can be reduced in place; None where it cannot, or not yet. May move its storage."""
        if not self._is_on or tensor.nbytes < LEAST_BYTES:
            return None
        storage = tensor.untyped_storage()
        known = self._known.get(storage._cdata)
        if known is None:
            if len(self._known) < _MOST_KNOWN or self._forget():
                self._known[storage._cdata] = _Known(storage)
            return None
        known.met += 1
        if known.met == _OFTEN and _can_move(tensor, storage):
            descriptor, size = storage._share_fd_cpu_()
            known.home = Home(os.dup(descriptor), size, storage.data_ptr())
        home = known.home
        return home if home is not None and home.address == tensor.data_ptr() else None

    def gone(self) -> list[Home]:
        """Those whose bucket is no more, once."""
        ended = [key for key, known in self._known.items() if known.home is not None and known.reference.expired()]
        return [home for key in ended if (home := self._known.pop(key).home) is not None]

    def _forget(self) -> bool:
        for key in [key for key, known in self._known.items() if known.home is None and known.reference.expired()]:
            del self._known[key]
        return len(self._known) < _MOST_KNOWN


def _can_move(tensor: torch.Tensor, storage: torch.UntypedStorage) -> bool:
    """Nobody has asked for its address by NumPy, and there is room."""
    if not storage.resizable() or storage.is_shared() or storage.nbytes() != tensor.nbytes:
        return False
    try:
        room = os.statvfs(_SHARED)
    except OSError:
        return False
    return bool(room.f_bavail * room.f_frsize >= 2 * storage.nbytes() + _SPARE_BYTES)
