"""Our order of rows, made again: a peer that goes as we do differs from us by its speed alone.

docs/reference/data.md gives it as a formula; a test holds the losses against our engine's.
"""

from __future__ import annotations

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


def _mix(value: Any) -> Any:
    """SplitMix64's finaliser, on numbers or arrays of 64 bits."""
    with np.errstate(over="ignore"):
        first = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        second = (first ^ (first >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return second ^ (second >> np.uint64(31))


def _wrapped_add(one: Any, many: Any) -> Any:
    with np.errstate(over="ignore"):
        return one + many
