"""Charts with a line for each group or series of groups: over seconds, steps, cores, batches, bytes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sparkdl_bench.report import vega
from sparkdl_bench.report.analysis import (
    LABELS,
    RATE,
    TO_ACCURACY,
    WAITED_TO_ACCURACY,
    Analysis,
    Group,
)
from sparkdl_bench.report.break_even import FEWEST_TRIALS
from sparkdl_bench.report.decision import decide
from sparkdl_bench.report.decision import fixed_and_steady as fixed_and_steady_of
from sparkdl_bench.report.numbers import number
from sparkdl_bench.report.vega import INK, SERIES, SOFT, Plot, Series, Spec

# As many as colours and dashes tell apart; and so many have a colour of their own beside the highlighted ones.
_MOST_LINES = 2 * len(SERIES)
_MOST_COLOURS = 6
# Groups in a chart that has two lines for each.
_MOST_SPLIT = 4
# Times to the target that differ more than so many times have a logarithmic axis.
_FAR_APART = 3
# Where nothing was evaluated for this share of the axis, it starts later.
_EMPTY = 0.25
# The chart ends at so many times the last of them, and at so many times the errors that the target allows.
_BEYOND = 1.3
_BELOW = 5
_HEIGHT = 320
# A logarithmic axis has no zero; who takes less than this to start takes this.
_LEAST_FIXED = 0.01
_FAINT = "var(--s10)"


def time_to_accuracy(analysis: Analysis) -> Plot | None:
    """Test accuracy over the run's clock: what decides highlighted, the median trial strong, the others faint."""
    known = [
        group for group in analysis.groups if any(len(_evaluated(analysis, record)) > 1 for record in group.records)
    ]
    groups = _fastest(analysis, known)
    if not groups:
        return None
    series = _highlighted(analysis, groups)
    strong = [each.name for each in series if each.colour != _FAINT]
    points = [
        {**point, "series": group.name, "trial": trial, "typical": record is group.typical}
        for group in reversed(groups)
        for trial, record in enumerate(group.records, start=1)
        for point in _evaluated(analysis, record)
    ]
    x, y, note = _accuracy_axes(analysis, groups, points)
    tooltip = [
        {"field": "series", "title": "group"},
        {"field": "trial", "title": "trial"},
        {"field": "epoch", "title": "epoch"},
        {"field": "x", "title": "seconds", "format": ",.4~r"},
        {"field": "y", "title": "test accuracy", "format": ".2%"},
    ]
    encoding = {
        "x": {"field": "x", "type": "quantitative", **x},
        "y": {"field": "y", "type": "quantitative", **y},
        "color": vega.colour_scale(series),
    }
    layers: list[Spec] = [
        {
            "params": [vega.zoom("x", "y")],
            "transform": [vega.SHOWN],
            "mark": {"type": "line", "strokeWidth": 0.8, "opacity": 0.3, "clip": True},
            "encoding": {**encoding, "detail": {"field": "trial"}},
        },
        {
            "transform": [vega.SHOWN, {"filter": "datum.typical"}],
            "mark": {"type": "line", "strokeWidth": 2.2, "clip": True},
            "encoding": {**encoding, "strokeDash": vega.dash_scale(series)},
        },
        {
            "transform": [vega.SHOWN, {"filter": "datum.typical"}],
            "mark": {"type": "point", "filled": True, "size": 34, "opacity": 1, "clip": True},
            "encoding": {**encoding, "tooltip": tooltip},
        },
        *_target(analysis),
        *_reached(analysis, [group for group in groups if group.name in strong], series),
    ]
    left_out = _left_out(groups, known)
    return Plot(
        "time-to-accuracy",
        f"Time to accuracy{left_out}",
        f"Test accuracy over seconds for {_names(groups)}{left_out}.",
        _lines(layers, {"points": points}),
        series,
        note,
    )


