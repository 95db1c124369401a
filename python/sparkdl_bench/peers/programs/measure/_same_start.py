"""Our initial weights and row order, made again: a peer that starts as we do differs from us by its speed alone.

docs/reference/data.md and docs/reference/models.md give both as formulas; a test holds the losses against our engine's.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

_GAMMA = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def row_order(seed: int, epoch: int, rows: int) -> Any:
    """The rows of an epoch (from 0), int64, as `EpochOrder.permutation`."""
    start = int(_mix(np.uint64((seed ^ int(_mix(np.uint64(epoch)))) & _MASK)))
    steps = np.arange(1, rows, dtype=np.uint64)
    states = _wrapped_add(np.uint64(start), steps * np.uint64(_GAMMA))
    last = np.arange(rows - 1, 0, -1, dtype=np.uint64)
    others = (((_mix(states) >> np.uint64(32)) * (last + np.uint64(1))) >> np.uint64(32)).tolist()
    ids = list(range(rows))
    for place, other in zip(range(rows - 1, 0, -1), others, strict=True):
        ids[place], ids[other] = ids[other], ids[place]
    return np.asarray(ids, dtype=np.int64)


def weights(widths: list[int], seed: int) -> list[tuple[Any, Any]]:
    """Weight (out × in) and bias of each layer of a ReLU net, fp32, as `Initializers.fill`."""
    layers = []
    for index, (fan_in, fan_out) in enumerate(pairwise(widths)):
        is_last = index == len(widths) - 2
        bound = np.float32(np.sqrt(6.0 / (fan_in + fan_out) if is_last else 6.0 / fan_in))
        # The layout alternates weight and bias, so a layer's weight is tensor 2 × index.
        layers.append(
            (
                _uniform(seed, 2 * index, fan_in * fan_out).reshape(fan_out, fan_in) * bound,
                np.zeros(fan_out, np.float32),
            )
        )
    return layers


def _uniform(seed: int, parameter: int, count: int) -> Any:
    key = _mix(np.uint64((seed + _GAMMA * (parameter + 1)) & _MASK))
    elements = np.arange(1, count + 1, dtype=np.uint64)
    bits = _mix(_wrapped_add(key, elements * np.uint64(_GAMMA)))
    unit = (bits >> np.uint64(40)).astype(np.float32) * np.float32(1 / (1 << 24))
    return np.float32(2) * unit - np.float32(1)


def _mix(value: Any) -> Any:
    """SplitMix64's finaliser, on numbers or arrays of 64 bits."""
    with np.errstate(over="ignore"):
        first = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        second = (first ^ (first >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return second ^ (second >> np.uint64(31))


def _wrapped_add(one: Any, many: Any) -> Any:
    with np.errstate(over="ignore"):
        return one + many
