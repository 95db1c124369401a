"""From the records of a comparison to its numbers: medians, intervals, contrasts, variances, COST, and what to use."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sparkdl_bench import statistics
from sparkdl_bench.compare.cells import NOT_VARIED
from sparkdl_bench.compare.plan import VARIANT
from sparkdl_bench.report.load import Comparison
from sparkdl_bench.statistics import Interval, inference

TO_ACCURACY = "seconds_to_accuracy"
TOTAL = "seconds_total"
STEP = "ms_per_step"
RATE = "rows_per_second"
LABELS = {
    TO_ACCURACY: "seconds to the target accuracy",
    TOTAL: "seconds of training",
    STEP: "ms a step",
    RATE: "rows a second",
}


@dataclass(frozen=True)
class Group:
    """The trials of one combination that succeeded, warm-up apart."""

    name: str
    factors: Mapping[str, str]
    records: Sequence[Mapping[str, Any]]
    failures: Sequence[Mapping[str, Any]] = ()

    @property
    def first(self) -> Mapping[str, Any]:
        return (self.records or self.failures)[0]

    @property
    def cores(self) -> int:
        return int(self.first["cores"])

    @property
    def workers(self) -> int:
        return int(self.first["workers"])

    @property
    def threads(self) -> int:
        return int(self.first["threads"])

    @property
    def batch(self) -> int:
        return int(self.first["batch"])

    @property
    def variant(self) -> str:
        return self.factors.get(VARIANT, "")

    @property
    def is_one_machine(self) -> bool:
        """One process: no parameters travel."""
        return self.workers == 1

    def values(self, metric: str) -> list[float]:
        """A number a trial; nothing unless every trial that succeeded has it."""
        found = [record["metrics"].get(metric) for record in self.records]
        return [] if any(value is None for value in found) else [float(value) for value in found]

    def median(self, metric: str) -> float | None:
        values = self.values(metric)
        return statistics.median(values) if values else None

    def mean_of(self, part: str) -> dict[str, float]:
        """The mean over trials of a table of numbers, such as `phases_ms`."""
        names = list(dict.fromkeys(name for record in self.records for name in record.get(part, {})))
        return {
            name: statistics.mean([float(record[part].get(name, 0.0)) for record in self.records]) for name in names
        }

    @property
    def typical(self) -> Mapping[str, Any]:
        """The trial in the middle by its total time."""
        ordered = sorted(self.records, key=lambda record: float(record["metrics"][TOTAL]))
        return ordered[len(ordered) // 2]

    @cached_property
    def steps_to_accuracy(self) -> float | None:
        """Median number of steps until the evaluation that reached the target."""
        found = []
        for record in self.records:
            reached = record["metrics"][TO_ACCURACY]
            epochs = [each["epoch"] for each in record["history"] if each["seconds"] == reached]
            if reached is None or not epochs:
                return None
            found.append(epochs[0] * len(record["steps_ms"]) / len(record["history"]))
        return statistics.median(found) if found else None


@dataclass(frozen=True)
class Summary:
    """One group's numbers of one metric."""

    group: Group
    count: int
    median: float
    interval: Interval | None
    mean: float
    olympic: float
    normality: tuple[float, float] | None


@dataclass(frozen=True)
class Contrast:
    """A group beside its baseline. `effect.ratio` is the baseline's time over the group's: above 1 is faster."""

    group: Group
    baseline: Group
    effect: inference.Effect
    g: float | None


@dataclass(frozen=True)
class Cost:
    """At how many cores a variant beats the best process of one thread; None: at no number that was measured."""

    variant: str
    cores: int | None
    tried: tuple[int, ...]
    single: Group


@dataclass(frozen=True)
class Recommendation:
    """What to use.

    Attributes:
        best: the one with the lowest median.
        chosen: the cheapest of those that cannot be told from the best.
        ties: those, without `chosen`.
        fastest_one_machine: the best single process, where there is one beside `chosen`.
    """

    chosen: Group
    best: Group
    ties: tuple[Group, ...]
    fastest_one_machine: Group | None


