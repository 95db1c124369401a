"""Comparisons of two groups that stay valid although many groups are compared and trials are added one after another.

A test at p < 0.05 that is repeated with every added trial is sooner or later significant by chance. Here the error that
is allowed in all (`ERROR`) is spent over the looks: a look at N trials (both groups together) may spend the share
5 / (N (N - 1)) of it, which sums to 1 over N = 6, 7, 8, … (alpha spending; Lan and DeMets (1983), Biometrika 70). It is
divided by the number of groups that are compared with the one in question (Bonferroni). So an interval at `confidence`
holds, for all looks and all these groups together, but in a share `ERROR` of comparisons on each side.

The estimate is that of `inference.ratio`: the ratio of geometric means, by Welch's test on logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from sparkdl_bench.statistics import Interval

# The share of comparisons in which a conclusion may be wrong on one side, over all looks and all groups.
ERROR = 0.02
# Below so many trials a side has no interval: two values say next to nothing of their spread.
FEWEST = 3
# What a comparison should have (docs/reference/compare.md); with fewer trials than `FEWEST` this is what is asked for.
ENOUGH_TRIALS = 5
# More trials than these are not worth proposing: the groups are as fast as each other for all that matters.
MOST_MORE = 50
# Normal quantile of 0.8: so likely is a decision after the number of trials that `more_trials` names.
_POWER = 0.8416


@dataclass(frozen=True)
class Logs:
    """Of one group's logarithms: how many, their mean, and the variance of one of them."""

    count: int
    mean: float
    variance: float


def logs(values: Sequence[float]) -> Logs:
    array = np.log(np.asarray(values, dtype=np.float64))
    return Logs(len(array), float(array.mean()), float(array.var(ddof=1)) if len(array) > 1 else math.nan)


def tail(trials: int, questions: int) -> float:
    """The error on each side that a look at so many trials (both groups together) may have."""
    return ERROR * 5 / (trials * (trials - 1)) / max(1, questions)


def speed_up(slow: Logs, fast: Logs, questions: int) -> Interval:
    """The interval of slow's time over fast's that holds for all looks; without an end where there are too few trials.

    Args:
        questions: how many groups are compared with one.
    """
    if min(slow.count, fast.count) < FEWEST:
        return Interval(0.0, math.inf)
    a, b = slow.variance / slow.count, fast.variance / fast.count
    half = _half_width(a, b, slow.count, fast.count, tail(slow.count + fast.count, questions))
    difference = slow.mean - fast.mean
    return Interval(math.exp(difference - half), math.exp(difference + half))


def more_trials(slow: Logs, fast: Logs, questions: int, margin: float) -> int | None:
    """About how many more trials of each group tell whether slow's time over fast's is above or below `margin`.

    From the spread that was seen: after so many the interval lies on one side in four of five comparisons. None where
    it is more than `MOST_MORE`: then the two differ by about the margin.
    """
    least = min(slow.count, fast.count)
    if least < FEWEST:
        return ENOUGH_TRIALS - least
    distance = abs(slow.mean - fast.mean - math.log(margin))
    for more in range(1, MOST_MORE + 1):
        m, n = slow.count + more, fast.count + more
        a, b = slow.variance / m, fast.variance / n
        if _half_width(a, b, m, n, tail(m + n, questions)) + _POWER * math.sqrt(a + b) < distance:
            return more
    return None


def _half_width(a: float, b: float, m: int, n: int, error: float) -> float:
    """Half the width of Welch's interval; `a` and `b` are the variances of the two means."""
    if a + b <= 1e-24:  # no spread but that of rounding
        return 0.0
    df = (a + b) ** 2 / (a**2 / (m - 1) + b**2 / (n - 1))
    return float(-special.stdtrit(df, error)) * math.sqrt(a + b)
