"""A paper's number with ours: an estimate with its interval, and in words whether they agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from papers.published import Paper, Value
from sparkdl_bench import statistics
from sparkdl_bench.report.numbers import number
from sparkdl_bench.statistics import Interval, inference

# Of the same size where one is no more than so many times the other: other hardware, other versions.
ALIKE = 2.0
# Accuracies are alike within so many points: 84 and 99 % are no more than 1.2 times apart, and far from alike.
ACCURACY_POINTS = 1.0


@dataclass(frozen=True)
class Estimate:
    """A number of ours; `interval` at 95 % where there were several trials, `trials` those of the side with fewest."""

    value: float
    interval: Interval | None
    trials: int

    def __str__(self) -> str:
        if 0 < abs(self.value) < 0.001:
            return f"{self.value:.3g}"
        if self.interval is None:
            return f"{number(self.value)} (one trial)" if self.trials == 1 else number(self.value)
        return f"{number(self.value)} [{number(self.interval.low)}, {number(self.interval.high)}]"


@dataclass(frozen=True)
class Beside:
    """A line of the page.

    Attributes:
        label: what both numbers are.
        theirs: the paper's; None where it has none.
        ours: None where it was not measured.
        unit: of both.
        neutral: the value that says "no difference", such as 1 of a ratio; None: only sizes are compared.
        note: what makes the two hard to compare.
        is_p: whether they are p-values, which agree where both are significant or neither is: how small they are is a
            matter of how many trials there were.
        points: how far apart two that agree may be, in `unit`; None: by how many times one is the other.
    """

    label: str
    theirs: Value | None
    ours: Estimate | None
    unit: str = "times"
    neutral: float | None = 1.0
    note: str = ""
    is_p: bool = False
    points: float | None = None

    @property
    def verdict(self) -> str:
        """Whether they agree, in a few words."""
        if self.ours is None:
            return "not measured here"
        if self.theirs is None:
            return "not in the paper"
        if self.is_p:
            theirs, ours = (each < inference.SIGNIFICANT for each in (self.theirs.value, self.ours.value))
            return "agrees" if theirs == ours else f"contradicts: {'' if ours else 'not '}significant here"
        same_side = _side(self.theirs.value, self.neutral)
        if self.neutral is not None:
            if self.ours.interval is not None and self.ours.interval.low < self.neutral < self.ours.interval.high:
                return "cannot be told here: the interval holds both directions"
            if _side(self.ours.value, self.neutral) != same_side:
                return "contradicts: the other way round here"
        return self._size(self.theirs, self.ours)

    @property
    def agrees(self) -> bool | None:
        """Whether direction and size are the paper's; None where that cannot be said."""
        words = self.verdict
        return None if words.startswith(("not", "cannot")) else words.startswith("agrees")

    def _size(self, published: Value, measured: Estimate) -> str:
        theirs, ours = published.value, measured.value
        if self.points is not None:
            apart = abs(ours - theirs)
            if apart <= self.points + 1e-9:
                return "agrees"
            return f"{number(apart)} points {'more' if ours > theirs else 'less'} here"
        if theirs <= 0 or ours <= 0:
            return "agrees" if math.isclose(theirs, ours, abs_tol=1e-12) else "another size"
        factor = ours / theirs
        if 1 / ALIKE <= factor <= ALIKE:
            return "agrees"
        told = f"{number(max(factor, 1 / factor))} times {'more' if factor > 1 else 'less'} here"
        if (published.bound, factor > 1) in {("at least", True), ("at most", False)}:
            return f"agrees with the bound, {told}"
        return f"the same direction, {told}" if self.neutral is not None else told

    @property
    def sentence(self) -> str:
        theirs = f"{self.theirs} {self.unit}" if self.theirs else "no number"
        ours = f"{self.ours} {self.unit}" if self.ours else "nothing"
        note = f" {self.note}" if self.note else ""
        return f"{self.label}: {theirs} in the paper, {ours} here; {self.verdict}.{note}"


def ratio(over: Sequence[float], under: Sequence[float]) -> Estimate | None:
    """The geometric mean of `over` divided by that of `under`, a number a trial each; None where a side has none."""
    if not over or not under or min(*over, *under) <= 0:
        return None
    effect = inference.ratio(over, under)
    if effect is not None:
        return Estimate(effect.ratio, effect.interval, min(len(over), len(under)))
    value = statistics.geometric_mean(over) / statistics.geometric_mean(under)
    return Estimate(value, None, min(len(over), len(under)))


def less(before: Sequence[float], after: Sequence[float]) -> Estimate | None:
    """By how many percent `after` is below `before`."""
    found = ratio(after, before)
    if found is None:
        return None
    interval = found.interval and Interval(100 * (1 - found.interval.high), 100 * (1 - found.interval.low))
    return Estimate(100 * (1 - found.value), interval, found.trials)


def more(before: Sequence[float], after: Sequence[float]) -> Estimate | None:
    """By how many percent `after` is above `before`."""
    found = ratio(after, before)
    if found is None:
        return None
    interval = found.interval and Interval(100 * (found.interval.low - 1), 100 * (found.interval.high - 1))
    return Estimate(100 * (found.value - 1), interval, found.trials)


def centre(values: Sequence[float]) -> Estimate | None:
    """The geometric mean of positive numbers, with its interval."""
    if not values:
        return None
    return Estimate(statistics.geometric_mean(values), inference.geometric_interval(values), len(values))


def mean(values: Sequence[float]) -> Estimate | None:
    """The mean of shares, without an interval."""
    return Estimate(statistics.mean(values), None, len(values)) if values else None


def _side(value: float, neutral: float | None) -> int:
    return 0 if neutral is None or value == neutral else (1 if value > neutral else -1)


def summary(lines: Sequence[Beside]) -> str:
    """How many of the paper's numbers agree, in a sentence or two."""
    if not any(line.theirs for line in lines):
        return (
            "The paper states no number that could be compared; what it concludes stands below, beside what was seen."
        )
    compared = [line for line in lines if line.theirs and line.ours]
    if not compared:
        return "Not one of the paper's numbers has been measured here yet."
    counts = {
        ("agrees", "agree"): sum(line.agrees is True for line in compared),
        ("is of another size", "are of another size"): sum(
            line.agrees is False and not _is_contrary(line) for line in compared
        ),
        ("is the other way round", "are the other way round"): sum(_is_contrary(line) for line in compared),
        ("cannot be told apart from no difference here",) * 2: sum(line.agrees is None for line in compared),
    }
    told = "; ".join(f"{count} {one if count == 1 else many}" for (one, many), count in counts.items() if count)
    whole = f"Of {len(compared)} of the paper's numbers that were measured here: {told}."
    points = sorted({line.points for line in compared if line.points is not None})
    told = f", accuracies within {points[-1]:g} point{'' if points[-1] == 1 else 's'}" if points else ""
    return f"{whole} Within a factor of {ALIKE:g} they agree{told}."


def not_measured(paper: Paper, lines: Sequence[Beside]) -> list[Beside]:
    """A line for each of the paper's numbers that none of these has."""
    shown = {id(line.theirs) for line in lines}
    return [
        Beside(f"{each.quantity}: {value.of}", value, None, each.unit, None)
        for each in paper.published
        for value in each.values
        if id(value) not in shown
    ]


def _is_contrary(line: Beside) -> bool:
    return line.verdict.startswith("contradicts")
