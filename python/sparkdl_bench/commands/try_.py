"""`sparkdl-bench try`: the shortest way to an answer for somebody's own data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from sparkdl_bench.config import RunFile
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.nearest import cut


@click.command("try", short_help="Should a cluster train on your data? Measures, and answers.")
@click.argument("data")
@click.option(
    "--minutes", type=float, default=10.0, show_default=True, help="How long to measure; each way at least once."
)
@click.option("--label", metavar="COLUMN", help="The label's column. [default: the one with a usual name]")
@click.option(
    "--master", help="A cluster's master for the workers, or local[N]: N cores of this host. [default: all cores]"
)
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Set a key of all runs.")
@click.option("-o", "--output", type=click.Path(path_type=Path, file_okay=False), help="Folder of all that is written.")
@click.option("--resume", is_flag=True, help="Continue an interrupted try of the same data.")
@click.option("--debug", is_flag=True, help="Show stack traces.")
def command(
    data: str,
    minutes: float,
    label: str | None,
    master: str | None,
    assignments: tuple[str, ...],
    output: Path | None,
    resume: bool,
    debug: bool,  # noqa: ARG001 (read by the group)
) -> None:
    """Should a cluster train on DATA? Picks a net that fits, trains it in one process and with two workers (and four
    where there are cores) for a few minutes, and says what pays off.

    DATA is digits, or a path: IDX or CIFAR-10 files, CSV, LIBSVM, Parquet, or a folder of images by class.
    """
    from sparkdl_bench import catalogue

    wanted = RunFile().with_settings(assignments)
    extra: dict[str, Any] = dict(wanted.settings)
    catalogue.check(extra)
    named = dict(wanted.spark)
    of_set = named.pop("spark.master", None)
    master = of_set if master is None else master
    _refuse(named, extra)
    epochs = extra.pop("epochs", None)
    from sparkdl_bench import comparison_api
    from sparkdl_bench.comparison import quick

    found = comparison_api.compare(
        data,
        label=label,
        workers=quick.sensible_workers(quick.cores_of(master)),
        minutes=minutes,
        master=master,
        results=output or comparison_api.RESULTS,
        resume=resume,
        epochs=None if epochs is None else int(epochs),
        **{key.replace(".", "__"): value for key, value in extra.items()},
    )
    page = found.report(found.folder / "report.html")
    click.echo(found.answer)
    if found.sureness:
        click.echo(found.sureness)
    click.echo(f"page     {page}")
    click.echo(f"records  {found.folder}")


def _refuse(properties: Mapping[str, str], extra: Mapping[str, Any]) -> None:
    """What `try` decides itself, or does not pass on."""
    if properties:
        raise ConfigurationError(
            "`sparkdl-bench try` starts sessions of its own and takes no Spark properties but the master, and --set "
            f"names {cut(min(properties))}. `sparkdl-bench compare FILE` takes them; docs/reference/compare.md says "
            "what such a file holds."
        )
    own = {
        "workers": "compares numbers of workers itself; sparkdl_bench.compare(DATA, workers=[1, 3]) takes others",
        "results": "keeps its results in a folder of comparisons; name it with -o DIR",
        "resume": "goes on with an earlier call by --resume",
    }
    for key in own.keys() & extra.keys():
        raise ConfigurationError(f"--set {key} is not for `sparkdl-bench try`, which {own[key]}.")
