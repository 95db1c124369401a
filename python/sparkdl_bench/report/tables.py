"""The tables of a report, as rows of cells: the page, Markdown and CSV all show these."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkdl_bench import statistics
from sparkdl_bench.report import break_even
from sparkdl_bench.report.analysis import (
    DRIFT,
    ENOUGH_STEPS,
    LABELS,
    RATE,
    RMSE,
    STEADY,
    STEP,
    TO_ACCURACY,
    TOTAL,
    WAITED,
    WAITED_TO_ACCURACY,
    Analysis,
    Contrast,
    Group,
)
from sparkdl_bench.report.decision import decide
from sparkdl_bench.report.naming import plain
from sparkdl_bench.report.numbers import number
from sparkdl_bench.results import describe_bytes
from sparkdl_bench.statistics import Interval, inference, sequential
from sparkdl_bench.statistics.inference import AnovaRow


@dataclass(frozen=True)
class Cell:
    """What is shown, and what it is sorted by."""

    text: str
    key: float | str


@dataclass(frozen=True)
class Table:
    """Attributes: note: what has to be known to read it."""

    name: str
    title: str
    note: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", plain(self.name))


NONE = Cell("–", float("inf"))
_NONE_FITS = "none fits"
# A rank that works longer than this many times the ranks' mean is waited for; as in the tab Training of Spark's pages.
_STRAGGLES = 1.02
# What algorithms count (docs/reference/variants.md), in words; a run's page has them from the same file. `often`: the
# numbers say how often each value from 0 on occurred; otherwise there is one, or one of each worker.
_COUNTED: Mapping[str, Mapping[str, Any]] = json.loads(
    Path(__file__).with_name("counted.json").read_text(encoding="utf-8")
)
# Values of which the share is told one by one.
_TOLD_VALUES = 8
SHORT = {
    TO_ACCURACY: "s to target, run's clock",
    TOTAL: "s in total, run's clock",
    WAITED_TO_ACCURACY: "s from command to target",
    WAITED: "s from command to end",
    STEP: "ms per step",
    RATE: "rows/s",
}
_ESTIMATE = "Of several trials: the geometric mean, with Student's interval on logarithms; ratios are of these (Welch)."
_DRIFT = (
    "Drift is the median of the last third of the steps over that of the first; outside "
    f"{STEADY[0]:g} to {STEADY[1]:g} the row is not steady."
)
_MEDIAN = "ms per step is the median step of a trial after its warm-up"


def groups(analysis: Analysis) -> Table:
    """One row a group."""
    metric = analysis.metric
    headings = [
        "group",
        "cores",
        "batch",
        "trials",
        f"{SHORT[metric]} [95 %]",
        "× faster than baseline [95 %]",
        "p",
        "ms per step",
        "rows/s",
        "measured steps",
        "drift",
        "test RMSE" if analysis.is_regression else "accuracy",
        "core-seconds",
        "bytes per step",
    ]
    priced = float(analysis.comparison.plan.get("price_per_core_hour") or 0.0) > 0
    if priced:
        headings.append(str(analysis.comparison.plan.get("currency", "money")))
    summaries = {summary.group.name: summary for summary in analysis.summaries(metric)}
    ordered = [summary.group for summary in summaries.values()]
    ordered += [group for group in analysis.groups if group.name not in summaries]
    rows = []
    for group in ordered:
        summary = summaries.get(group.name)
        contrast = analysis.contrasts.get(group.name)
        row = [
            text_cell(group.name),
            _cores(analysis, group),
            _count(group.batch) if group.batch else NONE,
            trials_cell(group),
        ]
        row += [
            interval_cell(summary.centre, summary.interval) if summary else NONE,
            _faster(analysis, group, contrast),
            probability_cell(contrast.p) if contrast else NONE,
            number_cell(group.centre(STEP)),
            number_cell(group.centre(RATE)),
            _steps(analysis.measured_steps(group)),
            _drift(group.centre(DRIFT)),
            number_cell(group.rmse) if analysis.is_regression else _share(group.accuracy),
            number_cell(analysis.core_seconds(group)),
            _bytes(group),
        ]
        if priced:
            row.append(number_cell(analysis.money(group)))
        rows.append(row)
    return Table("groups", "Groups", _about_groups(analysis), headings, rows)


def _about_groups(analysis: Analysis) -> str:
    base = analysis.comparison.plan.get("baseline") or {}
    against = ", ".join(f"{name} {value}" for name, value in base.items()) or "the slowest"
    target = f" Target: {analysis.target:.1%} of the test rows." if analysis.target is not None else ""
    return (
        f"Times are {LABELS[analysis.metric]}. {_ESTIMATE} Baseline: {against}; 'none fits' where no group differs in "
        f"that alone; p is adjusted by Holm for all of them.{target} Core-seconds: the time × the cores, of which no "
        f"group has more than the host. {_MEDIAN}, and rows/s is by the mean of the same steps, so a few slow ones "
        f"lower rows/s alone. Measured steps are those after the warm-up, fewer than {ENOUGH_STEPS} are too few. "
        f"{_DRIFT} Fewer than {sequential.ENOUGH_TRIALS} trials are marked 'few'."
    )


def fixed_and_steady(analysis: Analysis) -> Table:
    """What each group costs once, and what each step adds."""
    rows = [
        [
            text_cell(each.group.name),
            trials_cell(each.group),
            interval_cell(each.fixed_s, each.fixed_interval),
            interval_cell(each.ms_per_step, each.steady_interval),
            _drift(each.group.centre(DRIFT)),
        ]
        for each in break_even.fixed_and_steady(analysis)
    ]
    since = "from the command" if analysis.knows_waits else "by the runs' own clocks"
    note = (
        "The time of a run is the fixed seconds + steps × ms per step. Fixed: all that does not grow with the steps, "
        f"counted {since}. ms per step: the mean "
        "step after the warm-up, with its share of evaluations, checkpoints and idling. Means over the trials with "
        f"Student's interval. {_DRIFT}"
    )
    headings = ["group", "trials", "fixed seconds [95 %]", "ms per step, evaluations included [95 %]", "drift"]
    return Table("fixed-and-steady", "Fixed cost and steady speed", note, headings, rows)


def break_evens(analysis: Analysis) -> Table:
    """When a group that costs more overtakes the cheapest."""
    rows = [
        [
            text_cell(each.group.name),
            text_cell(each.other.name),
            number_cell(each.more_to_start_s),
            number_cell(each.less_per_step_ms),
            text_cell(f"{each.kind} …" if each.steps is not None else each.kind),
            NONE if each.steps is None else interval_cell(each.steps, each.interval),
            number_cell(each.rows),
            number_cell(each.passes),
        ]
        for each in decide(analysis).break_even
    ]
    headings = ["group", "beside", "s more to start", "ms less per step", "wins", "steps [95 %]", "rows", "passes"]
    note = (
        "After how many steps a group that costs more overtakes the cheapest one with the same batch, also where that "
        "is longer than what was measured; intervals by Fieller's theorem. Passes are over the training set. "
        "From one trial of either no break-even can be told."
    )
    return Table("break-even", "Break-even", note, headings, rows)


def tests(analysis: Analysis) -> Table:
    """Welch's test, effect size and normality of each group, of logarithms as everything here."""
    rows = []
    for summary in analysis.summaries(analysis.metric):
        group = summary.group
        baseline = analysis.baseline_of(group)
        contrast = analysis.contrasts.get(group.name)
        logs = [[math.log(value) for value in each.values(analysis.metric)] for each in (baseline, group) if each]
        found = inference.welch(*logs) if len(logs) == 2 else None
        rows.append(
            [
                text_cell(group.name),
                text_cell(baseline.name if baseline else "–" if analysis.is_baseline(group) else _NONE_FITS),
                number_cell(math.exp(found.difference)) if found else NONE,
                number_cell(math.exp(found.interval.low)) if found else NONE,
                number_cell(math.exp(found.interval.high)) if found else NONE,
                number_cell(found.t) if found else NONE,
                number_cell(found.df) if found else NONE,
                probability_cell(found.p) if found else NONE,
                number_cell(contrast.g) if contrast else NONE,
                number_cell(summary.normality[0]) if summary.normality else NONE,
                probability_cell(summary.normality[1]) if summary.normality else NONE,
            ]
        )
    headings = ["group", "baseline", "ratio", "low", "high", "t", "df", "p", "Hedges' g", "W", "p of W"]
    note = (
        f"Welch's t-test on the logarithms of {LABELS[analysis.metric]}: the ratio of geometric means, baseline over "
        "group, with its 95 % interval; p is not adjusted for the number of groups. Hedges' g of logarithms; Shapiro "
        "and Wilk's W of the group's logarithms: a small p of W says that they are not normally distributed."
    )
    return Table("tests", "Tests against the baseline", note, headings, rows)


