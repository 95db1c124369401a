"""A page of records that somebody else may have written: whatever they name is text there, and no part of the page."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

import comparisons
import pytest

from sparkdl_bench.report import html
from sparkdl_bench.report.load import Comparison, Results

# What a page has of links that lead out of it: its icon.
ICON = "data:,"
# Of these, texts are shown; of the others it does not matter.
SHOWN = (
    *("title", "variant", "factor", "level", "failed", "status", "host", "executor", "phase", "layer", "counted"),
    *("interface", "gpu", "currency", "cpu", "memory", "commit", "begun", "skipped", "transport"),
    *("channel", "topology", "codec"),
)


def hostile(name: str) -> str:
    """A text that ends whatever it may stand in, and begins an element, an attribute and a part of the template."""
    return f'{name}"\' onload=x() --></script></title></pre><x-{name} onload="x()">&lt;x-{name}&gt;<!--CONTENT-->'


class Page(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.links += [value or "" for name, value in attrs if name in ("href", "xlink:href", "src")]
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts[-1] += data
        else:
            self.text += data


def measured(told: Any) -> dict[str, Any]:
    """All that a record may hold besides its head; `told` makes the texts."""
    process = {"resident_bytes_max": 9, "heap_bytes_max": 9, "direct_bytes_max": 9, "gc_ms": 9}
    phases = {"compute": 1.0, "wait": 1.0, told("phase"): 3.0}
    return {
        "history": [
            {"epoch": epoch, "seconds": 2.0 * epoch, "train_loss": 1.0, "test_loss": 1.0, "accuracy": 0.4 * epoch}
            for epoch in (1, 2)
        ],
        "steps_ms": [1.0, 2.0, 3.0] * 40,
        "phases_ms": phases,
        "phase_drift": {told("phase"): 2.0},
        "epoch_phases": [{"epoch": epoch, "compute": 1.0, "communication": 1.0, "update": 1.0} for epoch in (1, 2)],
        "layers_s": {"start": 1.0, told("layer"): 2.0},
        "counts": {told("counted"): [1.0, 2.0]},
        "bytes": {told("bytes"): 100},
        "notices": [told("notice")],
        "settings": {told("setting"): told("value"), "seed": "1"},
        "facts": {"spark": told("spark"), "cores_in_use": 9.0, "master": "local[2]"},
        "load": {"busy": 0.5},
        "id": told("id"),
        "comparison": told("comparison"),
        "started": told("started"),
        "ranks": [
            {"rank": rank, "host": told("host"), "executor": told("executor"), "phases_ms": {**phases, "compute": rank}}
            for rank in (0, 1)
        ],
        "resources": {
            "seconds": [0.0, 1.0],
            "cpu_cores": [0.5, 1.0],
            "resident_bytes": [100, 200],
            "network_sent_bytes_per_s": [1, 2],
            "processes": [
                {
                    **process,
                    "process": told("process"),
                    "host": told("host"),
                    "network_sent_bytes": {told("interface"): 5},
                }
            ],
            "gpus": [{"host": told("host"), "gpu": told("gpu"), "use_mean": 0.2, "memory_bytes_max": 9}],
        },
    }


def comparison(told: Any, machine: str) -> Comparison:
    """Two variants at two levels of a factor, four trials of each, one that failed and two that ended otherwise."""
    records: list[Mapping[str, Any]] = []
    for way, variant in enumerate((told("variant"), "ours")):
        for level in (told("level"), "2"):
            own = {"factors": {"variant": variant, told("factor"): level}, **measured(told)}
            own["variant"] = {"peer": told("peer")} if way else {"transport": told("transport")}
            ended = [*(["success"] * 4), "failed", "cancelled", told("status")]
            records += [
                comparisons.trial(
                    f"{variant}, {level}",
                    number,
                    10.0 + way + number / 10,
                    1 + way,
                    **{**own, "status": status, "error": told("failed")},
                )
                for number, status in enumerate(ended, start=1)
            ]
    plan = {
        "title": told("title"),
        "name": told("name"),
        "warmup_steps": 0,
        "target_accuracy": 0.75,
        "baseline": {"variant": told("variant")},
        "price_per_core_hour": 1.0,
        "currency": told("currency"),
    }
    content = {
        "plan": plan,
        "machine": {"cpu": told("cpu") + machine, "cores": 2, "kernel": told("kernel"), "memory_gib": told("memory")},
        "commit": told("commit"),
        "started": told("begun"),
        "skipped": {told("skipped"): told("reason")},
    }
    return Comparison(content, records)


def page(told: Any) -> str:
    row = {"elements": 1000, "busbw_gbps": 1.0, "median_ms": 1.0, "workers": 2, "correct": True}
    row |= {axis: told(axis) for axis in ("transport", "channel", "topology", "codec", "encryption")}
    return html.page(Results([comparison(told, "1"), comparison(told, "2")], [row, {**row, "elements": 2000}]))


@pytest.fixture(scope="module")
def pages() -> tuple[str, str]:
    """That of hostile texts, and the same of plain ones."""
    return page(hostile), page(str)


def test_texts_of_records_make_no_element_attribute_or_link(pages: tuple[str, str]) -> None:
    found, plain = (Page(each) for each in pages)
    assert found.tags == plain.tags
    assert found.attributes == plain.attributes
    assert not any(name.startswith("on") for name in found.attributes)
    assert len(found.ids) == len(set(found.ids)) == len(plain.ids)
    assert all(re.fullmatch(r"[\w.-]+", each) for each in found.ids)
    assert "c1-two-way-variant-factor" in plain.ids  # whose id has a factor's name
    assert {link for link in found.links if not link.startswith("#")} == {ICON}
    assert {link[1:] for link in found.links if link.startswith("#")} <= set(found.ids)


def test_they_stay_in_the_charts_descriptions(pages: tuple[str, str]) -> None:
    found, plain = (Page(each) for each in pages)
    # Two scripts of ours (Vega's, the page's); each of the others describes a chart.
    assert len(found.scripts) == len(plain.scripts) == 2 + pages[0].count('<script type="application/json">')
    assert {each for each in found.scripts if not each.startswith("{")} == {
        each for each in plain.scripts if not each.startswith("{")
    }
    for each in found.scripts:
        if each.startswith("{"):
            json.loads(each)


@pytest.mark.parametrize("name", SHOWN)
def test_they_are_shown_as_they_are(pages: tuple[str, str], name: str) -> None:
    """So the page that has no element of theirs did hold them."""
    shown = Page(pages[0]).text.replace("\u00a0", " ")
    assert f'<x-{name} onload="x()">&lt;x-{name}&gt;<!--CONTENT-->' in shown
