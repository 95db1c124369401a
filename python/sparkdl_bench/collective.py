"""Collective operations on NumPy arrays, for training functions that know no PyTorch: NumPy, JAX, Keras and others.

In a function or script that `sparkdl_bench.launch` runs; `sync="none"` needs no PyTorch there:

    from sparkdl_bench import collective

    gradient = np.ones(1000, np.float32)
    collective.all_reduce(gradient, "average")   # in place

The arrays travel in-band, through the executors, by the launch's transport and settings. Every rank calls the same
operations in the same order, with arrays of the same shapes and types. Results have the same bits on all ranks.

An array of NumPy's that can be written to is written in place. Of anything else that NumPy reads as an array, such as
one of JAX's, which nobody can write to, the result is a new array of NumPy's. It is returned in both cases.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.worker import Endpoint, Group, current
from sparkdl_bench.worker.group import elements_of

__all__ = ["all_gather", "all_reduce", "all_reduce_many", "attach", "barrier", "broadcast", "rank", "size"]

Array = npt.NDArray[Any]
_NAME = "collective"
_opening = threading.Lock()
_settings: weakref.WeakKeyDictionary[Any, dict[str, str] | None] = weakref.WeakKeyDictionary()
_groups: weakref.WeakKeyDictionary[Endpoint, Group] = weakref.WeakKeyDictionary()


def rank() -> int:
    """Of this process, from 0."""
    return _endpoint().rank


def size() -> int:
    """How many ranks there are."""
    return _endpoint().size


def all_reduce(array: Any, op: str = "sum") -> Array:
    """The reduction of all ranks' arrays.

    Args:
        array: of any shape; bool, integers, or floating point of 16 (also bfloat16), 32 or 64 bits.
        op: `sum`, `product`, `min`, `max`; `average` of floating point; `band`, `bor`, `bxor` of integers and bool.

    Raises:
        ConfigurationError: this process is no rank of a launch; values of this type cannot be reduced so.
        RunFailedError: a rank is gone, or did not call within the launch's timeout.
    """
    own, flat = _writable(array)
    _group().all_reduce(_as_bytes(flat), op, _elements(flat))
    return _written(own, flat)


def all_reduce_many(arrays: Sequence[Any], op: str = "sum") -> list[Array]:
    """The same of several arrays, those of one type in one message: quicker for a net's many gradients."""
    places = [_writable(each) for each in arrays]
    kinds: dict[np.dtype[Any], list[Array]] = {}
    for _, flat in places:
        kinds.setdefault(flat.dtype, []).append(flat)
    for of_kind in kinds.values():
        joined = all_reduce(np.concatenate([each.reshape(-1) for each in of_kind]), op)
        for each, values in zip(
            of_kind, np.split(joined, np.cumsum([each.size for each in of_kind])[:-1]), strict=True
        ):
            each.reshape(-1)[:] = values
    return [_written(own, flat) for own, flat in places]


def broadcast(array: Any, root: int = 0) -> Array:
    """The array of rank `root`.

    Raises:
        ConfigurationError: as of `all_reduce`; there is no such rank.
    """
    if not 0 <= root < size():
        raise ConfigurationError(f"root = {root}; valid are 0 to {size() - 1}.")
    own, flat = _writable(array)
    _group().broadcast(_as_bytes(flat), root)
    return _written(own, flat)


def all_gather(array: Any) -> list[Array]:
    """New arrays: every rank's, by rank."""
    flat = np.ascontiguousarray(array)
    found = [np.empty_like(flat) for _ in range(size())]
    _group().all_gather(_as_bytes(flat), [_as_bytes(each) for each in found])
    return [each.reshape(np.shape(array)) for each in found]


def barrier() -> None:
    """Returns when all ranks have called it."""
    _group().barrier()


def attach(endpoint: Any, settings: Mapping[str, str] | None) -> None:
    """How this process's group is to travel. For `launch`.

    Args:
        endpoint: of this rank.
        settings: of its transport; None: the launch exchanges by gloo, and this module refuses.
    """
    _settings[endpoint] = None if settings is None else dict(settings)


def _endpoint() -> Endpoint:
    endpoint = current()
    if endpoint is None:
        raise ConfigurationError(
            "sparkdl_bench.collective works in functions and scripts that sparkdl_bench.launch runs on the executors "
            "of Spark, and this process runs none of them."
        )
    return endpoint


def _group() -> Group:
    """Opened at the first operation, which is a collective call."""
    endpoint = _endpoint()
    with _opening:
        if endpoint not in _groups:
            settings = _settings.get(endpoint, {})
            if settings is None:
                raise ConfigurationError(
                    "sparkdl_bench.collective travels in-band, and this launch has sync='gloo'. Choose another way, "
                    "such as sync='none', or use torch.distributed."
                )
            _groups[endpoint] = endpoint.group(settings, _NAME)
        return _groups[endpoint]


def _writable(array: Any) -> tuple[Any, Array]:
    """The array where it is NumPy's and can be written to, else None; and values that lie one after the other."""
    if isinstance(array, np.ndarray) and array.flags.writeable:
        return array, array if array.flags.c_contiguous else np.ascontiguousarray(array)
    return None, np.array(array, order="C")


def _written(own: Any, flat: Array) -> Array:
    if own is None or own is flat:
        return flat
    own[...] = flat
    written: Array = own
    return written


def _as_bytes(flat: Array) -> Array:
    return flat.reshape(-1).view(np.uint8)


def _elements(flat: Array) -> str:
    """As `worker.Group` calls the type; NumPy has no bfloat16 of its own, JAX brings it."""
    return "bf16" if flat.dtype.name == "bfloat16" else elements_of(flat.dtype)