def fixed_and_steady(analysis: Analysis) -> Plot | None:
    """Seconds by the number of steps: the fixed cost and the steady time per step, and where the lines cross."""
    costs = {
        each.group.name: (max(each.fixed_s, _LEAST_FIXED), each.ms_per_step)
        for each in fixed_and_steady_of(analysis)
        if each.ms_per_step > 0
    }
    if len(costs) < 2:
        return None
    counts = [len(record["steps_ms"]) for group in analysis.groups for record in group.records]
    measured = max(counts)
    leaders = envelope(costs)
    last = max([4.0 * measured, *(2.0 * steps for steps, _ in leaders if steps > 0)])
    decided = decide(analysis).chosen
    chosen = decided.name if decided else None
    wanted = [name for _, name in leaders]
    wanted += [name for name in [chosen] if name and name in costs and name not in wanted]
    nearest = sorted(costs, key=lambda name: costs[name][0] + costs[name][1] * measured / 1e3)
    wanted += [name for name in nearest if name not in wanted][: max(0, _MOST_COLOURS - len(wanted))]
    series = _of_groups(analysis, wanted)
    grid = [10 * (last / 10) ** (at / 48) for at in range(49)]
    points = [
        {"series": name, "x": steps, "y": costs[name][0] + costs[name][1] * steps / 1e3}
        for name in wanted
        for steps in grid
    ]
    alone = {group.name for group in analysis.groups if len(group.records) < FEWEST_TRIALS}
    crossings = [
        {"x": steps, "label": f"{number(float(f'{steps:.2g}'))} steps: {name}", "rank": rank}
        for rank, (steps, name) in enumerate(leaders)
        if steps > 10 and not alone & {name, leaders[rank - 1][1]}
    ]
    unsure = sorted(alone & set(wanted))
    tooltip = [
        {"field": "series", "title": "group"},
        {"field": "x", "title": "steps", "format": ",.3~r"},
        {"field": "y", "title": "seconds", "format": ",.3~r"},
    ]
    x: Spec = {"scale": {"type": "log", "nice": False}, "axis": {"title": "steps, logarithmic", "format": ",~r"}}
    y: Spec = {"scale": {"type": "log"}, "axis": {"title": "seconds, logarithmic", "format": ",~r"}}
    encoding = {
        "x": {"field": "x", "type": "quantitative", **x},
        "y": {"field": "y", "type": "quantitative", **y},
        "color": vega.colour_scale(series),
    }
    shown: list[Spec] = [vega.SHOWN]
    layers: list[Spec] = [
        {
            "params": [vega.zoom("x", "y")],
            "transform": shown,
            "mark": {"type": "line", "strokeWidth": 2, "clip": True},
            "encoding": {**encoding, "strokeDash": vega.dash_scale(series)},
        },
        {
            **vega.FELT,
            "transform": shown,
            "mark": {"type": "point", "filled": True, "size": 60, "opacity": 0, "clip": True},
            "encoding": {**encoding, "tooltip": tooltip},
        },
        *_rule("x", measured, f"measured: {measured:,} steps"),
        *(_crossings(x) if crossings else []),
    ]
    told = "; ".join(f"{name} {number(fixed)} s and {number(ms)} ms per step" for name, (fixed, ms) in costs.items())
    return Plot(
        "fixed-and-steady",
        "Fixed cost and steady time: who wins after how many steps",
        f"Seconds by steps, from what each group needs to start and per step: {told}.",
        _lines(layers, {"points": points, "crossings": crossings}),
        series,
        "Each line is the fixed cost plus the steady time per step. A dotted line marks where another group takes "
        f"the lead{'; of one trial that cannot be told (' + ', '.join(unsure) + ')' if unsure else ''}.",
    )


