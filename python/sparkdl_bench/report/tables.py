"""The tables of a report, as rows of cells: the page, Markdown and CSV all show these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkdl_bench.report.analysis import LABELS, RATE, STEP, TO_ACCURACY, TOTAL, Analysis, Group
from sparkdl_bench.report.words import number
from sparkdl_bench.results import describe_bytes
from sparkdl_bench.statistics import Interval, inference
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


NONE = Cell("–", float("inf"))
_SHORT = {TO_ACCURACY: "s to target", TOTAL: "s in total", STEP: "ms a step", RATE: "rows/s"}


def groups(analysis: Analysis) -> Table:
    """One row a group."""
    metric = analysis.metric
    headings = [
        "group",
        "cores",
        "batch",
        "trials",
        f"{_SHORT[metric]}, median [95 %]",
        "MLPerf mean",
        "× faster than baseline [95 %]",
        "p",
        "ms a step",
        "rows/s",
        "accuracy",
        "core-seconds",
        "bytes a step",
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
        contrast = analysis.contrast(group)
        row = [_text(group.name), _count(group.cores), _count(group.batch), _trials(group)]
        row += [
            _interval(summary.median, summary.interval) if summary else NONE,
            _number(summary.olympic) if summary else NONE,
            _interval(contrast.effect.ratio, contrast.effect.interval) if contrast else NONE,
            _probability(contrast.effect.p) if contrast else NONE,
            _number(group.median(STEP)),
            _number(group.median(RATE)),
            _share(group.median("test_accuracy")),
            _number(analysis.core_seconds(group)),
            _bytes(group),
        ]
        if priced:
            row.append(_number(analysis.money(group)))
        rows.append(row)
    target = f" Target: {analysis.target:.1%} of the test rows." if analysis.target is not None else ""
    base = analysis.comparison.plan.get("baseline") or {}
    against = ", ".join(f"{name} {value}" for name, value in base.items()) or "the slowest"
    note = (
        f"Baseline: {against}. Ratios compare geometric means (Welch's test on logarithms); intervals of medians are "
        f"bootstrapped (BCa).{target} Core-seconds: the median times workers and threads."
    )
    return Table("groups", "Groups", note, headings, rows)


def tests(analysis: Analysis) -> Table:
    """Welch's test, effect size and normality of each group."""
    rows = []
    for summary in analysis.summaries(analysis.metric):
        group = summary.group
        values = group.values(analysis.metric)
        baseline = analysis.baseline_of(group)
        found = inference.welch(values, baseline.values(analysis.metric)) if baseline else None
        contrast = analysis.contrast(group)
        rows.append(
            [
                _text(group.name),
                _text(baseline.name if baseline else "–"),
                _number(summary.mean),
                _number(found.difference) if found else NONE,
                _number(found.interval.low) if found else NONE,
                _number(found.interval.high) if found else NONE,
                _number(found.t) if found else NONE,
                _number(found.df) if found else NONE,
                _probability(found.p) if found else NONE,
                _number(contrast.g) if contrast else NONE,
                _number(summary.normality[0]) if summary.normality else NONE,
                _probability(summary.normality[1]) if summary.normality else NONE,
            ]
        )
    headings = ["group", "baseline", "mean", "difference", "low", "high", "t", "df", "p", "Hedges' g", "W", "p of W"]
    note = (
        f"Welch's t-test of {LABELS[analysis.metric]} (group minus baseline, 95 %), not of logarithms as in the table "
        "of groups; Hedges' g of baseline minus group; Shapiro and Wilk's W of the group's trials: a small p of W says "
        "that they are not normally distributed."
    )
    return Table("tests", "Tests against the baseline", note, headings, rows)


def phases(analysis: Analysis) -> Table:
    return _parts(analysis, "phases_ms", "phases", "Phases, ms a step", "Exposed time; means of all steps and trials.")


def stragglers(analysis: Analysis) -> Table:
    """Who made the others wait, in the middle trial of each group."""
    rows = []
    for group in analysis.groups:
        ranks = group.typical.get("ranks", []) if group.records else []
        if len(ranks) < 2:
            continue
        shortest = min(float(rank["phases_ms"]["wait"]) for rank in ranks)
        for rank in ranks:
            wait = float(rank["phases_ms"]["wait"])
            rows.append(
                [
                    _text(group.name),
                    _count(int(rank["rank"])),
                    _text(f"{rank['host']} / {rank['executor']}"),
                    _number(float(rank["phases_ms"]["data"])),
                    _number(float(rank["phases_ms"]["compute"])),
                    _number(wait),
                    _number(wait - shortest),
                    _text("yes" if wait == shortest else ""),
                ]
            )
    headings = ["group", "rank", "host / executor", "data", "compute", "wait", "waits longer by", "waited for"]
    note = (
        "Milliseconds a step of the trial in the middle, one-stage transports only. The rank that waits least is the "
        "one for which the others wait: by the difference of their waits."
    )
    return Table("stragglers", "Stragglers", note, headings, rows)


