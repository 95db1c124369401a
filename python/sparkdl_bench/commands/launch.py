"""`sparkdl-bench launch`: a script of the user's own as the ranks of one Spark stage."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from sparkdl_bench import catalogue, preflight
from sparkdl_bench.config import RunFile


@click.command(
    "launch",
    short_help="Run a PyTorch script of yours in the workers.",
    context_settings={"ignore_unknown_options": False},
)
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Ranks, each a Spark task.")
@click.option(
    "--sync",
    default="auto",
    show_default=True,
    help="How ranks exchange: auto, block-stream, tcp, ucx, mpi, gloo or none.",
)
@click.option("--master", help="Spark master [default: one executor with one core a worker, on this host].")
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Set a Spark property or a key of the exchange."
)
@click.option(
    "--spark-conf",
    metavar="NAME|FILE",
    help="Spark properties: a profile of conf/spark/ by its name, or a file like spark-defaults.conf.",
)
@click.option("--timeout", type=click.FloatRange(1), default=600.0, show_default=True, help="Of a rank's waits, s.")
@click.option(
    "--attempts", type=click.IntRange(1), default=1, show_default=True, help="With those after lost executors."
)
@click.option("--results", default="results", show_default=True, help="Folder of the results folders.")
@click.option("--name", help="Of the results folder [default: the script's].")
@click.option("--debug", is_flag=True, help="Show Spark's log and stack traces.")
def command(
    script: Path,
    arguments: tuple[str, ...],
    workers: int,
    sync: str,
    master: str | None,
    assignments: tuple[str, ...],
    spark_conf: str | None,
    timeout: float,
    attempts: int,
    results: str,
    name: str | None,
    debug: bool,
) -> None:
    """Run the Python SCRIPT unchanged in every worker, as `python SCRIPT ARGUMENTS` would, its process group ready.

    Options of the script follow a double dash: `sparkdl-bench launch train.py --workers 4 -- --epochs 3`.
    """
    from sparkdl_bench.launching import scripts
    from sparkdl_bench.launching.plan import way_of

    program = scripts.read(script, arguments)
    known = catalogue.load()
    if known is not None:
        way_of([str(each["name"]) for each in known.variants["transport"]], sync)
    run = _run(workers, master, assignments, spark_conf)
    preflight.check_launch(run, results)
    # These take half a second to load, and what is refused does without.
    from sparkdl_bench import session
    from sparkdl_bench.launching.driver import launch
    from sparkdl_bench.progress import tell

    settings = {key: value for key, value in run.settings.items() if key != "workers"}
    with tempfile.TemporaryFile() as log:
        options = {"spark.app.name": name or script.stem, **run.session}
        api, properties = session.start_jvm(options, None if debug else log)
        api.check_spark(properties)
        with session.open_session(properties, tell) as spark:
            done = launch(
                program,
                spark,
                workers,
                sync,
                timeout=timeout,
                attempts=attempts,
                settings=settings,
                name=name or script.stem,
                results=results,
                always_numbers=True,
            )
    click.echo(f"results  {done.results_dir}", err=True)


def _run(workers: int, master: str | None, assignments: tuple[str, ...], spark_conf: str | None) -> RunFile:
    run = RunFile()
    if spark_conf is not None:
        from sparkdl_bench import profiles

        run = run.with_properties(profiles.load(spark_conf))
    if master is not None:
        assignments = (*assignments, f"master={master}")
    run = run.with_settings((*assignments, f"workers={workers}")).with_profile()
    if "spark.master" in run.spark:
        return run
    from sparkdl_bench.session import standing_options

    here = {} if "spark.master" in standing_options() else {"spark.master": f"local-cluster[{workers},1,1024]"}
    return RunFile({**here, **run.spark}, run.settings)
