"""The page in a real browser: no complaint, every picture seen, sorting by keyboard, dark and light, print."""

from __future__ import annotations

from pathlib import Path

import fakes
import pytest
from test_report import RESOURCES, make

import chromium
from sparkdl_bench.report import html
from sparkdl_bench.report.load import load

PICTURES = ("time-to-accuracy", "trials", "phases", "layers", "scaling", "batch", "utilisation", "memory")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    conf = fakes.CONF.replace("batch = [32, 64]", "batch = [32, 64, 128]\nworkers = [1, 2]")
    made = make(folder, conf, {"fast": 1.0, "slow": 3.0}, resources=RESOURCES)
    path = folder / "report.html"
    path.write_text(html.page(load([made.path])), encoding="utf-8")
    return path


def test_the_page_works_in_a_browser(file: Path, tmp_path: Path) -> None:
    with chromium.page() as page:
        page.width(1280)
        page.scheme("light")
        page.open(file)
        assert page.complaints == []
        assert {url for url in page.requests if not url.startswith("data:")} == {file.resolve().as_uri()}
        for name in PICTURES:
            box = page.evaluate(
                f"(() => {{ const b = document.querySelector('#c1-plot-{name} svg').getBoundingClientRect();"
                " return [b.width, b.height] })()"
            )
            assert min(box) > 150, name
            assert page.evaluate(f"document.querySelectorAll('#c1-plot-{name} svg path').length") > 5
        # Nothing is wider than the window, on a wide screen and on a telephone.
        for width in (1280, 400):
            page.width(width)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        _sorts_by_keyboard(page)
        _is_dark_and_light(page, file, tmp_path)
        page.pdf(tmp_path / "report.pdf")
        assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
        assert page.complaints == []


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
    ink = "getComputedStyle(document.querySelector('#c1-plot-trials svg text')).fill"
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
