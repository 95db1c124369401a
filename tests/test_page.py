"""The page that a run's folder holds: the template. tests/commands/test_run.py looks at a filled one."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

TEMPLATE = Path(__file__).resolve().parents[1] / "jvm/src/main/resources/sparkdlbench/page.html"


def test_the_marker_stands_once() -> None:
    assert TEMPLATE.read_text().count("const run = /*RUN_JSON*/null;") == 1
    assert TEMPLATE.read_text().count("RUN_JSON") == 1


def test_nothing_is_loaded_from_elsewhere() -> None:
    text = TEMPLATE.read_text()
    addresses = set(re.findall(r"https?://[^\"'\s]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # the name of SVG's elements, not a place to load from
    assert not re.search(r"<(link|img|iframe)|\bsrc=|@import|url\(|fetch\(|import\(", text)


def test_the_script_is_javascript(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed, so the page's script is not parsed here")
    script = tmp_path / "page.js"
    script.write_text(TEMPLATE.read_text().split("<script>")[1].split("</script>")[0])
    subprocess.run([node, "--check", str(script)], check=True, timeout=60)
