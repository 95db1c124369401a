"""`sparkdl-bench run`: one run from one file."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import click

from sparkdl_bench import plot, session, signals
from sparkdl_bench.config import RunFile, load_run_file
from sparkdl_bench.errors import ConfigurationError, Interrupted, SparkDLError
from sparkdl_bench.progress import decoding, shown, tell
from sparkdl_bench.results import RunResults, describe_bytes
from sparkdl_bench.runner import follow, interruption, start


@click.command("run")
@click.argument("conf", type=click.Path(path_type=Path))
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Set a key of the run or a Spark property."
)
@click.option(
    "--spark-conf",
    metavar="NAME|FILE",
    help="Spark properties: a profile of conf/spark/ by its name, or a file like spark-defaults.conf.",
)
@click.option("--resume", metavar="DIR", help="Go on from the newest checkpoint in DIR (any Hadoop file system).")
@click.option("--debug", is_flag=True, help="Show Spark's log and stack traces.")
def command(conf: Path, assignments: tuple[str, ...], spark_conf: str | None, resume: str | None, debug: bool) -> None:
    """Train as the TOML file CONF says."""
    if resume:
        assignments = (*assignments, f"resume={resume}")
    run = load_run_file(conf, assignments, spark_conf)
    with tempfile.NamedTemporaryFile(prefix="sparkdl-bench-", suffix=".log") as log:
        results = train(run, None if debug else log.file)
    report(results)


def train(run: RunFile, jvm_log: IO[bytes] | None) -> RunResults:
    """Checks the run, starts Spark, trains, and shows progress on standard error."""
    api, spark_settings = session.start_jvm({"spark.app.name": run.name, **run.session}, jvm_log)
    api.check(run.settings)
    api.check_spark(spark_settings)
    tell(f"starting Spark ({spark_settings.get('spark.master', 'the master of its own configuration')})")
    with session.open_session(spark_settings) as spark:
        api = session.check_session(spark)
        with interruption():  # one for all that follows: none is lost between two steps
            with decoding(sys.stderr) as show_decoding:
                run_id = start(api, run.settings, show_decoding)
            results = RunResults(Path(api.poll(run_id)["results"]))
            with _closed(results), shown(sys.stderr) as show:
                try:
                    follow(api, run_id, show)
                finally:
                    if jvm_log:
                        shutil.copyfile(jvm_log.name, results.folder / "spark.log")
    return results


@contextmanager
def _closed(results: RunResults) -> Iterator[None]:
    """Within, whatever ends the run or this command leaves a `summary.json` that says so, also without a JVM."""
    signals.at_last(lambda: results.close("cancelled", "the user cancelled the run"))
    try:
        yield
    except (SparkDLError, Interrupted) as error:
        if signals.number() is None:
            results.close("failed", str(error))
        raise
    signals.at_last(None)


def report(results: RunResults) -> None:
    """Prints what came out, and draws the plot."""
    summary = results.summary
    final = summary["final"]
    rows = [
        ("test accuracy", _written(final["test_accuracy"], "{:.2%}")),
        ("test loss", _written(final["test_loss"], "{:.4f}")),
        ("seconds", _written(final["seconds_total"], "{:.1f}")),
        *([("seconds since the command began", f"{signals.seconds():.1f}")] if signals.installed() else []),
        ("seconds an epoch", _written(final["seconds_per_epoch_median"], "{:.2f} (median)")),
        ("ms a step", _written(final["ms_per_step_median"], "{:.2f} (median)")),
        *((f"bytes {channel}", describe_bytes(count)) for channel, count in sorted(summary["bytes"].items())),
        ("results", str(results.folder)),
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        click.echo(f"{name:<{width}}  {value}")
    try:
        plot.draw(results)
    except ConfigurationError as error:
        click.echo(str(error), err=True)


def _written(value: float | None, pattern: str) -> str:
    return "–" if value is None else pattern.format(value)