def scaling(analysis: Analysis) -> Plot | None:
    """Speed-up over the best process of one thread against cores, with the ideal and the line of COST."""
    found, single = analysis.scaling, analysis.best_single
    if not found or single is None:
        return None
    bar = single.centre(analysis.metric) or 1.0
    most = max(group.cores for members in found.values() for group in members)
    series = _coloured(found)
    centres = [
        {"series": name, "x": group.cores, "y": bar / (group.centre(analysis.metric) or bar), "group": group.name}
        for name, members in found.items()
        for group in members
    ]
    points = [
        {"series": name, "x": group.cores, "y": bar / value, "group": group.name}
        for name, members in found.items()
        for group in members
        for value in group.values(analysis.metric)
    ]
    host = analysis.host_cores
    ideal_to = min(most, host) if host else most
    ideal = [{"x": 1, "y": 1}, {"x": ideal_to, "y": ideal_to}]
    tooltip = [
        {"field": "group"},
        {"field": "x", "title": "cores"},
        {"field": "y", "title": "speed-up", "format": ".3~r"},
    ]
    # There is no half core.
    cores = sorted({group.cores for members in found.values() for group in members})
    x: Spec = {"scale": {"zero": False, "padding": 16}, "axis": {"title": "cores", "format": "d", "values": cores}}
    y: Spec = {"scale": {"zero": True}, "axis": {"title": "speed-up over the best process of one thread"}}
    encoding = {"x": {"field": "x", "type": "quantitative", **x}, "y": {"field": "y", "type": "quantitative", **y}}
    coloured = {**encoding, "color": vega.colour_scale(series), "tooltip": tooltip}
    layers: list[Spec] = [
        {
            "data": {"name": "ideal"},
            "params": [vega.zoom("x", "y")],
            "mark": {"type": "line", "strokeDash": [2, 3], "color": INK, "strokeWidth": 1.2},
            "encoding": encoding,
        },
        {
            "data": {"name": "ideal"},
            "transform": [{"filter": f"datum.x === {ideal_to}"}],
            "mark": {"type": "text", "text": "ideal", "align": "right", "dx": -6, "dy": -6},
            "encoding": encoding,
        },
        {
            "transform": [vega.SHOWN],
            "mark": {"type": "point", "filled": True, "size": 18, "opacity": 0.45},
            "encoding": coloured,
        },
        {
            "data": {"name": "centres"},
            "transform": [vega.SHOWN],
            "mark": {"type": "line", "point": {"size": 44, "filled": True}},
            "encoding": {**coloured, "strokeDash": vega.dash_scale(series)},
        },
        *_rule("y", 1.0, f"COST: the best process of one thread, {single.name}"),
        *(_rule("x", host, f"this host has {host} cores") if host and host < most else []),
    ]
    more = f" Beyond {host} cores, which the host has, threads share a core." if host and host < most else ""
    return Plot(
        "scaling",
        "Scaling and COST",
        f"Speed-up against cores for {', '.join(found)}.",
        _lines(layers, {"points": points, "centres": centres, "ideal": ideal}),
        series,
        f"Dots: the trials; lines: their geometric means.{more}",
    )


def batch_rate(analysis: Analysis) -> Plot | None:
    """Rows per second against the global batch."""
    return _sweep(analysis, RATE, "batch-rate", "Rows per second by batch")


def batch_time(analysis: Analysis) -> Plot | None:
    """The metric of the answer against the global batch."""
    label = LABELS[analysis.metric]
    return _sweep(analysis, analysis.metric, "batch-time", f"{label[0].upper()}{label[1:]} by batch")


def utilisation(analysis: Analysis) -> Plot | None:
    """Processor use of each group's median trial over time."""
    return _over_time(analysis, "cpu_cores", "utilisation", "Utilisation over time", "cores in use", 1.0)


def memory(analysis: Analysis) -> Plot | None:
    """Resident memory of each group's median trial over time."""
    return _over_time(
        analysis, "resident_bytes", "memory", "Memory over time", "resident memory of all processes, GiB", 1 / 2**30
    )


