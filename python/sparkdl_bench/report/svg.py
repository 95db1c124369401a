"""A matplotlib figure as SVG that fits into a page: small, its ids its own, its colours the page's variables."""

from __future__ import annotations

import io
import re
from html import escape

import matplotlib as mpl

from sparkdl_bench.report.plots import GRID, GROUND, INK, MORE, SERIES, Plot

_VARIABLES = {
    INK: "var(--ink)",
    GRID: "var(--grid)",
    GROUND: "var(--ground)",
    **{colour: f"var(--s{index})" for index, colour in enumerate((*SERIES, *MORE))},
}
_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_TAG = re.compile(r"<[^>]*>")


def inline(plot: Plot, prefix: str) -> str:
    """The figure as one `<svg>` element.

    Args:
        prefix: of all its ids, different for each picture of a page.
    """
    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": prefix}):
        plot.figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r'(xlink:href="|url\()#', rf"\1#{prefix}-", text)
    # Nobody sees a thousandth of a point. What is to be read stands between the tags, and stays.
    text = _TAG.sub(lambda tag: _NUMBER.sub(_rounded, tag.group()), text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    text = text.replace("'DejaVu Sans', 'Bitstream Vera Sans'", "system-ui").replace("'DejaVu Sans'", "system-ui")
    label = escape(plot.description, quote=True)
    text = re.sub(r'<svg ([^>]*?)width="[^"]*"', r"<svg \1", text, count=1)
    text = re.sub(r'(<svg [^>]*?)height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r"\s*\n\s*", "\n", text)
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def _rounded(found: re.Match[str]) -> str:
    return f"{float(found.group()):.2f}".rstrip("0").rstrip(".")
