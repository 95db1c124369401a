"""Comparisons of one title from several machines: what ran on both stands side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import comparisons
import fakes
import pytest
from test_report import make

from sparkdl_bench.report import formats, html, machines
from sparkdl_bench.report.analysis import Analysis, analyse
from sparkdl_bench.report.load import Results, load
from sparkdl_bench.report.vega import SERIES

SLOW, FAST = "Slow CPU, 2 cores, 4.0 GiB", "Fast CPU, 8 cores"


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """`fast` takes twice as long on the slow machine, `slow` as long on both."""
    found = Results()
    for name, factor, machine in (
        ("one", {"fast": 2.0, "slow": 3.0}, {"cpu": "Slow CPU", "cores": 2, "memory_gib": 4.0}),
        ("two", {"fast": 1.0, "slow": 3.0}, {"cpu": "Fast CPU", "cores": 8}),
    ):
        (tmp_path / name).mkdir()
        made = make(tmp_path / name, fakes.CONF, factor)
        (comparison,) = load([made.path]).comparisons
        found.comparisons.append(replace(comparison, content={**comparison.content, "machine": machine}))
    return found


def analyses(results: Results) -> list[Analysis]:
    return [analyse(comparison) for comparison in results.comparisons]


def test_ratios_are_of_the_same_way_on_the_first_machine(results: Results) -> None:
    table = machines.beside(analyses(results))
    assert table is not None
    at = {heading: place for place, heading in enumerate(table.headings)}
    rows = {(row[at["group"]].text, row[at["machine"]].text): row for row in table.rows}
    assert {machine for _, machine in rows} == {SLOW, FAST}
    assert len(rows) == len(table.rows) == 2 * len(analyses(results)[0].groups)
    for (group, machine), row in rows.items():
        ratio, p = row[at["× faster [95 %]"]], row[at["p"]]
        if machine == SLOW:
            assert (row[at["beside"]].text, ratio.text) == ("baseline", "–")
        elif "fast" in group:
            assert ratio.key == pytest.approx(2.0)
            assert p.key < 0.01
        else:
            assert ratio.key == pytest.approx(1.0)
            assert p.key > 0.9


def test_every_form_of_a_report_has_them(results: Results, tmp_path: Path) -> None:
    page, text = html.page(results), formats.markdown(results)
    assert 'id="machines"' in page
    assert 'href="#machines"' in page
    assert f"## {machines.TITLE}" in text
    assert FAST in text
    told = json.loads(formats.as_json(results))["machines"]
    assert {row["machine"] for row in told} == {SLOW, FAST}
    assert "machines.png" in {file.name for file in formats.pictures(results, tmp_path / "pictures")}
    formats.folder(results, tmp_path / "folder")
    assert "(machines.png)" in (tmp_path / "folder" / "report.md").read_text(encoding="utf-8")


def test_one_machine_is_beside_nothing(results: Results) -> None:
    first, second = results.comparisons
    same = Results([first, replace(second, content={**second.content, "machine": first.content["machine"]})])
    other = replace(second, content={**second.content, "plan": {**second.plan, "title": "another question"}})
    for found in (same, Results([first]), Results([first, other])):
        assert machines.beside(analyses(found)) is None
        assert machines.plot(analyses(found)) is None
        assert 'id="machines"' not in html.page(found)
        assert "machines" not in json.loads(formats.as_json(found))


def on(cores: int, title: str = "A title", **seconds: Sequence[float]) -> Analysis:
    """A comparison on a machine of so many cores; its groups and the seconds of their trials."""
    records = [
        comparisons.trial(name, number, value, 1)
        for name, values in seconds.items()
        for number, value in enumerate(values, start=1)
    ]
    return comparisons.comparison(records, cores, title=title)


def texts(analyses: Sequence[Analysis]) -> list[list[str]]:
    table = machines.beside(analyses)
    assert table is not None
    return [[cell.text for cell in row] for row in table.rows]


class TestNumbers:
    """From trials that stand here, and nothing is drawn."""

    def test_a_row_has_the_mean_and_the_ratio_to_the_first_machine(self) -> None:
        found = [on(2, way=(16.0, 25.0, 20.0), alone=(1.0,)), on(8, way=(4.0, 5.0, 6.25)), on(4, way=(40.0,))]
        table = machines.beside(found)
        assert table is not None
        assert list(table.headings) == [
            *("group", "machine", "trials", "s from command to end [95 %]", "ms per step"),
            *("beside", "× faster [95 %]", "p"),
        ]
        two, eight, four = (f"unknown processor, {cores} cores" for cores in (2, 8, 4))
        first, second, third = texts(found)
        assert first[:3] == ["way", two, "3 (few)"]
        assert first[3].startswith("20 [")
        assert first[4:] == ["1", "baseline", "–", "–"]
        assert second[:2] == ["way", eight]
        assert second[3].startswith("5 [")
        assert second[5] == two
        # Four times as fast; both vary by a factor of 1.25 either way: t of 4 degrees of freedom, 2.77645.
        half = 1.25 ** (2.776445 * (2 / 3) ** 0.5)
        ratio = table.rows[1][6]
        assert ratio.key == pytest.approx(4.0)
        assert ratio.text == f"4 [{4 / half:.3g}, {4 * half:.3g}]"
        assert float(table.rows[1][7].key) < 0.01
        # One trial has no interval and is tested against nothing.
        assert third == ["way", four, "1 (few)", "40", "1", two, "–", "–"]

    def test_several_comparisons_have_their_title_in_each_row(self) -> None:
        pair = [on(2, way=(16.0, 25.0)), on(8, way=(4.0, 5.0))]
        other = [on(2, "Another", way=(1.0, 1.1)), on(8, "Another", way=(1.0, 1.2))]
        table = machines.beside([*pair, *other])
        assert table is not None
        assert table.headings[0] == "comparison"
        assert [row[:2] for row in texts([*pair, *other])] == [["A title", "way"]] * 2 + [["Another", "way"]] * 2
        plot = machines.plot([*pair, *other])
        assert plot is not None
        assert [each["row"] for each in plot.spec["datasets"]["points"]] == ["A title: way"] * 2 + ["Another: way"] * 2

    def test_of_two_comparisons_on_one_machine_the_first_counts(self) -> None:
        assert [row[3][:2] for row in texts([on(2, way=(20.0,)), on(2, way=(99.0,)), on(8, way=(10.0,))])] == [
            "20",
            "10",
        ]

    def test_the_very_same_numbers_on_another_machine_are_no_baseline(self) -> None:
        first, second = texts([on(2, way=(1.0, 1.1)), on(8, way=(1.0, 1.1))])
        assert (first[5], second[5]) == ("baseline", "unknown processor, 2 cores")
        assert second[6].startswith("1 [")
        assert second[7] == "1.0000"

    def test_a_group_that_never_finished_ran_on_no_machine(self) -> None:
        failed = comparisons.comparison([comparisons.trial("way", 1, 1.0, 1, status="failed")], 8, title="A title")
        assert machines.beside([on(2, way=(20.0,)), failed]) is None

    def test_the_points_are_the_means_with_their_intervals(self) -> None:
        found = [on(2, way=(16.0, 25.0), zero=(3.0,)), on(8, way=(4.0,), zero=(2.0,))]
        plot = machines.plot(found)
        assert plot is not None
        two, eight = "unknown processor, 2 cores", "unknown processor, 8 cores"
        first, *rest = plot.spec["datasets"]["points"]
        width = 1.25**12.7062
        assert first == {
            "row": "way",
            "series": two,
            "x": pytest.approx(20.0),
            "low": pytest.approx(20 / width, rel=1e-3),
            "high": pytest.approx(20 * width, rel=1e-3),
        }
        assert rest == [
            {"row": "way", "series": eight, "x": pytest.approx(4.0)},
            {"row": "zero", "series": two, "x": pytest.approx(3.0)},
            {"row": "zero", "series": eight, "x": pytest.approx(2.0)},
        ]
        assert [(each.name, each.colour) for each in plot.series] == [(two, SERIES[0]), (eight, SERIES[1])]
        assert plot.spec["height"] == 2 * machines._ROW
        assert plot.description == (
            f"seconds from the command to its end by machine: way, {two}: 20; way, {eight}: 4; zero, {two}: 3; "
            f"zero, {eight}: 2."
        )

    def test_the_eleventh_machine_has_the_first_one_s_colour(self) -> None:
        plot = machines.plot([on(cores, way=(float(cores),)) for cores in range(1, 12)])
        assert plot is not None
        assert [each.colour for each in plot.series] == [*SERIES, SERIES[0]]

    @pytest.mark.parametrize(
        ("first", "second", "heading"),
        [
            ({"a": 1.0, "b": 2.0}, {"a": 1.0, "b": 2.0}, "s from command to target"),
            # Not every one reached the target there: what all have is how long they took.
            ({"a": 1.0, "b": 2.0}, {"a": None, "b": None}, "s from command to end"),
            ({"a": 1.0, "b": None}, {"a": 1.0, "b": None}, "s from command to end"),
        ],
    )
    def test_all_machines_are_held_to_one_metric(
        self, first: dict[str, Any], second: dict[str, Any], heading: str
    ) -> None:
        table = machines.beside([reached(2, first), reached(8, second)])
        assert table is not None
        assert table.headings[3] == f"{heading} [95 %]"

    def test_without_waits_the_run_s_own_clocks_count(self) -> None:
        table = machines.beside([reached(2, {"a": None}), reached(8, {"a": None}, seconds_waited=None)])
        assert table is not None
        assert table.headings[3] == "s in total, run's clock [95 %]"


def reached(cores: int, seconds: dict[str, float | None], **metrics: Any) -> Analysis:
    """A comparison whose groups reached a target after so many seconds, or never."""
    records = []
    for name, value in seconds.items():
        made = comparisons.trial(name, 1, 9.0, 1)
        own = {"seconds_to_accuracy": value, "seconds_waited_to_accuracy": value, **metrics}
        records.append({**made, "metrics": {**made["metrics"], **own}})
    return comparisons.comparison(records, cores, title="A title", target_accuracy=0.9)
