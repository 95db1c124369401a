"""The charts of a report. One function a chart; None where there is nothing to draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparkdl_bench.report import lines, rows
from sparkdl_bench.report.analysis import Analysis
from sparkdl_bench.report.lines import bus_bandwidth
from sparkdl_bench.report.vega import Plot

__all__ = ["Plot", "all_plots", "bus_bandwidth", "first_plot"]

_Maker = Callable[[Analysis], Plot | None]


def first_plot(analysis: Analysis) -> Plot | None:
    """The most telling chart, which stands beside the answer."""
    return rows.waiting(analysis)


def all_plots(analysis: Analysis) -> list[Plot]:
    """Every chart of a comparison that there is something to show in, the first one first."""
    makers: Sequence[_Maker] = (
        first_plot,
        lines.time_to_accuracy,
        lines.fixed_and_steady,
        lines.scaling,
        rows.phases,
        rows.layers,
        lines.epochs,
        lines.batch_rate,
        lines.batch_time,
        lines.utilisation,
        lines.memory,
        lines.network,
    )
    return [plot for make in makers if (plot := make(analysis)) is not None]
