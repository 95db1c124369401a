"""Fixed cost and steady speed of each group, and after how many steps one that costs more overtakes the cheapest.

A trial's time is `fixed seconds + steps × ms per step`. What recurs (the mean step after the warm-up, evaluations,
checkpoints, idling between epochs) is in the second part; all else, from the command to its end, in the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import stats

from sparkdl_bench import statistics
from sparkdl_bench.report.analysis import TOTAL, WAITED, Analysis, Group
from sparkdl_bench.statistics import CONFIDENCE, Interval, inference

_RECURRING = ("evaluation", "checkpoint", "idle")
# Of each group. One has no spread, so that noise alone may turn any answer round.
FEWEST_TRIALS = 2
# An interval within so many seconds of 0 is that of two equal numbers, rounded.
_ROUNDING_S = 1e-9
Kind = Literal["after", "from the first step", "until", "never", "unknown", "one trial"]


@dataclass(frozen=True)
class FixedAndSteady:
    """One group's time in two parts: means over its trials.

    Attributes:
        fixed_s: seconds that do not grow with the steps, from the command; of all groups by the runs' own clocks where
            one of the trials does not say how long its user waited.
        ms_per_step: what each step adds, its share of evaluations and checkpoints included.
        fixed_interval, steady_interval: at 95 % by Student's t; None for one trial.
    """

    group: Group
    fixed_s: float
    fixed_interval: Interval | None
    ms_per_step: float
    steady_interval: Interval | None


@dataclass(frozen=True)
class BreakEven:
    """When `group` overtakes `other`, which costs less, both with the same global batch.

    Attributes:
        kind: `after` so many `steps`; `from the first step`: it neither starts later nor steps slower, and is ahead in
            one of the two at least; `until`: it starts sooner, and is overtaken after `steps`; `never`: the opposite of
            `from the first step`; `unknown`: at least one of the two differences that this depends on may be chance, by
            Welch's intervals at 95 % or Fieller's; `one trial`: of either, from which none of these can be told.
        more_to_start_s, less_per_step_ms: of means; negative where it is the other way round.
        steps: None unless the kind is `after` or `until`.
        interval: of `steps`, by Fieller's theorem at 95 %; the upper end may be infinite.
        rows: steps × batch; `passes`: rows over the rows of the training set, None where these are not known.
    """

    group: Group
    other: Group
    kind: Kind
    more_to_start_s: float
    less_per_step_ms: float
    steps: float | None
    interval: Interval | None
    rows: float | None
    passes: float | None


def fixed_and_steady(analysis: Analysis) -> list[FixedAndSteady]:
    """A row for each group whose records say enough, in the analysis's order."""
    rows = []
    for group in analysis.groups:
        parts = _parts(analysis, group)
        if parts is not None:
            fixed, steady = parts[:, 0].tolist(), (parts[:, 1] * 1e3).tolist()
            rows.append(
                FixedAndSteady(
                    group, statistics.mean(fixed), _interval(fixed), statistics.mean(steady), _interval(steady)
                )
            )
    return rows


def break_evens(analysis: Analysis, ordered: Sequence[Group]) -> tuple[BreakEven, ...]:
    """Every group beside the cheapest one of its batch that has fewer cores or workers; `ordered` by cost."""
    found = []
    for place, group in enumerate(ordered):
        cheaper = [
            each
            for each in ordered[:place]
            if each.batch == group.batch and (analysis.cores_used(each), each.workers) < _cost(analysis, group)
        ]
        if cheaper:
            ours, theirs = _parts(analysis, group), _parts(analysis, cheaper[0])
            if ours is not None and theirs is not None:
                found.append(_break_even(group, cheaper[0], ours, theirs))
    return tuple(found)


def _cost(analysis: Analysis, group: Group) -> tuple[int, int]:
    return analysis.cores_used(group), group.workers


def _break_even(group: Group, other: Group, ours: np.ndarray, theirs: np.ndarray) -> BreakEven:
    more = float(ours[:, 0].mean() - theirs[:, 0].mean())
    less = float(theirs[:, 1].mean() - ours[:, 1].mean())
    steps = more / less if less != 0 and more / less > 0 else None
    interval = _fieller(ours, theirs, more, less) if steps is not None else None
    start, step = (inference.welch(ours[:, part].tolist(), theirs[:, part].tolist()) for part in (0, 1))
    kind: Kind = "one trial" if start is None or step is None else _kind(start.interval, step.interval, interval)
    if kind not in ("after", "until"):
        steps = interval = None
    rows = None if steps is None else steps * _rows_per_step(group)
    train_rows = _train_rows(group)
    passes = None if rows is None or not train_rows else rows / train_rows
    return BreakEven(group, other, kind, more, less * 1e3, steps, interval, rows, passes)


