"""Every marked table of the documentation is what its samples say: ratios, intervals, milliseconds, computed anew.

A table is marked by a comment below it, one line per row of the table, in their order:

    <!-- figures: benchmarks/results/MACHINE/TIME-SUITE.json
    ours | theirs
    ours | theirs | benchmarks/results/MACHINE/OTHER.json
    - (a row that no sample file holds, and why)
    -->

Cells named `X, ms (p90)`, `X, ms` or `X` hold a contestant's milliseconds, those named `X / Y` or `ratio` a ratio,
those named as a phase of a step the mean over the trials of what each one's facts say. PLACES knows the names. A row in
which a contestant's samples drifted by more than a tenth says so in its first cell.
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
from scipy import stats

import doc_tables

ROOT = Path(__file__).resolve().parents[1]
MARK = re.compile(r"((?:^\|[^\n]*\n)+)\n*<!-- figures: *(\S+)\n([^>]*?)-->", re.MULTILINE)
# Which of a row's contestants a column is of, by how many the row has.
PLACES: dict[int, dict[str, int]] = {
    1: {"ms per step": 0},
    2: {
        "ours": 0,
        "peer": 1,
        "block-stream": 0,
        "ms": 0,
        "GPU": 0,
        "in-band": 0,
        "gloo": 1,
        "before": 1,
        "16 threads": 1,
    },
    3: {"1 worker": 0, "2 workers": 1, "PyTorch": 2},
    5: {
        "MKL, 1 worker": 0,
        "OpenBLAS, 1 worker": 1,
        "MKL, 2 workers": 2,
        "OpenBLAS, 2 workers": 3,
        "PyTorch": 4,
        "1 worker": 0,
        "2 workers": 2,
    },
}
NOT_STEADY = "*(not steady)*"
# With fewer trials on a side the interval of a ratio is Welch's; of so many and more it is a bootstrap.
FEWEST_RESAMPLED = 5
RATIOS = ("ratio", "beside the plain stream")
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
def cells_of(file: str) -> dict[str, Any]:
    cells: dict[str, Any] = json.loads((ROOT / file).read_text(encoding="utf-8"))["cells"]
    return cells


@cache
def trials_of(file: str, name: str) -> tuple[tuple[tuple[float, ...], int], ...]:
    """(samples, steps a sample) of each trial of a contestant."""
    found = [cell for key, cell in cells_of(file).items() if key.rpartition("/")[0] == name]
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


def is_about(written: str, value: float) -> bool:
    """As `agrees`, where chance of the resampling decides the last place."""
    return abs(number(written) - value) <= 0.02 * value + 0.5 * 10 ** -len(written.partition(".")[2]) + 0.001


def disagreements(row: Row) -> list[str]:
    """Cells that the samples contradict."""
    found = []
    for heading, text in row.cells.items():
        match = CELL.match(text)
        chosen = chosen_of(heading, row.names)
        phase = phase_ms(row.file, row.names[0], heading)
        if phase is not None and not agrees(text, phase):
            found.append(f"{heading}: {text}, and the facts say {phase:.4f}")
        if chosen is None:
            continue
        if match is None:
            found.append(f"{heading}: '{text}' is no figure")
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
            few = min(len(ours[2]), len(theirs[2])) < FEWEST_RESAMPLED
            low, high = (welch if few else resampled)(ours[2], theirs[2])
            if not all(
                agrees(cell, value) if few else is_about(cell, value)
                for cell, value in ((match[3], low), (match[4], high))
            ):
                found.append(f"{heading}: {text}, and the samples say [{low:.4f}, {high:.4f}]")
    return found


def chosen_of(heading: str, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """The contestants that a column is of; None where it holds something else."""
    named = re.sub(r" *(\(.*|\[.*|¹)$", "", heading).replace("`", "")
    if named in RATIOS and len(names) == 2:
        return names
    parts = [re.sub(r",? ms$", "", part.strip()) or "ms" for part in named.split("/")]
    places = [PLACES[len(names)].get(part, PLACES[len(names)].get(named)) for part in parts]
    return None if None in places else tuple(names[place] for place in places if place is not None)


def phase_ms(file: str, name: str, heading: str) -> float | None:
    """The mean over the trials of a phase of the step; None where the heading is no phase that they tell."""
    own = [cell for key, cell in cells_of(file).items() if key.rpartition("/")[0] == name]
    told = [cell.get("facts", {}).get("phases_ms", {}) for cell in own]
    return float(np.mean([each[heading] for each in told])) if told and heading in told[0] else None


def resampled(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    """95 % interval of the ratio of medians: the trials of each side drawn again."""
    chance = np.random.default_rng(1)
    drawn = [np.median(each[chance.integers(0, len(each), (4000, len(each)))], axis=1) for each in (ours, theirs)]
    ratios = drawn[0] / drawn[1]
    low, high = np.percentile(ratios, [2.5, 97.5])
    return float(low), float(high)


def welch(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    """95 % interval of the ratio of geometric means: Welch's, on logarithms."""
    logs = np.log(ours), np.log(theirs)
    if max(map(np.ptp, logs)) == 0:
        return (float(ours[0] / theirs[0]),) * 2
    interval = stats.ttest_ind(*logs, equal_var=False).confidence_interval(0.95)
    return float(np.exp(interval.low)), float(np.exp(interval.high))


ROWS = list(marked_rows())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{Path(row.file).stem}: {row.title}")
def test_a_row_is_what_its_samples_say(row: Row) -> None:
    assert disagreements(row) == [], f"{row.page}: {row.title}"
    drifts = {name: drift(row.file, name) for name in row.names}
    is_steady = all(abs(each - 1) <= 0.1 + 1e-9 for each in drifts.values())
    assert row.title.endswith(NOT_STEADY) != is_steady, f"{row.page}: {row.title}: {drifts}"


