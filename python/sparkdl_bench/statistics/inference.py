"""Tests and intervals of comparisons, by SciPy and statsmodels (the extra `report`).

Every function takes one number a trial. What a sample is too small or too even for gives None, never a made-up number.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.statistics import CONFIDENCE, Interval

try:
    from scipy import special, stats
except ImportError as error:
    raise ConfigurationError(
        "The statistics of a comparison need SciPy and statsmodels, which are not installed. Install them with "
        "pip install 'sparkdl-bench[report]'."
    ) from error

SIGNIFICANT = 1 - CONFIDENCE


@dataclass(frozen=True)
class Welch:
    """Welch's t-test of two means, variances not taken to be equal.

    Attributes:
        difference: mean(first) - mean(second), with its interval at CONFIDENCE.
    """

    t: float
    df: float
    p: float
    difference: float
    interval: Interval

    @property
    def differs(self) -> bool:
        return self.p < SIGNIFICANT


@dataclass(frozen=True)
class Effect:
    """A ratio of geometric means with its interval, and the p-value of "the ratio is 1"."""

    ratio: float
    interval: Interval
    p: float

    @property
    def differs(self) -> bool:
        return self.p < SIGNIFICANT


@dataclass(frozen=True)
class AnovaRow:
    """One source of variance. `factor` is `residual` for what is left over, which has no F and no p."""

    factor: str
    sum_of_squares: float
    df: float
    f: float | None
    p: float | None


@dataclass(frozen=True)
class TukeyPair:
    """mean(second) - mean(first), its interval at the family's CONFIDENCE, and its adjusted p-value."""

    first: str
    second: str
    difference: float
    interval: Interval
    p: float


def welch(first: Sequence[float], second: Sequence[float]) -> Welch | None:
    """Welch (1947), Biometrika 34. None where a side has fewer than two values."""
    a, b = _array(first), _array(second)
    if min(len(a), len(b)) < 2:
        return None
    difference = float(a.mean() - b.mean())
    if _is_even(a) and _is_even(b):
        # Without any spread the test has no scale; equal numbers are equal, others are not.
        same = math.isclose(difference, 0.0, abs_tol=1e-12 * max(1.0, abs(float(a.mean()))))
        t = 0.0 if same else math.copysign(math.inf, difference)
        return Welch(t, len(a) + len(b) - 2, 1.0 if same else 0.0, difference, Interval(difference, difference))
    with warnings.catch_warnings():
        # One of them may have no spread: SciPy warns of its variance, which is 0 as it should be.
        warnings.simplefilter("ignore", RuntimeWarning)
        found = stats.ttest_ind(a, b, equal_var=False)
    interval = found.confidence_interval(CONFIDENCE)
    return Welch(
        float(found.statistic),
        float(found.df),
        float(found.pvalue),
        difference,
        Interval(float(interval.low), float(interval.high)),
    )


def ratio(first: Sequence[float], second: Sequence[float]) -> Effect | None:
    """first / second of positive numbers: Welch's test on their logarithms, because times err by factors.

    None where a side has fewer than two values.
    """
    found = welch([math.log(value) for value in first], [math.log(value) for value in second])
    if found is None:
        return None
    interval = Interval(math.exp(found.interval.low), math.exp(found.interval.high))
    return Effect(math.exp(found.difference), interval, found.p)


def geometric_interval(values: Sequence[float]) -> Interval | None:
    """The interval of the geometric mean, by Student's t on logarithms. None below two values: one has no spread."""
    array = _array(values)
    if len(array) < 2 or array.min() <= 0:
        return None
    logs = np.log(array)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs)))
    return Interval(math.exp(logs.mean() - half), math.exp(logs.mean() + half))


