"""The page that a run's folder holds: the template. tests/commands/test_run.py looks at a filled one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = ROOT / "jvm/src/main/resources/sparkdlbench/page.html"
COUNTED = ROOT / "python/sparkdl_bench/report/counted.json"


def test_the_marker_stands_once() -> None:
    assert TEMPLATE.read_text().count("const run = /*RUN_JSON*/null;") == 1
    assert TEMPLATE.read_text().count("RUN_JSON") == 1


def test_nothing_is_loaded_from_elsewhere() -> None:
    text = TEMPLATE.read_text()
    addresses = set(re.findall(r"https?://[^\"'\s]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # the name of SVG's elements, not a place to load from
    assert not re.search(r"<(link|img|iframe)|\bsrc=|@import|url\(|fetch\(|import\(", text)


def test_items_stand_apart_in_words_too() -> None:
    """Sections in a line, and what is counted in a heading: their text alone, as it is copied or read aloud."""
    text = TEMPLATE.read_text()
    assert 'nav li:not(:last-child)::after { content: "·";' in text
    assert (
        text.count('.append(" ");\n')
        == len(re.findall(r'`\(\$\{\w+\.length\}[^`]*\)`, \{ className: "count" \}', text))
        == 2
    )


def test_words_in_curves_are_no_smaller_than_eleven_pixels() -> None:
    """Curves are drawn 520 wide, or as wide as a phone's window, and their columns are no narrower."""
    text = TEMPLATE.read_text()
    assert "const SIZE = { width: 520," in text
    assert "Math.min(520, Math.max(300, document.documentElement.clientWidth - 26))" in text
    assert "minmax(min(32.5rem, 100%), 1fr)" in text  # 520 px
    assert min(int(size) for size in re.findall(r"svg text \{[^}]*font-size: (\d+)px", text)) >= 11


def test_the_script_is_javascript(tmp_path: Path) -> None:
    script = tmp_path / "page.js"
    script.write_text(the_script())
    subprocess.run([the_node(), "--check", str(script)], check=True, timeout=60)


def test_what_the_algorithm_counted_is_told_in_words(tmp_path: Path) -> None:
    counts = {
        "dropped": [1234567],
        "lag": [],
        "share_rows": [40, 24],
        "something": [3],
        "staleness": [30, 60, 0, 10],
    }
    assert count_rows(tmp_path, counts) == [
        ["Gradients of a shard that came too late, and were dropped", "1,234,567"],
        ["Rows of a step that each worker got in the end", "40, 24"],
        ["something", "3"],
        [
            "Pushes of a shard, by the updates that their weights lacked",
            "100 in all, mean 0.9, at most 3 (0: 30 %, 1: 60 %, 3: 10 %)",
        ],
    ]
    ((_, told),) = count_rows(tmp_path, {"lag": [0] * 11 + [1, 2, 1]})
    assert told == "4 in all, mean 12, at most 13 (11: 25 %, 12 and more: 75 %)"
    assert count_rows(tmp_path, None) == []


def test_the_words_for_counts_stand_in_the_file_that_reports_read_alone() -> None:
    known = json.loads(COUNTED.read_text())
    assert not [name for name, told in known.items() if told["words"][1:] in TEMPLATE.read_text()]


def test_counts_stand_in_a_section_that_is_hidden_without_them() -> None:
    assert re.search(r'<section id="counted" hidden>.*<table id="counts"', TEMPLATE.read_text(), re.DOTALL)


def the_node() -> str:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed, so the page's script is not run here")
    return node


def the_script() -> str:
    return TEMPLATE.read_text().split("<script>")[1].split("</script>")[0]


def count_rows(folder: Path, counts: dict[str, list[int]] | None) -> list[list[str]]:
    """The rows that the page's script makes of a run's counts."""
    script = folder / "rows.js"
    asked = f"process.stdout.write(JSON.stringify(countRows({json.dumps(counts)}, {COUNTED.read_text()})));"
    script.write_text(f"globalThis.document = {{ getElementById: () => ({{}}) }};\n{the_script()}\n{asked}\n")
    done = subprocess.run([the_node(), str(script)], check=True, capture_output=True, text=True, timeout=60)
    rows: list[list[str]] = json.loads(done.stdout)
    return rows
