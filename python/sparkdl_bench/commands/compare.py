"""`sparkdl-bench compare`: a matrix of runs × trials from one file."""

from __future__ import annotations

from pathlib import Path

import click

RESULTS = Path("results") / "compare"


def peers_folder() -> Path:
    from sparkdl_bench import peers  # NumPy comes with it

    return peers.default_directory()


@click.command("compare", short_help="Train every combination of a comparison file, several times.")
@click.argument("conf", type=click.Path(path_type=Path))
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Set a key of all runs, or a Spark property."
)
@click.option(
    "--master", help="Spark master of all runs, in place of the file's; {workers} in it is each run's number."
)
@click.option("--base", type=click.Path(path_type=Path), help="A run file in place of the one that CONF varies.")
@click.option("--trials", type=click.IntRange(1), help="Measured runs of each combination, in place of the file's.")
@click.option(
    "--only", "wanted", multiple=True, metavar="FACTOR=VALUE", help="Only these values of what varies; any number."
)
@click.option("--minutes", type=click.FloatRange(0, min_open=True), help="No run begins later; --resume goes on.")
@click.option("--resume", "goes_on", is_flag=True, help="Continue the newest comparison of this plan and commit.")
@click.option("--retry-failed", is_flag=True, help="With --resume: run the failed cells again.")
@click.option(
    "--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True, help="Folder of the comparisons."
)
@click.option("--peers-dir", type=click.Path(path_type=Path), default=peers_folder, help="Peers' environments.")
@click.option("--skip-missing", is_flag=True, help="Leave out variants whose peer or transport is not installed here.")
@click.option("--dry-run", is_flag=True, help="Check every cell and list them in their order; run none.")
@click.option("--debug", is_flag=True, help="Show stack traces.")
def command(
    conf: Path,
    assignments: tuple[str, ...],
    master: str | None,
    base: Path | None,
    trials: int | None,
    wanted: tuple[str, ...],
    minutes: float | None,
    goes_on: bool,
    retry_failed: bool,
    results: Path,
    peers_dir: Path,
    skip_missing: bool,
    dry_run: bool,
    debug: bool,  # noqa: ARG001 (read by the group)
) -> None:
    """Train every combination that the TOML file CONF names (a path, or the name of one that comes with sparkdl-bench),
    several times, in random order, and keep all of it."""
    from sparkdl_bench.comparison.cells import cells_of, check_without_jvm, in_order, only
    from sparkdl_bench.comparison.plan import load_plan

    if master is not None:
        assignments = (*assignments, f"master={master}")
    plan = load_plan(conf, assignments, trials, base)
    cells = only(in_order(plan, cells_of(plan)), wanted)
    check_without_jvm(cells)
    from sparkdl_bench.comparison import matrix

    matrix.run(
        plan,
        cells,
        results,
        peers_dir,
        goes_on=goes_on,
        retry_failed=retry_failed,
        skip_missing=skip_missing,
        dry_run=dry_run,
        minutes=minutes,
    )
