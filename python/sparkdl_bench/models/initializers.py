"""Initial weights and dropout masks: the same bits as `Initializers` and `DropoutMask` of the JVM make."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from sparkdl_bench.errors import ConfigurationError

GAMMA = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_CONSTANTS = {"zero": 0.0, "one": 1.0}
# Numerator and denominator of the variance, from (fan-in, fan-out).
_VARIANCES: dict[str, tuple[float, Callable[[float, float], float]]] = {
    "xavier": (2, lambda fan_in, fan_out: fan_in + fan_out),
    "he": (2, lambda fan_in, _: fan_in),
    "he-out": (2, lambda _, fan_out: fan_out),
    "lecun": (1, lambda fan_in, _: fan_in),
    "torch": (1, lambda fan_in, _: 3 * fan_in),
}


def values(
    initializer: str, shape: tuple[int, ...], seed: int, parameter: int, count: int | None = None
) -> npt.NDArray[np.float32]:
    """The first `count` values (None: all) of tensor `parameter`, flat; docs/reference/models.md has the formulas."""
    length = int(np.prod(shape)) if count is None else count
    if initializer in _CONSTANTS:
        return np.full(length, _CONSTANTS[initializer], np.float32)
    rule, _, rest = initializer.partition("-")
    if rule in ("constant", "gaussian", "uniform") and re.fullmatch(r"[0-9.eE-]+", rest):
        scale, uniform = np.float32(float(rest)), rule == "uniform"
        if rule == "constant":
            return np.full(length, scale, np.float32)
    else:
        scale, uniform = _scale(initializer, shape)
    key = mix(seed + GAMMA * (parameter + 1))
    made = _uniform(key, length) if uniform else _normal(key, length)
    return np.asarray(made * scale, np.float32)


def dropout_factors(
    seed: int, layer: int, rate: float, step: int, ids: list[int], width: int
) -> npt.NDArray[np.float32]:
    """Factors (rows × width) of a dropout layer in a step: 0, or fp32(1 / (1 − rate))."""
    layer_key = mix(seed + GAMMA * (layer + 1))
    step_key = mix(layer_key + GAMMA * (step + 1))
    threshold = math.floor(rate * (1 << 24) + 0.5)
    index = np.arange(width, dtype=np.uint32) * np.uint32(0x9E3779B9)
    factors = np.empty((len(ids), width), np.float32)
    for row, identity in enumerate(ids):
        key = mix(step_key + GAMMA * (identity + 1))
        a = index ^ np.uint32(key & 0xFFFFFFFF)
        b = (a ^ (a >> np.uint32(16))) * np.uint32(0x85EBCA6B) + np.full(1, key >> 32, np.uint32)
        c = (b ^ (b >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        kept = ((c ^ (c >> np.uint32(16))) >> np.uint32(8)) >= threshold
        factors[row] = np.where(kept, np.float32(1 / (1 - rate)), np.float32(0))
    return factors


def mix(value: int) -> int:
    """SplitMix64's finaliser."""
    value &= _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _words(key: int, first: int, count: int, stride: int) -> npt.NDArray[np.uint64]:
    """mix(key + G · (i + 1)) for i = first, first + stride, …"""
    index = np.arange(count, dtype=np.uint64) * np.uint64(stride) + np.uint64(first + 1)
    words = index * np.uint64(GAMMA) + np.full(1, key, np.uint64)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(words ^ (words >> np.uint64(31)), np.uint64)


def _uniform(key: int, count: int) -> npt.NDArray[np.float32]:
    unit = (_words(key, 0, count, 1) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
    return np.asarray(np.float32(2) * unit - np.float32(1), np.float32)


def _normal(key: int, count: int) -> npt.NDArray[np.float32]:
    total = np.zeros(count, np.int64)
    for part in range(3):
        words = _words(key, part, count, 3)
        for shift in (0, 16, 32, 48):
            total += ((words >> np.uint64(shift)) & np.uint64(0xFFFF)).astype(np.int64)
    return np.asarray((total - 393210).astype(np.float32) * np.float32(2.0**-16), np.float32)


def _scale(initializer: str, shape: tuple[int, ...]) -> tuple[np.float32, bool]:
    """Bound or deviation, and whether the distribution is uniform."""
    family, _, distribution = initializer.rpartition("-")
    if family not in _VARIANCES or distribution not in ("uniform", "normal"):
        raise ConfigurationError(
            f"There is no initialiser called '{initializer}'. Valid: {', '.join(sorted(_VARIANCES))} with -uniform or "
            "-normal, zero, one, constant-VALUE, gaussian-DEVIATION, uniform-BOUND."
        )
    if len(shape) < 2:
        raise ConfigurationError(
            f"The initialiser '{initializer}' needs a tensor of at least two dimensions, not of shape {shape}."
        )
    receptive_field = math.prod(float(size) for size in shape[2:])
    numerator, denominator = _VARIANCES[family]
    factor = 3 if distribution == "uniform" else 1
    variance = factor * numerator / denominator(shape[1] * receptive_field, shape[0] * receptive_field)
    return np.float32(math.sqrt(variance)), distribution == "uniform"
