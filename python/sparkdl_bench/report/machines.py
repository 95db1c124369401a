"""The same ways on several machines, side by side: of comparisons of one title that a report has from several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkdl_bench.report import findings, vega
from sparkdl_bench.report.analysis import LABELS, STEP, TOTAL, WAITED, Analysis, Group
from sparkdl_bench.report.numbers import number
from sparkdl_bench.report.tables import (
    NONE,
    SHORT,
    Cell,
    Table,
    interval_cell,
    number_cell,
    probability_cell,
    text_cell,
    trials_cell,
)
from sparkdl_bench.report.vega import SERIES, Plot, Series, Spec
from sparkdl_bench.statistics import inference

NAME, TITLE = "machines", "Machines side by side"
_ROW = 34


@dataclass(frozen=True)
class _Way:
    """A group of comparisons of one title, by the machine."""

    comparison: str
    name: str
    on: Mapping[str, Group]


def beside(analyses: Sequence[Analysis]) -> Table | None:
    """A row for each machine on which a way ran that ran on others as well; None where there is none.

    Ratios are of geometric means, with Welch's interval and test on logarithms, as everywhere in a report.
    """
    ways, metric = _ways(analyses)
    if not ways:
        return None
    several = len({way.comparison for way in ways}) > 1
    rows = []
    for way in ways:
        first, base = next(iter(way.on.items()))
        for machine, group in way.on.items():
            effect = None if group is base else inference.ratio(base.values(metric), group.values(metric))
            rows.append(
                [
                    *([text_cell(way.comparison)] if several else []),
                    text_cell(way.name),
                    text_cell(machine),
                    trials_cell(group),
                    interval_cell(group.centre(metric) or 0.0, inference.geometric_interval(group.values(metric))),
                    number_cell(group.centre(STEP)),
                    Cell("baseline", NONE.key) if group is base else text_cell(first),
                    NONE if effect is None else interval_cell(effect.ratio, effect.interval),
                    NONE if effect is None else probability_cell(effect.p),
                ]
            )
    headings = [
        "group",
        "machine",
        "trials",
        f"{SHORT[metric]} [95 %]",
        "ms per step",
        "beside",
        "× faster [95 %]",
        "p",
    ]
    note = (
        f"Ways that were measured on several machines, as {LABELS[metric]}: the geometric mean of the trials with "
        "Student's interval on logarithms. The first machine of each way is what the others are held against (Welch); "
        "of several comparisons of one title on one machine the first counts here. Machines may differ in more than "
        "their processors: the commit, Java and packages of each stand with its own comparison below."
    )
    return Table(NAME, TITLE, note, [*(["comparison"] if several else []), *headings], rows)


def plot(analyses: Sequence[Analysis]) -> Plot | None:
    """The same as a picture: a row for each way, a colour for each machine."""
    ways, metric = _ways(analyses)
    if not ways:
        return None
    machines = list(dict.fromkeys(machine for way in ways for machine in way.on))
    looks = [Series(machine, SERIES[at % len(SERIES)]) for at, machine in enumerate(machines)]
    several = len({way.comparison for way in ways}) > 1
    points: list[dict[str, Any]] = []
    names = []
    for way in ways:
        names.append(f"{way.comparison}: {way.name}" if several else way.name)
        for machine, group in way.on.items():
            interval = inference.geometric_interval(group.values(metric))
            ends = {"low": interval.low, "high": interval.high} if interval else {}
            points.append({"row": names[-1], "series": machine, "x": group.centre(metric), **ends})
    x: Spec = {"field": "x", "type": "quantitative", "scale": {"zero": True}, "axis": {"title": LABELS[metric]}}
    y: Spec = {"field": "row", "type": "nominal", "sort": names, "axis": {"title": None, "labelLimit": 300}}
    colour = vega.colour_scale(looks)
    layers: list[Spec] = [
        {
            "transform": [vega.SHOWN, {"filter": "isValid(datum.low)"}],
            "mark": {"type": "rule", "strokeWidth": 3, "opacity": 0.6, "clip": True},
            "encoding": {"y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}, "color": colour},
        },
        {
            "params": [vega.zoom("x")],
            "transform": [vega.SHOWN],
            "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1},
            "encoding": {
                "y": y,
                "x": x,
                "color": colour,
                "tooltip": [{"field": "row"}, {"field": "series"}, {"field": "x", "format": ",.4~r"}],
            },
        },
    ]
    spoken = "; ".join(f"{each['row']}, {each['series']}: {number(each['x'])}" for each in points)
    spec: Spec = {
        "datasets": {"points": points},
        "data": {"name": "points"},
        "height": _ROW * len(ways),
        "params": [vega.HIDDEN],
        "layer": layers,
    }
    return Plot(NAME, TITLE, f"{LABELS[metric]} by machine: {spoken}.", spec, looks)


def _ways(analyses: Sequence[Analysis]) -> tuple[list[_Way], str]:
    """What ran on several machines, and the metric that all of it has."""
    found: dict[tuple[str, str], dict[str, Group]] = {}
    for analysis in analyses:
        machine = findings.machine_of(analysis.comparison.content)
        for group in analysis.groups:
            if group.values(TOTAL):
                found.setdefault((analysis.comparison.title, group.name), {}).setdefault(machine, group)
    ways = [_Way(title, name, on) for (title, name), on in found.items() if len(on) > 1]
    titles = {way.comparison for way in ways}
    used = [analysis for analysis in analyses if analysis.comparison.title in titles]
    metrics = {analysis.metric for analysis in used}
    groups = [group for way in ways for group in way.on.values()]
    if len(metrics) == 1 and all(group.values(next(iter(metrics))) for group in groups):
        return ways, metrics.pop()
    return ways, WAITED if all(group.values(WAITED) for group in groups) else TOTAL