def phases(analysis: Analysis) -> Table:
    """Every phase of a step, and whether the steps, or single phases of them, changed while the run went on."""
    found = _parts(analysis, "phases_ms", "phases", "Phases, ms per step", "")
    groups = {group.name: group for group in analysis.groups}
    rows = [[*row, _drift(groups[row[0].text].centre(DRIFT)), _grown(groups[row[0].text])] for row in found.rows]
    note = f"Exposed time; means of all steps and trials. {_DRIFT} Phases that grew did so by more than a tenth."
    return Table(found.name, found.title, note, [*found.headings, "drift", "phases that grew"], rows)


def stragglers(analysis: Analysis) -> Table:
    """Who made the others wait, in the middle trial of each group."""
    rows = []
    for group in analysis.groups:
        ranks = group.typical.get("ranks", []) if group.records else []
        ranks = [rank for rank in ranks if "wait" in rank["phases_ms"]]  # those of a launch may have none
        if len(ranks) < 2:
            continue
        works = [_own_ms(rank) for rank in ranks]
        shortest = min(float(rank["phases_ms"]["wait"]) for rank in ranks)
        longest = max(works)
        is_uneven = longest > _STRAGGLES * statistics.mean(works)
        for rank, own in zip(ranks, works, strict=True):
            wait = float(rank["phases_ms"]["wait"])
            rows.append(
                [
                    text_cell(group.name),
                    _count(int(rank["rank"])),
                    text_cell(f"{rank['host']} / {rank['executor']}"),
                    number_cell(float(rank["phases_ms"].get("data", 0.0))),
                    number_cell(float(rank["phases_ms"].get("compute", 0.0))),
                    number_cell(own),
                    number_cell(wait),
                    number_cell(wait - shortest),
                    number_cell(rank.get("made_others_wait_s")),
                    text_cell("yes" if is_uneven and own == longest else ""),
                    _drift(group.typical["metrics"].get(DRIFT)),
                ]
            )
    headings = ["group", "rank", "host / executor", "data", "compute", "works", "wait", "waits longer by"]
    headings += ["made others wait, s", "waited for", "drift"]
    note = (
        "Milliseconds per step of the trial in the middle; works: all but waiting for other ranks and for Spark. The "
        "others wait for the rank that works longest, where that is more than 2 % above the ranks' mean. The seconds "
        "that it made the others wait are summed over them and over the steps in which it was the last. "
        f"{_DRIFT}"
    )
    return Table("stragglers", "Stragglers", note, headings, rows)


