"""Every marked table of the documentation is what its samples say: ratios, intervals, milliseconds, computed anew.

A table is marked by a comment below it, one line per row of the table, in their order:

    <!-- figures: benchmarks/results/MACHINE/TIME-SUITE.json
    ours | theirs
    ours | theirs | benchmarks/results/MACHINE/OTHER.json
    - (a row that no sample file holds, and why)
    -->

Cells named `X, ms (p90)` or `X, ms` hold a contestant's milliseconds, those with `/` in their heading a ratio.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
MARK = re.compile(r"((?:^\|[^\n]*\n)+)\n*<!-- figures: *(\S+)\n([^>]*?)-->", re.MULTILINE)
CELL = re.compile(r"^([\d.,]+)(?: \(([\d.,]+)\))?(?: \[([\d.,]+), ([\d.,]+)\])?$")


@dataclass(frozen=True)
class Row:
    """A row of a marked table: its cells by heading, and whose samples they are of."""

    page: str
    title: str
    cells: dict[str, str]
    names: tuple[str, ...]
    file: str


def marked_rows() -> Iterator[Row]:
    for page in sorted((ROOT / "docs").glob("**/*.md")):
        yield from rows_of(page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8"))


def rows_of(page: str, text: str) -> Iterator[Row]:
    for table, file, listed in MARK.findall(text):
        lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.splitlines()]
        headings, rows = lines[0], lines[2:]
        sources = [line.strip() for line in listed.splitlines() if line.strip()]
        assert len(sources) == len(rows), f"{page}: {file} lists {len(sources)} rows for a table of {len(rows)}"
        for cells, source in zip(rows, sources, strict=True):
            if source.startswith("- ("):
                continue
            names = [part.strip() for part in source.split("|")]
            own = names.pop() if names[-1].endswith(".json") else file
            yield Row(page, cells[0], dict(zip(headings, cells, strict=True)), tuple(names), own)


@cache
def trials_of(file: str, name: str) -> tuple[tuple[tuple[float, ...], int], ...]:
    """(samples, steps a sample) of each trial of a contestant."""
    cells: dict[str, Any] = json.loads((ROOT / file).read_text(encoding="utf-8"))["cells"]
    found = [cell for key, cell in cells.items() if key.rpartition("/")[0] == name]
    assert found, f"{file} has no samples of {name}"
    return tuple((tuple(cell["samples_ms"]), cell["steps"]) for cell in found)


def blocks(trials: tuple[tuple[tuple[float, ...], int], ...], size: int) -> list[np.ndarray]:
    """Means over `size` steps, of each trial."""
    found = []
    for samples, steps in trials:
        width = size // steps
        whole = len(samples) // width * width
        found.append(np.asarray(samples[:whole]).reshape(-1, width).mean(axis=1))
    return found


@cache
def side(file: str, name: str, beside: str = "") -> tuple[float, float, np.ndarray]:
    """Median over trials of each one's median, 90th percentile over all, and the trials' medians."""
    trials = trials_of(file, name)
    size = max(steps for _, steps in [*trials, *(trials_of(file, beside) if beside else ())])
    found = blocks(trials, size)
    medians = np.asarray([np.median(each) for each in found])
    return float(np.median(medians)), float(np.percentile(np.concatenate(found), 90)), medians


def number(text: str) -> float:
    return float(text.replace(",", ""))


def agrees(written: str, value: float) -> bool:
    """Whether `written` is `value`, rounded to the places written (half a place more for a tie)."""
    places = len(written.partition(".")[2])
    return abs(number(written) - value) <= 0.5 * 10**-places * 1.02 or (
        # Three digits of a large number, such as 66.0 or 1,034.
        places == 0 and abs(number(written) - value) <= 0.5
    )


def disagreements(row: Row) -> list[str]:
    """Cells that the samples contradict."""
    found = []
    for heading, text in row.cells.items():
        match = CELL.match(text)
        chosen = chosen_of(heading, row.names)
        if match is None or chosen is None:
            continue
        if len(chosen) == 1:
            beside = next((name for name in row.names if name != chosen[0]), "") if len(row.names) == 2 else ""
            value, tail, _ = side(row.file, chosen[0], beside)
            if not agrees(match[1], value) or (match[2] and not agrees(match[2], tail)):
                found.append(f"{heading}: {text}, and the samples say {value:.4f} ({tail:.4f})")
            continue
        ours, theirs = (side(row.file, *pair) for pair in (chosen, chosen[::-1]))
        ratio = ours[0] / theirs[0]
        if not agrees(match[1], ratio):
            found.append(f"{heading}: {text}, and the samples say {ratio:.4f}")
        if match[3]:
            low, high = resampled(ours[2], theirs[2])
            # Chance of the resampling decides the last place.
            if not all(
                abs(number(cell) - value) <= 0.02 * value + 0.006 for cell, value in ((match[3], low), (match[4], high))
            ):
                found.append(f"{heading}: {text}, and the samples say [{low:.4f}, {high:.4f}]")
    return found


def chosen_of(heading: str, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """The contestants of a column: by two names for `ours` and `peer`, by three for one worker, two, and PyTorch."""
    by_place = {"ours": 0, "peer": 1} if len(names) == 2 else {"1 worker": 0, "2 workers": 1, "PyTorch": 2}
    if "/" in heading:
        parts = [part.strip() for part in heading.partition("[")[0].split("/")]
    elif ", ms" in heading:
        parts = [heading.partition(",")[0].strip()]
    else:
        return None
    return tuple(names[by_place[part]] for part in parts)


def resampled(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    """95 % interval of the ratio of medians: the trials of each side drawn again."""
    chance = np.random.default_rng(1)
    drawn = [np.median(each[chance.integers(0, len(each), (4000, len(each)))], axis=1) for each in (ours, theirs)]
    ratios = drawn[0] / drawn[1]
    low, high = np.percentile(ratios, [2.5, 97.5])
    return float(low), float(high)


ROWS = list(marked_rows())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{Path(row.file).stem}: {row.title}")
def test_a_row_is_what_its_samples_say(row: Row) -> None:
    assert disagreements(row) == [], f"{row.page}: {row.title}"


def test_the_tables_of_comparisons_are_marked() -> None:
    """A table with a column `ours / peer` and no mark would be a figure that nothing holds to its samples."""
    assert len(ROWS) >= 35
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        tables = len(re.findall(r"^\|.* / (?:peer|PyTorch).*\|\n\|[-| ]+\|$", text, re.MULTILINE))
        assert len(MARK.findall(text)) >= tables, page.name


EXAMPLE = """
| net | ours, ms (p90) | peer, ms (p90) | ours / peer [95 %] |
|---|---|---|---|
| a step | {ours} | 4.00 (4.00) | {ratio} |

<!-- figures: {file}
ours | theirs
-->
"""


@pytest.mark.parametrize(
    ("ours", "ratio", "wrong"),
    [
        ("2.00 (3.00)", "0.50 [0.50, 0.50]", 0),
        ("2.01 (3.00)", "0.50 [0.50, 0.50]", 1),
        ("2.00 (3.10)", "0.50 [0.50, 0.50]", 1),
        ("2.00 (3.00)", "0.51 [0.50, 0.50]", 1),
        ("2.00 (3.00)", "0.50 [0.40, 0.50]", 1),
    ],
)
def test_a_figure_that_is_not_its_samples_is_found(tmp_path: Path, ours: str, ratio: str, wrong: int) -> None:
    file = tmp_path / "one.json"
    samples = {"ours": [1.0, 2.0, 2.0, 2.0, 3.0, 3.0], "theirs": [4.0] * 6}
    cells = {
        f"{name}/{trial}": {"samples_ms": each, "steps": 1} for name, each in samples.items() for trial in (1, 2, 3)
    }
    file.write_text(json.dumps({"cells": cells}))
    (row,) = rows_of("page.md", EXAMPLE.format(ours=ours, ratio=ratio, file=file))
    assert len(disagreements(row)) == wrong
