"""docs/reference/variants.md says of every transport, algorithm and topology what a reader needs to choose one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "jvm" / "src" / "main" / "scala" / "sparkdlbench"
TRAITS = ("TransportVariant", "Algorithm", "Topology")
# Not variants of an axis, but ways to train that are chosen like one.
SETTINGS = ("batch_shares.by = speed", "backup_workers")

# What must be told, and the words that may begin or stand in the row's name.
TOLD = {
    "purpose": ("purpose",),
    "steps": ("steps",),
    "bytes": ("bytes",),
    "staleness": ("staleness",),
    "guarantee": ("guarantee",),
    "when not": ("when not",),
    "paper": ("paper", "source"),
}


def variants() -> list[str]:
    """The names that the sources give them."""
    names: list[str] = []
    for kind in TRAITS:
        for path in sorted(SOURCES.rglob("*.scala")):
            text = path.read_text(encoding="utf-8")
            declared = re.search(rf"^final class \w+ extends {kind}\b", text, re.MULTILINE)
            if declared:
                name = re.compile(r'def name(?:: String)? = "([a-z-]+)"').search(text, declared.end())
                assert name, path
                names.append(name.group(1))
    return names


def told() -> dict[str, set[str]]:
    """By variant the names of what is told: rows of tables with a column for it, lines `Name: …` of its own section."""
    rows: dict[str, set[str]] = {}
    section = ""
    columns: list[str] = []
    for line in (ROOT / "docs" / "reference" / "variants.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            section = line.lstrip("# ").strip("`")
        if not line.startswith("|"):
            columns = []
            label = re.match(r"[A-Z][\w ]*(?=:)", line)
            if label:
                rows.setdefault(section, set()).add(label.group().lower())
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not columns:
            columns = [cell.strip("`") for cell in cells[1:]]
            continue
        for column, cell in zip(columns, cells[1:], strict=True):
            if cell:
                rows.setdefault(column, set()).add(cells[0].lower())
    return rows


def stands(word: str, row: str) -> bool:
    return re.search(rf"\b{word}\b", row) is not None


def test_there_are_variants_of_each_axis() -> None:
    assert {"block-stream", "mpi", "sync-sgd", "lbfgs", "sliced", "tree"} <= set(variants())


@pytest.mark.parametrize("name", [*variants(), *SETTINGS])
def test_all_that_matters_is_told(name: str) -> None:
    rows = told().get(name, set())
    lacking = [what for what, words in TOLD.items() if not any(stands(word, row) for row in rows for word in words)]
    assert not lacking, f"docs/reference/variants.md tells of {name} only {sorted(rows)}"