def counts(analysis: Analysis) -> Table:
    """What each group's algorithm counted, where it counts anything."""
    rows = [
        [text_cell(group.name), text_cell(told["words"]), *(_often(numbers) if told.get("often") else _each(numbers))]
        for group in analysis.groups
        for name, numbers in group.counts.items()
        for told in [_COUNTED.get(name, {"words": name})]
    ]
    note = (
        "Means over the trials, all ranks together. Pushes and steps by how old their weights were: in all, the mean "
        "and the largest age, and the share of each. Rows by worker: the step's, their mean and the most, and each "
        "worker's."
    )
    headings = ["group", "counted", "in all", "mean", "most", "of each"]
    return Table("counts", "What the algorithms counted", note, headings, rows)


def layers(analysis: Analysis) -> Table:
    return _parts(
        analysis,
        "layers_s",
        "layers",
        "Layers, seconds of the whole process",
        "From the start of the process to its end; `other` is what no clock covers.",
    )


def resources(analysis: Analysis) -> Table:
    """What each group's processes used: medians over the trials that were sampled."""
    sampled = {
        group.name: found
        for group in analysis.groups
        if (found := [record["resources"] for record in group.records if record.get("resources")])
    }
    has_gpus = any(each.get("gpus") for found in sampled.values() for each in found)
    headings = ["group", "cores in use, mean", "resident memory, peak", "resident, peak of a process"]
    headings += ["heap, peak of a process", "direct buffers, peak of a process", "GC seconds", "sent by interface"]
    headings += ["GPU use, mean", "GPU memory, peak"] if has_gpus else []
    rows = []
    for name, found in sampled.items():
        row = [
            text_cell(name),
            number_cell(_middle(statistics.mean(each["cpu_cores"]) for each in found)),
            _memory(_middle(_most(each["resident_bytes"]) for each in found)),
            _memory(_middle(_most(_of_processes(each, "resident_bytes_max")) for each in found)),
            _memory(_middle(_most(_of_processes(each, "heap_bytes_max")) for each in found)),
            _memory(_middle(_most(_of_processes(each, "direct_bytes_max")) for each in found)),
            number_cell(_middle(sum(spent) / 1e3 for each in found if (spent := _of_processes(each, "gc_ms")))),
            _interfaces(found),
        ]
        if has_gpus:
            row += [_gpus(found, "use_mean", "{:.0%}".format), _gpus(found, "memory_bytes_max", describe_bytes)]
        rows.append(row)
    note = (
        "Medians over the trials. Resident memory is that of driver and executors together, at most 120 moments of a "
        "run; GC seconds are summed over them. Bytes by network interface, and GPUs, are of the whole host, all its "
        "programs together. Of a peer all processes are sampled; heap, direct buffers and GC only JVMs of ours tell."
    )
    return Table("resources", "Resources", note, headings, rows)


