"""From the records of a comparison to its numbers: geometric means, intervals, contrasts, variances, COST.

One statistic throughout: of several trials the geometric mean, with Student's interval on logarithms; of two groups the
ratio of these, with Welch's interval and test on logarithms; docs/reference/compare.md says why. What to use:
`decision`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sparkdl_bench import statistics
from sparkdl_bench.comparison.cells import NOT_VARIED
from sparkdl_bench.comparison.plan import VARIANT
from sparkdl_bench.comparison.record import CANCELLED
from sparkdl_bench.report.load import Comparison
from sparkdl_bench.statistics import Interval, inference

TO_ACCURACY = "seconds_to_accuracy"
TOTAL = "seconds_total"
# The same from the command on: what a user waits.
WAITED_TO_ACCURACY = "seconds_waited_to_accuracy"
WAITED = "seconds_waited"
STEP = "ms_per_step"
RATE = "rows_per_second"
ACCURACY = "test_accuracy"
RMSE = "test_rmse"
EPOCHS = "epochs_to_accuracy"
DRIFT = "drift"
TO_TARGET = (TO_ACCURACY, WAITED_TO_ACCURACY)
# Shares and counts may be 0 and do not err by factors: of these the mean is shown.
_COUNTED_METRICS = (ACCURACY, EPOCHS, "best_accuracy", RMSE)
# How much faster one has to be for that to matter: what costs more has to be so much faster, at least.
MARGIN = 1.1
# Groups whose mean test accuracies are further apart than this (a share of the test rows) have not learnt alike.
ALIKE = 0.01
# The same of regressions' mean test RMSE: the largest over the smallest.
ALIKE_RMSE = 1.05
# Steps are steady where their drift is within these; fewer steps than `ENOUGH_STEPS` measure little.
STEADY = (0.9, 1.1)
ENOUGH_STEPS = 100
LABELS = {
    TO_ACCURACY: "seconds to the target accuracy, by the run's own clock",
    TOTAL: "seconds of training, by the run's own clock",
    WAITED_TO_ACCURACY: "seconds from the command to the target accuracy",
    WAITED: "seconds from the command to its end",
    STEP: "ms per step",
    RATE: "rows per second",
}


@dataclass(frozen=True)
class Group:
    """The trials of one combination that succeeded, warm-up apart.

    Attributes:
        failures: those that did not succeed; those of them that somebody has cancelled are `cancelled`, the others
            `failed`.
    """

    name: str
    factors: Mapping[str, str]
    records: Sequence[Mapping[str, Any]]
    failures: Sequence[Mapping[str, Any]] = ()

    @property
    def failed(self) -> list[Mapping[str, Any]]:
        return [record for record in self.failures if record["status"] != CANCELLED]

    @property
    def cancelled(self) -> list[Mapping[str, Any]]:
        return [record for record in self.failures if record["status"] == CANCELLED]

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

    def centre(self, metric: str) -> float | None:
        """What is shown of several trials: the geometric mean of times and rates, the mean of shares and counts."""
        values = self.values(metric)
        if not values:
            return None
        return statistics.mean(values) if metric in _COUNTED_METRICS else statistics.geometric_mean(values)

    def mean_of(self, part: str) -> dict[str, float]:
        """The mean over trials of a table of numbers, such as `phases_ms`."""
        names = list(dict.fromkeys(name for record in self.records for name in record.get(part, {})))
        return {
            name: statistics.mean([float(record[part].get(name, 0.0)) for record in self.records]) for name in names
        }

    @property
    def counts(self) -> dict[str, list[float]]:
        """What the algorithm counted, by name: means over trials, place by place; a place that a trial lacks is 0."""
        trials = [record.get("counts", {}) for record in self.records]
        names = list(dict.fromkeys(name for trial in trials for name, numbers in trial.items() if numbers))
        return {
            name: [
                statistics.mean([float(number) for number in place])
                for place in itertools.zip_longest(*(trial.get(name, []) for trial in trials), fillvalue=0)
            ]
            for name in names
        }

    @property
    def typical(self) -> Mapping[str, Any]:
        """The trial in the middle by its total time."""
        ordered = sorted(self.records, key=lambda record: float(record["metrics"][TOTAL]))
        return ordered[len(ordered) // 2]

    @property
    def accuracy(self) -> float | None:
        """Mean test accuracy at the end of training, a share of the test rows."""
        return self.centre(ACCURACY)

    @property
    def rmse(self) -> float | None:
        """Mean test RMSE at the end of training, in the label's unit; of a regression alone."""
        return self.centre(RMSE)

    def steps(self, metric: str) -> float:
        """Mean number of steps in what `metric` measures: until the target was reached, or all."""
        return statistics.mean([float(len(_steps_ms(record, metric))) for record in self.records])

    @cached_property
    def mean_step_ms(self) -> float | None:
        """Mean over trials of the mean of all steps: the same steps as in `phases_ms`, those of the warm-up too."""
        means = [statistics.mean(record["steps_ms"]) for record in self.records if record["steps_ms"]]
        return statistics.mean(means) if means else None

    @property
    def phase_drift(self) -> dict[str, float]:
        """By phase the last third of the steps over the first, over the trials; of records that hold it."""
        told = [record["phase_drift"] for record in self.records if record.get("phase_drift")]
        names = list(dict.fromkeys(name for each in told for name in each))
        return {name: statistics.geometric_mean([float(each[name]) for each in told if name in each]) for name in names}

    @property
    def grown_phases(self) -> dict[str, float]:
        """The phases that became longer by more than a tenth while the run went on."""
        return {name: drift for name, drift in self.phase_drift.items() if drift > STEADY[1]}

    def clock(self, metric: str) -> dict[str, float]:
        """Mean seconds of the parts of what `metric` measures: `steps`, and the layers around them."""
        clocks = [_clock(record, metric) for record in self.records]
        return {name: statistics.mean([clock[name] for clock in clocks]) for name in clocks[0]} if clocks else {}

    @property
    def has_one_seed(self) -> bool:
        """Whether all its trials trained with the same seed."""
        return len({record.get("settings", {}).get("seed") for record in self.records}) == 1


