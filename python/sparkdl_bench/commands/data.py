"""`sparkdl-bench data`: looks at a data set without training on it, and at the decoded copies of sets."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from sparkdl_bench import preflight
from sparkdl_bench.config import RunFile, load_run_file
from sparkdl_bench.lazy import SuggestingGroup
from sparkdl_bench.nearest import cut

_SHOWN_COLUMNS = 20
_MOST_OTHERS = 20


@click.group("data", cls=SuggestingGroup, short_help="Look at a data set, or at the decoded copies of sets.")
def command() -> None:
    """Look at a data set, or at the decoded copies that runs keep."""


@command.command("stats", short_help="Minimum, maximum, mean and deviation of each value.")
@click.argument("conf", type=click.Path(path_type=Path))
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Set a key of the run or a Spark property."
)
@click.option("--spark-conf", metavar="NAME|FILE", help="Spark properties: a profile by its name, or a file.")
@click.option("--debug", is_flag=True, help="Show Spark's log and stack traces.")
def stats(conf: Path, assignments: tuple[str, ...], spark_conf: str | None, debug: bool) -> None:
    """Minimum, maximum, mean and standard deviation of each value of a row, by one Spark job.

    The data set is that of the run file CONF; values are as they are stored, before scaling.
    """
    run = load_run_file(conf, assignments, spark_conf)
    with tempfile.TemporaryFile() as log:
        show(take(run, None if debug else log))


_FOLDER = click.option(
    "--dir",
    "where",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="The folder of the copies: data.cache_dir of the runs. [default: the user's cache]",
)


@command.command("list", short_help="The decoded copies of sets that runs have left here.")
@_FOLDER
@click.option("--debug", is_flag=True, expose_value=False, help="Show stack traces.")
def show_copies(where: Path | None) -> None:
    """The decoded copies of data sets that runs have left on this machine, with size, rows and age."""
    from sparkdl_bench import decoded

    folder = (where or decoded.folder()).resolve()
    copies = decoded.copies(folder)
    for copy in copies:
        rows = "not complete" if copy.rows is None else f"{copy.rows:,} rows"
        click.echo(f"{copy.path.name}  {_size(copy.size_bytes):>9}  {rows:>16}  {_age(copy.age_s):>9} old")
    _tell_others(decoded.others(folder), "Not a decoded copy, so `clean` leaves it")
    total = sum(copy.size_bytes for copy in copies)
    click.echo(f"{len(copies)} decoded cop{'y' if len(copies) == 1 else 'ies'}, {_size(total)} in {folder}")
    if copies:
        click.echo("`sparkdl-bench data clean` deletes them; a run that needs one decodes its data again.")


@command.command("clean")
@_FOLDER
@click.option(
    "--older-than",
    "days",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    help="Only copies of so many days.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be deleted; delete nothing.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show stack traces.")
def clean_copies(where: Path | None, days: float, dry_run: bool) -> None:
    """Delete decoded copies of data sets. A run that needs one decodes its data again.

    What runs have not written stays, and is listed with the reason.
    """
    from sparkdl_bench import decoded

    folder = (where or decoded.folder()).resolve()
    there = decoded.copies(folder)
    chosen = [copy for copy in there if copy.age_s >= days * 86400 and not copy.may_be_filling]
    left = [(copy.path.name, _why_left(copy.may_be_filling, days)) for copy in there if copy not in chosen]
    if not dry_run:
        decoded.clean(chosen, folder)
    freed = sum(copy.size_bytes for copy in chosen)
    done = "would be deleted" if dry_run else "deleted"
    click.echo(f"{len(chosen)} decoded cop{'y' if len(chosen) == 1 else 'ies'}, {_size(freed)}, {done} in {folder}")
    _tell_others([*left, *decoded.others(folder)], "Left")


def _why_left(may_be_filling: bool, days: float) -> str:
    if may_be_filling:
        return "not complete, and so young that a run may be writing it"
    return f"less than {days:g} day{'' if days == 1 else 's'} old"


def _tell_others(others: Sequence[tuple[str, str]], what: str) -> None:
    for name, why in others[:_MOST_OTHERS]:
        click.echo(f"{what}: '{cut(name)}' ({why})")
    if len(others) > _MOST_OTHERS:
        click.echo(f"{what}: {len(others) - _MOST_OTHERS} more")


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _age(seconds: float) -> str:
    if seconds >= 2 * 86400:
        return f"{seconds / 86400:.0f} days"
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"


def take(run: RunFile, jvm_log: Any) -> dict[str, Any]:
    """The statistics of the run's data set; also in a results folder, `folder`."""
    preflight.check(run)
    from sparkdl_bench import session
    from sparkdl_bench.progress import tell

    tell("starting the driver's JVM")
    api, spark_settings = session.start_jvm({"spark.app.name": f"{run.name} statistics", **run.spark}, jvm_log)
    api.check(run.settings)
    with session.open_session(spark_settings, tell) as spark:
        tell("reading the rows")
        return session.check_session(spark).statistics(run.settings)


def show(found: dict[str, Any]) -> None:
    """Prints the statistics: every value's where they are few, otherwise over all values."""
    click.echo(f"{found['description']}: {found['parts']} parts, {found['seconds']:.1f} s")
    for name in ("train", "test"):
        if found[name]:
            click.echo(f"{name}: {found[name]['rows']} rows; {_labels(found[name]['labels'])}")
            _show_values(found[name])
    if found["skipped"]["count"]:
        click.echo(f"left out: {found['skipped']['count']} bad records, the first: {found['skipped']['listed'][0]}")
    click.echo(f"results  {found['folder']}")


def _labels(found: dict[str, Any]) -> str:
    if "standard_deviation" not in found:
        return f"by class {found}"
    low, mean, high, deviation = (found[name] for name in ("min", "mean", "max", "standard_deviation"))
    return f"labels: min {low:g}, mean {mean:g}, max {high:g}, standard deviation {deviation:g}"


def _show_values(moments: dict[str, Any]) -> None:
    names = ("min", "mean", "max", "standard_deviation")
    columns = list(zip(*(moments[name] for name in names), strict=True))
    if len(columns) > _SHOWN_COLUMNS:
        low, high = min(moments["min"]), max(moments["max"])
        click.echo(f"  {len(columns)} values per row, from {low:g} to {high:g}, mean {_mean(moments['mean']):g}")
        return
    for index, (low, mean, high, deviation) in enumerate(columns):
        click.echo(f"  value {index}: min {low:g}, mean {mean:g}, max {high:g}, standard deviation {deviation:g}")


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
