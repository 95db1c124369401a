"""What the documentation tells people to use is there: commands, options, targets, files (none is run here). What it
shows of other languages can be read, and its formulas give our rows."""

from __future__ import annotations

import ast
import builtins
import itertools
import json
import math
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from sparkdl_bench.cli import cli
from sparkdl_bench.comparison import peer_data
from sparkdl_bench.comparison.cells import cells_of
from sparkdl_bench.comparison.plan import load_plan
from sparkdl_bench.config import tomllib
from sparkdl_bench.peers.programs.measure import _same_start

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Options of Spark's, Ivy's, MPI's, NVIDIA's, pip's, twine's and GnuPG's own programs.
OTHERS = {"--class", "--conf", "--jars", "--master", "--mca", "--packages", "--properties-file", "--repositories"}
OTHERS |= {"--query-gpu", "--no-deps", "--strict", "--list-secret-keys", "--require-hashes"}
OTHERS |= {"--parts", "--targets"}  # of project/mutants.py and project/fuzz.py


def blocks(document: Path) -> list[tuple[str, str]]:
    """The code blocks, each with its language."""
    return blocks_of(document.read_text(encoding="utf-8"))


def blocks_of(text: str) -> list[tuple[str, str]]:
    return re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL)


def snippets(document: Path) -> Iterator[str]:
    """Lines of code blocks, with those that go on joined, and code within the text."""
    for language, block in blocks(document):
        if language in ("", "bash"):
            yield from block.replace("\\\n", " ").splitlines()
    text = document.read_text(encoding="utf-8")
    # A line of a table or of the text ends no code.
    yield from re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL).replace("\n", " "))


def commands(document: Path) -> Iterator[list[str]]:
    """Words of each command; one that is wrapped in variables or comes after another counts as one, too."""
    for snippet in snippets(document):
        for part in re.split(r"&&|;", snippet):
            try:
                words = shlex.split(part)
            except ValueError:  # an apostrophe of the text
                words = part.split()
            while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
                words.pop(0)
            if words:
                yield words


