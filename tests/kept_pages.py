"""Draws the screenshots of the kept reports anew: `python tests/kept_pages.py [FOLDER…]`, with Chromium or Chrome.

For each folder of docs/results that has its records, the page that `sparkdl-bench report` makes of them, light and
dark, 1280 and 400 px wide. No test by its name.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import chromium
from sparkdl_bench.report import html, kept
from sparkdl_bench.report.load import load

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
WIDTHS = (1280, 400)
SCHEMES = ("light", "dark")
LIVE = "document.querySelectorAll('figure.chart').length === document.querySelectorAll('figure[data-live]').length"
# Few enough to keep in a repository; pages have fewer.
COLOURS = 256


def names() -> list[str]:
    return [f"page-{scheme}-{width}.png" for scheme in SCHEMES for width in WIDTHS]


def draw(folder: Path, page: chromium.Page) -> None:
    from PIL import Image  # of matplotlib's; tests read `names` alone

    with tempfile.TemporaryDirectory(prefix="sparkdl-kept-pages-") as temporary:
        file = Path(temporary) / "report.html"
        file.write_text(html.page(load([folder])), encoding="utf-8")
        for scheme in SCHEMES:
            for width in WIDTHS:
                page.scheme(scheme)
                page.width(width)
                page.open(file)
                # Charts come to life once they are in sight.
                page.window(width, page.evaluate("document.documentElement.scrollHeight"))
                page.wait_for(LIVE)
                shot = folder / f"page-{scheme}-{width}.png"
                page.screenshot(shot)
                with Image.open(shot) as image:
                    fewer = image.convert("RGB").quantize(COLOURS)
                fewer.save(shot, optimize=True)


def main() -> None:
    given = [Path(each) for each in sys.argv[1:]]
    folders = given or sorted(path.parent for path in RESULTS.glob(f"*/{kept.RECORDS}"))
    with chromium.page() as page:
        page.call("Emulation.setScrollbarsHidden", hidden=True)  # a picture would end where they begin
        for folder in folders:
            draw(folder, page)
            print(f"{folder}: {', '.join(names())}")
    if page.complaints:
        sys.exit("\n".join(page.complaints))


if __name__ == "__main__":
    main()
