"""Runs a whole comparison from its plan: checks the cells, trains them, shows the table, and says what to do next."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from sparkdl_bench.comparison import check, loop, store
from sparkdl_bench.comparison.cells import Cell
from sparkdl_bench.comparison.execute import ProcessExecutor
from sparkdl_bench.comparison.plan import Plan
from sparkdl_bench.comparison.store import ComparisonFolder
from sparkdl_bench.comparison.table import show
from sparkdl_bench.errors import ConfigurationError, RunFailedError


def run(
    plan: Plan,
    cells: Sequence[Cell],
    results: Path,
    peers_dir: Path,
    *,
    goes_on: bool = False,
    retry_failed: bool = False,
    skip_missing: bool = False,
    dry_run: bool = False,
    minutes: float | None = None,
) -> None:
    """Trains the cells in their order.

    Args:
        plan: what varies.
        cells: of the plan, in the order in which they run, checked by `check_without_jvm`.
        results: folder of the comparisons.
        peers_dir: folder of the peers' environments.
        goes_on: continues the newest comparison of this plan and commit, if there is one.
        retry_failed: runs failed cells of that comparison again.
        skip_missing: leaves out variants whose peer or transport is not installed here.
        dry_run: checks and lists the cells, and runs none.
        minutes: after which no cell is begun; `goes_on` takes up the rest another time.

    Raises:
        ConfigurationError: a cell cannot run; before the first one starts.
        RunFailedError: a cell failed.
    """
    begun_until = None if minutes is None else time.monotonic() + 60 * minutes
    lacking = check.missing(cells, peers_dir)
    # What no command could install is left out in any case: the comparison goes on without it, and says why.
    skipped = lacking if skip_missing else check.unable(cells)
    for group, reason in skipped.items():
        click.echo(f"Skipped: {group}. {reason}", err=True)
    # Where nothing is left, the check of all of them says what to install.
    left = [cell for cell in cells if cell.group not in skipped] or list(cells)
    _check_target(plan, left)
    check.check_cells(left, lacking)
    if dry_run:
        for cell in left:
            click.echo(f"{cell.group}, {'warm-up' if cell.is_warmup else 'trial'} {cell.trial}")
        return
    folder = store.resume(results, plan) if goes_on else None
    if goes_on and folder is None:
        click.echo(
            f"There is no comparison of this plan and commit in '{results}' to continue; a new one starts.", err=True
        )
    folder = folder or store.create(results, plan, left, skipped)
    with folder.locked():
        folder.grow(plan, left)
        executor = ProcessExecutor(plan, folder, peers_dir)
        executor.stop_leftovers()
        with loop.shown(sys.stderr, len(left)) as display:
            display.tell(f"{len(left)} cells into {folder.path}")
            loop.run_cells(left, folder, executor, display, retry_failed=retry_failed, begun_until=begun_until)
    _conclude(folder, left)


def _check_target(plan: Plan, cells: Sequence[Cell]) -> None:
    """A regression reaches no accuracy."""
    losses = [cell.run.settings.get("loss.name", "cross-entropy") for cell in cells]
    found = next((loss for loss in losses if loss != "cross-entropy"), None)
    if plan.target_accuracy is not None and found is not None:
        raise ConfigurationError(
            f"target_accuracy = {plan.target_accuracy} asks when runs reach an accuracy, and loss.name={found} is for "
            "regression, which has none. Leave target_accuracy out: the report compares times beside test errors."
        )


def _conclude(folder: ComparisonFolder, cells: Sequence[Cell]) -> None:
    """The table, what to do next, and the exit status."""
    records = folder.records()
    if rest := sum(not folder.has(cell) for cell in cells):
        click.echo(f"{rest} of {len(cells)} trials are left; the same command with --resume goes on.")
    if not records:
        return
    show(folder.content, records)
    click.echo(f"sparkdl-bench report {folder.path} -o report.html makes the page of it.")
    failed = [record for record in records if record["status"] != "success"]
    if failed:
        raise RunFailedError(
            f"{len(failed)} of {len(records)} cells failed: {', '.join(sorted({each['group'] for each in failed}))}. "
            f"The first says: {failed[0]['error']} --resume --retry-failed runs them again."
        )
