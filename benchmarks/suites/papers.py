"""The published comparisons, run again: `sparkdl-bench bench papers`, and a page below docs/results for each."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from papers import keeping, measuring
from papers.experiment import FULL, ROOT, SIZES, Experiment, find
from papers.published import Paper, load_all
from sparkdl_bench.errors import ConfigurationError, RunFailedError
from sparkdl_bench.nearest import suggestion

NAME = "papers"
RESULTS = Path("results") / "papers"
PAGES = ROOT / "docs" / "results"
PAPERS = ROOT / "docs" / "papers"


@click.command(NAME)
@click.option("--only", "letters", default="", help="Experiments by their letters, by commas: a,c [default: all].")
@click.option("--parts", default="", help="Parts of them by their names, by commas [default: all; --list names them].")
@click.option(
    "--size",
    type=click.Choice(SIZES),
    default=FULL,
    show_default=True,
    help="smallest: minutes, which only show that everything works.",
)
@click.option("--minutes", type=click.FloatRange(0, min_open=True), help="No run begins later; --resume goes on.")
@click.option(
    "--resume", is_flag=True, help="Continue the newest comparison of each part, of the same plan and commit."
)
@click.option("--retry-failed", is_flag=True, help="With --resume: do failed runs again.")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="Folder with the sets in mnist and cifar-10 [default: $SPARKDL_DATA].",
)
@click.option(
    "--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True, help="Folder of what is measured."
)
@click.option(
    "--pages",
    type=click.Path(path_type=Path),
    default=None,
    help="Folder of the pages [default: docs/results for size full, else below --results].",
)
@click.option("--page-only", is_flag=True, help="Measure nothing; make the pages of what is there.")
@click.option("--list", "listed", is_flag=True, help="Say which experiments and parts there are; do nothing.")
def command(
    letters: str,
    parts: str,
    size: str,
    minutes: float | None,
    resume: bool,
    retry_failed: bool,
    data: Path | None,
    results: Path,
    pages: Path | None,
    page_only: bool,
    listed: bool,
) -> None:
    """The published comparisons, scaled to this machine: their numbers beside ours, a page each."""
    published, experiments = load_all(PAPERS), _chosen(letters)
    names = _parts(parts, experiments)
    if listed:
        for letter, each in experiments.items():
            _list(each, published[letter])
        return
    until = time.monotonic() + 60 * minutes if minutes else float("inf")
    folder = _data(data)
    failed = []
    for letter, each in experiments.items():
        place = (results / size / letter).resolve()
        if not page_only:
            made = measuring.Measuring(each, size, place, folder, until, click.echo)
            failed += [f"{letter}, {name}" for name in made.run(names, goes_on=resume, retry_failed=retry_failed)]
        found, comparisons = measuring.measured(each, size, place)
        if not comparisons and not found.jobs:
            reasons = " ".join(f"{name}: {reason}." for name, reason in found.absent.items())
            click.echo(f"{letter}: nothing is measured yet, so there is no page. {reasons}")
            continue
        where = _page_folder(pages, results, size) / each.folder
        keeping.keep(where, found, comparisons)
        click.echo(f"{letter}: {keeping.write_page(where, each, published[letter])}")
    if failed:
        raise RunFailedError(
            f"Runs of {', '.join(failed)} failed; what they say stands above and in the pages. --resume --retry-failed "
            "does them again."
        )


def _chosen(letters: str) -> dict[str, Experiment]:
    known = find()
    wanted = [letter.strip() for letter in letters.split(",") if letter.strip()]
    for letter in wanted:
        if letter not in known:
            raise ConfigurationError(f"There is no experiment '{letter}'. Valid: {', '.join(known)}.")
    return {letter: each for letter, each in known.items() if not wanted or letter in wanted}


def _parts(parts: str, experiments: dict[str, Experiment]) -> list[str]:
    known = [part.name for each in experiments.values() for part in each.pieces]
    wanted = [part.strip() for part in parts.split(",") if part.strip()]
    for part in wanted:
        if part not in known:
            raise ConfigurationError(
                f"There is no part '{part}' in what was chosen.{suggestion(part, known)} Valid: {', '.join(known)}."
            )
    return wanted


def _list(experiment: Experiment, paper: Paper) -> None:
    click.echo(f"{experiment.letter}: {experiment.title}. {paper.paper.citation}")
    for each in experiment.pieces:
        click.echo(f"  {each.name}: {each.what}")


def _data(given: Path | None) -> Path:
    return (given or Path(os.environ.get("SPARKDL_DATA", "data"))).resolve()


def _page_folder(given: Path | None, results: Path, size: str) -> Path:
    """What is no measurement does not get into the documentation by itself."""
    if given is not None:
        return given
    return PAGES if size == FULL else results / size / "pages"
