"""`sparkdl-bench compare`: a matrix of runs × trials from one file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparkdl_bench.errors import RunFailedError

if TYPE_CHECKING:
    from sparkdl_bench.compare.store import ComparisonFolder

RESULTS = Path("results") / "compare"


def peers_folder() -> Path:
    from sparkdl_bench import peers  # NumPy comes with it

    return peers.default_directory()


@click.command("compare")
@click.argument("conf", type=click.Path(path_type=Path))
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Set a key of all runs, or a Spark property."
)
@click.option(
    "--master", help="Spark master of all runs, in place of the file's; {workers} in it is each run's number."
)
@click.option("--base", type=click.Path(path_type=Path), help="A run file in place of the one that CONF varies.")
@click.option("--trials", type=click.IntRange(1), help="Measured runs of each combination, in place of the file's.")
@click.option("--resume", "goes_on", is_flag=True, help="Go on with the newest comparison of this plan and commit.")
@click.option("--retry-failed", is_flag=True, help="With --resume: run cells again that failed.")
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
    from sparkdl_bench.compare.cells import cells_of, check_beforehand, in_order
    from sparkdl_bench.compare.plan import load_plan

    if master:
        assignments = (*assignments, f"master={master}")
    plan = load_plan(conf, assignments, trials, base)
    cells = in_order(plan, cells_of(plan))
    check_beforehand(cells)
    from sparkdl_bench.compare import check, loop, store
    from sparkdl_bench.compare.execute import ProcessExecutor

    lacking = check.missing(cells, peers_dir)
    skipped = lacking if skip_missing else {}
    for group, reason in skipped.items():
        click.echo(f"Skipped: {group}. {reason}", err=True)
    # Where nothing is left, the check of all of them says what to install.
    cells = [cell for cell in cells if cell.group not in skipped] or cells
    check.check_cells(cells, lacking)
    if dry_run:
        for cell in cells:
            click.echo(f"{cell.group}, {'warm-up' if cell.is_warmup else 'trial'} {cell.trial}")
        return
    folder = store.resume(results, plan) if goes_on else None
    if goes_on and folder is None:
        click.echo(
            f"There is no comparison of this plan and commit in '{results}' to go on with; a new one begins.", err=True
        )
    folder = folder or store.create(results, plan, cells, skipped)
    with folder.locked():
        folder.grow(plan, cells)
        executor = ProcessExecutor(plan, folder, peers_dir)
        executor.stop_leftovers()
        with loop.shown(sys.stderr, len(cells)) as display:
            display.tell(f"{len(cells)} cells into {folder.path}")
            loop.run_cells(cells, folder, executor, display, retry_failed=retry_failed)
    _conclude(folder)


def _conclude(folder: ComparisonFolder) -> None:
    """The table, what to do next, and the exit status."""
    from sparkdl_bench.compare.table import show

    records = folder.records()
    show(folder.content, records)
    click.echo(f"sparkdl-bench report {folder.path} -o report.html makes the page of it.")
    failed = [record for record in records if record["status"] != "success"]
    if failed:
        raise RunFailedError(
            f"{len(failed)} of {len(records)} cells failed: {', '.join(sorted({each['group'] for each in failed}))}. "
            f"The first says: {failed[0]['error']} --resume --retry-failed runs them again."
        )