def anovas(analysis: Analysis) -> list[Table]:
    """One-way over all groups, then every pair of factors."""
    tables = []
    one = analysis.one_way(analysis.metric)
    if one:
        tables.append(_anova("one-way", f"One-way ANOVA of the logarithm of {LABELS[analysis.metric]}", one))
    for (first, second), rows in analysis.two_ways(analysis.metric).items():
        title = f"Two-way ANOVA of the logarithm of {LABELS[analysis.metric]}: {first} and {second}"
        tables.append(_anova(f"two-way-{first}-{second}", title, rows))
    return tables


def tukey(analysis: Analysis) -> Table:
    rows = [
        [
            text_cell(pair.first),
            text_cell(pair.second),
            number_cell(math.exp(pair.difference)),
            number_cell(math.exp(pair.interval.low)),
            number_cell(math.exp(pair.interval.high)),
            probability_cell(pair.p),
        ]
        for pair in analysis.tukey(analysis.metric)
    ]
    return Table(
        "tukey",
        "Tukey's HSD, all pairs",
        f"Second over first, ratios of geometric means of {LABELS[analysis.metric]}; intervals and p hold for the "
        "whole family at 95 %.",
        ["first", "second", "ratio", "low", "high", "p"],
        rows,
    )


def runs(analysis: Analysis) -> Table:
    """Every record, also those that failed or warmed up."""
    rows = []
    for record in analysis.comparison.records:
        metrics: Mapping[str, Any] = record.get("metrics", {})
        state = "warm-up" if record["warmup"] else str(record["status"])
        rows.append(
            [
                text_cell(str(record["group"])),
                _count(int(record["trial"])),
                text_cell(state),
                text_cell(str(record.get("started", ""))[:19]),
                number_cell(metrics.get(TO_ACCURACY)),
                number_cell(metrics.get(TOTAL)),
                number_cell(metrics.get(WAITED)),
                number_cell(metrics.get(STEP)),
                number_cell(metrics.get("ms_per_step_p90")),
                _drift(metrics.get(DRIFT)),
                number_cell(metrics.get(RMSE)) if analysis.is_regression else _share(metrics.get("test_accuracy")),
                _share(record.get("load", {}).get("busy")),
            ]
        )
    headings = ["group", "trial", "state", "started (UTC)", "s to target", "s total", "s waited", "ms per step", "p90"]
    learnt = "test RMSE" if analysis.is_regression else "accuracy"
    note = (
        "Seconds to the target and in total by the run's own clock; waited: from the command to its end. Busy: the "
        f"share of all cores in use just before it. {_MEDIAN}, p90 their 90th percentile. {_DRIFT}"
    )
    return Table("runs", "All runs", note, [*headings, "drift", learnt, "busy"], rows)


