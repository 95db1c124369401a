"""Comparisons of one title from several machines: what ran on both stands side by side."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import fakes
import pytest
from test_report import make

from sparkdl_bench.report import formats, html, machines
from sparkdl_bench.report.analysis import Analysis, analyse
from sparkdl_bench.report.load import Results, load

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
