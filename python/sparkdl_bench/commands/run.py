"""`sparkdl-bench run`: one run from one file."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from sparkdl_bench import preflight, signals, spark_properties
from sparkdl_bench.config import RunFile, load_run_file
from sparkdl_bench.errors import Interrupted, SparkDLError, WriteError
from sparkdl_bench.files import replace_text, written
from sparkdl_bench.redaction import redacted_text

if TYPE_CHECKING:
    from sparkdl_bench.results import RunResults


@click.command("run", short_help="Train as a run file says.")
@click.argument("conf", type=click.Path(path_type=Path))
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Set a key of the run or a Spark property."
)
@click.option(
    "--spark-conf",
    metavar="NAME|FILE",
    help="Spark properties: a profile of conf/spark/ by its name, or a file like spark-defaults.conf.",
)
@click.option("--resume", metavar="DIR", help="Continue from the newest checkpoint in DIR (any Hadoop file system).")
@click.option("--master", help="Spark master, in place of the file's.")
@click.option("--debug", is_flag=True, help="Show Spark's log and stack traces.")
def command(
    conf: Path,
    assignments: tuple[str, ...],
    spark_conf: str | None,
    resume: str | None,
    master: str | None,
    debug: bool,
) -> None:
    """Train as the TOML file CONF says: a path, or the name of a file that comes with sparkdl-bench (digits-mlp)."""
    if resume:
        assignments = (*assignments, f"resume={resume}")
    if master is not None:
        assignments = (*assignments, f"master={master}")
    run = load_run_file(conf, assignments, spark_conf)
    with tempfile.TemporaryFile() as log:
        results = train(run, None if debug else log, keep_model=True)
    report(results)


def train(run: RunFile, jvm_log: IO[bytes] | None, keep_model: bool = False) -> RunResults:
    """Checks the run, starts Spark, trains, and shows progress on standard error.

    Args:
        keep_model: whether the trained model is kept: `model` in the results folder, and `best` with `keep_best`.
    """
    preflight.check(run)
    # These take half a second to load, and a run that is refused does without.
    from sparkdl_bench import session
    from sparkdl_bench.progress import decoding, shown, tell
    from sparkdl_bench.results import RunResults
    from sparkdl_bench.runner import follow, interruption, start

    for doubt in spark_properties.doubts(run.spark):
        click.echo(doubt, err=True)
    tell("starting the driver's JVM")
    api, spark_settings = session.start_jvm({"spark.app.name": run.name, **run.session}, jvm_log)
    api.check(run.settings)
    api.check_spark(spark_settings)
    with session.open_session(spark_settings, tell) as spark:
        api = session.check_session(spark)
        with interruption():  # one for all that follows: none is lost between two steps
            with decoding(sys.stderr) as show_decoding:
                run_id = start(api, run.settings, show_decoding)
            if transport := api.transport_line(run_id):
                click.echo(transport, err=True)
            results = RunResults(Path(api.poll(run_id)["results"]))
            with _closed(results), shown(sys.stderr) as show:
                try:
                    done = follow(api, run_id, show)
                    results = RunResults(Path(str(done.results)))
                    if warning := api.warning(run_id):
                        click.echo(warning, err=True)
                    if keep_model and (model := api.save_models(run_id)).parent != results.folder:
                        click.echo(f"The model could not be written to {results.folder}; it is in {model}.", err=True)
                finally:
                    if jvm_log:
                        _keep_log(jvm_log, results)
    return results


def _keep_log(jvm_log: IO[bytes], results: RunResults) -> None:
    try:
        said = written(jvm_log)
        log = results.folder / "spark.log"
        replace_text(log, redacted_text(said))
        log.chmod(log.stat().st_mode & 0o770)  # as all files of a run's folder
    except (OSError, WriteError) as error:
        click.echo(f"Spark's log could not be kept in {results.folder}: {error}", err=True)


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
    from sparkdl_bench import plot
    from sparkdl_bench.results import describe_bytes, measures

    summary = results.summary
    final = summary["final"]
    rows = [
        *measures(final),
        ("test loss", _written(final["test_loss"], "{:.4f}")),
        ("seconds of the run", _written(final["seconds_total"], "{:.1f}")),
        *([("seconds since the command began", f"{signals.seconds():.1f}")] if signals.installed() else []),
        ("seconds per epoch", _written(final["seconds_per_epoch_median"], "{:.2f} (median)")),
        ("ms per step", _written(final["ms_per_step_median"], "{:.2f} (median)")),
        *((f"bytes {channel}", describe_bytes(count)) for channel, count in sorted(summary["bytes"].items())),
        *(
            (name, str(results.folder / file))
            for name, file in (("model", "model"), ("page", "page.html"))
            if (results.folder / file).exists()
        ),
        ("results", str(results.folder)),
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        click.echo(f"{name:<{width}}  {value}")
    plot.draw_where_possible(results)  # the page shows the same


def _written(value: float | None, pattern: str) -> str:
    return "–" if value is None else pattern.format(value)
