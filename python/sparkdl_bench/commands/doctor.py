"""`sparkdl-bench doctor`: what would go wrong, before it does."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import click

from sparkdl_bench.config import RunFile, load_run_file

_NOTHING_FOUND, _FOUND = 0, 1
_NOT_STARTED = (
    "Nothing found in the run's keys, its master, memory, paths and results, and in what is installed here. Not "
    "checked, because no JVM was started: which values go together, the session's other properties, its executors and "
    "their slots, and the data's content. Leave out --no-start to check these."
)


@click.command("doctor", short_help="Say what would go wrong with a run, before it does.")
@click.argument("conf", required=False, type=click.Path(path_type=Path))
@click.option("--master", help="Spark master, in place of the file's [default without CONF: local-cluster[2,1,2048]].")
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Set a key of the run or a Spark property."
)
@click.option("--spark-conf", metavar="NAME|FILE", help="Spark properties, as of `run`.")
@click.option("--no-start", is_flag=True, help="Check what can be known without a JVM, in a second.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as a JSON list.")
@click.option("--debug", is_flag=True, help="Show Spark's log and stack traces.")
def command(
    conf: Path | None,
    master: str | None,
    assignments: tuple[str, ...],
    spark_conf: str | None,
    no_start: bool,
    as_json: bool,
    debug: bool,
) -> int:
    """Check a session for the run that CONF describes (or the defaults). Exit status 0: nothing found, 1: something."""
    from sparkdl_bench import doctor, profiles

    chosen = (*assignments, *([f"master={master}"] if master is not None else []))
    if conf is not None:
        run = load_run_file(conf, chosen, spark_conf)
    else:
        run = RunFile({"spark.master": "local-cluster[2,1,2048]"})
        if spark_conf is not None:
            run = run.with_properties(profiles.load(spark_conf))
        run = run.with_settings(chosen).with_profile()
    with tempfile.TemporaryFile() as log:
        findings = doctor.examine(run, None if debug else log, start=not no_start)
    if as_json:
        click.echo(json.dumps([finding.to_dict() for finding in findings], indent=1, ensure_ascii=False))
    elif not findings:
        click.echo(_NOT_STARTED if no_start else "Nothing found: this session is fit for the run.")
    else:
        for finding in findings:
            click.echo(f"{click.style(finding.check, bold=True)}: {finding.message}\n")
        click.echo(f"{len(findings)} finding{'s' if len(findings) > 1 else ''}.")
    return _FOUND if findings else _NOTHING_FOUND