@dataclass(frozen=True)
class Summary:
    """One group's numbers of one metric.

    Attributes:
        interval: of `centre`; None for one trial, which has no spread.
        normality: Shapiro and Wilk's W of the logarithms, and its p.
    """

    group: Group
    count: int
    centre: float
    interval: Interval | None
    normality: tuple[float, float] | None


@dataclass(frozen=True)
class Contrast:
    """A group beside its baseline. `effect.ratio` is the baseline's time over the group's: above 1 is faster.

    Attributes:
        p: of "they are equally fast"; adjusted by Holm where several were asked together, otherwise the effect's own.
    """

    group: Group
    baseline: Group
    effect: inference.Effect
    g: float | None
    p: float

    @property
    def differs(self) -> bool:
        return self.p < inference.SIGNIFICANT


@dataclass(frozen=True)
class Cost:
    """At how many cores a variant beats the best process of one thread: its mean is lower, and no test says chance.

    Attributes:
        tried: the numbers of cores that were measured, no more than the host has.
        beats: the way on the fewest cores that does, beside `single`; None: none of them.
        untold: those on fewer cores whose mean is lower as well, each with what cannot tell it from `single`; None
            where a side has fewer than two trials.
    """

    variant: str
    tried: tuple[int, ...]
    single: Group
    beats: Contrast | None
    untold: tuple[tuple[Group, Contrast | None], ...]

    @property
    def cores(self) -> int | None:
        return None if self.beats is None else self.beats.group.cores


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
        return self.comparison.target

    @cached_property
    def metric(self) -> str:
        """What the answer is about: time to the target where at least two groups always reached it, else the total.

        Counted from the command where every one of these groups has that, else by the runs' own clocks.
        """
        reached = [group for group in self.groups if group.values(TO_ACCURACY)]
        if reached and len(reached) >= min(2, len(self.groups)):
            return WAITED_TO_ACCURACY if all(group.values(WAITED_TO_ACCURACY) for group in reached) else TO_ACCURACY
        finished = [group for group in self.groups if group.values(TOTAL)]
        return WAITED if finished and all(group.values(WAITED) for group in finished) else TOTAL

    @property
    def is_to_target(self) -> bool:
        """Whether the answer is about the time to the target accuracy."""
        return self.metric in TO_TARGET

    @property
    def is_from_command(self) -> bool:
        """Whether times count from the command, as a user waits, and not by the runs' own clocks."""
        return self.metric in (WAITED, WAITED_TO_ACCURACY)

    @property
    def knows_waits(self) -> bool:
        """Whether every finished trial says how long its user waited."""
        return all(group.values(WAITED) for group in self.groups if group.records)

    @cached_property
    def host_cores(self) -> int | None:
        """The cores that all workers shared; None where they may have run on other hosts, or an older plan is silent.

        The ideal line of scaling ends there: more workers or threads share these cores.
        """
        cores = self.comparison.content.get("machine", {}).get("cores")
        return int(cores) if cores and self.shares_a_host else None

    @property
    def shares_a_host(self) -> bool:
        """Whether every worker ran on the host of the driver, as far as the records say where."""
        masters = {_master(record) for group in self.groups for record in (*group.records, *group.failures)} - {""}
        return bool(masters) and all(master.startswith("local") for master in masters)

    def cores_used(self, group: Group) -> int:
        """Workers × threads, but no more than the host has: 4 workers on 2 cores are not 4 cores."""
        return min(group.cores, self.host_cores or group.cores)

    def is_oversubscribed(self, group: Group) -> bool:
        """Whether it asks for more cores than the host has."""
        return self.cores_used(group) < group.cores

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
                        group.centre(metric) or 0.0,
                        inference.geometric_interval(values),
                        inference.shapiro(_logs(values)),
                    )
                )
        return sorted(found, key=lambda summary: summary.centre, reverse=metric == RATE)

    @property
    def _named_baseline(self) -> Mapping[str, str]:
        """Factors and their values; nothing where the plan names none."""
        named: Mapping[str, str] = self.comparison.plan.get("baseline") or {}
        return named

    def is_baseline(self, group: Group) -> bool:
        """Whether others are compared with it, and it with none."""
        wanted = self._named_baseline
        return _is_at(group, wanted) if wanted else group is self._slowest

    def is_named_baseline(self, group: Group) -> bool:
        """Whether the plan names it as what others are compared with."""
        return bool(self._named_baseline) and self.is_baseline(group)

    def baseline_of(self, group: Group) -> Group | None:
        """The group that differs from it in the baseline's factors alone; None for a baseline, or where none fits."""
        if self.is_baseline(group):
            return None
        wanted = self._named_baseline
        if not wanted:
            return self._slowest
        free = [name for name in group.factors if name not in wanted]
        fitting = [each for each in self.groups if _is_at(each, wanted) and _fits(each, group, free)]
        # A factor that does not apply to one of them fits any value; the same value fits better.
        return min(
            fitting, key=lambda each: sum(each.factors.get(name) != group.factors[name] for name in free), default=None
        )

    @cached_property
    def contrasts(self) -> dict[str, Contrast]:
        """Every group beside its baseline, by the group's name; p is adjusted for all of them.

        Without a baseline, or where a side has fewer than two trials, a group has none.
        """
        pairs = [(group, baseline) for group in self.groups if (baseline := self.baseline_of(group)) is not None]
        found = [self.contrast(group, baseline) for group, baseline in pairs]
        return {each.group.name: each for each in _adjusted([each for each in found if each is not None])}

    def contrast(self, group: Group, baseline: Group) -> Contrast | None:
        """These two alone, p not adjusted. None where a side has fewer than two trials."""
        ours, theirs = group.values(self.metric), baseline.values(self.metric)
        if min(len(ours), len(theirs)) < 2:
            return None
        effect = inference.ratio(theirs, ours)
        return (
            None
            if effect is None
            else Contrast(group, baseline, effect, inference.hedges_g(_logs(theirs), _logs(ours)), effect.p)
        )

    def one_way(self, metric: str) -> list[inference.AnovaRow] | None:
        """Of logarithms, as all tests here."""
        return inference.one_way(self._values(metric), "group")

    def tukey(self, metric: str) -> list[inference.TukeyPair]:
        """Of logarithms: the exponential of a difference is a ratio of geometric means."""
        return inference.tukey(self._values(metric)) or []

    def two_ways(self, metric: str) -> dict[tuple[str, str], list[inference.AnovaRow]]:
        """Every pair of factors whose combinations were all measured more than once, with all other factors held still:
        what a third one does would be taken for chance.
        """
        found = {}
        for first, second in itertools.combinations(self.factors, 2):
            groups = [
                group
                for group in self.groups
                if NOT_VARIED not in (group.factors.get(first, NOT_VARIED), group.factors.get(second, NOT_VARIED))
            ]
            others = {
                tuple((name, value) for name, value in sorted(group.factors.items()) if name not in (first, second))
                for group in groups
            }
            rows = [
                (math.log(value), group.factors[first], group.factors[second])
                for group in groups
                for value in group.values(metric)
            ]
            if not rows or len(others) > 1:
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
        return min(ones, key=lambda group: group.centre(self.metric) or 0.0, default=None)

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
        """COST (McSherry, Isard and Murray, HotOS 2015) of each way that ran on more than one core.

        Means of few trials differ by chance alone, so they are tested, p adjusted for all that ran on several cores.
        """
        single = self.best_single
        if single is None:
            return []
        series: dict[str, list[Group]] = {}
        for group in self.groups:
            if group.cores > 1 and group.values(self.metric):
                series.setdefault(self._series_name(group, ("workers", "engine.threads")), []).append(group)
        beside = [self.contrast(group, single) for members in series.values() for group in members]
        contrasts = {each.group.name: each for each in _adjusted([each for each in beside if each is not None])}
        return [self._cost(name, members, single, contrasts) for name, members in series.items()]

    def _cost(self, name: str, members: Sequence[Group], single: Group, contrasts: Mapping[str, Contrast]) -> Cost:
        bar = single.centre(self.metric) or 0.0
        tried = tuple(sorted({self.cores_used(each) for each in members}))
        untold: list[tuple[Group, Contrast | None]] = []
        for group in sorted(members, key=lambda each: each.cores):
            contrast = contrasts.get(group.name)
            if (group.centre(self.metric) or bar) >= bar:
                continue
            if contrast is not None and contrast.differs and contrast.effect.ratio > 1:
                return Cost(name, tried, single, contrast, tuple(untold))
            untold.append((group, contrast))
        return Cost(name, tried, single, None, tuple(untold))

    def reaches_target(self, group: Group) -> bool:
        """Whether all its trials did that succeeded; always so where there is no target."""
        return self.target is None or bool(group.values(TO_ACCURACY))

    @property
    def is_target_reached(self) -> bool:
        """Whether there is a target, and a group that reached it in all its trials."""
        return any(group.values(TO_ACCURACY) for group in self.groups)

    @cached_property
    def accuracies(self) -> dict[str, float | None]:
        """Mean test accuracy of every group with a finished trial; None where it was not always evaluated."""
        return {group.name: group.accuracy for group in self.groups if group.records}

    @property
    def is_regression(self) -> bool:
        """Whether its trials predict numbers: accuracies and a target accuracy say nothing then."""
        return any(RMSE in record["metrics"] for group in self.groups for record in group.records)

    @property
    def learnt_alike(self) -> bool:
        """Whether times alone may be compared: by a target that was reached, or because accuracies are about equal.

        Of regressions the test RMSE decides. True as well where no group has any test accuracy: there is nothing to
        tell them apart by.
        """
        if self.is_regression:
            errors = [group.rmse for group in self.groups if group.records]
            return None not in errors and max(errors) <= ALIKE_RMSE * min(errors)  # type: ignore[type-var, operator]
        known = [accuracy for accuracy in self.accuracies.values() if accuracy is not None]
        if self.is_target_reached or not known:
            return True
        return len(known) == len(self.accuracies) and max(known) - min(known) <= ALIKE + 1e-9

    @property
    def warmup_steps(self) -> int:
        return int(self.comparison.plan.get("warmup_steps") or 0)

    def measured_steps(self, group: Group) -> int | None:
        """Mean number of steps after the warm-up; None without a finished trial."""
        if not group.records:
            return None
        return round(statistics.mean([len(self.measured_ms(record)) for record in group.records]))

    def measured_ms(self, record: Mapping[str, Any]) -> Sequence[float]:
        """Milliseconds of a record's steps after its warm-up; none where all of them are of the warm-up.

        A record of before there was `warmup_left_out` left out as many as the plan says.
        """
        if "warmup_note" in record:
            return []
        steps: Sequence[float] = record.get("steps_ms") or []
        return steps[int(record.get("warmup_left_out", self.warmup_steps)) :]

    def is_steady(self, group: Group) -> bool:
        """Whether its steps after the warm-up became neither faster nor slower by more than a tenth."""
        drift = group.centre(DRIFT)
        return drift is None or STEADY[0] <= drift <= STEADY[1]

    @property
    def unsteady(self) -> list[Group]:
        return [group for group in self.groups if not self.is_steady(group)]

    @property
    def hardly_measured(self) -> list[Group]:
        """Groups with too few steps after the warm-up."""
        counts = [(group, self.measured_steps(group)) for group in self.groups]
        return [group for group, count in counts if count is not None and count < ENOUGH_STEPS]

    @property
    def one_seed_decides(self) -> bool:
        """Whether groups need different numbers of epochs to the target, and each has tried one seed only."""
        several = [group for group in self.groups if len(group.records) > 1]
        epochs = {epochs for group in several if (epochs := group.centre(EPOCHS)) is not None}
        return len(epochs) > 1 and all(group.has_one_seed for group in several)

    def core_seconds(self, group: Group) -> float | None:
        """Seconds × the cores that it had; never more than the host has × the seconds."""
        seconds = group.centre(self.metric)
        return None if seconds is None else seconds * self.cores_used(group)

    def money(self, group: Group) -> float | None:
        """What these core-seconds cost, where the plan has a price."""
        price = float(self.comparison.plan.get("price_per_core_hour") or 0.0)
        seconds = self.core_seconds(group)
        return None if seconds is None or price == 0.0 else seconds / 3600 * price

    @cached_property
    def _slowest(self) -> Group | None:
        timed = [group for group in self.groups if group.values(self.metric)]
        return max(timed, key=lambda group: group.centre(self.metric) or 0.0, default=None)

    def _values(self, metric: str) -> dict[str, list[float]]:
        return {group.name: _logs(group.values(metric)) for group in self.groups if len(group.values(metric)) > 1}

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


