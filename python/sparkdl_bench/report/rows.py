"""Charts with a row for each group: its name above, what was measured below. So long names fit on a phone too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparkdl_bench.report import vega
from sparkdl_bench.report.analysis import LABELS, Analysis, Group, Summary
from sparkdl_bench.report.decision import decide
from sparkdl_bench.report.numbers import number
from sparkdl_bench.report.vega import GRID, GROUND, INK, MORE, SERIES, SOFT, Plot, Series, Spec

PHASE_COLOURS = {
    "data": SERIES[4],
    "compute": SERIES[2],
    "encode": SERIES[8],
    "send": SERIES[0],
    "wait": SERIES[1],
    "reduce": SERIES[6],
    "decode": SERIES[3],
    "update": SERIES[9],
    "scheduler": SERIES[5],
}
LAYER_COLOURS = {
    "start": SERIES[7],
    "cluster manager": MORE[6],
    "prepare": MORE[0],
    "data": SERIES[4],
    "compute": SERIES[2],
    "steps, not cut": MORE[5],
    "synchronise": SERIES[1],
    "update": SERIES[9],
    "task launch": SERIES[0],
    "serialisation": SERIES[3],
    "job submission": SERIES[8],
    "Spark scheduling": SERIES[5],
    "evaluation": SERIES[6],
    "checkpoint": MORE[3],
    "idle": MORE[4],
    "finish": MORE[1],
    "stop": MORE[2],
    "other": GRID,
}
_ROW = 38
# Of a row's middle: where its name stands, and where its marks do.
_NAME, _MARKS = -9, 8
_GREEN = {
    "recommended": " Green: what is recommended.",
    "not-decided": " Green: the default until the others have proved more.",
    "nothing": "",
}
# Values further apart than this have a logarithmic axis.
_WIDE = 20


def waiting(analysis: Analysis) -> Plot | None:
    """The one picture of a report: what each group took, every trial, and the interval of their centre."""
    summaries = analysis.summaries(analysis.metric)
    if not summaries:
        return None
    decision = decide(analysis)
    chosen = decision.chosen
    rows = [_waited(summary, summary.group is chosen) for summary in summaries]
    points = [
        {"group": summary.group.name, "x": value, "trial": trial}
        for summary in summaries
        for trial, value in enumerate(summary.group.values(analysis.metric), start=1)
    ]
    label = LABELS[analysis.metric]
    values = [value for summary in summaries for value in summary.group.values(analysis.metric)]
    wide = min(values) > 0 and max(values) / min(values) > _WIDE
    axis: Spec = {"format": "~g"} if wide else {}
    x = {"type": "quantitative", "axis": {"title": label + (", logarithmic" if wide else ""), **axis}}
    scale: Spec = {"type": "log", "nice": False, "padding": 12} if wide else {"zero": True}
    tooltip = [
        {"field": "group", "title": "group"},
        {"field": "value", "title": "geometric mean"},
        {"field": "interval", "title": "95 % interval"},
        {"field": "trials", "title": "trials"},
    ]
    colour = {"condition": {"test": "datum.chosen", "value": SERIES[2]}, "value": SERIES[0]}
    layers = [
        *([] if wide else [_bar(x, scale, colour, tooltip)]),
        {
            "data": {"name": "rows"},
            "transform": [{"filter": "isValid(datum.low)"}],
            "mark": {"type": "rule", "yOffset": _MARKS, "strokeWidth": 3, "strokeCap": "round", "aria": False},
            "encoding": {"x": {"field": "low", **x}, "x2": {"field": "high"}, "color": colour, "tooltip": tooltip},
        },
        {
            "data": {"name": "points"},
            "mark": {"type": "point", "yOffset": _MARKS, "size": 22, "filled": True, "opacity": 0.6, "color": INK},
            "encoding": {
                "x": {"field": "x", "scale": scale, **x},
                "tooltip": [
                    {"field": "group", "title": "group"},
                    {"field": "trial", "title": "trial"},
                    {"field": "x", "title": label, "format": ",.4~r"},
                ],
            },
        },
        {
            "data": {"name": "rows"},
            "mark": {"type": "tick", "yOffset": _MARKS, "thickness": 3, "size": 15},
            "encoding": {"x": {"field": "x", **x}, "color": colour, "tooltip": tooltip},
        },
        *_names("told"),
    ]
    layers[0]["params"] = [vega.zoom("x")]
    note = (
        "Tick: the geometric mean of the trials. Thick line: its 95 % interval. Dots: the trials."
        + _GREEN[decision.verdict]
        + _without_time(analysis, rows)
    )
    return Plot(
        "waiting", f"{label[0].upper()}{label[1:]}", _spoken(label, rows), _rows(rows, layers, points), (), note
    )


def phases(analysis: Analysis) -> Plot | None:
    """Mean milliseconds per step, by phase."""
    return _stacked(
        "phases",
        "Where the time of a step goes",
        "milliseconds per step (mean of all steps, with the warm-up)",
        _means(analysis.groups, "phases_ms"),
        PHASE_COLOURS,
        "ms",
    )


def layers(analysis: Analysis) -> Plot | None:
    """Mean seconds of a cell's whole process, by layer."""
    return _stacked(
        "layers",
        "Where the wall clock goes",
        "seconds of the whole process, from its start to its end",
        _means(analysis.groups, "layers_s"),
        LAYER_COLOURS,
        "s",
    )


