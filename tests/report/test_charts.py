"""The charts without a browser: what they show, which colours they take, and that each is drawn."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fakes
import pytest
import vl_convert
from test_report import CORES, RESOURCES, _timed, analysed, make, make_each

from sparkdl_bench.comparison.cells import Cell, cells_of
from sparkdl_bench.comparison.plan import Plan
from sparkdl_bench.comparison.record import LAYER_OF_PHASE, LAYERS, UNCUT
from sparkdl_bench.report import html, lines, plots, rows, vega
from sparkdl_bench.report.vega import Plot

PAGE = Path(html.__file__).with_name("page.html")


def drawn(plot: Plot | None) -> tuple[Plot, str]:
    """The chart, and the words in its picture."""
    assert plot is not None
    return plot, re.sub(r"<[^>]*>", "\n", vega.svg(plot, "x"))


def points(plot: Plot, name: str = "points") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = plot.spec["datasets"][name]
    return found


def test_every_layer_and_phase_has_a_colour_that_the_page_knows() -> None:
    assert {*LAYERS, UNCUT} <= set(rows.LAYER_COLOURS)
    assert set(LAYER_OF_PHASE) == set(rows.PHASE_COLOURS)
    page = PAGE.read_text(encoding="utf-8")
    for name in vega.COLOURS:
        assert page.count(f"--{name}: ") == 3, name  # light, dark and print
    light = dict(re.findall(r"--(\w+): (#\w+)", page.split("@media")[0]))
    assert {name: light[name] for name in vega.COLOURS} == vega.COLOURS


def test_the_first_chart_has_every_trial_its_centre_and_interval(tmp_path: Path) -> None:
    analysis = analysed(make(tmp_path, fakes.CONF, {"fast": 1.0, "slow": 3.0}))
    plot, text = drawn(plots.first_plot(analysis))
    assert plots.all_plots(analysis)[0].name == plot.name == "waiting"
    assert len(points(plot)) == 4 * 3
    for summary, row in zip(analysis.summaries(analysis.metric), points(plot, "rows"), strict=True):
        assert summary.interval is not None
        assert (row["group"], row["x"], row["low"]) == (summary.group.name, summary.centre, summary.interval.low)
    assert "fast, batch 32" in text
    assert "3 s [" in text or "2.99 s [" in text
    assert [row["chosen"] for row in points(plot, "rows")].count(True) == 1


def test_groups_without_a_time_are_named_beside_the_first_chart(tmp_path: Path) -> None:
    folder = make(tmp_path, fakes.CONF, {"": 1.0})
    plan = fakes.plan_of(tmp_path)
    for cell in cells_of(plan):
        if cell.group == "slow, batch 64":
            folder.add(cell, fakes.failure(plan, cell))
    plot = plots.first_plot(analysed(folder))
    assert plot is not None
    assert plot.note.endswith("Without such a time, and not here: slow, batch 64.")


def test_one_trial_has_no_interval_in_the_first_chart(tmp_path: Path) -> None:
    conf = fakes.CONF.replace("trials = 3", "trials = 1")
    plot, text = drawn(plots.first_plot(analysed(make(tmp_path, conf, {"fast": 1.0, "slow": 3.0}))))
    assert {row["low"] for row in points(plot, "rows")} == {None}
    assert "[" not in text


@pytest.mark.parametrize(("batches", "said"), [(3, ""), (8, ""), (12, ": the 20 fastest of 24 groups")])
def test_lines_can_be_told_apart_and_what_is_left_out_is_said(tmp_path: Path, batches: int, said: str) -> None:
    conf = fakes.CONF.replace("trials = 3", "trials = 1")
    conf = conf.replace("batch = [32, 64]", f"batch = {[8 * (index + 1) for index in range(batches)]}")
    analysis = analysed(make(tmp_path, conf, {"fast": 1.0, "slow": 3.0}, resources=RESOURCES))
    for found, title in (
        (lines.utilisation(analysis), "Utilisation over time"),
        (lines.memory(analysis), "Memory over time"),
        (lines.time_to_accuracy(analysis), "Time to accuracy"),
    ):
        plot, _ = drawn(found)
        assert plot.title == title + said
        assert plot.description.endswith(f"{said}.")
        assert len(plot.series) == min(20, 2 * batches)
        looks = {(each.colour, each.dash) for each in plot.series}
        if title == "Time to accuracy" and batches > 3:
            # Those that the answer is about have colours; the others are grey, and named under the pointer.
            assert len(looks) == 5
        else:
            assert len(looks) == len(plot.series)


@pytest.mark.parametrize("batches", [2, 12])
def test_a_group_has_one_look_in_all_charts(tmp_path: Path, batches: int) -> None:
    conf = fakes.CONF.replace("trials = 3", "trials = 1")
    conf = conf.replace("batch = [32, 64]", f"batch = {[8 * (index + 1) for index in range(batches)]}")
    analysis = analysed(make(tmp_path, conf, {"fast": 3.0, "slow": 1.0}, resources=RESOURCES))
    shown = (lines.time_to_accuracy, lines.fixed_and_steady, lines.utilisation, lines.memory)
    looks: dict[str, set[tuple[str, bool]]] = {}
    for plot in [found for draw in shown if (found := draw(analysis)) is not None]:
        for each in plot.series:
            if each.colour != "var(--s10)":  # the grey of those that a chart does not highlight
                looks.setdefault(each.name, set()).add((each.colour, each.dash))
    assert len(looks) >= 4
    assert {name: found for name, found in looks.items() if len(found) > 1} == {}


def test_time_to_accuracy_is_not_squeezed_by_the_start(tmp_path: Path) -> None:
    def late(plan: Plan, cell: Cell) -> Mapping[str, Any]:
        history = [
            {"epoch": at, "seconds": 20.0 + at, "train_loss": 1.0, "test_loss": 1.0, "accuracy": accuracy}
            for at, accuracy in ((1, 0.7), (2, 0.85), (3, 0.95))
        ]
        metrics = fakes.record.metrics(plan, [2.0] * 60, history, 24.0, 32)
        return {"history": history, "metrics": metrics}

    plot, text = drawn(lines.time_to_accuracy(analysed(make_each(tmp_path, fakes.CONF, late))))
    assert "The axis starts at 19.7 s" in plot.note
    assert "target 90.0%" in text
    assert "23 s  fast, batch 32" in text
    shown = plot.spec["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert shown[0] == pytest.approx(0.94 * 21.0)


def test_one_evaluation_is_no_curve(tmp_path: Path) -> None:
    def once(plan: Plan, cell: Cell) -> Mapping[str, Any]:
        record = fakes.success(plan, cell)
        return {**record, "history": record["history"][-1:]}

    assert lines.time_to_accuracy(analysed(make_each(tmp_path, fakes.CONF, once))) is None


def test_the_ideal_line_of_scaling_ends_at_the_cores_of_the_host(tmp_path: Path) -> None:
    folder = make(tmp_path, CORES.replace("[1, 2]", "[1, 2, 4]"), {"": 1.0}, facts={"master": "local[4]"})
    file = folder.path / "plan.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    content["machine"]["cores"] = 2
    file.write_text(json.dumps(content), encoding="utf-8")
    analysis = analysed(folder)
    assert analysis.host_cores == 2
    plot, text = drawn(lines.scaling(analysis))
    assert points(plot, "ideal") == [{"x": 1, "y": 1}, {"x": 2, "y": 2}]
    assert max(point["x"] for point in points(plot)) == 4
    assert "this host has 2 cores" in text
    assert "share a core" in plot.note


def test_lines_of_fixed_cost_and_steady_time_cross_where_another_takes_the_lead(tmp_path: Path) -> None:
    # 1 s and 4 ms per step, 5 s and 2 ms per step: they meet at 2,000 steps. The third is never the fastest.
    costs = {"a": (1.0, 4.0), "b": (5.0, 2.0), "c": (6.0, 3.0)}
    assert lines.envelope(costs) == [(0.0, "a"), (2000.0, "b")]
    assert lines.envelope({"a": (1.0, 2.0), "b": (2.0, 2.0)}) == [(0.0, "a")]
    plot, text = drawn(
        lines.fixed_and_steady(analysed(make_each(tmp_path, CORES, _timed({1: [1.0] * 3, 2: [2.0] * 3}))))
    )
    assert "measured: 60 steps" in text
    assert {each["series"] for each in points(plot)} == {"fast, workers 1", "fast, workers 2"}


LEAST_PX = 11.0
# What is left of a page of 400 px beside its margins.
PHONE_PX = 374


def test_words_in_charts_can_be_read_on_a_phone(tmp_path: Path) -> None:
    conf = fakes.CONF.replace("batch = [32, 64]", "batch = [32, 64, 128]\nworkers = [1, 2]")
    analysis = analysed(make(tmp_path, conf, {"fast": 1.0, "slow": 3.0}, resources=RESOURCES))
    found = [plot for plot in plots.all_plots(analysis) if plot is not None]
    assert len(found) >= 8
    for plot in found:
        # As the page's script draws it: as wide as the window and no wider, or the browser would make it smaller.
        spec = {**json.loads(vega.live(plot)), "width": PHONE_PX}
        live = vl_convert.vegalite_to_svg(spec, vl_version="6.4")
        width = re.search(r'<svg [^>]*?width="([\d.]+)"', live)
        assert width is not None
        assert float(width[1]) <= PHONE_PX, plot.name
        # Before it, and without scripts: never smaller than it was drawn.
        picture = vega.svg(plot, "x")
        drawn_at = re.search(r'<svg [^>]*style="min-width: ([\d.]+)px"[^>]*viewBox="0 0 ([\d.]+) ', picture)
        assert drawn_at is not None, picture[:300]
        assert float(drawn_at[1]) == float(drawn_at[2])
        for text in (live, picture):
            sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)px"', text)]
            assert sizes, plot.name
            assert min(sizes) >= LEAST_PX, plot.name
    style = PAGE.read_text(encoding="utf-8")
    assert ".picture:has(> svg) { overflow-x: auto; }" in style


def test_what_live_charts_are_made_of_cannot_end_their_script(tmp_path: Path) -> None:
    conf = fakes.CONF.replace('name = "fast"', 'name = "</script><b>"')
    for plot in plots.all_plots(analysed(make(tmp_path, conf, {"script": 1.0, "slow": 2.0}, resources=RESOURCES))):
        text = vega.live(plot)
        assert "<" not in text
        spec = json.loads(text)
        assert spec["width"] == "container"
        # The page's script zooms by these names.
        assert '"name":"zoom"' in text
        assert spec["params"] == [{"name": "hidden", "value": []}]
    assert "</script" not in vega.script()


def test_pictures_hold_the_legend_and_light_colours(tmp_path: Path) -> None:
    plot = lines.memory(analysed(make(tmp_path, fakes.CONF, {"": 1.0}, resources=RESOURCES)))
    assert plot is not None
    assert vega.png(plot).startswith(b"\x89PNG")
    assert '"legend": null' in json.dumps(vega._with_legends(plot.spec, shown=False))
    assert vega.LEGEND not in json.dumps(vega._with_legends(plot.spec, shown=True))