def epochs(analysis: Analysis) -> Plot | None:
    """Computing against communication, epoch by epoch, of each group's median trial of several workers."""
    known = [group for group in analysis.groups if group.records and _epochs(group)]
    groups = _fastest(analysis, known)[:_MOST_SPLIT]
    if not groups:
        return None
    looks = {look.name: look.colour for look in _of_groups(analysis, [group.name for group in groups])}
    kinds = (("compute", False), ("communication", True))
    series = [Series(f"{name}, {kind}", colour, dash) for name, colour in looks.items() for kind, dash in kinds]
    points = [
        {"series": f"{group.name}, {kind}", "x": each["epoch"], "y": each[kind]}
        for group in groups
        for each in _epochs(group)
        for kind, _ in kinds
    ]
    x: Spec = {"scale": {"nice": False}, "axis": {"title": "epoch", "tickMinStep": 1}}
    y: Spec = {"scale": {"zero": True}, "axis": {"title": "milliseconds of a step"}}
    layers = _line(series, x, y, [{"field": "x", "title": "epoch"}, _exact("y", "ms")])
    left_out = _left_out(groups, known)
    described = f"Milliseconds of a step by epoch, computing and communication, for {_names(groups)}{left_out}."
    note = "Communication: encoding, sending, waiting, reducing, decoding, and Spark's scheduling of jobs."
    return Plot(
        "epochs",
        f"Computing against communication by epoch{left_out}",
        described,
        _lines(layers, {"points": points}),
        series,
        note,
    )


def _epochs(group: Group) -> Sequence[Mapping[str, float]]:
    """Nothing where there is one worker, or one epoch."""
    found: Sequence[Mapping[str, float]] = group.typical.get("epoch_phases") or []
    return found if group.workers > 1 and len(found) > 1 else []


def network(analysis: Analysis) -> Plot | None:
    """What the hosts of each group's median trial sent over time."""
    label = "MB/s sent by all interfaces of the hosts, loopback among them"
    return _over_time(analysis, "network_sent_bytes_per_s", "network", "Network over time", label, 1e-6)


def bus_bandwidth(rows: Sequence[Mapping[str, Any]]) -> Plot | None:
    """Bus bandwidth by the size of the vector, of `sparkdl-bench net`, with the link's."""
    points = [
        {"series": _way(row), "x": row["elements"] * 4, "y": row["busbw_gbps"]} for row in rows if row["elements"] > 0
    ]
    if not points:
        return None
    series = _coloured(sorted({str(point["series"]) for point in points}))
    x: Spec = {"scale": {"type": "log"}, "axis": {"title": "bytes of the vector, logarithmic", "format": "~s"}}
    y: Spec = {"scale": {"type": "log"}, "axis": {"title": "bus bandwidth, Gbit/s, logarithmic", "format": "~g"}}
    layers = _line(series, x, y, [{"field": "x", "title": "bytes", "format": ",d"}, _exact("y", "Gbit/s")])
    link = max(float(row.get("link_gbps", 0.0)) for row in rows)
    if link > 0:
        layers += _rule("y", link, "a plain TCP stream")
    described = f"Bus bandwidth of {', '.join(each.name for each in series)}."
    return Plot("bandwidth", "Bus bandwidth by size", described, _lines(layers, {"points": points}), series)