def layers(analysis: Analysis) -> Table:
    return _parts(
        analysis,
        "layers_s",
        "layers",
        "Layers, seconds of the whole process",
        "From the start of the process to its end; `other` is what no clock covers.",
    )


def anovas(analysis: Analysis) -> list[Table]:
    """One-way over all groups, then every pair of factors."""
    tables = []
    one = analysis.one_way(analysis.metric)
    if one:
        tables.append(_anova("one-way", f"One-way ANOVA of {LABELS[analysis.metric]}", one))
    for (first, second), rows in analysis.two_ways(analysis.metric).items():
        title = f"Two-way ANOVA of {LABELS[analysis.metric]}: {first} and {second}"
        tables.append(_anova(f"two-way-{first}-{second}", title, rows))
    return tables


def tukey(analysis: Analysis) -> Table:
    rows = [
        [
            _text(pair.first),
            _text(pair.second),
            _number(pair.difference),
            _number(pair.interval.low),
            _number(pair.interval.high),
            _probability(pair.p),
        ]
        for pair in analysis.tukey(analysis.metric)
    ]
    return Table(
        "tukey",
        "Tukey's HSD, all pairs",
        f"Second minus first, {LABELS[analysis.metric]}; intervals and p hold for the whole family at 95 %.",
        ["first", "second", "difference", "low", "high", "p"],
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
                _text(str(record["group"])),
                _count(int(record["trial"])),
                _text(state),
                _text(str(record.get("started", ""))[:19]),
                _number(metrics.get(TO_ACCURACY)),
                _number(metrics.get(TOTAL)),
                _number(metrics.get(STEP)),
                _number(metrics.get("ms_per_step_p90")),
                _share(metrics.get("test_accuracy")),
                _share(record.get("load", {}).get("busy")),
            ]
        )
    headings = ["group", "trial", "state", "started (UTC)", "s to target", "s total", "ms a step", "p90", "accuracy"]
    return Table("runs", "All runs", "busy: share of all cores in use just before it.", [*headings, "busy"], rows)


def bandwidth(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows of `sparkdl-bench net`."""
    made = [
        [
            _text(str(row["transport"])),
            _text(str(row.get("channel", "–"))),
            _text(str(row.get("topology") or "–")),
            _text(str(row.get("codec", "–"))),
            _count(int(row["workers"])),
            _count(int(row["elements"])),
            _number(row["median_ms"]),
            _number(row.get("p90_ms")),
            _number(row.get("algbw_gbps")),
            _number(row["busbw_gbps"]),
            _text("yes" if row.get("correct", False) else "NO"),
        ]
        for row in rows
    ]
    headings = ["transport", "channel", "topology", "codec", "ranks", "values", "median ms", "p90", "algbw", "busbw"]
    return Table("bandwidth", "All-reduces", "Bandwidths in Gbit/s.", [*headings, "correct"], made)


def all_tables(analysis: Analysis) -> list[Table]:
    tables = [groups(analysis), phases(analysis), stragglers(analysis), layers(analysis), tests(analysis)]
    tables += [*anovas(analysis), tukey(analysis), runs(analysis)]
    return [table for table in tables if table.rows]


def _parts(analysis: Analysis, part: str, name: str, title: str, note: str) -> Table:
    found = {group.name: group.mean_of(part) for group in analysis.groups}
    found = {group: values for group, values in found.items() if values}
    names = list(dict.fromkeys(each for values in found.values() for each in values))
    rows = [
        [_text(group), *(_number(values.get(each, 0.0)) for each in names), _number(sum(values.values()))]
        for group, values in found.items()
    ]
    return Table(name, title, note, ["group", *names, "sum"], rows)


def _anova(name: str, title: str, rows: Sequence[AnovaRow]) -> Table:
    made = [
        [
            _text(row.factor),
            _number(row.sum_of_squares),
            _number(row.df),
            _number(row.f),
            NONE if row.p is None else _probability(row.p),
        ]
        for row in rows
    ]
    return Table(name, title, "", ["source", "sum of squares", "df", "F", "p"], made)


def _text(text: str) -> Cell:
    return Cell(text, text)


def _count(value: int) -> Cell:
    return Cell(f"{value:,}", value)


def _trials(group: Group) -> Cell:
    failed = len(group.failures)
    return Cell(f"{len(group.records)}" + (f" ({failed} failed)" if failed else ""), len(group.records))


def _number(value: float | None) -> Cell:
    return NONE if value is None else Cell(number(value), value)


def _share(value: float | None) -> Cell:
    return NONE if value is None else Cell(f"{value:.2%}", value)


def _probability(value: float) -> Cell:
    return Cell("< 0.0001" if value < 1e-4 else f"{value:.4f}", value)


def _interval(value: float, interval: Interval | None) -> Cell:
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