def resolved(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command of `sparkdl-bench` that these words begin with, and the rest."""
    command: click.Command = cli
    rest = list(words)
    while isinstance(command, click.Group) and rest and re.fullmatch(r"[a-z-]+", rest[0]):
        found = command.get_command(click.Context(command), rest[0])
        assert found, f"`sparkdl-bench {' '.join(words)}`: there is no {rest[0]}"
        command = found
        rest.pop(0)
    return command, rest


def options(command: click.Command) -> set[str]:
    return {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help", "--version"}


def all_options(command: click.Command) -> set[str]:
    found = options(command)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child
            found |= all_options(child)
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_and_their_options(document: Path) -> None:
    for words in commands(document):
        if Path(words[0]).name != "sparkdl-bench":
            continue
        command, rest = resolved(words[1:])
        for word in itertools.takewhile(lambda each: each != "--", rest):  # what follows is for another program
            name = word.partition("=")[0]
            if name.startswith("--"):
                assert name in options(command), f"`{' '.join(words)}`: {command.name} has no {name}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_options_that_stand_alone(document: Path) -> None:
    known = all_options(cli) | OTHERS
    for snippet in snippets(document):
        for name in re.findall(r"(?:^|\s)\[?(--[a-z][a-z-]+)", snippet):
            assert name in known, f"`{snippet}`: nothing has an option {name}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_targets_of_make(document: Path) -> None:
    targets = set(re.findall(r"(?m)^([a-z][a-z -]*):", (ROOT / "Makefile").read_text(encoding="utf-8")))
    known = {name for line in targets for name in line.split()}
    for words in commands(document):
        if words[0] == "make":
            for word in words[1:]:
                if re.fullmatch(r"[a-z][a-z-]*", word):
                    assert word in known, f"`{' '.join(words)}`: the Makefile has no {word}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_of_the_repository(document: Path) -> None:
    for snippet in snippets(document):
        for name in re.findall(r"(?<![\w/.-])((?:conf|project|tests|docs)/[\w./-]*\w\.\w+)", snippet):
            assert (ROOT / name).exists(), f"`{snippet}`: there is no {name}"
    for name in re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8")):
        assert (document.parent / name).exists(), f"a link to {name}, which is not there"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_blocks_can_be_read(document: Path) -> None:
    readers = {"python": lambda text: compile(text, document.name, "exec"), "toml": tomllib.loads, "json": json.loads}
    for language, block in blocks(document):
        if language in readers:
            assert readers[language](block), f"a block of {language} that says nothing:\n{block}"


def test_every_page_is_in_the_site() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    listed = set(re.findall(r"[\w/-]+\.md\b", nav))
    assert listed == {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}


def test_every_command_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    names = cli.list_commands(click.Context(cli))
    assert len(names) >= 9
    missing = [name for name in names if f"`sparkdl-bench {name}" not in text]
    assert not missing, f"docs/reference/cli.md does not name {missing}"


def test_the_first_tutorial_does_what_it_says(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its blocks one after the other, in the session of the test process, which stays."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    found: dict[str, Any] = {}
    for language, block in blocks(ROOT / "docs" / "tutorial" / "first-model.md"):
        assert language == "python"
        exec(compile(block, "first-model.md", "exec"), found)
    lines = capsys.readouterr().out.strip().splitlines()
    last = next(at for at, line in enumerate(lines) if line.startswith("FitResult(test MAE "))
    assert float(lines[last].partition("R² ")[2].partition(",")[0]) > 0.9
    accuracy, *table, labels, loaded = lines[last - 10 : last]
    assert float(accuracy) > 0.9
    assert [line.split("|")[3].strip() for line in table if line.startswith("|")] == ["prediction", "1.0", "0.0"]
    assert (labels, loaded) == ("[1 0]", "[1] ['x', 'y']")
    # Its predictions are the run's own: as right on all rows as the run says of its test rows.
    right = found["model"].predict(found["points"])[0] == [row[2] for row in found["rows"]]
    assert right.mean() > 0.9


def test_the_comparison_of_the_second_tutorial_can_be_run(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "tutorial" / "should-i-use-my-cluster.md").read_text(encoding="utf-8")
    files = dict(re.findall(r"`([\w-]+\.toml)`, [^`]*?```toml\n(.*?)```", text, re.DOTALL))
    assert set(files) == {"my-run.toml", "my-comparison.toml"}
    *_, variants = [block for language, block in blocks_of(text) if language == "toml"]
    for content in (files["my-comparison.toml"], files["my-comparison.toml"] + variants):
        (tmp_path / "my-run.toml").write_text(files["my-run.toml"])
        (tmp_path / "my-comparison.toml").write_text(content)
        cells = cells_of(load_plan(tmp_path / "my-comparison.toml"))
        assert {cell.run.settings["workers"] for cell in cells} == {"1", "2"}
        assert len(cells) >= 6


def test_pages_that_sources_name() -> None:
    """A message or a comment that sends people to a page names one that is there."""
    sources = [
        path
        for folder in ("python", "jvm/src", "tests", "conf", "project")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".scala", ".java", ".toml", ".conf", ".html") and "target" not in path.parts
    ]
    named = {(page, path) for path in sources for page in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text("utf-8"))}
    assert len(named) > 20
    wrong = sorted(f"{path.relative_to(ROOT)}: {page}" for page, path in named if not (ROOT / page).is_file())
    assert not wrong, "\n".join(wrong)


def test_the_formulas_of_data_md_give_our_rows() -> None:
    found: dict[str, Any] = {"floor": math.floor}
    for language, block in blocks(ROOT / "docs" / "reference" / "data.md"):
        if language == "python" and "def " in block:
            exec(block, found)
    for seed, epoch, rows in ((0, 0, 1), (7, 3, 1000), (123456789, 0, 257)):
        assert found["order"](seed, epoch, rows) == _same_start.row_order(seed, epoch, rows).tolist()
    for rows, share in ((1437, 1 / 3), (10, 0.01), (1000, 0.999)):
        assert found["taken"](rows, share) == peer_data.taken_rows(rows, share)
    tested = found["testing"](1438, 5)
    assert [row // 5 for row in tested] == list(range(1438 // 5))
    assert {row % 5 for row in tested} == set(range(5))


def test_the_readme_can_be_pasted_from_top_to_bottom() -> None:
    """No block uses a name that none above it has set, or the session after it was stopped."""
    known = set(dir(builtins))
    for block in [block for language, block in blocks(ROOT / "README.md") if language == "python"]:
        for statement in ast.parse(block).body:
            names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
            known |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
            known |= {
                alias.asname or alias.name
                for node in ast.walk(statement)
                if isinstance(node, ast.Import | ast.ImportFrom)
                for alias in node.names
            }
            assert {node.id for node in names} <= known, f"unknown in README.md: {ast.unparse(statement)}"
            if ast.unparse(statement) == "spark.stop()":
                known.remove("spark")
