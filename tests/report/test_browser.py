"""The page in a real browser: no complaint, every picture seen, sorting by key and mouse, dark and light, print."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import fakes
import pytest
from test_report import RESOURCES, make, write_net

import chromium
from sparkdl_bench.comparison.cells import cells_of
from sparkdl_bench.report import html
from sparkdl_bench.report.load import load

PICTURES = (
    "waiting",
    "time-to-accuracy",
    "fixed-and-steady",
    "phases",
    "layers",
    "scaling",
    "batch-rate",
    "batch-time",
    "utilisation",
    "memory",
)
# As long as a record of a run has them: 120 moments of a driver and four executors, and four ranks.
MOMENTS = 120
LONG_RESOURCES: dict[str, Any] = {
    "seconds": [0.25 * moment for moment in range(MOMENTS)],
    "cpu_cores": [round(0.5 + moment % 7 / 3, 3) for moment in range(MOMENTS)],
    "resident_bytes": [1_234_567_890 + 12_345_678 * moment for moment in range(MOMENTS)],
    "processes": [{**RESOURCES["processes"][0], "process": name} for name in ("driver", "0", "1", "2", "3")],
}
RANKS = [
    {
        "rank": rank,
        "host": "a",
        "executor": str(rank),
        "phases_ms": {"data": 0.123, "compute": 2.0 + rank / 10, "wait": 0.4 - rank / 10, "scheduler": 0.0},
        "made_others_wait_s": 0.1 * rank,
    }
    for rank in range(4)
]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    conf = fakes.CONF.replace("batch = [32, 64]", "batch = [32, 64, 128]\nworkers = [1, 2]")
    made = make(folder, conf, {"fast": 1.0, "slow": 3.0}, resources=RESOURCES)
    path = folder / "report.html"
    path.write_text(html.page(load([made.path, write_net(folder)])), encoding="utf-8")
    return path


def test_the_page_works_in_a_browser(file: Path, tmp_path: Path) -> None:
    with chromium.page() as page:
        page.width(1280)
        page.scheme("light")
        page.open(file)
        assert page.complaints == []
        assert {url for url in page.requests if not url.startswith("data:")} == {file.resolve().as_uri()}
        for name in (*(f"c1-plot-{name}" for name in PICTURES), "net-plot-bandwidth"):
            box = page.evaluate(
                f"(() => {{ const b = document.querySelector('#{name} svg').getBoundingClientRect();"
                " return [b.width, b.height] })()"
            )
            assert min(box) > 150, name
            assert page.evaluate(f"document.querySelectorAll('#{name} svg path').length") > 5, name
        # Nothing is wider than the window, on a wide screen and on a telephone.
        for width in (1280, 400):
            page.width(width)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        _sorts_by_keyboard(page)
        _is_dark_and_light(page, file, tmp_path)
        _prints_what_is_folded(page, tmp_path / "report.pdf")
        assert page.complaints == []


def test_what_a_failed_trial_said_fits_on_a_telephone(tmp_path: Path) -> None:
    plan = fakes.plan_of(tmp_path)
    made = make(tmp_path, fakes.CONF, {"fast": 1.0, "slow": 2.0})
    broken = cells_of(plan)[0]
    made.add(broken, fakes.failure(plan, broken, f"It last said: [Stage 800:{60 * '='}>   (1 + 1) / 2]"))
    path = tmp_path / "report.html"
    path.write_text(html.page(load([made.path])), encoding="utf-8")
    with chromium.page() as page:
        page.width(400)
        page.open(path)
        assert "[Stage 800:====" in page.evaluate("document.querySelector('main').textContent")
        assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_a_page_of_two_hundred_runs_loads_and_sorts_by_a_click(tmp_path: Path) -> None:
    conf = fakes.CONF.replace("trials = 3", "trials = 10")
    conf = conf.replace("batch = [32, 64]", "batch = [8, 16, 32, 64, 128]\nworkers = [1, 2]")
    made = make(tmp_path, conf, {"fast": 1.0, "slow": 2.0}, resources=LONG_RESOURCES, ranks=RANKS)
    results = load([made.path])
    assert len(results.comparisons[0].records) == 200
    path = tmp_path / "report.html"
    path.write_text(html.page(results), encoding="utf-8")
    assert path.stat().st_size < 5_000_000
    with chromium.page() as page:
        page.width(1280)
        page.open(path)
        runs = "details:has(#c1-runs)"
        page.click(f"{runs} > summary")
        assert page.evaluate(f"document.querySelector('{runs}').open")
        column = 6  # the seconds in total
        shown = (
            f"Array.from(document.querySelector('{runs} table').tBodies[0].rows,"
            f" r => Number(r.cells[{column - 1}].dataset.key))"
        )
        before = page.evaluate(shown)
        assert len(before) == 200
        assert before != sorted(before)
        heading = f"{runs} th:nth-child({column})"
        assert page.evaluate(f"document.querySelector('{heading}').textContent") == "s total"
        for order in ("ascending", "descending"):
            page.click(f"{heading} button")
            assert page.evaluate(f"document.querySelector('{heading}').getAttribute('aria-sort')") == order
            assert page.evaluate(shown) == sorted(before, reverse=order == "descending")
        stragglers = page.evaluate("document.querySelectorAll('details:has(#c1-stragglers) tbody tr').length")
        assert stragglers == 20 * len(RANKS)
        assert page.complaints == []


def test_a_machine_without_a_browser_skips_unless_one_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.delenv(chromium.REQUIRED, raising=False)
    with pytest.raises(pytest.skip.Exception, match="no browser"), chromium.page():
        pass
    monkeypatch.setenv(chromium.REQUIRED, "1")
    with pytest.raises(pytest.fail.Exception, match=chromium.REQUIRED), chromium.page():
        pass


def _prints_what_is_folded(page: chromium.Page, file: Path) -> None:
    folded = "document.querySelectorAll('main details:not([open])').length"
    before = page.evaluate(folded)
    assert before > 3
    # Heard after the page's own script has heard of it.
    page.evaluate(f"addEventListener('beforeprint', () => {{ window.foldedInPrint = {folded} }})")
    page.pdf(file)
    assert file.read_bytes().startswith(b"%PDF")
    assert page.evaluate("window.foldedInPrint") == 0
    assert page.evaluate(folded) == before


def _sorts_by_keyboard(page: chromium.Page) -> None:
    cells = "Array.from(document.querySelectorAll('table.sortable')[0].tBodies[0].rows, r => r.cells[{0}].textContent)"
    page.evaluate("document.querySelectorAll('table.sortable')[0].querySelectorAll('th button')[2].focus()")
    page.press("Enter", 13)
    ascending = [int(text) for text in page.evaluate(cells.format(2))]
    assert ascending == sorted(ascending)
    assert len(set(ascending)) == 3
    page.press("Enter", 13)
    assert [int(text) for text in page.evaluate(cells.format(2))] == sorted(ascending, reverse=True)
    sort = "document.querySelectorAll('table.sortable')[0].querySelectorAll('th')[2].getAttribute('aria-sort')"
    assert page.evaluate(sort) == "descending"
    # Tab goes on to the next heading.
    page.press("Tab", 9)
    assert page.evaluate("document.activeElement.tagName") == "BUTTON"


def _is_dark_and_light(page: chromium.Page, file: Path, folder: Path) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    # Of the text in a picture: the pictures follow the page.
    ink = "getComputedStyle(document.querySelector('#c1-plot-waiting svg text')).fill"
    seen = {}
    for scheme in ("light", "dark"):
        page.scheme(scheme)
        page.open(file)
        seen[scheme] = (page.evaluate(ground), page.evaluate(ink))
        page.screenshot(folder / f"{scheme}.png")
        assert (folder / f"{scheme}.png").stat().st_size > 50_000
    assert seen["light"][0] == "rgb(255, 255, 255)"
    assert seen["dark"][0] == "rgb(20, 24, 28)"
    assert seen["light"][1] == "rgb(28, 33, 39)"
    assert seen["dark"][1] == "rgb(228, 232, 236)"
