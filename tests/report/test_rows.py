"""The numbers in the charts with a row for each group; nothing is drawn."""

from __future__ import annotations

from typing import Any

import comparisons
import pytest

from sparkdl_bench.report import rows
from sparkdl_bench.report.vega import SERIES, Plot


def part(plot: Plot | None, name: str) -> list[dict[str, Any]]:
    assert plot is not None
    found: list[dict[str, Any]] = plot.spec["datasets"][name]
    return found


def axes(plot: Plot | None) -> list[dict[str, Any]]:
    """Of x, in each layer that has one."""
    assert plot is not None
    encodings = [layer["encoding"] for layer in plot.spec["layer"] if "encoding" in layer]
    return [each["x"] for each in encodings if "axis" in each.get("x", {})]


def test_each_row_has_its_mean_its_interval_and_every_trial() -> None:
    analysis = comparisons.of_times({"slow": (2, (16.0, 25.0)), "quick": (1, (9.0, 9.0, 9.0)), "alone": (4, (30.0,))})
    plot = rows.waiting(analysis)
    quick, slow, alone = part(plot, "rows")
    assert quick == {
        "group": "quick",
        "x": pytest.approx(9.0),
        "low": pytest.approx(9.0),
        "high": pytest.approx(9.0),
        "value": "9 s",
        "interval": "9 to 9 s",
        "told": "9 s [9, 9]",
        "trials": 3,
        "chosen": True,
    }
    assert (slow["x"], slow["trials"], slow["chosen"]) == (pytest.approx(20.0), 2, False)
    # Student's interval of two trials: 12.7062 times half the distance of their logarithms.
    width = 1.25 ** (12.7062 / 2 * 2)
    assert (slow["low"], slow["high"]) == (pytest.approx(20 / width, rel=1e-3), pytest.approx(20 * width, rel=1e-3))
    assert (alone["low"], alone["high"], alone["interval"]) == (None, None, "one trial has none")
    assert (alone["told"], alone["value"]) == ("30 s", "30 s")
    assert part(plot, "points") == [
        *({"group": "quick", "x": 9.0, "trial": number} for number in (1, 2, 3)),
        *({"group": "slow", "x": value, "trial": number} for number, value in ((1, 16.0), (2, 25.0))),
        {"group": "alone", "x": 30.0, "trial": 1},
    ]
    assert plot is not None
    assert plot.title == "Seconds from the command to its end"
    assert plot.description.startswith(
        "seconds from the command to its end, geometric mean and 95 % interval: quick 9 s (9 to 9 s); slow 20 s ("
    )
    assert plot.description.endswith("; alone 30 s (one trial has none).")
    assert plot.spec["height"] == 3 * rows._ROW


@pytest.mark.parametrize(("slowest", "logarithmic"), [(20.0, False), (20.1, True)])
def test_times_that_are_far_apart_have_a_logarithmic_axis_and_no_bars(slowest: float, logarithmic: bool) -> None:
    plot = rows.waiting(comparisons.of_times({"one": (1, (1.0, 2.0)), "two": (2, (slowest, 3.0))}))
    assert plot is not None
    marks = [layer["mark"]["type"] for layer in plot.spec["layer"]]
    # A bar of a logarithmic axis would begin nowhere.
    assert ("bar" in marks) != logarithmic
    assert ("logarithmic" in axes(plot)[0]["axis"]["title"]) == logarithmic
    scales = [each["scale"] for each in axes(plot) if "scale" in each]
    assert all((each.get("type") == "log") == logarithmic and each.get("zero", False) != logarithmic for each in scales)


@pytest.mark.parametrize(
    ("two", "said"),
    [
        ([100.0, 101.0, 102.0, 100.0, 101.0], "Green: what is recommended."),
        ([10.2], "Green: the default until the others have proved more."),
    ],
)
def test_green_says_how_sure_it_is(two: list[float], said: str) -> None:
    plot = rows.waiting(comparisons.of_times({"one": (1, [10.0, 10.1, 10.2, 10.0, 10.1]), "two": (2, two)}))
    assert plot is not None
    assert plot.note.endswith(said)


def test_without_any_time_there_is_no_chart() -> None:
    failed = comparisons.trial("one", 1, 1.0, 1, status="failed")
    assert rows.waiting(comparisons.comparison([failed])) is None


def phased(name: str, number: int, phases: dict[str, float], **more: Any) -> dict[str, Any]:
    return comparisons.trial(name, number, 1.0, 1, phases_ms=phases, **more)


def test_phases_are_means_over_the_trials_and_the_shortest_step_comes_first() -> None:
    records = [
        phased("slow", 1, {"compute": 4.0, "wait": 2.0}),
        phased("slow", 2, {"compute": 6.0, "wait": 4.0, "send": 0.0}),
        phased("quick", 1, {"compute": 1.0, "update": 0.5}, layers_s={"start": 2.0, "compute": 1.0}),
        comparisons.trial("untold", 1, 1.0, 1),
    ]
    plot = rows.phases(comparisons.comparison(records))
    assert part(plot, "rows") == [{"group": "quick", "value": "1.5 ms"}, {"group": "slow", "value": "8 ms"}]
    # In the order of a step's phases; what nobody spent time in has no colour.
    assert plot is not None
    assert [(each.name, each.colour) for each in plot.series] == [
        *(("compute", SERIES[2]), ("wait", SERIES[1]), ("update", SERIES[9]))
    ]
    assert part(plot, "points") == [
        {"group": "quick", "series": "compute", "x": 1.0, "at": 0, "told": "1 ms"},
        {"group": "quick", "series": "update", "x": 0.5, "at": 2, "told": "0.5 ms"},
        {"group": "slow", "series": "compute", "x": 5.0, "at": 0, "told": "5 ms"},
        {"group": "slow", "series": "wait", "x": 3.0, "at": 1, "told": "3 ms"},
    ]
    assert plot.spec["height"] == 2 * rows._ROW
    layers = rows.layers(comparisons.comparison(records))
    assert part(layers, "rows") == [{"group": "quick", "value": "3 s"}]
    assert [each["told"] for each in part(layers, "points")] == ["2 s", "1 s"]


def test_without_phases_or_without_time_in_them_there_is_no_chart() -> None:
    for phases in ({}, {"compute": 0.0}, {"compute": -1.0}):
        assert rows.phases(comparisons.comparison([phased("one", 1, phases)])) is None


def test_no_two_parts_have_one_colour_and_a_part_has_one_in_both_charts() -> None:
    for colours in (rows.PHASE_COLOURS, rows.LAYER_COLOURS):
        assert len(set(colours.values())) == len(colours)
    both = rows.PHASE_COLOURS.keys() & rows.LAYER_COLOURS.keys()
    assert both == {"data", "compute", "update"}
    assert all(rows.PHASE_COLOURS[name] == rows.LAYER_COLOURS[name] for name in both)