@cache
def drift(file: str, name: str) -> float:
    """The last third of the samples over the first, by medians: the median over the trials."""
    thirds = [(samples, len(samples) // 3) for samples, _ in trials_of(file, name)]
    if min(third for _, third in thirds) == 0:  # a wait is one sample a trial
        return 1.0
    return float(np.median([np.median(samples[-third:]) / np.median(samples[:third]) for samples, third in thirds]))


def captions() -> Iterator[tuple[str, str, list[str]]]:
    """(page, paragraph, files) of each paragraph that names a machine, trials or a commit beside files of samples."""
    for page in ("docs/performance.md", "docs/explanation/in-band-ladder.md"):
        text = re.sub(r"<!--.*?-->", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
        for paragraph in text.split("\n\n"):
            files = re.findall(r"benchmarks/results/[\w.-]+/[\w.-]+\.json", paragraph)
            if files:
                yield page, " ".join(paragraph.split()), files


@pytest.mark.parametrize(("page", "said", "files"), list(captions()), ids=lambda each: str(each)[:40])
def test_captions_say_the_machine_the_trials_and_the_commit_of_their_samples(
    page: str, said: str, files: list[str]
) -> None:
    kept = [json.loads((ROOT / file).read_text(encoding="utf-8")) for file in files]
    assert {each["machine"]["cpu"].split()[0].partition("(")[0] for each in kept} == set(
        re.findall(r"\b(Intel|AMD)\b", said)
    )
    trials = {int(key.rpartition("/")[2]) for each in kept for key in each["cells"]}
    assert re.search(rf"\b{max(trials)} trials", said), max(trials)
    commits = re.findall(r"commit ([0-9a-f]{7,})", said)
    # The ladder's own words send to its file; every other caption has the commit.
    assert commits or "ladder" in page
    assert all(any(each["commit"].startswith(commit) for each in kept) for commit in commits)
    if commits:
        assert all(any(each["commit"].startswith(commit) for commit in commits) for each in kept)


def test_what_is_said_of_versions_is_what_the_samples_say() -> None:
    text = " ".join((ROOT / "docs" / "performance.md").read_text(encoding="utf-8").split())
    said = re.search(r"All on Spark ([\d.]+) and Java (\d+), except BigDL: .* runs on ([\d.]+)\.", text)
    assert said is not None
    spark, java, bigdl = said.groups()
    for file in {row.file for row in ROWS if row.page == "docs/performance.md"}:
        machine = json.loads((ROOT / file).read_text(encoding="utf-8"))["machine"]
        assert (machine["packages"]["pyspark"], f"build {java}." in machine["java"]) == (spark, True), file
        for key, cell in cells_of(file).items():
            facts = cell.get("facts", {})
            if key.startswith("bigdl"):
                assert facts["spark"] == bigdl, key
            elif "versions" in facts:
                assert facts["versions"]["spark"] == spark, key


# Tables by their first heading, of experiments whose samples were not kept, and of a kept report that has none; this
# list may only shrink.
UNMARKED = {"beside PyTorch, 1 thread, 3 trials each", "way"}


def test_the_tables_of_comparisons_are_marked() -> None:
    """A table with a ratio and no mark would be a figure that nothing holds to its samples."""
    assert len(ROWS) >= 100
    unmarked = set()
    for page in sorted((ROOT / "docs").glob("**/*.md")):
        if page.is_relative_to(ROOT / "docs" / "results"):
            continue  # tests/report/test_kept_results.py holds these to their records
        text = page.read_text(encoding="utf-8")
        marked = {table for table, _, _ in MARK.findall(text)}
        marked |= {table for _, table in doc_tables.reported(text)}  # tests/report/test_kept_results.py again
        for table in re.findall(r"((?:^\|[^\n]*\n)+)", text, re.MULTILINE):
            is_measured = re.search(r"\d\.\d+ \[\d|\| (?:ours(?:,? ms)?|ms per step[ ¹]*) ", table)
            if is_measured and table not in marked:
                unmarked.add(table.strip("| ").split(" | ")[0])
    assert unmarked == UNMARKED


def test_what_is_said_of_all_tables_is_what_their_rows_span() -> None:
    """README and docs/performance.md begin with the ratios of a step; the tables below have them one by one."""
    rows = [row for row in ROWS if row.page == "docs/performance.md" and len(row.names) == 2]

    def span(ours: str, theirs: str) -> tuple[float, float]:
        """The least and the largest ratio of a step of two workers beside such a peer."""
        found = [
            side(row.file, *row.names)[0] / side(row.file, *row.names[::-1])[0]
            for row in rows
            if re.fullmatch(ours, row.names[0]) and re.fullmatch(theirs, row.names[1])
        ]
        assert len(found) >= 2, theirs
        return min(found), max(found)

    step = r"block-stream(-local)?(-512)?|ours-2"
    for page in ("README.md", "docs/performance.md"):
        text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        said = re.search(
            r"([\d.]+) to ([\d.]+) times PyTorch DDP's over gloo, ([\d.]+) to ([\d.]+) times BigDL's, and ([\d.]+) to "
            r"([\d.]+) times that of one PyTorch process with both cores",
            text,
        )
        assert said is not None, page
        for place, peer in enumerate((r"pytorch-ddp(-2)?", r"bigdl(-2)?", r"pytorch-2(-512)?")):
            for written, value in zip(said.groups()[2 * place : 2 * place + 2], span(step, peer), strict=True):
                assert agrees(written, value), f"{page}: {written}, and the samples say {value:.3f}"


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