def hedges_g(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Hedges' g: the difference of means in pooled standard deviations, with the exact correction for small samples.

    Hedges (1981), Journal of Educational Statistics 6(2), equations 6 and 6e. None without spread.
    """
    a, b = _array(first), _array(second)
    df = len(a) + len(b) - 2
    if min(len(a), len(b)) < 2 or (_is_even(a) and _is_even(b)):
        return None
    pooled = math.sqrt(((len(a) - 1) * a.var(ddof=1) + (len(b) - 1) * b.var(ddof=1)) / df)
    correction = math.exp(special.gammaln(df / 2) - special.gammaln((df - 1) / 2)) / math.sqrt(df / 2)
    return float((a.mean() - b.mean()) / pooled * correction)


def shapiro(values: Sequence[float]) -> tuple[float, float] | None:
    """W and p of Shapiro and Wilk's test of normality. None below three values, or without spread."""
    array = _array(values)
    if len(array) < 3 or _is_even(array):
        return None
    found = stats.shapiro(array)
    return float(found.statistic), float(found.pvalue)


def one_way(groups: Mapping[str, Sequence[float]], factor: str = "variant") -> list[AnovaRow] | None:
    """One-way analysis of variance. None with fewer than two groups of two, or where no group has any spread."""
    arrays = [_array(values) for values in groups.values()]
    if len(arrays) < 2 or min(map(len, arrays)) < 2 or all(map(_is_even, arrays)):
        return None
    found = stats.f_oneway(*arrays)
    grand = np.concatenate(arrays).mean()
    between = sum(len(each) * (each.mean() - grand) ** 2 for each in arrays)
    within = sum(((each - each.mean()) ** 2).sum() for each in arrays)
    count = sum(map(len, arrays))
    return [
        AnovaRow(factor, float(between), len(arrays) - 1, float(found.statistic), float(found.pvalue)),
        AnovaRow("residual", float(within), count - len(arrays), None, None),
    ]


def two_way(
    values: Sequence[float], first: Sequence[str], second: Sequence[str], names: tuple[str, str]
) -> list[AnovaRow] | None:
    """Two-way analysis of variance with interaction, sums of squares of type II (the same as R's where balanced).

    Args:
        first, second: the levels of the two factors, a level for each value.

    Returns:
        None where the interaction cannot be separated from the rest: a combination of levels is missing or came once.
    """
    combinations: dict[tuple[str, str], int] = {}
    for pair in zip(first, second, strict=True):
        combinations[pair] = combinations.get(pair, 0) + 1
    whole = len(set(first)) * len(set(second))
    if min(len(set(first)), len(set(second))) < 2 or len(combinations) < whole or min(combinations.values()) < 2:
        return None
    import pandas
    from statsmodels.formula.api import ols
    from statsmodels.stats.anova import anova_lm

    frame = pandas.DataFrame({"y": _array(values), "a": list(first), "b": list(second)})
    table: Any = anova_lm(ols("y ~ C(a) * C(b)", data=frame).fit(), typ=2)
    labels = (*names, f"{names[0]} × {names[1]}", "residual")
    return [
        AnovaRow(
            label,
            float(row["sum_sq"]),
            float(row["df"]),
            None if math.isnan(row["F"]) else float(row["F"]),
            None if math.isnan(row["PR(>F)"]) else float(row["PR(>F)"]),
        )
        for label, (_, row) in zip(labels, table.iterrows(), strict=True)
    ]


def tukey(groups: Mapping[str, Sequence[float]]) -> list[TukeyPair] | None:
    """Tukey's honestly significant differences of all pairs (Tukey-Kramer where sizes differ). None as `one_way`."""
    arrays = [_array(values) for values in groups.values()]
    if len(arrays) < 2 or min(map(len, arrays)) < 2 or all(map(_is_even, arrays)):
        return None
    found = stats.tukey_hsd(*arrays)
    interval = found.confidence_interval(CONFIDENCE)
    names = list(groups)
    return [
        TukeyPair(
            names[i],
            names[j],
            float(-found.statistic[i, j]),
            Interval(float(-interval.high[i, j]), float(-interval.low[i, j])),
            float(found.pvalue[i, j]),
        )
        for i in range(len(names))
        for j in range(i + 1, len(names))
    ]


def holm(ps: Sequence[float]) -> list[float]:
    """p-values adjusted for having asked all of them: Holm (1979), Scandinavian Journal of Statistics 6(2).

    In the order given. Each is at least as large as before, and a single one stays as it is.
    """
    if not ps:
        return []
    from statsmodels.stats.multitest import multipletests

    return [float(p) for p in multipletests(_array(ps), method="holm")[1]]


def _array(values: Sequence[float]) -> np.ndarray:
    return np.asarray(values, dtype=np.float64)


def _is_even(array: np.ndarray) -> bool:
    return bool(np.ptp(array) <= 1e-12 * max(1.0, float(np.abs(array).max())))
