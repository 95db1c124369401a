"""Charts in Vega-Lite: one description of a chart becomes a picture without a browser, and a live chart in the page.

vl-convert draws SVG and PNG in this process and brings the JavaScript that draws the same chart in a browser, so a page
shows every chart with and without scripts and loads nothing. Colours are the page's CSS variables (`COLOURS`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from typing import Any

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.report.naming import plain

try:
    import vl_convert
except ImportError as error:
    raise ConfigurationError(
        "The charts of a report need vl-convert-python, which is not installed. Install it with pip install "
        "'sparkdl-bench[report]'."
    ) from error

Spec = dict[str, Any]

# Light colours; page.html has the same and the dark ones. A test compares them.
COLOURS = {
    "ink": "#1c2127",
    "soft": "#59636e",
    "grid": "#d6dbe1",
    "ground": "#ffffff",
    "s0": "#1f6fb3",
    "s1": "#c2570d",
    "s2": "#2a8a4b",
    "s3": "#8b4bb5",
    "s4": "#b3892a",
    "s5": "#c73e6e",
    "s6": "#2b9aa0",
    "s7": "#6b7683",
    "s8": "#7a5230",
    "s9": "#4d57c9",
    "s10": "#a9b4c1",
    "s11": "#8a8f5d",
    "s12": "#4a5562",
    "s13": "#7fa86b",
    "s14": "#e3b7a0",
    "s15": "#9cc4e4",
    "s16": "#6d3b5e",
}
INK, SOFT, GRID, GROUND = "var(--ink)", "var(--soft)", "var(--grid)", "var(--ground)"
SERIES = tuple(f"var(--s{index})" for index in range(10))
# Where ten are not enough.
MORE = tuple(f"var(--s{index})" for index in range(10, 17))
LEGEND = "of the series"
_WIDTH = 640
_VERSION = "6.4"
_VARIABLE = re.compile(r"var\(--(\w+)\)")
_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_TAG = re.compile(r"<[^>]*>")
_ROLE = re.compile(r' (?:role="graphics-\w+"|aria-roledescription="[^"]*")')
_CONFIG: Spec = {
    "background": None,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "text": {"color": INK, "fontSize": 12},
    "axis": {
        "labelColor": INK,
        "titleColor": INK,
        "gridColor": GRID,
        "domainColor": GRID,
        "tickColor": GRID,
        "labelFontSize": 11,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelOverlap": "greedy",
    },
    # As many as fit, on a phone too.
    "axisX": {"tickCount": {"signal": "ceil(width / 75)"}},
    "header": {"labelFontSize": 11, "titleFontSize": 12},
    "legend": {
        "labelColor": INK,
        "labelFontSize": 11,
        "labelLimit": 560,
        "orient": "bottom",
        "direction": "vertical",
        "symbolStrokeWidth": 2,
        "title": None,
    },
}


@dataclass(frozen=True)
class Series:
    """What one colour (and dash) of a chart stands for. In a page each can be switched off."""

    name: str
    colour: str
    dash: bool = False


@dataclass(frozen=True)
class Plot:
    """One chart.

    Attributes:
        name: part of file names and of ids.
        description: what it says to a person who cannot see it.
        spec: in Vega-Lite, without width, legend and theme. Its parameter `hidden` lists the series switched off; the
            fields of the axes are named `x` and `y`, by which the page's script zooms them.
        note: what a reader has to know, below the title.
    """

    name: str
    title: str
    description: str
    spec: Spec
    series: Sequence[Series] = ()
    note: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", plain(self.name))


def live(plot: Plot) -> str:
    """The description that the page's script draws, as JSON that may stand in a script element."""
    spec = {
        **_with_legends(plot.spec, shown=False),
        "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
        "description": plot.description,
        "config": _CONFIG,
    }
    return json.dumps(spec, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def svg(plot: Plot, prefix: str) -> str:
    """The chart as one `<svg>` element that takes the page's colours. Its legend is the page's.

    It grows with the page and does not shrink: its words would shrink with it, to six pixels on a phone.

    Args:
        prefix: of all its ids, different for each chart of a page.
    """
    text: str = vl_convert.vegalite_to_svg(_drawn(plot, shown=False), vl_version=_VERSION)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r"url\(#", f"url(#{prefix}-", text)
    # Nobody sees a thousandth of a pixel. What is to be read stands between the tags, and stays.
    text = _TAG.sub(lambda tag: _NUMBER.sub(_rounded, tag.group()), text)
    text = re.sub(r'(<svg [^>]*?)width="([^"]*)" height="[^"]*"', r'\1style="min-width: \2px"', text, count=1)
    # Its one label says what its parts would; Vega leaves roles without names on some of them.
    text = _ROLE.sub("", text)
    label = escape(plot.description, quote=True)
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def png(plot: Plot) -> bytes:
    """The chart in light colours with its title and legend, 192 dots an inch."""
    spec = {
        **_drawn(plot, shown=True),
        "title": {"text": plot.title, "anchor": "start", "color": INK, "offset": 12, "fontSize": 14},
        "background": GROUND,
        "padding": 14,
    }
    light = _VARIABLE.sub(lambda found: COLOURS[found.group(1)], json.dumps(spec))
    written: bytes = vl_convert.vegalite_to_png(light, vl_version=_VERSION, scale=2)
    return written


