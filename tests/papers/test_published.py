"""docs/papers: the fields of every file, and that the paper's own text holds each number that a file states."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from papers.published import EXPERIMENTS, Paper, flat, line_with, load, load_all, numbers_in
from sparkdl_bench.errors import ConfigurationError

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.on_one_line
FOLDER = ROOT / "docs" / "papers"
SMALL = """
schema = 1
experiment = "a"
[paper]
title = "Nets"
authors = ["A. Author"]
venue = "Nowhere"
[[published]]
id = "seconds"
where = "table 1"
quantity = "seconds an epoch"
unit = "s"
values = [{ of = "one", value = 1234, text = "1,234 s" }]
"""


def text_of(paper: Paper) -> str:
    """The paper's text, from the folder in SPARKDL_PAPERS, or ../shared/papers; skips without it."""
    folder = Path(os.environ.get("SPARKDL_PAPERS", ROOT.parent / "shared" / "papers"))
    if not folder.is_dir():
        pytest.skip(f"The papers' texts are not in {folder}; SPARKDL_PAPERS may name another folder.")
    for file in sorted(folder.glob("*.txt")):
        text = file.read_text(encoding="utf-8")
        if paper.paper.title.replace(":", "") in flat(text)[:600].replace(":", ""):
            return text
    return pytest.fail(f"No text in {folder} begins with '{paper.paper.title}'.")


def test_every_experiment_has_its_paper() -> None:
    assert sorted(load_all(FOLDER)) == sorted(EXPERIMENTS)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_the_papers_text_holds_every_quote(experiment: str) -> None:
    paper = load_all(FOLDER)[experiment]
    whole = text_of(paper)
    text = flat(whole)
    absent = [f"{what}: {quote!r}" for what, quote in paper.quoted() if flat(quote) not in text]
    assert absent == []
    split = [each.id for each in paper.published if each.line and not line_with([v.text for v in each.values], whole)]
    assert split == []


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_the_papers_authors_are_its_authors(experiment: str) -> None:
    paper = load_all(FOLDER)[experiment]
    beginning = flat(text_of(paper))[:800].replace("®", "").replace("[", "").replace("]", "")
    assert [author for author in paper.paper.authors if author not in beginning] == []


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_quotes_are_numbers_and_a_few_words(experiment: str) -> None:
    long = [quote for _, quote in load_all(FOLDER)[experiment].quoted() if len(quote.split()) > 11]
    assert long == []


def test_a_small_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(SMALL)
    paper = load(file)
    assert paper.numbers("seconds").value("one").value == 1234
    assert paper.paper.citation == "A. Author: Nets. Nowhere"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("value = 1234", "value = 1235", r"value 1235, and its text '1,234 s' states \[1234.0\]"),
        ("schema = 1", "schema = 2", "schema 2; valid is 1"),
        ('experiment = "a"', 'experiment = "z"', "experiment 'z'; valid: a, b, c, d, e"),
        ('unit = "s"', "", "lacks unit"),
        ('unit = "s"', 'unit = ""', "leaves unit empty"),
        ('unit = "s"', 'unit = "s"\ncolour = "red"', "holds colour, which means nothing there"),
        ('text = "1,234 s"', 'text = "1,234 s", bound = "over"', "bound 'over'; valid: at least, at most, about"),
        ("[paper]", "[paper", "cannot be read as TOML"),
        ('values = [{ of = "one", value = 1234, text = "1,234 s" }]', "values = []", "has no values"),
    ],
)
def test_a_wrong_file_is_refused_and_says_why(tmp_path: Path, old: str, new: str, reason: str) -> None:
    file = tmp_path / "a.toml"
    file.write_text(SMALL.replace(old, new))
    with pytest.raises(ConfigurationError, match=reason):
        load(file)


def test_two_files_of_one_experiment_are_refused(tmp_path: Path) -> None:
    for name in ("a.toml", "b.toml"):
        (tmp_path / name).write_text(SMALL)
    with pytest.raises(ConfigurationError, match=r"are of experiment a; b\.toml is one"):
        load_all(tmp_path)


def test_numbers_that_are_not_there_name_those_that_are(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(SMALL)
    with pytest.raises(ConfigurationError, match="no numbers 'minutes'; it has seconds"):
        load(tmp_path / "a.toml").numbers("minutes")


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("2,132 seconds", [2132.0]),
        ("9.89 * 10^{-16}", [9.89e-16]),
        ("88.8 and 37.9 percent", [88.8, 37.9]),
        ("32, 64, 128", [32.0, 64.0, 128.0]),
        ("28 * 28 = 784", [28.0, 28.0, 784.0]),
        ("up to 2.7x", [2.7]),
        ("Silver", []),
    ],
)
def test_numbers_of_a_text(text: str, numbers: list[float]) -> None:
    assert numbers_in(text) == numbers


def test_cells_stand_in_one_line_in_their_order() -> None:
    table = "| a | 1 | 2 | 3 |\n| b | 1 | 3 | 2 |"
    assert line_with(["1", "3"], table)
    assert line_with(["2", "3"], table)
    assert not line_with(["2", "1"], table)
    assert not line_with(["3", "1"], table)