def _without_time(analysis: Analysis, rows: Sequence[Mapping[str, Any]]) -> str:
    shown = {row["group"] for row in rows}
    names = [group.name for group in analysis.groups if group.name not in shown]
    return f" Without such a time, and not here: {', '.join(names)}." if names else ""


def _waited(summary: Summary, chosen: bool) -> dict[str, Any]:
    interval = summary.interval
    return {
        "group": summary.group.name,
        "x": summary.centre,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "value": f"{number(summary.centre)} s",
        "interval": f"{number(interval.low)} to {number(interval.high)} s" if interval else "one trial has none",
        "told": f"{number(summary.centre)} s [{number(interval.low)}, {number(interval.high)}]"
        if interval
        else f"{number(summary.centre)} s",
        "trials": summary.count,
        "chosen": chosen,
    }


def _bar(x: Spec, scale: Spec, colour: Spec, tooltip: list[Spec]) -> Spec:
    return {
        "data": {"name": "rows"},
        "mark": {"type": "bar", "height": 15, "yOffset": _MARKS, "opacity": 0.22},
        "encoding": {"x": {"field": "x", "scale": scale, **x}, "color": colour, "tooltip": tooltip},
    }


def _spoken(label: str, rows: Sequence[Mapping[str, Any]]) -> str:
    told = "; ".join(f"{row['group']} {row['value']} ({row['interval']})" for row in rows)
    return f"{label}, geometric mean and 95 % interval: {told}."


def _means(groups: Sequence[Group], part: str) -> dict[str, dict[str, float]]:
    return {group.name: group.mean_of(part) for group in groups if group.mean_of(part)}


def _stacked(
    name: str,
    title: str,
    label: str,
    means: Mapping[str, Mapping[str, float]],
    colours: Mapping[str, str],
    unit: str,
) -> Plot | None:
    if not means:
        return None
    ordered = sorted(means.items(), key=lambda item: sum(item[1].values()))
    parts = [part for part in colours if any(values.get(part, 0.0) > 0 for _, values in ordered)]
    if not parts:
        return None
    series = [Series(part, colours[part]) for part in parts]
    rows = [{"group": group, "value": f"{number(sum(values.values()))} {unit}"} for group, values in ordered]
    points = [
        {"group": group, "series": part, "x": values[part], "at": at, "told": f"{number(values[part])} {unit}"}
        for group, values in ordered
        for at, part in enumerate(parts)
        if values.get(part, 0.0) > 0
    ]
    bars = {
        "data": {"name": "points"},
        "params": [vega.zoom("x")],
        "transform": [vega.SHOWN],
        "mark": {"type": "bar", "height": 15, "yOffset": _MARKS, "stroke": GROUND, "strokeWidth": 0.5},
        "encoding": {
            "x": {"field": "x", "type": "quantitative", "stack": "zero", "axis": {"title": label}},
            "color": vega.colour_scale(series),
            "order": {"field": "at", "type": "ordinal"},
            "tooltip": [{"field": "group"}, {"field": "series", "title": "part"}, {"field": "told", "title": label}],
        },
    }
    description = f"{label}, stacked, for {', '.join(group for group, _ in ordered)}."
    return Plot(name, title, description, _rows(rows, [bars, *_names("value")], points), series)


def _names(value: str) -> list[Spec]:
    """The row's name at its left and its value at its right."""
    return [
        {
            "data": {"name": "rows"},
            "mark": {
                "type": "text",
                "align": "left",
                "x": 0,
                "dx": 2,
                "yOffset": _NAME,
                "limit": {"expr": "width - 120"},
                "fontWeight": 500,
                "color": INK,
                "tooltip": {"expr": "datum.group"},
            },
            "encoding": {"text": {"field": "group"}},
        },
        {
            "data": {"name": "rows"},
            "mark": {
                "type": "text",
                "align": "right",
                "x": {"expr": "width"},
                "yOffset": _NAME,
                "color": SOFT,
            },
            "encoding": {"text": {"field": value}},
        },
    ]


def _rows(rows: Sequence[Mapping[str, Any]], layers: list[Spec], points: Sequence[Mapping[str, Any]]) -> Spec:
    return {
        "datasets": {"rows": list(rows), "points": list(points)},
        "data": {"name": "rows"},
        "height": _ROW * len(rows),
        "params": [vega.HIDDEN],
        "encoding": {
            "y": {
                "field": "group",
                "type": "nominal",
                "sort": [row["group"] for row in rows],
                "axis": None,
                "scale": {"paddingInner": 0, "paddingOuter": 0},
            }
        },
        "layer": layers,
    }
