"""What to use, in numbers. The cheapest group is the default; whatever costs more has to prove that it is faster.

Groups stand in an order of cost: cores (no more than the host has), then workers, then what needs a channel of its own.
Of those that cost the same, the plan's baseline comes first, then the analysis's order. It does not depend on any time,
so no noise can change it.

- A group is *beaten* where another is faster by `MARGIN` at the lower end of the interval of `statistics.sequential`,
  which holds for all groups and for every added trial together.
- `chosen` is the first in that order which is not beaten, among the default, those that cost no more and those that
  beat the default.
- It is *recommended* only where each other group is beaten, or costs more and cannot be faster than it by `MARGIN` at
  the upper end of that interval. Everything else is *not decided*.

Two recommendations that contradict each other need one interval that misses the truth, which happens in at most a share
`sequential.ERROR` of comparisons on each side: so adding a trial hardly ever turns one recommendation into another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from sparkdl_bench.report.analysis import MARGIN, TO_ACCURACY, Analysis, Group
from sparkdl_bench.report.break_even import BreakEven, break_evens
from sparkdl_bench.report.break_even import fixed_and_steady as fixed_and_steady
from sparkdl_bench.statistics import Interval, sequential

Verdict = Literal["recommended", "not-decided", "nothing"]
State = Literal["slower", "as-fast", "open", "faster"]


@dataclass(frozen=True)
class Beside:
    """Another group beside the chosen one.

    Attributes:
        speed_up: the chosen one's time over the group's, by geometric means: above 1 the group is faster.
        interval: of `speed_up`, valid for all groups and all looks; its upper end is infinite with too few trials.
        state: `slower`: by the margin that matters. `as-fast`: not faster by that margin, and it costs more. `open`:
            the data cannot tell. `faster`: by the margin, which only happens where nothing is recommended yet.
        more_trials: about how many more trials of each settle it; None where it is settled or too close to settle.
    """

    group: Group
    speed_up: float
    interval: Interval
    state: State
    more_trials: int | None

    @property
    def is_open(self) -> bool:
        return self.state in ("open", "faster")


@dataclass(frozen=True)
class Decision:
    """What to use.

    Attributes:
        verdict: `recommended`; `not-decided`: `chosen` is the cheapest that nothing beats so far; `nothing`: there is
            nothing to choose between, or the groups have not learnt alike.
        chosen: None where the verdict is `nothing`.
        cheapest: the default, which the others have to beat.
        fastest: the lowest geometric mean, whatever that is worth.
        more_trials: about how many more trials of each group settle everything; None where it is settled, or where
            that would be more than `sequential.MOST_MORE`.
        others: every other candidate beside `chosen`, fastest first.
        out: groups that are no candidates: they did not reach the target in all their trials.
        doubtful: those of `out` that cost less than `chosen` and did reach it in some trials, which leaves it open.
        break_even: when a group that costs more overtakes the cheapest one, in steps and rows.
    """

    verdict: Verdict
    chosen: Group | None
    cheapest: Group | None
    fastest: Group | None
    more_trials: int | None
    others: tuple[Beside, ...]
    out: tuple[Group, ...]
    doubtful: tuple[Group, ...]
    break_even: tuple[BreakEven, ...]

    @property
    def confidence(self) -> float:
        """The share of such comparisons whose recommendation is right, over all groups and all added trials."""
        return 1 - sequential.ERROR

    @property
    def open(self) -> tuple[Beside, ...]:
        """Those that keep the decision open."""
        return tuple(each for each in self.others if each.is_open)

    @property
    def ties(self) -> tuple[Beside, ...]:
        """Those that are not faster by a margin that matters, and may be as fast."""
        return tuple(each for each in self.others if each.state == "as-fast" and each.interval.high > 1 / MARGIN)


def decide(analysis: Analysis) -> Decision:
    """The decision about `analysis.metric`."""
    ordered = candidates(analysis)
    out = tuple(group for group in analysis.groups if group.records and group not in ordered)
    overtaking = break_evens(analysis, ordered)
    if not ordered:
        return Decision("nothing", None, None, None, None, (), out, (), overtaking)
    race = _Race(analysis, ordered)
    fastest = min(ordered, key=lambda group: race.logs[group.name].mean)
    if not analysis.learnt_alike or len(ordered) + len(out) < 2:
        return Decision("nothing", None, ordered[0], fastest, None, (), out, (), overtaking)
    chosen = race.chosen()
    others = [race.beside(chosen, group) for group in ordered if group is not chosen]
    others.sort(key=lambda each: -each.speed_up)
    doubtful = tuple(
        group for group in out if _sometimes_reaches(group) and _cost(analysis, group) < _cost(analysis, chosen)
    )
    is_open = bool(doubtful) or len(chosen.records) < sequential.FEWEST or any(each.is_open for each in others)
    return Decision(
        "not-decided" if is_open else "recommended",
        chosen,
        ordered[0],
        fastest,
        _more(chosen, others) if is_open and not doubtful else None,
        tuple(others),
        out,
        doubtful,
        overtaking,
    )


def candidates(analysis: Analysis) -> list[Group]:
    """The groups to choose from, cheapest first: one that does not learn is not fast."""
    timed = [group for group in analysis.groups if group.values(analysis.metric)]
    return sorted([group for group in timed if analysis.reaches_target(group)] or timed, key=_costs(analysis))


def _costs(analysis: Analysis) -> Callable[[Group], tuple[int, int, bool, bool, int]]:
    """What groups are sorted by, so that the cheapest comes first."""
    places = {group.name: place for place, group in enumerate(analysis.groups)}
    return lambda group: (*_cost(analysis, group), not analysis.is_named_baseline(group), places[group.name])


def _cost(analysis: Analysis, group: Group) -> tuple[int, int, bool]:
    """Cores, workers, and, of one that has as many, whether it needs a channel of its own."""
    needs_channel = not group.is_one_machine and not group.first.get("in_band", True)
    return analysis.cores_used(group), group.workers, needs_channel


def _sometimes_reaches(group: Group) -> bool:
    return any(record["metrics"].get(TO_ACCURACY) is not None for record in group.records)


class _Race:
    """Who beats whom, from the logarithms of the trials."""

    def __init__(self, analysis: Analysis, ordered: Sequence[Group]) -> None:
        self.analysis = analysis
        self.ordered = ordered
        self.logs = {group.name: sequential.logs(group.values(analysis.metric)) for group in ordered}
        self.questions = len(ordered) - 1

    def chosen(self) -> Group:
        default = self.ordered[0]
        proven = [
            default,
            *(group for group in self.ordered[1:] if self._is_as_cheap(group, default) or self._beats(group, default)),
        ]
        standing = [group for group in proven if not self._is_beaten(group)]
        # Where each of them is beaten by one that is too noisy to have beaten the default, nothing will be recommended.
        return standing[0] if standing else proven[-1]

    def beside(self, chosen: Group, other: Group) -> Beside:
        slow, fast = self.logs[chosen.name], self.logs[other.name]
        interval = sequential.speed_up(slow, fast, self.questions)
        is_cheaper = self.ordered.index(other) < self.ordered.index(chosen)
        if interval.low > MARGIN:
            state: State = "faster"
        elif interval.high < 1 / MARGIN or (is_cheaper and self._is_beaten(other)):
            state = "slower"
        elif interval.high < MARGIN and not is_cheaper:
            state = "as-fast"
        else:
            state = "open"
        # A cheaper one has to be shown slower by the margin, one that costs more has to be shown not faster by it.
        margin = 1 / MARGIN if is_cheaper else MARGIN
        more = sequential.more_trials(slow, fast, self.questions, margin) if state in ("open", "faster") else None
        return Beside(other, math.exp(slow.mean - fast.mean), interval, state, more)

    def _is_as_cheap(self, one: Group, other: Group) -> bool:
        return _cost(self.analysis, one) == _cost(self.analysis, other)

    def _beats(self, one: Group, other: Group) -> bool:
        return sequential.speed_up(self.logs[other.name], self.logs[one.name], self.questions).low > MARGIN

    def _is_beaten(self, group: Group) -> bool:
        return any(self._beats(other, group) for other in self.ordered if other is not group)


def _more(chosen: Group, others: Sequence[Beside]) -> int | None:
    """Trials until all of them are settled; None where one never will be."""
    needed = [each.more_trials for each in others if each.is_open]
    known = [each for each in needed if each is not None]
    if len(known) < len(needed):
        return None
    return max([*known, sequential.ENOUGH_TRIALS - len(chosen.records) if not needed else 0])