def _adjusted(contrasts: Sequence[Contrast]) -> list[Contrast]:
    """The same with p adjusted by Holm for all of them."""
    adjusted = inference.holm([each.p for each in contrasts])
    return [replace(each, p=p) for each, p in zip(contrasts, adjusted, strict=True)]


def _logs(values: Sequence[float]) -> list[float]:
    return [math.log(value) for value in values]


def _master(record: Mapping[str, Any]) -> str:
    return str(record.get("facts", {}).get("master") or record.get("spark", {}).get("spark.master", ""))


def _epochs(record: Mapping[str, Any], metric: str) -> int:
    """Epochs in what `metric` measures: to the evaluation that reached the target, or all."""
    history = record["history"]
    reached = record["metrics"].get(TO_ACCURACY) if metric in TO_TARGET else None
    ends = [count for count, each in enumerate(history, start=1) if reached is not None and each["seconds"] == reached]
    return ends[0] if ends else len(history)


def _steps_ms(record: Mapping[str, Any], metric: str) -> Sequence[float]:
    """Milliseconds of the steps in those epochs; every epoch has as many steps."""
    steps: Sequence[float] = record["steps_ms"]
    whole = len(record["history"])
    return steps[: round(len(steps) * _epochs(record, metric) / whole)] if whole else steps


def _clock(record: Mapping[str, Any], metric: str) -> dict[str, float]:
    """Seconds by part. Epochs are alike in what they do beside steps; the time to the target has no end of the run."""
    layers: Mapping[str, float] = record.get("layers_s", {})
    whole = len(record["history"])
    share = _epochs(record, metric) / whole if whole else 1.0
    before = layers.get("start", 0.0) + layers.get("cluster manager", 0.0)
    return {
        **({"start": before} if metric in (WAITED, WAITED_TO_ACCURACY) else {}),
        "steps": sum(_steps_ms(record, metric)) / 1e3,
        "prepare": layers.get("prepare", 0.0),
        **{name: share * layers.get(name, 0.0) for name in ("evaluation", "checkpoint", "idle")},
        "finish": 0.0 if metric in TO_TARGET else layers.get("finish", 0.0),
        **({"stop": layers.get("stop", 0.0)} if metric == WAITED else {}),
    }


def _is_at(group: Group, point: Mapping[str, str]) -> bool:
    return all(group.factors.get(name) == value for name, value in point.items())


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
