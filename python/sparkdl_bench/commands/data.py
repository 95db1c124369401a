"""`sparkdl-bench data`: looks at a data set without training on it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import click

from sparkdl_bench import session
from sparkdl_bench.config import RunFile, load_run_file

_SHOWN_COLUMNS = 20


@click.group("data")
def command() -> None:
    """Look at a data set."""


@command.command("stats")
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
    with tempfile.NamedTemporaryFile(prefix="sparkdl-bench-", suffix=".log") as log:
        show(take(run, None if debug else log.file))


def take(run: RunFile, jvm_log: Any) -> dict[str, Any]:
    """The statistics of the run's data set; also in a results folder, `folder`."""
    api, spark_settings = session.start_jvm({"spark.app.name": f"{run.name} statistics", **run.spark}, jvm_log)
    api.check(run.settings)
    with session.open_session(spark_settings) as spark:
        return session.check_session(spark).statistics(run.settings)


def show(found: dict[str, Any]) -> None:
    """Prints the statistics: every value's where they are few, otherwise over all values."""
    click.echo(f"{found['description']}: {found['parts']} parts, {found['seconds']:.1f} s")
    for name in ("train", "test"):
        if found[name]:
            click.echo(f"{name}: {found[name]['rows']} rows; by class {found[name]['labels']}")
            _show_values(found[name])
    if found["skipped"]["count"]:
        click.echo(f"left out: {found['skipped']['count']} bad records, the first: {found['skipped']['listed'][0]}")
    click.echo(f"results  {found['folder']}")


def _show_values(moments: dict[str, Any]) -> None:
    names = ("min", "mean", "max", "standard_deviation")
    columns = list(zip(*(moments[name] for name in names), strict=True))
    if len(columns) > _SHOWN_COLUMNS:
        low, high = min(moments["min"]), max(moments["max"])
        click.echo(f"  {len(columns)} values a row, from {low:g} to {high:g}, mean {_mean(moments['mean']):g}")
        return
    for index, (low, mean, high, deviation) in enumerate(columns):
        click.echo(f"  value {index}: min {low:g}, mean {mean:g}, max {high:g}, standard deviation {deviation:g}")


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
