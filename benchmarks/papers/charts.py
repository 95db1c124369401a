"""The pictures of the pages, with the charts of reports: the paper's numbers beside ours, curves, boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from papers.beside import Beside
from sparkdl_bench.report import vega
from sparkdl_bench.report.numbers import number
from sparkdl_bench.report.vega import INK, SERIES, Plot, Series, Spec

PAPER, HERE = "the paper", "here"
_LOOKS = (Series(PAPER, SERIES[1]), Series(HERE, SERIES[0]))
_ROW = 34
# Values further apart than this have a logarithmic axis.
_WIDE = 20


@dataclass(frozen=True)
class Curve:
    """Points of one line; the paper's are dashed."""

    name: str
    points: Sequence[tuple[float, float]]
    of_paper: bool = False


def beside(lines: Sequence[Beside], unit: str) -> Plot | None:
    """The paper's numbers and ours of one unit, a row each; None where no row has both."""
    shown = [(line, line.theirs, line.ours) for line in lines if line.unit == unit and line.theirs and line.ours]
    if not shown:
        return None
    points: list[dict[str, Any]] = []
    for line, theirs, ours in shown:
        points.append({"row": line.label, "series": PAPER, "x": theirs.value, "told": f"{theirs} {unit}"})
        interval = ours.interval
        ends = {"low": interval.low, "high": interval.high} if interval else {}
        points.append({"row": line.label, "series": HERE, "x": ours.value, "told": f"{ours} {unit}", **ends})
    values = [point["x"] for point in points]
    wide = min(values) > 0 and max(values) / min(values) > _WIDE
    scale: Spec = {"type": "log", "nice": False, "padding": 12} if wide else {"zero": True}
    axis: Spec = {"title": f"{unit}{', logarithmic' if wide else ''}", **({"format": "~g"} if wide else {})}
    x = {"field": "x", "type": "quantitative", "scale": scale, "axis": axis}
    labels = {"title": None, "labelLimit": 300}
    y = {"field": "row", "type": "nominal", "sort": [line.label for line, _, _ in shown], "axis": labels}
    colour = vega.colour_scale(_LOOKS)
    tooltip = [{"field": "row"}, {"field": "series"}, {"field": "told", "title": unit}]
    neutral = next((line.neutral for line, _, _ in shown if line.neutral is not None), None)
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
            "encoding": {"y": y, "x": x, "color": colour, "tooltip": tooltip},
        },
    ]
    if neutral is not None and (not wide or neutral > 0):
        rule = {"x": {"datum": neutral, "type": "quantitative"}}
        layers.append({"mark": {"type": "rule", "strokeDash": [2, 3], "color": INK}, "encoding": rule})
    told = "; ".join(f"{line.label}: {theirs} in the paper, {ours} here" for line, theirs, ours in shown)
    return Plot(
        f"beside-{_slug(unit)}",
        f"The paper's numbers and ours, {unit}",
        f"The paper's numbers and ours, {unit}: {told}.",
        _chart(layers, points, _ROW * len(shown)),
        _LOOKS,
    )


def curves(
    name: str, title: str, lines: Sequence[Curve], x: str, y: str, *, log_x: bool = False, log_y: bool = False
) -> Plot | None:
    """Lines over a number; None where there is nothing to draw."""
    drawn = [line for line in lines if line.points]
    if not drawn:
        return None
    series = _coloured(drawn)
    points: list[dict[str, Any]] = [
        {"series": line.name, "x": at, "y": value} for line in drawn for at, value in line.points
    ]
    encoding = {
        "x": _axis("x", x, [point["x"] for point in points], log_x),
        "y": _axis("y", y, [point["y"] for point in points], log_y),
        "color": vega.colour_scale(series),
    }
    tooltip = [
        {"field": "series"},
        {"field": "x", "title": x, "format": ",.4~r"},
        {"field": "y", "title": y, "format": ",.4~r"},
    ]
    layers: list[Spec] = [
        {
            "params": [vega.zoom("x", "y")],
            "transform": [vega.SHOWN],
            "mark": {"type": "line", "strokeWidth": 2, "clip": True},
            "encoding": {**encoding, "strokeDash": vega.dash_scale(series)},
        },
        {
            "transform": [vega.SHOWN],
            "mark": {"type": "point", "filled": True, "size": 36, "opacity": 1, "clip": True},
            "encoding": {**encoding, "tooltip": tooltip},
        },
    ]
    told = "; ".join(f"{line.name} {_range(line)}" for line in drawn)
    return Plot(name, title, f"{y} over {x}: {told}.", _chart(layers, points, 320), series)


def boxes(name: str, title: str, groups: Mapping[str, Sequence[float]], label: str) -> Plot | None:
    """A box from quartile to quartile for each group, whiskers to the ends, and every trial as a dot."""
    known = {group: values for group, values in groups.items() if values}
    if not known:
        return None
    points = [{"group": group, "x": value} for group, values in known.items() for value in values]
    values = [float(str(point["x"])) for point in points]
    wide = min(values) > 0 and max(values) / min(values) > _WIDE
    scale: Spec = {"type": "log", "nice": False, "padding": 12} if wide else {"zero": True}
    axis = {"title": f"{label}{', logarithmic' if wide else ''}", **({"format": "~g"} if wide else {})}
    x = {"field": "x", "type": "quantitative", "scale": scale, "axis": axis}
    y = {"field": "group", "type": "nominal", "sort": list(known), "axis": {"title": None, "labelLimit": 300}}
    layers: list[Spec] = [
        {
            "mark": {"type": "boxplot", "extent": "min-max", "size": 16, "color": SERIES[0], "opacity": 0.5},
            "encoding": {"x": x, "y": y},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 20, "opacity": 0.7, "color": INK},
            "encoding": {"x": x, "y": y},
        },
    ]
    told = "; ".join(f"{group} {number(min(found))} to {number(max(found))}" for group, found in known.items())
    return Plot(name, title, f"{label} of each trial, with boxes: {told}.", _chart(layers, points, _ROW * len(known)))


def _axis(field: str, title: str, values: Sequence[float], log: bool) -> Spec:
    usable = log and min(values) > 0
    scale: Spec = {"type": "log", "nice": False} if usable else {"zero": False}
    axis = {"title": f"{title}{', logarithmic' if usable else ''}", "format": "~g" if usable else ",~r"}
    return {"field": field, "type": "quantitative", "scale": scale, "axis": axis}


def _coloured(lines: Sequence[Curve]) -> list[Series]:
    """A system of the paper and ours in its stead have one colour where they stand at the same place of their kind."""
    places = dict.fromkeys((True, False), 0)
    found = []
    for line in lines:
        found.append(Series(line.name, SERIES[places[line.of_paper] % len(SERIES)], line.of_paper))
        places[line.of_paper] += 1
    return found


def _range(line: Curve) -> str:
    first, last = line.points[0], line.points[-1]
    return f"from {number(first[1])} at {number(first[0])} to {number(last[1])} at {number(last[0])}"


def _chart(layers: list[Spec], points: Sequence[Mapping[str, Any]], height: int) -> Spec:
    return {
        "datasets": {"points": list(points)},
        "data": {"name": "points"},
        "height": height,
        "params": [vega.HIDDEN],
        "layer": layers,
    }


def _slug(text: str) -> str:
    text = text.lower().replace("%", "percent")
    return "".join(each if each.isalnum() else "-" for each in text).strip("-")