def _kind(start: Interval, step: Interval, crossing: Interval | None) -> Kind:
    """What holds although the differences that were seen are chance in part.

    Args:
        start, step: ours - theirs, of the seconds to start and of the seconds per step.
        crossing: of the steps after which both take as long; None where one of the two is ahead all the time.
    """
    later, slower = _sign(start), _sign(step)
    if crossing is not None and later != 0 and slower != 0:
        if slower is None or not math.isfinite(crossing.high):
            return "unknown"
        return "until" if slower > 0 else "after"
    if later is None or slower is None or later == slower == 0:
        return "unknown"
    return "never" if max(later, slower) > 0 else "from the first step"


def _sign(difference: Interval) -> int | None:
    """-1 below 0, 1 above it, 0 where both are equal but for rounding; None where the interval does not tell."""
    if max(abs(difference.low), abs(difference.high)) <= _ROUNDING_S:
        return 0
    if difference.low <= 0 <= difference.high:
        return None
    return 1 if difference.low > 0 else -1


def _fieller(ours: np.ndarray, theirs: np.ndarray, more: float, less: float) -> Interval | None:
    """All x for which "more - x · less is 0" is not refused at 95 %: Fieller (1954), JRSS B 16(2).

    Fixed cost and steady speed of one trial depend on each other, so their covariance counts.
    """
    if min(len(ours), len(theirs)) < FEWEST_TRIALS:
        return None
    covariances = [np.cov(each, rowvar=False, ddof=1) / len(each) for each in (ours, theirs)]
    x = more / less
    # The spread of F_ours - F_theirs - x (s_theirs - s_ours), whose parts are F + x s of each side.
    spreads = [float(cov[0, 0] + 2 * x * cov[0, 1] + x * x * cov[1, 1]) for cov in covariances]
    if sum(spreads) <= 1e-18 * max(1.0, more * more):
        return Interval(x, x)
    weights = sum(each**2 / (len(side) - 1) for each, side in zip(spreads, (ours, theirs), strict=True))
    t2 = float(stats.t.ppf((1 + CONFIDENCE) / 2, sum(spreads) ** 2 / weights)) ** 2
    total = covariances[0] + covariances[1]
    a = less * less - t2 * float(total[1, 1])
    b = more * less + t2 * float(total[0, 1])
    c = more * more - t2 * float(total[0, 0])
    if a <= 0:  # the steps cannot be told apart: no end
        return Interval(0.0, math.inf)
    root = math.sqrt(max(0.0, b * b - a * c))
    return Interval(max(0.0, (b - root) / a), max(0.0, (b + root) / a))


def _parts(analysis: Analysis, group: Group) -> np.ndarray | None:
    """Fixed seconds and seconds per step, a row per trial; None where one of the records lacks what that needs.

    All groups are timed by one clock: from the command where every trial says how long its user waited, by the runs'
    own clocks otherwise. A record that has both must not be compared by another one than the rest.
    """
    clock = WAITED if analysis.knows_waits else TOTAL
    rows = [_of_trial(record, clock, analysis.measured_ms(record)) for record in group.records]
    known = [row for row in rows if row is not None]
    return np.array(known, dtype=np.float64) if known and len(known) == len(rows) else None


def _of_trial(record: Mapping[str, Any], clock: str, measured: Sequence[float]) -> tuple[float, float] | None:
    seconds, steps = record.get("metrics", {}).get(clock), record.get("steps_ms") or []
    if seconds is None or not measured:
        return None
    recurring = sum(record.get("layers_s", {}).get(name, 0.0) for name in _RECURRING)
    per_step = statistics.mean(measured) / 1e3 + recurring / len(steps)
    return seconds - per_step * len(steps), per_step


def _interval(values: Sequence[float]) -> Interval | None:
    if len(values) < 2:
        return None
    mean, spread = statistics.mean(values), float(np.std(values, ddof=1)) / math.sqrt(len(values))
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * spread
    return Interval(mean - half, mean + half)


def _rows_per_step(group: Group) -> int:
    train_rows = _train_rows(group)
    return min(group.batch, train_rows) if train_rows else group.batch


def _train_rows(group: Group) -> int | None:
    facts = group.first.get("facts", {})
    found: Callable[[str], Any] = facts.get("data", facts).get
    rows = found("train_rows")
    return int(rows) if rows else None
