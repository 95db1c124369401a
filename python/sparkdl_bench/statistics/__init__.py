"""Means, medians, percentiles and bootstrap intervals, with NumPy alone; `inference` has the tests of SciPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 10_000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A confidence interval at CONFIDENCE."""

    low: float
    high: float


def blocks(samples: Sequence[float], size: int) -> list[float]:
    """Means of consecutive `size` samples; a shorter rest is left out.

    Two series are compared on blocks of one size: the median of single steps would leave out the tail that a mean over
    ten steps holds.
    """
    whole = len(samples) // size
    values = np.asarray(samples[: whole * size], dtype=np.float64).reshape(whole, size)
    return [float(mean) for mean in values.mean(axis=1)]


def median(values: Sequence[float]) -> float:
    return float(np.median(np.asarray(values, dtype=np.float64)))


def mean(values: Sequence[float]) -> float:
    return float(np.mean(np.asarray(values, dtype=np.float64)))


def geometric_mean(values: Sequence[float]) -> float:
    """What is in the middle of times, which err by factors; 0 where one of them is 0."""
    array = np.asarray(values, dtype=np.float64)
    return float(np.exp(np.log(array).mean())) if array.min() > 0 else 0.0


def percentile(values: Sequence[float], percent: float) -> float:
    return float(np.percentile(np.asarray(values, dtype=np.float64), percent))


def ratio_interval(ours: Sequence[float], theirs: Sequence[float], seed: int = 0) -> Interval:
    """Bootstrap interval (percentiles) of median(ours) / median(theirs): both sides' trials are drawn again.

    Args:
        ours: one number a trial, such as its median.
        theirs: likewise; the numbers of trials may differ.
    """
    random = np.random.default_rng(seed)
    ratios = _resampled_medians(ours, random) / _resampled_medians(theirs, random)
    tail = (1 - CONFIDENCE) / 2 * 100
    low, high = np.percentile(ratios, [tail, 100 - tail])
    return Interval(float(low), float(high))


def drift(samples: Sequence[float]) -> float:
    """Median of the last third over the median of the first: well below 1 means that the warm-up was too short."""
    third = len(samples) // 3
    if third == 0:
        return 1.0
    return median(samples[-third:]) / median(samples[:third])


def _resampled_medians(values: Sequence[float], random: np.random.Generator) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    chosen = random.integers(0, len(array), size=(RESAMPLES, len(array)))
    medians: np.ndarray = np.median(array[chosen], axis=1)
    return medians
