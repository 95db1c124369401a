"""The pictures of a report, as matplotlib figures. One function a picture; None where there is nothing to draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.report.analysis import LABELS, RATE, TO_ACCURACY, Analysis, Group

try:
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
except ImportError as error:
    raise ConfigurationError(
        "The plots of a report need matplotlib, which is not installed. Install it with pip install "
        "'sparkdl-bench[report]'."
    ) from error

# Colours that `svg` puts variables in place of, so that a page has them dark and light: each stands for itself alone.
INK, GRID, GROUND = "#1c2127", "#d6dbe1", "#fffffe"
SERIES = ("#1f6fb3", "#c2570d", "#2a8a4b", "#8b4bb5", "#b3892a", "#c73e6e", "#2b9aa0", "#6b7683", "#7a5230", "#4d57c9")
# Where ten are not enough.
MORE = ("#a9b4c1", "#8a8f5d", "#4a5562", "#7fa86b", "#e3b7a0", "#9cc4e4", "#6d3b5e")
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
# As many as colours and dashes tell apart.
_MOST_LINES = 2 * len(SERIES)
# A legend of more lines would cover them, and stands below.
_MOST_INSIDE = 8
_NARROW_NAME = 40
# Times to the target that differ more than so many times have a logarithmic scale.
_FAR_APART = 3
# The picture ends at so many times the last of them, and at so many times the errors that the target allows.
_BEYOND = 1.3
_BELOW = 5
_WIDTH = 6.6
_MARKERS = "osD^vPX*<>"


@dataclass(frozen=True)
class Plot:
    """One picture: its name (part of file names and of ids), title, and what it says to who cannot see it."""

    name: str
    title: str
    description: str
    figure: Figure


def all_plots(analysis: Analysis) -> list[Plot]:
    """Every picture of a comparison that there is something to show in."""
    makers: Sequence[Callable[[Analysis], Plot | None]] = (
        time_to_accuracy,
        trials,
        phases,
        layers,
        scaling,
        batch_sweep,
        utilisation,
        memory,
    )
    with mpl.rc_context(_STYLE):
        return [plot for make in makers if (plot := make(analysis)) is not None]


def time_to_accuracy(analysis: Analysis) -> Plot | None:
    """Test accuracy over the run's clock: the median trial of each group strong, the others faint."""
    known = [group for group in analysis.groups if any(record["history"] for record in group.records)]
    groups = _fastest(analysis, known)
    if not groups:
        return None
    figure, axes = _figure(4.2)
    for index, group in enumerate(groups):
        colour = SERIES[index % len(SERIES)]
        for record in group.records:
            points = [(each["seconds"], each["accuracy"]) for each in record["history"] if each["accuracy"] is not None]
            strong = record is group.typical
            axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                color=colour,
                alpha=1.0 if strong else 0.25,
                linewidth=1.8 if strong else 0.8,
                linestyle=_line(index),
                marker=_MARKERS[index % len(_MARKERS)] if strong else "",
                markersize=3.5,
                label=group.name if strong else None,
            )
    if analysis.target is not None:
        axes.axhline(analysis.target, color=INK, linewidth=0.8, linestyle="--")
        axes.annotate(
            f"target {analysis.target:.1%}",
            (0.99, analysis.target),
            xycoords=("axes fraction", "data"),
            va="bottom",
            ha="right",
        )
    axes.set(xlabel="seconds since the run began", ylabel="test accuracy")
    times = [time for group in groups if (time := group.centre(TO_ACCURACY))]
    if times and max(times) > _FAR_APART * min(times):
        # On one straight scale the quick ones would lie on each other beside the slowest.
        axes.set(xscale="log", xlabel="seconds since the run began, logarithmic")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("{x:g}")
    else:
        axes.set_xlim(left=0)
    if len(times) == len(groups):  # what comes after the target is not asked for
        axes.set_xlim(right=_BEYOND * max(times))
    if times and analysis.target is not None:  # nor the first steps, which are far below
        axes.set_ylim(bottom=max(axes.get_ylim()[0], 1 - _BELOW * (1 - analysis.target)))
    _legend(figure, axes, "lower right")
    return Plot(
        "time-to-accuracy",
        f"Time to accuracy{_left_out(groups, known)}",
        f"Test accuracy over seconds for {_names(groups)}{_left_out(groups, known)}.",
        figure,
    )


def trials(analysis: Analysis) -> Plot | None:
    """Every trial of every group, with quartiles and median."""
    summaries = analysis.summaries(analysis.metric)
    if not summaries:
        return None
    values = [summary.group.values(analysis.metric) for summary in summaries]
    figure, axes = _rows_figure(len(summaries))
    places = range(len(summaries), 0, -1)
    axes.boxplot(
        values,
        positions=list(places),
        orientation="horizontal",
        widths=0.55,
        showfliers=False,
        boxprops={"color": SERIES[0]},
        whiskerprops={"color": SERIES[0]},
        capprops={"color": SERIES[0]},
        medianprops={"color": SERIES[1], "linewidth": 2},
    )
    for place, samples in zip(places, values, strict=True):
        axes.plot(samples, [place] * len(samples), linestyle="", marker="o", markersize=3.5, color=INK, alpha=0.55)
    _name_rows(axes, [summary.group.name for summary in summaries])
    axes.set(xlabel=LABELS[analysis.metric])
    _log_where_wide(axes, [value for samples in values for value in samples])
    return Plot(
        "trials", "Trials", f"{LABELS[analysis.metric]} of each trial, boxes from quartile to quartile.", figure
    )