def _evaluated(analysis: Analysis, record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every evaluation of a trial, by the clock of the answer: from the command where that is known."""
    before = float(record["metrics"].get("seconds_before_clock") or 0.0) if analysis.is_from_command else 0.0
    return [
        {"x": before + each["seconds"], "y": each["accuracy"], "epoch": each["epoch"]}
        for each in record["history"]
        if each["accuracy"] is not None
    ]


def _highlighted(analysis: Analysis, groups: Sequence[Group]) -> list[Series]:
    """First those with a colour: all where they are few, else the four that the answer is about; the others grey."""
    coloured = _of_groups(analysis, [group.name for group in groups])
    strong = coloured if len(groups) <= _MOST_COLOURS else coloured[:4]
    named = {each.name for each in strong}
    return strong + [Series(group.name, _FAINT) for group in groups if group.name not in named]


def _of_groups(analysis: Analysis, names: Collection[str]) -> list[Series]:
    """A group has one colour in all charts; first those that the answer is about, then the quickest.

    Where there are more groups than looks, the last ones take in each chart what nobody else has there.
    """
    found = decide(analysis)
    wanted = [
        found.chosen,
        found.cheapest,
        found.fastest,
        analysis.best_single,
        *(each for each in analysis.groups if analysis.is_baseline(each)),
        *sorted(analysis.groups, key=lambda group: group.centre(analysis.metric) or float("inf")),
    ]
    ordered = dict.fromkeys(group.name for group in wanted if group is not None)
    series = _coloured(ordered)
    own = [each for each in series[:_MOST_LINES] if each.name in names]
    free = [each for each in series[:_MOST_LINES] if each.name not in names]
    late = [each.name for each in series[_MOST_LINES:] if each.name in names]
    return own + [Series(name, look.colour, look.dash) for name, look in zip(late, free, strict=False)]


def _accuracy_axes(
    analysis: Analysis, groups: Sequence[Group], points: Sequence[Mapping[str, Any]]
) -> tuple[Spec, Spec, str]:
    """Both axes of time to accuracy, and what has to be said about them."""
    clock = "seconds from the command" if analysis.is_from_command else "seconds since the run began"
    times = [time for group in groups if (time := group.centre(_to_target(analysis)))]
    first = min(point["x"] for point in points)
    last = max(point["x"] for point in points)
    if times and len(times) == len(groups):  # what comes after the target is not asked for
        last = min(last, _BEYOND * max(times))
    notes = ["Strong: each group's median trial; faint: the other trials."]
    if times and max(times) > _FAR_APART * min(times) and first > 0:
        # On one straight axis the quick ones would lie on each other beside the slowest.
        x: Spec = {
            "scale": {"type": "log", "domain": [0.9 * first, 1.1 * last], "nice": False},
            "axis": {"title": f"{clock}, logarithmic", "format": "~g"},
        }
    else:
        start = 0.94 * first if first > _EMPTY * last else 0.0
        if start:
            notes.append(f"The axis starts at {number(start)} s: nothing was evaluated before.")
        x = {
            "scale": {"domain": [start, last], "zero": False, "nice": False},
            "axis": {"title": clock},
        }
    low, high = min(point["y"] for point in points), max(point["y"] for point in points)
    if times and analysis.target is not None:  # the first steps are far below
        low = max(low, 1 - _BELOW * (1 - analysis.target))
    room = 0.06 * (high - low or 0.1)
    y: Spec = {
        "scale": {"domain": [max(0.0, low - room), min(1.0, high + room)], "zero": False, "nice": False},
        "axis": {"title": "test accuracy", "format": ".3~p"},
    }
    return x, y, " ".join(notes)


def _to_target(analysis: Analysis) -> str:
    """The time to the target, by the clock of the answer."""
    return WAITED_TO_ACCURACY if analysis.is_from_command else TO_ACCURACY


def _target(analysis: Analysis) -> list[Spec]:
    return [] if analysis.target is None else _rule("y", analysis.target, f"target {analysis.target:.1%}")


def _reached(analysis: Analysis, groups: Sequence[Group], series: Sequence[Series]) -> list[Spec]:
    """Direct labels where a highlighted group reached the target, below one another."""
    timed = [(time, group.name) for group in groups if (time := group.centre(_to_target(analysis))) is not None]
    if analysis.target is None or not timed:
        return []
    rows = [
        {"series": name, "x": time, "y": analysis.target, "label": f"{number(time)} s  {name}", "rank": rank}
        for rank, (time, name) in enumerate(sorted(timed)[:4])
    ]
    right = "scale('x', datum.x) > width / 2"
    encoding = {
        "x": {"field": "x", "type": "quantitative"},
        "y": {"field": "y", "type": "quantitative"},
        "color": vega.colour_scale(series),
    }
    return [
        {
            "data": {"values": rows},
            "transform": [vega.SHOWN],
            "mark": {"type": "point", "shape": "diamond", "filled": True, "size": 90, "opacity": 1, "clip": True},
            "encoding": {**encoding, "tooltip": [{"field": "label", "title": "target reached"}]},
        },
        *vega.with_halo(
            {
                "data": {"values": rows},
                "transform": [vega.SHOWN],
                "mark": {
                    "type": "text",
                    "clip": True,
                    "fontWeight": 600,
                    "align": {"expr": f"{right} ? 'right' : 'left'"},
                    "dx": {"expr": f"{right} ? -9 : 9"},
                    "dy": {"expr": "16 + 15 * datum.rank"},
                    "limit": {"expr": f"({right} ? scale('x', datum.x) : width - scale('x', datum.x)) - 12"},
                },
                "encoding": {**encoding, "text": {"field": "label"}},
            }
        ),
    ]


def envelope(costs: Mapping[str, tuple[float, float]]) -> list[tuple[float, str]]:
    """From how many steps on which group takes least, in that order; the first is from 0."""
    steps = 0.0
    name = min(costs, key=lambda each: costs[each])
    found = [(0.0, name)]
    while True:
        fixed, ms = costs[name]
        crossings = [
            (1e3 * (costs[each][0] - fixed) / (ms - costs[each][1]), costs[each][1], each)
            for each in costs
            if costs[each][1] < ms
        ]
        later = [each for each in crossings if each[0] > steps]
        if not later:
            return found
        steps, _, name = min(later)
        found.append((steps, name))


def _crossings(x: Spec) -> list[Spec]:
    """Where another group takes the lead: a dotted line, and its name at the top."""
    encoding = {"x": {"field": "x", "type": "quantitative", **x}}
    right = "scale('x', datum.x) > width / 2"
    data = {"data": {"name": "crossings"}}
    mark = {
        "type": "text",
        "clip": True,
        "align": {"expr": f"{right} ? 'right' : 'left'"},
        "dx": {"expr": f"{right} ? -5 : 5"},
        "y": {"expr": "12 + 15 * datum.rank"},
    }
    return [
        {
            **data,
            "mark": {"type": "rule", "strokeDash": [2, 3], "color": INK, "clip": True, "aria": False},
            "encoding": encoding,
        },
        *vega.with_halo({**data, "mark": mark, "encoding": {**encoding, "text": {"field": "label"}}}),
    ]


def _sweep(analysis: Analysis, metric: str, name: str, title: str) -> Plot | None:
    found = analysis.sweep("batch")
    points = [
        {"series": each, "x": group.batch, "y": group.centre(metric)}
        for each, members in found.items()
        for group in members
        if group.values(metric)
    ]
    if not points:
        return None
    series = _coloured(found)
    ticks = sorted({group.batch for members in found.values() for group in members})
    x: Spec = {
        "scale": {"type": "log", "padding": 12, "nice": False},
        "axis": {"title": "global batch, rows, logarithmic", "values": ticks, "format": ",d"},
    }
    y: Spec = {"scale": {"zero": True}, "axis": {"title": LABELS[metric]}}
    layers = _line(series, x, y, [{"field": "x", "title": "batch", "format": ",d"}, _exact("y", LABELS[metric])])
    described = f"{LABELS[metric]} against the global batch for {', '.join(found)}."
    return Plot(name, title, described, _lines(layers, {"points": points}), series)


def _over_time(analysis: Analysis, key: str, name: str, title: str, label: str, scale: float) -> Plot | None:
    known = [group for group in analysis.groups if group.records and key in (group.typical.get("resources") or {})]
    groups = _fastest(analysis, known)
    if not groups:
        return None
    series = _of_groups(analysis, [group.name for group in groups])
    points = [
        {"series": group.name, "x": float(f"{second:.5g}"), "y": float(f"{value * scale:.4g}")}
        for group in groups
        for second, value in zip(group.typical["resources"]["seconds"], group.typical["resources"][key], strict=True)
    ]
    x: Spec = {"scale": {"zero": True, "nice": False}, "axis": {"title": "seconds since the run began"}}
    y: Spec = {"scale": {"zero": True}, "axis": {"title": label}}
    layers = _line(series, x, y, [_exact("x", "seconds"), _exact("y", label)], is_dense=True)
    left_out = _left_out(groups, known)
    described = f"{label} over time for {_names(groups)}{left_out}."
    return Plot(name, f"{title}{left_out}", described, _lines(layers, {"points": points}), series)


def _line(series: Sequence[Series], x: Spec, y: Spec, tooltip: list[Spec], is_dense: bool = False) -> list[Spec]:
    """A line, and a dot at each value; where these are many, dots that are only felt."""
    encoding = {
        "x": {"field": "x", "type": "quantitative", **x},
        "y": {"field": "y", "type": "quantitative", **y},
        "color": vega.colour_scale(series),
    }
    return [
        {
            "params": [vega.zoom("x", "y")],
            "transform": [vega.SHOWN],
            "mark": {"type": "line", "strokeWidth": 1.3 if is_dense else 2, "clip": True},
            "encoding": {**encoding, "strokeDash": vega.dash_scale(series)},
        },
        {
            **(vega.FELT if is_dense else {}),
            "transform": [vega.SHOWN],
            "mark": {"type": "point", "filled": True, "size": 34, "opacity": 0 if is_dense else 1, "clip": True},
            "encoding": {**encoding, "tooltip": [{"field": "series", "title": "line"}, *tooltip]},
        },
    ]


def _exact(field: str, title: str) -> Spec:
    return {"field": field, "title": title, "format": ",.4~r"}


def _rule(along: str, value: float, text: str) -> list[Spec]:
    """A dashed line across the chart at one value of the axis `along`, with its text."""
    encoding = {along: {"datum": value, "type": "quantitative"}}
    right = f"scale('x', {value}) > width / 2"
    place: Spec = {"x": 4, "align": "left", "dy": -7}
    if along == "x":
        place = {"y": {"expr": "height - 9"}, "dx": {"expr": f"{right} ? -5 : 5"}}
        place["align"] = {"expr": f"{right} ? 'right' : 'left'"}
    line = {"type": "rule", "strokeDash": [5, 3], "color": INK, "clip": True, "aria": False}
    mark = {"type": "text", "text": text, "color": SOFT, "clip": True, "limit": {"expr": "width - 8"}, **place}
    data: Spec = {"data": {"values": [{}]}}
    return [
        {**data, "mark": line, "encoding": encoding},
        *vega.with_halo({**data, "mark": mark, "encoding": encoding}),
    ]


def _lines(layers: list[Spec], datasets: Mapping[str, Any]) -> Spec:
    return {
        "datasets": dict(datasets),
        "data": {"name": "points"},
        "height": _HEIGHT,
        "params": [vega.HIDDEN],
        "layer": layers,
    }


def _coloured(names: Sequence[str] | Mapping[str, Any]) -> list[Series]:
    """A second round of the same colours is dashed."""
    return [Series(name, SERIES[at % len(SERIES)], at >= len(SERIES)) for at, name in enumerate(names)]


def _fastest(analysis: Analysis, groups: Sequence[Group]) -> list[Group]:
    """As many as one chart has lines for; those without that number last."""
    return sorted(groups, key=lambda group: group.centre(analysis.metric) or float("inf"))[:_MOST_LINES]


def _left_out(shown: Sequence[Group], groups: Sequence[Group]) -> str:
    """For title and description; nothing where all are shown."""
    return "" if len(shown) == len(groups) else f": the {len(shown)} fastest of {len(groups)} groups"


def _names(groups: Sequence[Group]) -> str:
    return ", ".join(group.name for group in groups)


def _way(row: Mapping[str, Any]) -> str:
    local = {True: " host-local", False: "", None: ""}[row.get("host_local")]
    codec = row.get("codec", "fp32")
    parts = [row["transport"] + local, row.get("topology"), None if codec == "fp32" else codec, row.get("encryption")]
    named = " ".join(str(part) for part in parts if part not in (None, "off"))
    return f"{named}, {row['workers']} ranks"