@lru_cache(maxsize=1)
def script() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script for a page; with `ast` it evaluates no text as code."""
    text: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=_VERSION)
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def colour_scale(series: Sequence[Series]) -> Spec:
    """The encoding of colour by the field `series`."""
    return {
        "field": "series",
        "type": "nominal",
        "scale": {"domain": [each.name for each in series], "range": [each.colour for each in series]},
        "legend": LEGEND,
    }


def dash_scale(series: Sequence[Series]) -> Spec:
    """The encoding of dashes by the field `series`."""
    return {
        "field": "series",
        "type": "nominal",
        "scale": {
            "domain": [each.name for each in series],
            "range": [[5, 3] if each.dash else [1, 0] for each in series],
        },
        "legend": LEGEND,
    }


def zoom(*encodings: str) -> Spec:
    """A parameter by which axes are moved with the mouse and zoomed with Ctrl and its wheel; a page has buttons too."""
    drag = "pointerdown[event.pointerType === 'mouse']"
    return {
        "name": "zoom",
        "select": {
            "type": "interval",
            "encodings": list(encodings),
            "zoom": "wheel![event.ctrlKey || event.metaKey]",
            "translate": f"[{drag}, window:pointerup] > window:pointermove!",
        },
        "bind": "scales",
    }


HIDDEN: Spec = {"name": "hidden", "value": []}
SHOWN: Spec = {"filter": "indexof(hidden, datum.series) < 0"}


# A layer that only feels the pointer: its marks cannot be seen, and pictures go without.
FELT: Spec = {"usermeta": {"felt": True}}


def with_halo(text: Spec) -> list[Spec]:
    """A layer of text, and below it the same in the page's ground, so that lines do not run through it."""
    encoding = {name: each for name, each in text["encoding"].items() if name != "color"}
    mark = {**text["mark"], "color": GROUND, "stroke": GROUND, "strokeWidth": 4, "strokeJoin": "round", "aria": False}
    return [{**text, "mark": mark, "encoding": encoding}, text]


def _drawn(plot: Plot, shown: bool) -> Spec:
    spec = _with_legends(plot.spec, shown)
    spec["layer"] = [layer for layer in spec["layer"] if layer.get("usermeta") != FELT["usermeta"]]
    return {**spec, "width": _WIDTH, "config": {**_CONFIG, "aria": False}}


def _with_legends(value: Any, shown: bool) -> Any:
    if isinstance(value, Mapping):
        return {
            name: ({} if shown else None) if name == "legend" and each == LEGEND else _with_legends(each, shown)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [_with_legends(each, shown) for each in value]
    return value


def _rounded(found: re.Match[str]) -> str:
    return f"{float(found.group()):.2f}".rstrip("0").rstrip(".")