def phases(analysis: Analysis) -> Plot | None:
    """Mean milliseconds a step, by phase."""
    rows = {group.name: group.mean_of("phases_ms") for group in analysis.groups if group.mean_of("phases_ms")}
    return _stacked(
        "phases",
        "Where a step's time goes",
        "milliseconds a step (mean of all steps, with the warm-up)",
        rows,
        PHASE_COLOURS,
    )


def layers(analysis: Analysis) -> Plot | None:
    """Mean seconds of a cell's whole process, by layer."""
    rows = {group.name: group.mean_of("layers_s") for group in analysis.groups if group.mean_of("layers_s")}
    return _stacked(
        "layers",
        "Where the wall clock goes",
        "seconds of the whole process, from its start to its end",
        rows,
        LAYER_COLOURS,
    )


def scaling(analysis: Analysis) -> Plot | None:
    """Speed-up over the best process of one thread against cores, with the ideal and the line of COST."""
    series, single = analysis.scaling, analysis.best_single
    if not series or single is None:
        return None
    bar = single.centre(analysis.metric) or 1.0
    figure, axes = _figure(3.8)
    most = max(group.cores for members in series.values() for group in members)
    axes.plot([1, most], [1, most], color=INK, linewidth=0.9, linestyle=":", label="ideal")
    axes.axhline(1.0, color=INK, linewidth=0.9, linestyle="--", label=f"COST: as fast as {single.name}")
    for index, (name, members) in enumerate(series.items()):
        for group in members:
            speeds = [bar / value for value in group.values(analysis.metric)]
            axes.plot([group.cores] * len(speeds), speeds, linestyle="", marker=".", alpha=0.4, color=_colour(index))
        axes.plot(
            [group.cores for group in members],
            [bar / (group.centre(analysis.metric) or bar) for group in members],
            marker=_MARKERS[index % len(_MARKERS)],
            markersize=4,
            color=_colour(index),
            label=name,
        )
    axes.set(xlabel="cores", ylabel="speed-up over the best process of one thread")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(bottom=0)
    axes.legend()
    return Plot("scaling", "Scaling and COST", f"Speed-up against cores for {', '.join(series)}.", figure)


def batch_sweep(analysis: Analysis) -> Plot | None:
    """Rows a second and time to the target (or in total) against the global batch."""
    series = analysis.sweep("batch")
    if not series:
        return None
    figure, (left, right) = _figures(3.4)
    for index, (name, members) in enumerate(series.items()):
        for axes, metric in ((left, RATE), (right, analysis.metric)):
            points = [(group.batch, group.centre(metric) or 0.0) for group in members if group.values(metric)]
            axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                marker=_MARKERS[index % len(_MARKERS)],
                markersize=4,
                color=_colour(index),
                label=name,
            )
    for axes, metric in ((left, RATE), (right, analysis.metric)):
        axes.set(xlabel="global batch, rows", ylabel=LABELS[metric], xscale="log")
        ticks = sorted({group.batch for members in series.values() for group in members})
        axes.set_xticks(ticks, labels=[str(tick) for tick in ticks])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
    left.legend()
    return Plot(
        "batch", "Batch sweep", f"Rows a second and {LABELS[analysis.metric]} against the global batch.", figure
    )


def utilisation(analysis: Analysis) -> Plot | None:
    """Processor use of each group's median trial over time."""
    return _over_time(analysis, "cpu_cores", "utilisation", "Utilisation over time", "cores in use", 1.0)


def memory(analysis: Analysis) -> Plot | None:
    """Resident memory of each group's median trial over time."""
    return _over_time(
        analysis, "resident_bytes", "memory", "Memory over time", "resident memory of all processes, GiB", 1 / 2**30
    )


def bus_bandwidth(rows: Sequence[Mapping[str, Any]]) -> Plot | None:
    """Bus bandwidth by the size of the vector, of `sparkdl-bench net`, with the link's."""
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["elements"] > 0:
            series.setdefault(_way(row), []).append((row["elements"] * 4, row["busbw_gbps"]))
    if not series:
        return None
    with mpl.rc_context(_STYLE):
        figure, axes = _figure(4.2)
        for index, (name, points) in enumerate(sorted(series.items())):
            points.sort()
            axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                marker=_MARKERS[index % len(_MARKERS)],
                markersize=4,
                color=_colour(index),
                linestyle=_line(index),
                label=name,
            )
        link = max(float(row.get("link_gbps", 0.0)) for row in rows)
        if link > 0:
            axes.axhline(link, color=INK, linewidth=0.9, linestyle="--")
            axes.annotate("a plain TCP stream", (0.01, link), xycoords=("axes fraction", "data"), va="bottom")
        axes.set(xscale="log", yscale="log", xlabel="bytes of the vector", ylabel="bus bandwidth, Gbit/s")
        axes.legend()
    return Plot("bandwidth", "Bus bandwidth by size", f"Bus bandwidth of {', '.join(sorted(series))}.", figure)


