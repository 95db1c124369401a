"""Tensors that are reduced where they lie, without a copy in and one out.

The JVM can map what lies in memory that processes share. From the third time that they are met, it does so with

- tensors that the user has put there himself (`Tensor.share_memory_`);
- buckets of DistributedDataParallel. Their memory is the reducer's own, and lives as long as the model, so it is moved
  there. Nothing else is ever moved: of a tensor of the user's own somebody may hold the address.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
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
_MAPPINGS = Path("/proc/self/maps")


def is_called_by_reducer() -> bool:
    """Whether the caller's caller is DistributedDataParallel's reducer."""
    caller = sys._getframe(1).f_back
    return caller is not None and caller.f_code.co_filename.endswith(_ENGINE)


def are_on() -> bool:
    """Whether this process reduces tensors where they lie: where PyTorch tells the file of a shared storage, and
    nobody has set SPARKDL_COPY_BUCKETS."""
    return not os.environ.get(_OFF) and hasattr(torch.UntypedStorage, "_share_fd_cpu_")


def has_room(size: int) -> bool:
    """Whether so many bytes can become shared memory without taking the last of it."""
    try:
        room = os.statvfs(_SHARED)
    except OSError:
        return False
    return bool(room.f_bavail * room.f_frsize >= 2 * size + _SPARE_BYTES)


class _Known:
    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.reference: Any = StorageWeakRef(storage)
        self.met = 1
        self.home: Home | None = None


class Homes:
    """Those of one group."""

    def __init__(self) -> None:
        # By the storage's identity, which nobody else has while there is a reference to it.
        self._known: dict[int, _Known] = {}
        self._is_on = are_on()

    def of(self, tensor: torch.Tensor, may_move: bool = False) -> Home | None:
        """Where this tensor can be reduced in place; None where it cannot, or not yet.

        Args:
            may_move: it is a bucket, and its storage may be moved.
        """
        if not self._is_on or tensor.nbytes < LEAST_BYTES:
            return None
        storage = tensor.untyped_storage()
        known = self._known.get(storage._cdata)
        if known is None:
            if (may_move or storage.is_shared()) and (len(self._known) < _MOST_KNOWN or self._forget()):
                self._known[storage._cdata] = _Known(storage)
            return None
        known.met += 1
        if known.met == _OFTEN and (_is_mapped(storage) or (may_move and _can_move(tensor, storage))):
            with suppress(OSError, RuntimeError):  # of `torch.from_file`, whose descriptor is closed already
                known.home = _home(storage)
        home = known.home
        if home is None or home.address != tensor.data_ptr() or not tensor.is_contiguous():
            return None
        return home

    def gone(self) -> list[Home]:
        """Those whose tensor is no more, once."""
        ended = [key for key, known in self._known.items() if known.home is not None and known.reference.expired()]
        return [home for key in ended if (home := self._known.pop(key).home) is not None]

    def _forget(self) -> bool:
        for key in [key for key, known in self._known.items() if known.home is None and known.reference.expired()]:
            del self._known[key]
        return len(self._known) < _MOST_KNOWN


def _home(storage: torch.UntypedStorage) -> Home:
    descriptor, size = storage._share_fd_cpu_()
    return Home(os.dup(descriptor), size, storage.data_ptr())


def _is_mapped(storage: torch.UntypedStorage) -> bool:
    """Whether it lies at the start of a file that is mapped, of which PyTorch has the descriptor. PyTorch's other way
    to share storages, by names, puts a counter before the values, and asking for its descriptor would move them."""
    if not storage.is_shared():
        return False
    start = f"{storage.data_ptr():x}-"
    with _MAPPINGS.open(encoding="utf-8", errors="replace") as mappings:
        return any(line.startswith(start) for line in mappings)


def _can_move(tensor: torch.Tensor, storage: torch.UntypedStorage) -> bool:
    """Nobody has asked for its address by NumPy, and there is room."""
    if not storage.resizable() or storage.is_shared() or storage.nbytes() != tensor.nbytes:
        return False
    return has_room(storage.nbytes())
