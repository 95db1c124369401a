"""A run's page and a report's in a real browser: what they say, by key and pointer; axe-core finds nothing serious."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fakes
import pytest
from test_report import RESOURCES, make, write_net

import chromium
import sample_run
from sparkdl_bench.report import html
from sparkdl_bench.report.load import load

WIDTHS = (1280, 400)
SERIOUS = ("serious", "critical")
LIVE = "document.querySelectorAll('figure.chart').length === document.querySelectorAll('figure[data-live]').length"


@pytest.fixture(scope="module")
def browser() -> Iterator[chromium.Page]:
    with chromium.page() as opened:
        yield opened


@pytest.fixture
def page(browser: chromium.Page) -> chromium.Page:
    browser.complaints.clear()
    browser.requests.clear()
    browser.scheme("light")
    return browser


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two comparisons, one with a failure, and all-reduces: every part that a page can have."""
    folder = tmp_path_factory.mktemp("report")
    conf = fakes.CONF.replace("batch = [32, 64]", "batch = [32, 64]\nworkers = [1, 2]")
    made = []
    for name, factor in (("one", 3.0), ("two", 1.0)):
        (folder / name).mkdir()
        made.append(make(folder / name, conf, {"fast": 1.0, "slow": factor}, resources=RESOURCES).path)
    file = folder / "report.html"
    file.write_text(html.page(load([*made, write_net(folder)])), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return {
        "finished": sample_run.write(folder / "finished.html", *sample_run.finished()),
        "failed": sample_run.write(folder / "failed.html", *sample_run.failed("failed", "Rank 1 was lost.", 0)),
        "diverged": sample_run.write(
            folder / "diverged.html", *sample_run.failed("diverged", "Lower optimizer.learning_rate.", 3)
        ),
    }


def test_axe_finds_nothing_serious_in_a_report(page: chromium.Page, report: Path) -> None:
    for scheme in ("light", "dark"):
        page.scheme(scheme)
        page.window(1280, 20_000)  # every chart is in sight, and comes to life
        page.open(report)
        page.wait_for(LIVE)
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        for width in WIDTHS:
            page.window(width, 20_000)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert findings(page) == [], (scheme, width)
    assert page.complaints == []


@pytest.mark.parametrize("name", ["finished", "failed", "diverged"])
def test_axe_finds_nothing_serious_in_a_run_s_page(page: chromium.Page, runs: dict[str, Path], name: str) -> None:
    for scheme in ("light", "dark"):
        page.scheme(scheme)
        for width in WIDTHS:
            page.window(width, 900)
            page.open(runs[name])
            assert page.evaluate("document.documentElement.scrollHeight") < 4_000  # the keys are folded
            page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert findings(page) == [], (scheme, width)
    assert page.complaints == []


def test_axe_would_find_a_fault(page: chromium.Page, runs: dict[str, Path]) -> None:
    page.open(runs["finished"])
    page.evaluate("document.getElementById('state').style.color = 'color-mix(in srgb, currentColor 10%, white)'")
    page.evaluate("document.body.style.background = 'white'")
    assert [rule for rule, *_ in findings(page)] == ["color-contrast"]


def test_a_report_s_charts_can_be_read_and_switched(page: chromium.Page, report: Path) -> None:
    page.window(1280, 20_000)
    page.open(report)
    page.wait_for(LIVE)
    # Nothing but the page itself: the policy in it forbids all else.
    assert {url for url in page.requests if not url.startswith("data:")} == {report.resolve().as_uri()}
    assert page.evaluate("fetch('data:,x').then(() => 'loaded', () => 'refused')") == "refused"
    chart = "#c1-plot-time-to-accuracy"
    count = f"document.querySelectorAll('{chart} svg path[aria-roledescription=point]').length"
    before = page.evaluate(count)
    page.evaluate(f"document.querySelector('{chart} .legend input').click()")
    page.wait_for(f"{count} < {before}")
    page.evaluate(f"document.querySelector('{chart} .legend input').click()")
    page.wait_for(f"{count} === {before}")
    # Zoomed in, the axis has other numbers; reset, the same again.
    axis = f"Array.from(document.querySelectorAll('{chart} .role-axis-label text'), e => e.textContent).sort().join()"
    whole = page.evaluate(axis)
    page.evaluate(f"document.querySelector('{chart} .tools [aria-label=\"Zoom in\"]').click()")
    page.wait_for(f"{axis} !== {whole!r}")
    page.evaluate(f"document.querySelector('{chart} .tools [aria-label=\"Reset the zoom\"]').click()")
    page.wait_for(f"{axis} === {whole!r}")
    # A point under the pointer says its exact value.
    page.hover(f"{chart} svg path[aria-roledescription=point]")
    page.wait_for("document.querySelector('#vg-tooltip-element.visible') !== null")
    said = page.evaluate("document.querySelector('#vg-tooltip-element').textContent")
    assert "test accuracy" in said
    assert "%" in said


def test_without_scripts_a_report_has_pictures_legends_and_tables(page: chromium.Page, report: Path) -> None:
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page.open(report)
        # Scripts of the debugger run all the same.
        assert page.evaluate("document.querySelectorAll('figure.chart > .picture > svg').length") > 15
        assert page.evaluate("document.querySelectorAll('.legend input').length") == 0
        assert page.evaluate("document.querySelectorAll('.legend li').length") > 10
        box = page.evaluate("document.querySelector('#c1-plot-waiting svg').getBoundingClientRect().height")
        assert box > 150
    finally:
        page.call("Emulation.setScriptExecutionDisabled", value=False)
    # axe-core waits by timers, which rest while scripts are off; the page's own scripts have not run by now.
    assert page.evaluate("document.querySelectorAll('.legend input').length") == 0
    assert findings(page) == []


def test_a_wide_table_says_that_it_scrolls(page: chromium.Page, report: Path) -> None:
    page.window(400, 900)
    page.open(report)
    hint = "getComputedStyle(document.querySelector('section:has(#c1-groups) .hint')).display"
    page.wait_for(f"{hint} === 'inline'")
    wide = "document.querySelector('section:has(#c1-groups) .wide')"
    assert page.evaluate(f"{wide}.parentElement.classList.contains('more')")
    page.evaluate(f"{wide}.scrollLeft = 100000")
    page.wait_for(f"!{wide}.parentElement.classList.contains('more')")
    # Every section can be reached, on a phone from a menu that stays at the top.
    broken = (
        "Array.from(document.querySelectorAll('nav a')).filter(a => !document.getElementById(a.hash.slice(1))).length"
    )
    assert page.evaluate(broken) == 0
    assert page.evaluate("document.querySelectorAll('nav a').length") > 25
    assert page.evaluate("getComputedStyle(document.querySelector('nav')).position") == "sticky"
    assert not page.evaluate("document.querySelector('nav details').open")


def test_the_result_card_says_how_a_run_ended(page: chromium.Page, runs: dict[str, Path]) -> None:
    card = "document.querySelector('#card').innerText"
    page.open(runs["finished"])
    said = page.evaluate(card)
    assert "Finished" in said
    for number in ("97.31 %", "16.5\u00a0s", "4.5\u00a0ms", "1,234,567", "28,444"):
        assert number in said
    split = page.evaluate("document.querySelector('#times').innerText")
    assert "The whole run: 16.5\u00a0s" in split
    for line in ("steps\t10 s\t61 %", "evaluation\t2 s\t12 %", "waiting for other workers\t1.25 ms\t28 %"):
        assert line in split
    assert "6.25 s until executors" in split
    page.open(runs["failed"])
    assert page.evaluate(card).split("\n")[0] == "Failed"
    assert "Rank 1 was lost." in page.evaluate(card)
    assert page.evaluate("document.querySelector('#curves').hidden")
    page.open(runs["diverged"])
    assert "not a finite number" in page.evaluate(card)
    assert "Lower optimizer.learning_rate." in page.evaluate(card)


def test_keys_of_a_run_are_folded_grouped_and_found(page: chromium.Page, runs: dict[str, Path]) -> None:
    page.window(1280, 900)
    page.open(runs["finished"])
    assert page.evaluate("document.querySelectorAll('main details[open]').length") == 0
    every = page.evaluate("document.body.textContent")
    assert "[object Object]" not in every.split("const run")[0]
    groups = page.evaluate("Array.from(document.querySelectorAll('#facts > details > summary'), e => e.textContent)")
    assert groups == ["host (3)", "spark (79)", "reports (4)"]
    page.evaluate("document.querySelector('#find').focus()")
    page.call("Input.insertText", text="reports[1].parts")
    rows = "Array.from(document.querySelectorAll('#everything tr:not([hidden])'), e => e.textContent)"
    page.wait_for(f"{rows}.length === 1")
    assert page.evaluate(rows) == ["reports[1].parts[0].a1"]
    assert page.evaluate("document.querySelectorAll('#everything details[open]').length") == 2


def test_curves_of_a_run_are_read_by_keys_and_over_steps(page: chromium.Page, runs: dict[str, Path]) -> None:
    page.open(runs["finished"])
    page.evaluate("document.querySelectorAll('#plots svg')[1].focus()")
    for _ in range(2):
        page.press("ArrowRight", 39)
    said = "document.querySelectorAll('#plots .read')[1].textContent"
    assert page.evaluate(said) == "test accuracy 45.41 % after epoch 2, 2.5 seconds"
    page.evaluate("document.querySelector('#axis [value=epoch]').click()")
    page.evaluate("document.querySelectorAll('#plots svg')[0].focus()")
    page.press("ArrowRight", 39)
    assert page.evaluate("document.querySelector('#plots .read').textContent").endswith("after epoch 1, 1 epochs")
    page.evaluate("document.querySelector('#plots .keys input').click()")
    assert page.evaluate("document.querySelector('#plots g').style.display") == "none"


def test_curves_of_a_run_are_as_wide_as_a_phone_that_is_turned(page: chromium.Page, runs: dict[str, Path]) -> None:
    box = "document.querySelector('#plots svg').viewBox.baseVal.width"
    page.window(400, 800)
    page.open(runs["finished"])
    upright = page.evaluate(box)
    assert upright <= 400
    page.evaluate("document.querySelector('#axis [value=steps]').click()")
    page.evaluate("document.querySelector('#plots .keys input').click()")
    page.window(800, 400)
    page.wait_for(f"{box} > {upright}")
    # What was chosen before stays chosen.
    assert "over steps" in page.evaluate("document.querySelector('#plots svg').getAttribute('aria-label')")
    assert not page.evaluate("document.querySelector('#plots .keys input').checked")
    assert page.evaluate("document.querySelector('#plots g').style.display") == "none"
    page.window(400, 800)
    page.wait_for(f"{box} <= {upright}")  # less by the scroll bar where there is one
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.complaints == []


def findings(page: chromium.Page) -> list[list[Any]]:
    """What axe-core calls serious or critical: rule, impact, and where."""
    spec = importlib.util.find_spec("axe_playwright_python")
    assert spec is not None, "axe-core comes with the extra dev: pip install 'sparkdl-bench[dev]'"
    assert spec.origin is not None
    page.evaluate(Path(spec.origin).with_name("axe.min.js").read_text(encoding="utf-8") + "; 0")
    found = page.evaluate(
        "axe.run({ resultTypes: ['violations'] }).then(all => all.violations.map(each =>"
        " [each.id, each.impact, each.nodes.slice(0, 3).map(node => node.html.slice(0, 200))]))"
    )
    return [each for each in found if each[1] in SERIOUS]