def _over_time(analysis: Analysis, key: str, name: str, title: str, label: str, scale: float) -> Plot | None:
    known = [group for group in analysis.groups if group.records and group.typical.get("resources")]
    found = _fastest(analysis, known)
    if not found:
        return None
    figure, axes = _figure(3.6)
    for index, group in enumerate(found):
        samples = group.typical["resources"]
        axes.plot(
            samples["seconds"],
            [value * scale for value in samples[key]],
            color=_colour(index),
            linestyle=_line(index),
            linewidth=1.2,
            label=group.name,
        )
    axes.set(xlabel="seconds since the run began", ylabel=label)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    _legend(figure, axes, "best")
    left_out = _left_out(found, known)
    return Plot(name, f"{title}{left_out}", f"{label} over time for {_names(found)}{left_out}.", figure)


def _fastest(analysis: Analysis, groups: Sequence[Group]) -> list[Group]:
    """As many as one picture has lines for; those without that number last."""
    return sorted(groups, key=lambda group: group.centre(analysis.metric) or float("inf"))[:_MOST_LINES]


def _left_out(shown: Sequence[Group], groups: Sequence[Group]) -> str:
    """For title and description; nothing where all are shown."""
    return "" if len(shown) == len(groups) else f": the {len(shown)} fastest of {len(groups)} groups"


def _names(groups: Sequence[Group]) -> str:
    return ", ".join(group.name for group in groups)


def _legend(figure: Figure, axes: Axes, place: str) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) <= _MOST_INSIDE:
        axes.legend(loc=place)
        return
    columns = 2 if max(map(len, labels)) <= _NARROW_NAME else 1
    figure.set_figheight(figure.get_figheight() + 0.17 * math.ceil(len(labels) / columns))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def _stacked(
    name: str, title: str, label: str, rows: Mapping[str, Mapping[str, float]], colours: Mapping[str, str]
) -> Plot | None:
    if not rows:
        return None
    figure, axes = _rows_figure(len(rows))
    ordered = sorted(rows.items(), key=lambda item: sum(item[1].values()))
    parts = [part for part in colours if any(values.get(part, 0.0) > 0 for _, values in ordered)]
    for index, (_, values) in enumerate(ordered):
        left = 0.0
        for part in parts:
            width = max(0.0, values.get(part, 0.0))
            if width > 0:
                axes.barh(
                    len(ordered) - index,
                    width,
                    left=left,
                    height=0.62,
                    color=colours[part],
                    edgecolor=GROUND,
                    linewidth=0.2,
                )
            left += width
    for part in parts:
        axes.barh(0, 0, color=colours[part], label=part)
    _name_rows(axes, [each for each, _ in ordered])
    axes.set(xlabel=label)
    axes.set_xlim(left=0)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=min(5, len(parts)))
    return Plot(name, title, f"{label}, stacked, for {', '.join(rows)}.", figure)


def _figure(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    return figure, figure.subplots()


def _figures(height: float) -> tuple[Figure, Sequence[Axes]]:
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    return figure, figure.subplots(1, 2)


def _rows_figure(rows: int) -> tuple[Figure, Axes]:
    return _figure(1.3 + 0.34 * rows)


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names), 0, -1), labels=list(names))
    axes.set_ylim(0.4, len(names) + 0.6)
    axes.grid(visible=False, axis="y")


def _log_where_wide(axes: Axes, values: Sequence[float]) -> None:
    if min(values) > 0 and max(values) / min(values) > 20:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_xlim(left=0)


def _colour(index: int) -> str:
    return SERIES[index % len(SERIES)]


def _line(index: int) -> str:
    """A second round of the same colours is dashed."""
    return "-" if index < len(SERIES) else "--"


def _way(row: Mapping[str, Any]) -> str:
    local = {True: " host-local", False: "", None: ""}[row.get("host_local")]
    codec = row.get("codec", "fp32")
    parts = [row["transport"] + local, row.get("topology"), None if codec == "fp32" else codec, row.get("encryption")]
    named = " ".join(str(part) for part in parts if part not in (None, "off"))
    return f"{named}, {row['workers']} ranks"


_STYLE: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": GRID,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": GROUND,
    "font.size": 9,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.edgecolor": GRID,
    "legend.facecolor": GROUND,
    "legend.fontsize": 8,
    "legend.framealpha": 0.85,
    "lines.linewidth": 1.6,
    "savefig.facecolor": GROUND,
    "svg.fonttype": "none",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