@dataclass
class Analysis:
    """All numbers of one comparison, each computed when it is asked for."""

    comparison: Comparison
    groups: list[Group] = field(default_factory=list)

    @property
    def factors(self) -> list[str]:
        """What varies, where more than one value was measured."""
        names = list(self.comparison.plan.get("factors") or [])
        names = names or list(dict.fromkeys(name for group in self.groups for name in group.factors))
        return [name for name in names if len(self.levels(name)) > 1]

    def levels(self, factor: str) -> list[str]:
        found = {group.factors.get(factor, NOT_VARIED) for group in self.groups} - {NOT_VARIED}
        return sorted(found, key=_natural)

    @property
    def target(self) -> float | None:
        return self.comparison.plan.get("target_accuracy")

    @cached_property
    def metric(self) -> str:
        """What the answer is about: time to the target where at least two groups always reached it, else the total."""
        reached = [group for group in self.groups if group.values(TO_ACCURACY)]
        return TO_ACCURACY if len(reached) >= min(2, len(self.groups)) and reached else TOTAL

    def summaries(self, metric: str) -> list[Summary]:
        """Fastest (or highest rate) first; groups without that number are left out."""
        found = []
        for group in self.groups:
            values = group.values(metric)
            if values:
                found.append(
                    Summary(
                        group,
                        len(values),
                        statistics.median(values),
                        inference.median_interval(values),
                        statistics.mean(values),
                        statistics.olympic_mean(values),
                        inference.shapiro(values),
                    )
                )
        return sorted(found, key=lambda summary: summary.median, reverse=metric == RATE)

    def baseline_of(self, group: Group) -> Group | None:
        """The group that differs from it in the baseline's factors alone."""
        wanted = dict(self.comparison.plan.get("baseline") or {})
        if not wanted:
            slowest = self.summaries(self.metric)
            return slowest[-1].group if slowest and slowest[-1].group is not group else None
        if all(group.factors.get(name) == value for name, value in wanted.items()):
            return None
        others = [
            each for each in self.groups if all(each.factors.get(name) == value for name, value in wanted.items())
        ]
        free = [name for name in group.factors if name not in wanted]
        others.sort(key=lambda each: sum(each.factors.get(name) != group.factors[name] for name in free))
        fitting = [each for each in others if _fits(each, group, free)]
        return next(iter(fitting or others), None)

    def contrast(self, group: Group, baseline: Group | None = None, metric: str | None = None) -> Contrast | None:
        """None without a baseline, or where a side has fewer than two trials."""
        other = baseline or self.baseline_of(group)
        name = metric or self.metric
        if other is None:
            return None
        ours, theirs = group.values(name), other.values(name)
        if min(len(ours), len(theirs)) < 2:
            return None
        effect = inference.ratio(theirs, ours) if name != RATE else inference.ratio(ours, theirs)
        return None if effect is None else Contrast(group, other, effect, inference.hedges_g(theirs, ours))

    def one_way(self, metric: str) -> list[inference.AnovaRow] | None:
        return inference.one_way(self._values(metric), "group")

    def tukey(self, metric: str) -> list[inference.TukeyPair]:
        return inference.tukey(self._values(metric)) or []

    def two_ways(self, metric: str) -> dict[tuple[str, str], list[inference.AnovaRow]]:
        """Every pair of factors whose combinations were all measured more than once."""
        found = {}
        for first, second in itertools.combinations(self.factors, 2):
            rows = [
                (value, group.factors[first], group.factors[second])
                for group in self.groups
                if NOT_VARIED not in (group.factors.get(first), group.factors.get(second))
                for value in group.values(metric)
            ]
            if not rows:
                continue
            table = inference.two_way(
                [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows], (first, second)
            )
            if table:
                found[first, second] = table
        return found

    @cached_property
    def best_single(self) -> Group | None:
        """The fastest process of one thread."""
        ones = [group for group in self.groups if group.cores == 1 and group.values(self.metric)]
        return min(ones, key=lambda group: group.median(self.metric) or 0.0, default=None)

    @cached_property
    def scaling(self) -> dict[str, list[Group]]:
        """Groups of a variant by their cores, where there are several numbers of them; other factors held still."""
        series: dict[str, list[Group]] = {}
        for group in self.groups:
            if group.values(self.metric):
                series.setdefault(self._series_name(group, ("workers", "engine.threads")), []).append(group)
        return {
            name: sorted(members, key=lambda each: each.cores)
            for name, members in series.items()
            if len({each.cores for each in members}) > 1
        }

    def sweep(self, factor: str) -> dict[str, list[Group]]:
        """Groups along one factor, other factors held still."""
        series: dict[str, list[Group]] = {}
        for group in self.groups:
            if group.records and group.factors.get(factor, NOT_VARIED) != NOT_VARIED:
                series.setdefault(self._series_name(group, (factor,)), []).append(group)
        return {
            name: sorted(members, key=lambda each: _natural(each.factors[factor]))
            for name, members in series.items()
            if len(members) > 1
        }

    @cached_property
    def costs(self) -> list[Cost]:
        """COST (McSherry, Isard and Murray, HotOS 2015) of each way that ran on more than one core."""
        single = self.best_single
        if single is None:
            return []
        bar = single.median(self.metric) or 0.0
        found = []
        series: dict[str, list[Group]] = {}
        for group in self.groups:
            if group.cores > 1 and group.values(self.metric):
                series.setdefault(self._series_name(group, ("workers", "engine.threads")), []).append(group)
        for name, members in series.items():
            faster = [each.cores for each in members if (each.median(self.metric) or bar) < bar]
            tried = tuple(sorted({each.cores for each in members}))
            found.append(Cost(name, min(faster, default=None), tried, single))
        return found

    @cached_property
    def recommendation(self) -> Recommendation | None:
        """None where nothing can be compared."""
        ranked = self.summaries(self.metric)
        if not ranked:
            return None
        # Whoever does not learn is not fast.
        ranked = [summary for summary in ranked if self.reaches_target(summary.group)] or ranked
        best = ranked[0].group
        ties = [summary.group for summary in ranked[1:] if self._cannot_be_told(best, summary.group)]
        chosen = min([best, *ties], key=lambda group: (group.cores, group.median(self.metric) or 0.0))
        ones = [summary.group for summary in ranked if summary.group.is_one_machine and summary.group is not chosen]
        others = tuple(group for group in [best, *ties] if group is not chosen)
        return Recommendation(chosen, best, others, ones[0] if ones else None)

    def reaches_target(self, group: Group) -> bool:
        """Whether all its trials did that succeeded; always so where there is no target."""
        return self.target is None or bool(group.values(TO_ACCURACY))

    def core_seconds(self, group: Group) -> float | None:
        median = group.median(self.metric)
        return None if median is None else median * group.cores

    def money(self, group: Group) -> float | None:
        """What the median costs, where the plan has a price."""
        price = float(self.comparison.plan.get("price_per_core_hour") or 0.0)
        seconds = self.core_seconds(group)
        return None if seconds is None or price == 0.0 else seconds / 3600 * price

    def _values(self, metric: str) -> dict[str, list[float]]:
        return {group.name: group.values(metric) for group in self.groups if len(group.values(metric)) > 1}

    def _cannot_be_told(self, best: Group, other: Group) -> bool:
        contrast = self.contrast(best, other)
        return contrast is not None and not contrast.effect.differs

    def _series_name(self, group: Group, without: Sequence[str]) -> str:
        kept = {name: value for name, value in group.factors.items() if name not in without}
        named = [kept.pop(VARIANT)] if VARIANT in kept else []
        rest = [f"{name} {value}" for name, value in kept.items() if value != NOT_VARIED and name in self.factors]
        return ", ".join([*named, *rest]) or "all"


def analyse(comparison: Comparison) -> Analysis:
    """The groups in the order of the plan's factors."""
    members: dict[str, list[Mapping[str, Any]]] = {}
    for record in comparison.records:
        if not record["warmup"]:
            members.setdefault(str(record["group"]), []).append(record)
    groups = [
        Group(
            name,
            records[0]["factors"],
            [record for record in records if record["status"] == "success"],
            [record for record in records if record["status"] != "success"],
        )
        for name, records in members.items()
    ]
    groups.sort(key=lambda group: [_natural(value) for value in group.factors.values()])
    return Analysis(comparison, groups)


def _natural(text: str) -> tuple[int, float, str]:
    try:
        return (0, float(text), text)
    except ValueError:
        return (1, 0.0, text)


def _fits(one: Group, other: Group, names: Sequence[str]) -> bool:
    return all(
        NOT_VARIED in (one.factors.get(name), other.factors[name]) or one.factors.get(name) == other.factors[name]
        for name in names
    )
