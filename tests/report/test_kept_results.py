"""docs/results holds to its own rules: what is kept beside a report makes it, and what pages quote stands in it.

A report with its records is made again of them. Of one without, which is older than the rule, the groups' numbers are
computed again from its own table of all runs.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

import doc_tables
import kept_pages
from sparkdl_bench import machine
from sparkdl_bench.report import formats, kept
from sparkdl_bench.report.load import load

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
FOLDERS = sorted(path.parent for path in RESULTS.glob("*/report.md"))
# Measured before records were kept; their cells were not, and are gone. This set may only shrink.
WITHOUT_RECORDS = {
    "algorithms",
    "batch",
    "blas",
    "cifar10-vgg-16",
    "inband-vs-outofband",
    "ten-epochs",
    "two-hosts",
    "workers",
}
NUMBER = re.compile(r"(?<![\w.,-])\d[\d,]*(?:\.\d+)?(?![\w-]*\w)")
Table = list[dict[str, str]]


def tables(text: str) -> dict[str, Table]:
    """By title the rows of each table, cells by heading."""
    found: dict[str, Table] = {}
    for section in text.split("\n## ")[1:]:
        lines = [line for line in section.splitlines() if line.startswith("|")]
        rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
        if len(rows) > 2:
            found[section.partition("\n")[0]] = [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]
    return found


def number(text: str) -> float:
    """The first number of a cell, also where a word stands behind it."""
    return float(text.split()[0].replace(",", "").rstrip("%"))


def agrees(written: str, value: float) -> bool:
    """Whether a cell of three digits, or of all digits before the point, is that value; the parts are rounded, too."""
    wanted = number(written)
    return math.isclose(wanted, value, rel_tol=0.006) or abs(wanted - value) <= 0.011


def members(runs: Table, group: str) -> Table:
    return [run for run in runs if run["group"] == group and run["state"] == "success" and int(run["trial"]) > 0]


def differing(made: Mapping[str, Table], there: Mapping[str, Table]) -> Iterator[str]:
    """Cells that both have and that are not the same; words and columns may be newer than the report."""
    for title in made.keys() & there.keys():
        if len(made[title]) != len(there[title]):
            yield f"{title}: {len(there[title])} rows, and the records make {len(made[title])}"
        for ours, theirs in zip(made[title], there[title], strict=False):
            yield from (
                f"{title}, {heading}: {theirs[heading]}, and the records say {ours[heading]}"
                for heading in ours.keys() & theirs.keys()
                if ours[heading] != theirs[heading]
            )


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_report_is_what_its_records_say(folder: Path) -> None:
    if not (folder / kept.RECORDS).is_file():
        assert folder.name in WITHOUT_RECORDS, f"{folder.name} has no {kept.RECORDS}: report --format folder writes it"
        return
    assert folder.name not in WITHOUT_RECORDS
    results = load([folder])
    there, made = (tables(text) for text in ((folder / "report.md").read_text(), formats.markdown(results)))
    assert {"Groups", "All runs"} <= there.keys() & made.keys()
    assert list(differing(made, there)) == []
    assert json.loads((folder / "machine.json").read_text()) == json.loads(formats.circumstances(results))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_report_with_records_has_pictures_of_its_page(folder: Path) -> None:
    if not (folder / kept.RECORDS).is_file():
        return
    for name in kept_pages.names():
        head = (folder / name).read_bytes()[:24]
        assert head.startswith(b"\x89PNG")
        assert str(struct.unpack(">I", head[16:20])[0]) in name, name


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_groups_are_what_the_trials_say(folder: Path) -> None:
    found = tables((folder / "report.md").read_text(encoding="utf-8"))
    groups, runs = found["Groups"], found["All runs"]
    assert groups
    for row in groups:
        trials = members(runs, row["group"])
        assert len(trials) == int(row["trials"].split()[0])
        if not trials:
            assert row["ms per step"] == row["accuracy"] == "–"
            continue
        is_older = "MLPerf mean" in row  # medians, where reports have geometric means since

        def centre(heading: str, of: Sequence[Mapping[str, str]] = trials, median: bool = is_older) -> float:
            values = [number(trial[heading]) for trial in of]
            return statistics.median(values) if median else statistics.geometric_mean(values)

        step = "ms a step" if "ms a step" in row else "ms per step"
        assert agrees(row[step], centre(step)), row["group"]
        accuracies = [number(trial["accuracy"]) for trial in trials]
        accuracy = statistics.median(accuracies) if is_older else statistics.mean(accuracies)
        assert abs(number(row["accuracy"]) - accuracy) <= 0.011, row["group"]
        if is_older:
            to_target = next(heading for heading in row if ", median [" in heading)
            own = "s total" if to_target.startswith("s in total") else "s to target"
            assert agrees(row[to_target], centre(own)), row["group"]
            assert agrees(row["core-seconds"], centre(own) * int(row["cores"])), row["group"]
        else:
            seconds = next(heading for heading in row if heading.startswith("s from command"))
            if row[seconds] == "–":  # not all of its trials reached the target
                assert row["core-seconds"] == "–"
                continue
            assert agrees(row["core-seconds"], number(row[seconds]) * int(row["cores"])), row["group"]
            assert ("[" in row[seconds]) == (len(trials) > 1)
            if len(trials) > 1:
                low, high = (float(end) for end in re.findall(r"[\d.]+", row[seconds].partition("[")[2]))
                assert low <= number(row[seconds]) <= high


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_evidence_is_of_a_commit_and_of_the_machine_that_the_list_names(folder: Path) -> None:
    facts = json.loads((folder / "machine.json").read_text(encoding="utf-8"))["comparisons"]
    listed = next(line for line in (RESULTS / "README.md").read_text().splitlines() if f"]({folder.name}/" in line)
    assert facts
    for each in facts:
        assert not str(each["commit"]).endswith(machine.CHANGED)
        vendor = str(each["machine"]["cpu"]).split()[0].partition("(")[0]
        assert f"| {vendor} " in listed, f"{folder.name} was measured on {each['machine']['cpu']}"


def quoted() -> Iterator[tuple[str, str, str]]:
    """(page, folder, sentence) of each row of a table that links to a kept report, or whose table names one."""
    for page in ("docs/results/README.md", "docs/reference/models.md"):
        for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
            linked = re.search(r"\]\((?:\.\./results/)?([\w-]+)/report\.md\)", line)
            if line.startswith("|") and linked and (page.endswith("README.md") or "| comparison: " in line):
                yield page, linked[1], line.strip("| ").split(" | ")[-1]
    for path in sorted((ROOT / "docs").rglob("*.md")):
        for folder, table in doc_tables.reported(path.read_text(encoding="utf-8")):
            for line in table.splitlines()[2:]:
                # Name, numbers, remarks.
                yield path.relative_to(ROOT).as_posix(), folder, " ".join(line.strip("| ").split(" | ")[1:-1])


def derived(found: Mapping[str, Table]) -> Iterator[float]:
    """What follows from the tables: seconds that users of a group wait, minutes, the share of a step that computes."""
    for row in found["Groups"]:
        trials = members(found["All runs"], row["group"])
        if trials and "s waited" in trials[0]:
            yield statistics.geometric_mean(number(trial["s waited"]) for trial in trials)
        yield from (number(trial["s total"]) / 60 for trial in trials)
    for row in next(table for title, table in found.items() if title.startswith("Phases")):
        yield 100 * number(row["compute"]) / number(row["sum"])


@pytest.mark.parametrize(("page", "folder", "sentence"), list(quoted()))
def test_numbers_that_pages_quote_stand_in_the_report(page: str, folder: str, sentence: str) -> None:
    text = (RESULTS / folder / "report.md").read_text(encoding="utf-8")
    values = [float(each.replace(",", "")) for each in NUMBER.findall(text.replace("%", " "))]
    values += derived(tables(text))
    # Code between backticks is how it was made.
    for written in NUMBER.findall(re.sub(r"`[^`]*`", "", sentence).replace("%", " ")):
        places = len(written.partition(".")[2])
        wanted = float(written.replace(",", ""))
        half = 0.5 * 10**-places * 1.001
        assert any(abs(value - wanted) <= half for value in values), f"{page}: {written} is nowhere in {folder}"


def test_each_kept_report_is_listed_with_how_it_was_made() -> None:
    listed = {folder for page, folder, _ in quoted() if page.endswith("README.md")}
    assert listed == {path.name for path in FOLDERS}
    text = (RESULTS / "README.md").read_text(encoding="utf-8")
    told = re.search(r"Without their records[^.:]*: ([^.]*)\.", text)
    assert told is not None
    assert set(re.findall(r"`([\w-]+)`", told[1])) == {path.name for path in FOLDERS} & WITHOUT_RECORDS
