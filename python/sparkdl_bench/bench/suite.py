"""What every suite of comparisons shares: its options, running it, and reporting."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from sparkdl_bench import machine, peers
from sparkdl_bench.bench import store, table
from sparkdl_bench.bench.contestant import Contestant
from sparkdl_bench.bench.trials import DRIFT_LIMIT, Comparison, Outcome, busy_trials, compare, run_trials
from sparkdl_bench.errors import ConfigurationError

RESULTS = Path(*store.KEPT)


@dataclass(frozen=True)
class Options:
    """The options that every suite has.

    Attributes:
        data_path: folder of MNIST's files, absolute; empty for synthetic rows of its shape.
    """

    resume: bool
    trials: int
    data_path: str
    peers_dir: Path
    results: Path
    timeout_s: float

    @property
    def data(self) -> str:
        return "mnist" if self.data_path else "synthetic"


def options(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the shared options to a command, which gets them as one `Options` in its parameter `shared`."""

    def call(**values: Any) -> None:
        names = Options.__dataclass_fields__
        own = {name: value for name, value in values.items() if name not in names}
        function(shared=Options(**{name: value for name, value in values.items() if name in names}), **own)

    call.__doc__ = function.__doc__
    for option in reversed(_OPTIONS):
        call = option(call)
    return call


only_option = click.option(
    "--only", default="", help="Only rows in whose title this is found, a regular expression such as host-local$."
)


def rows_named(pattern: str, comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Those in whose title this regular expression is found.

    Raises:
        ConfigurationError: in none, or it is no regular expression.
    """
    try:
        found = [each for each in comparisons if re.search(pattern, each.title)]
    except re.error as error:
        raise ConfigurationError(f"--only '{pattern}' is no regular expression: {error}.") from error
    if not found:
        titles = "; ".join(each.title for each in comparisons)
        raise ConfigurationError(f"No row has '{pattern}' in its title. The titles are: {titles}.")
    return found


def contestants_of(comparisons: Sequence[Comparison], groups: Sequence[Sequence[Contestant]]) -> list[list[Contestant]]:
    """Those of each group that a comparison names; no group without any."""
    named = {name for each in comparisons for name in (each.ours, each.theirs)}
    found = [[each for each in group if each.name in named] for group in groups]
    return [group for group in found if group]


def run_suite(
    name: str,
    plan: Mapping[str, Any],
    groups: Sequence[Sequence[Contestant]],
    comparisons: Sequence[Comparison],
    shared: Options,
) -> store.ResultFile:
    """Run what is missing, compare, keep and show. `plan` says what is measured, without paths."""
    whole = {"trials": shared.trials, "data": shared.data, **plan}
    resumed = store.resume(shared.results, name, whole) if shared.resume else None
    file = resumed or store.create(shared.results, name, whole)
    warn_if_busy()
    start = time.monotonic()
    run_trials(groups, shared.trials, file, shared.timeout_s, click.echo)
    outcomes = [compare(comparison, file) for comparison in comparisons]
    file.set("outcomes", [{**asdict(outcome), "met": outcome.met} for outcome in outcomes])
    report(file, outcomes, [each.name for group in groups for each in group])
    click.echo(f"{(time.monotonic() - start) / 60:.1f} minutes.")
    return file


def report(file: store.ResultFile, outcomes: Sequence[Outcome], contestants: Sequence[str]) -> None:
    """The table, the trials that a busy machine spoilt, and where the samples are."""
    facts = file.content["machine"]
    where = f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB, commit {file.content['commit']}"
    table.show_outcomes(f"{where}, data {file.content['plan']['data']}", outcomes)
    busy = busy_trials(file, contestants)
    unsteady = [f"{each.ours} | {each.theirs}" for each in outcomes if not each.steady]
    if unsteady:
        click.echo(
            f"Not steady: {', '.join(unsteady)}. The samples of a side drifted by more than {DRIFT_LIMIT:.0%} between "
            "their first and their last third. Ask for a longer warm-up, or for more steps."
        )
    if busy:
        click.echo(f"The machine was busy before {len(busy)} trials: {', '.join(busy)}. Do not trust these numbers.")
    click.echo(f"All samples: {file.path}")


def warn_if_busy() -> None:
    load = machine.load()
    if not load.is_idle:
        click.echo(
            f"This machine is not idle: {load.busy:.0%} of its cores' time is in use, load average "
            f"{load.average_1min}. The numbers will be too high; stop what else runs and measure again.",
            err=True,
        )


def find_mnist(_context: click.Context, _parameter: click.Parameter, given: str | None) -> str:
    """The folder of MNIST's files as an absolute path, or nothing for synthetic rows of its shape."""
    if given:
        return str(Path(given).resolve())
    base = os.environ.get("SPARKDL_DATA")
    folder = Path(base, "mnist").resolve() if base else None
    return str(folder) if folder and folder.is_dir() else ""


data_option = click.option(
    "--data",
    "data_path",
    callback=find_mnist,
    help="Folder of MNIST's IDX files [default: $SPARKDL_DATA/mnist, else synthetic rows].",
)
results_option = click.option(
    "--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True, help="Folder of the result files."
)
_OPTIONS: list[Callable[[Callable[..., None]], Callable[..., None]]] = [
    click.option("--resume", is_flag=True, help="Continue the newest file of the same plan, commit and machine."),
    click.option("--trials", type=click.IntRange(1), default=5, show_default=True, help="Trials of each contestant."),
    data_option,
    click.option(
        "--peers-dir", type=click.Path(path_type=Path), default=peers.default_directory, help="Peers' environments."
    ),
    results_option,
    click.option(
        "--timeout", "timeout_s", type=click.FloatRange(1), default=900.0, show_default=True, help="Of a trial, s."
    ),
]