def bandwidth(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows of `sparkdl-bench net`."""
    made = [
        [
            text_cell(str(row["transport"])),
            text_cell(str(row.get("channel", "–"))),
            text_cell(str(row.get("topology") or "–")),
            text_cell(str(row.get("codec", "–"))),
            _count(int(row["workers"])),
            _count(int(row["elements"])),
            number_cell(row["median_ms"]),
            number_cell(row.get("p90_ms")),
            number_cell(row.get("algbw_gbps")),
            number_cell(row["busbw_gbps"]),
            text_cell("yes" if row.get("correct", False) else "NO"),
        ]
        for row in rows
    ]
    headings = ["transport", "channel", "topology", "codec", "ranks", "values", "median ms", "p90", "algbw", "busbw"]
    return Table("bandwidth", "All-reduces", "Bandwidths in Gbit/s.", [*headings, "correct"], made)


def all_tables(analysis: Analysis) -> list[Table]:
    tables = [groups(analysis), fixed_and_steady(analysis), break_evens(analysis), phases(analysis)]
    tables += [stragglers(analysis), counts(analysis), layers(analysis), resources(analysis), tests(analysis)]
    tables += [*anovas(analysis), tukey(analysis), runs(analysis)]
    return [table for table in tables if table.rows]


def _own_ms(rank: Mapping[str, Any]) -> float:
    """Milliseconds per step in which it waited neither for other ranks nor for Spark."""
    return sum(float(value) for phase, value in rank["phases_ms"].items() if phase not in ("wait", "scheduler"))


def _often(numbers: Sequence[float]) -> list[Cell]:
    """Of how often each value from 0 on occurred: all of them, their mean, the largest, and the share of each."""
    total = sum(numbers)
    if total == 0:
        return [number_cell(0.0), NONE, NONE, text_cell("")]
    mean = sum(value * count for value, count in enumerate(numbers)) / total
    most = max(value for value, count in enumerate(numbers) if count > 0)
    shares = [f"{value}: {count / total:.1%}" for value, count in enumerate(numbers[:_TOLD_VALUES]) if count > 0]
    rest = sum(numbers[_TOLD_VALUES:])
    shares += [f"{_TOLD_VALUES} and more: {rest / total:.1%}"] if rest > 0 else []
    return [number_cell(total), number_cell(mean), _count(most), text_cell(", ".join(shares))]


def _each(numbers: Sequence[float]) -> list[Cell]:
    """One number, or one of each worker."""
    if len(numbers) == 1:
        return [number_cell(numbers[0]), NONE, NONE, text_cell("")]
    mean, each = statistics.mean(numbers), ", ".join(number(value) for value in numbers)
    return [number_cell(sum(numbers)), number_cell(mean), number_cell(max(numbers)), text_cell(each)]


def _of_processes(sampled: Mapping[str, Any], name: str) -> list[float]:
    """A number of every process; -1 is what its system does not tell, and left out."""
    found = [each.get(name, -1) for each in sampled.get("processes", [])]
    return [float(value) for value in found if value >= 0]


def _most(values: Sequence[float]) -> float | None:
    """The largest; None where none was told."""
    most = max(values, default=-1.0)
    return float(most) if most >= 0 else None


def _middle(values: Iterable[float | None]) -> float | None:
    """The median of what is known."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _sent(sampled: Mapping[str, Any]) -> dict[str, float]:
    """Bytes sent by interface, summed over hosts. Processes of a host see the same: who was there longest counts."""
    hosts: dict[tuple[str, str], float] = {}
    for each in sampled.get("processes", []):
        for interface, count in each.get("network_sent_bytes", {}).items():
            if count >= 0:
                key = (each["host"], interface)
                hosts[key] = max(hosts.get(key, 0.0), float(count))
    totals: dict[str, float] = {}
    for (_, interface), count in hosts.items():
        totals[interface] = totals.get(interface, 0.0) + count
    return totals


def _interfaces(found: Sequence[Mapping[str, Any]]) -> Cell:
    """The interfaces over which something went, the busiest first."""
    trials = [_sent(each) for each in found]
    names = dict.fromkeys(name for sent in trials for name in sent)
    if not names:
        return NONE
    sent = {name: statistics.median([each.get(name, 0.0) for each in trials]) for name in names}
    busy = sorted((name for name in sent if sent[name] > 0), key=lambda name: -sent[name])
    return Cell(", ".join(f"{name} {describe_bytes(sent[name])}" for name in busy) or "0 B", sum(sent.values()))


def _gpus(found: Sequence[Mapping[str, Any]], name: str, write: Callable[[float], str]) -> Cell:
    """A number of every GPU, sorted by the largest."""
    seen: dict[str, list[float | None]] = {}
    for each in found:
        for gpu in each.get("gpus", []):
            seen.setdefault(f"{gpu['host']}/{gpu['gpu']}", []).append(gpu[name])
    known = {gpu: value for gpu, values in seen.items() if (value := _middle(values)) is not None}
    if not known:
        return NONE
    return Cell(", ".join(f"{gpu} {write(value)}" for gpu, value in known.items()), max(known.values()))


def _parts(analysis: Analysis, part: str, name: str, title: str, note: str) -> Table:
    found = {group.name: group.mean_of(part) for group in analysis.groups}
    found = {group: values for group, values in found.items() if values}
    names = list(dict.fromkeys(each for values in found.values() for each in values))
    rows = [
        [text_cell(group), *(number_cell(values.get(each, 0.0)) for each in names), number_cell(sum(values.values()))]
        for group, values in found.items()
    ]
    return Table(name, title, note, ["group", *names, "sum"], rows)


def _anova(name: str, title: str, rows: Sequence[AnovaRow]) -> Table:
    made = [
        [
            text_cell(row.factor),
            number_cell(row.sum_of_squares),
            number_cell(row.df),
            number_cell(row.f),
            NONE if row.p is None else probability_cell(row.p),
        ]
        for row in rows
    ]
    return Table(name, title, "", ["source", "sum of squares", "df", "F", "p"], made)


def text_cell(text: str) -> Cell:
    return Cell(text, text)


def _count(value: int) -> Cell:
    return Cell(f"{value:,}", value)


def trials_cell(group: Group) -> Cell:
    count = len(group.records)
    said = [f"{len(group.failed)} failed"] if group.failed else []
    said += [f"{len(group.cancelled)} cancelled"] if group.cancelled else []
    said += ["few"] if 0 < count < sequential.ENOUGH_TRIALS else []
    return Cell(f"{count}" + (f" ({', '.join(said)})" if said else ""), count)


def _cores(analysis: Analysis, group: Group) -> Cell:
    """Workers × threads, and what the host has where that is less."""
    used = analysis.cores_used(group)
    return Cell(f"{used} (asks for {group.cores})" if analysis.is_oversubscribed(group) else f"{used:,}", used)


def _drift(value: float | None) -> Cell:
    if value is None:
        return NONE
    return Cell(number(value) + ("" if STEADY[0] <= value <= STEADY[1] else " (not steady)"), value)


def _faster(analysis: Analysis, group: Group, contrast: Contrast | None) -> Cell:
    """The ratio to the baseline, or why there is none."""
    if contrast is not None:
        return interval_cell(contrast.effect.ratio, contrast.effect.interval)
    if analysis.is_baseline(group):
        return Cell("baseline", NONE.key)
    return NONE if analysis.baseline_of(group) is not None else Cell(_NONE_FITS, NONE.key)


def _steps(count: int | None) -> Cell:
    return NONE if count is None else _count(count)


def _memory(value: float | None) -> Cell:
    return NONE if value is None else Cell(describe_bytes(value), value)


def _grown(group: Group) -> Cell:
    return text_cell(", ".join(f"{phase} {drift:.2f} times" for phase, drift in group.grown_phases.items()))


def number_cell(value: float | None) -> Cell:
    return NONE if value is None else Cell(number(value), value)


def _share(value: float | None) -> Cell:
    return NONE if value is None else Cell(f"{value:.2%}", value)


def probability_cell(value: float) -> Cell:
    return Cell("< 0.0001" if value < 1e-4 else f"{value:.4f}", value)


def interval_cell(value: float, interval: Interval | None) -> Cell:
    inside = f" [{number(interval.low)}, {number(interval.high)}]" if interval else ""
    return Cell(number(value) + inside, value)


def _bytes(group: Group) -> Cell:
    """Payload of all ranks together, framing apart."""
    totals = [
        sum(count for channel, count in record["bytes"].items() if not channel.endswith(".framing"))
        / max(1, len(record["steps_ms"]))
        for record in group.records
        if record.get("bytes")
    ]
    if not totals:
        return NONE
    mean = sum(totals) / len(totals)
    return Cell(describe_bytes(mean), mean)
