"""`sparkdl-bench jars`: the jars of native code."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path

import click

from sparkdl_bench.errors import ConfigurationError, SparkDLError
from sparkdl_bench.jarfiles import PLATFORMS, cache_folder, find_jars, optional_folder, spark_line
from sparkdl_bench.lazy import SuggestingGroup

_SYSTEMS = {"Linux": "linux", "Darwin": "macosx"}
_MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "arm64", "arm64": "arm64"}


@click.group("jars", cls=SuggestingGroup, short_help="Bring the jars of native code; shorten local starts.")
def command() -> None:
    """Bring the jars of native code, which training needs; shorten the start of local sessions."""


@command.command("fetch", short_help="Fetch what sessions of this host need, once.")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False), required=False)
@click.option(
    "--platform",
    "target",
    type=click.Choice(PLATFORMS),
    help="Platform of the hosts that will train. [default: this host's]",
)
@click.option("--line", type=click.Choice(("3.5", "4")), help="Spark line. [default: that of the installed pyspark]")
@click.option("--ucx", "for_ucx", is_flag=True, help="Only what transport ucx needs: jucx and UCX's libraries.")
@click.option(
    "--archive/--no-archive",
    "archived",
    default=True,
    help="Archive the classes of a run, too, where local sessions of this host will use these jars.",
)
@click.option("--debug", is_flag=True, expose_value=False, help="Show stack traces.")
def fetch(directory: Path | None, target: str | None, line: str | None, for_ucx: bool, archived: bool) -> None:
    """Fetch the jars of native code into DIRECTORY, or into the user's cache, where sessions find them. For another
    folder, set SPARKDL_JARS to it. What `jars archive` does is done, too."""
    import pyspark

    from sparkdl_bench import jars, ucx
    from sparkdl_bench.progress import tell

    if for_ucx:
        for jar in ucx.fetch(directory or optional_folder(), target or host_platform()):
            click.echo(str(jar))
        return
    chosen_line = line or spark_line(pyspark.__version__)
    folder = directory or cache_folder(chosen_line)
    fetched = jars.fetch(folder, target or host_platform(), tell)
    for jar in fetched:
        click.echo(str(jar))
    if archived and _are_used(fetched):
        _archive_if_possible(tell)


def _are_used(fetched: list[Path]) -> bool:
    """Whether sessions of this host, with the installed pyspark, take these jars."""
    import pyspark

    try:
        used = find_jars(pyspark.__version__).all
    except ConfigurationError:
        return False
    return {each.resolve() for each in fetched} <= {each.resolve() for each in used}


def _archive_if_possible(tell: Callable[[str], None]) -> None:
    """The jars are there in any case, and sessions start without an archive, too."""
    from sparkdl_bench import class_archive_build

    tell("archiving the classes of a run, so that local sessions start sooner (up to a minute)")
    try:
        class_archive_build.create()
    except SparkDLError as error:
        click.echo(
            f"No archive of classes was made, so local sessions start as slowly as without one. {error} "
            "`sparkdl-bench jars archive` tries again; `jars fetch --no-archive` leaves it out.",
            err=True,
        )


@command.command("archive", short_help="Make local sessions start in two thirds of the time.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show stack traces.")
def archive() -> None:
    """Archive the classes that a run loads: local sessions start in two thirds of the time (class data sharing)."""
    from sparkdl_bench import class_archive_build

    made = class_archive_build.create()
    click.echo(f"{made} ({made.stat().st_size / 1e6:.0f} MB)")


def host_platform() -> str:
    """This host as the jars' classifiers name it."""
    name = (
        f"{_SYSTEMS.get(platform.system(), platform.system())}-{_MACHINES.get(platform.machine(), platform.machine())}"
    )
    if name not in PLATFORMS:
        raise ConfigurationError(
            f"There is no native code for this host, {name}. Fetch for the hosts that will train with --platform "
            f"{' or --platform '.join(PLATFORMS)}; to train on this one, choose an engine that needs none: "
            "engine.name=numpy, or engine.name=torch with PyTorch installed."
        )
    return name
