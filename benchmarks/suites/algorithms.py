"""The last part of `make bench-train`: seconds, epochs and core-seconds of every algorithm to the same accuracy."""

from __future__ import annotations

from pathlib import Path

import click

from sparkdl_bench import peers
from sparkdl_bench.bench.suite import data_option
from sparkdl_bench.comparison import matrix
from sparkdl_bench.comparison.cells import cells_of, check_without_jvm, in_order
from sparkdl_bench.comparison.plan import load_plan
from sparkdl_bench.errors import ConfigurationError

NAME = "algorithms"
RESULTS = Path("results") / "compare"
CONF = Path("conf") / "runs" / "algorithms.toml"


@click.command(NAME)
@data_option
@click.option("--trials", type=click.IntRange(1), default=5, show_default=True, help="Seeds of each algorithm.")
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True, help="Comparisons.")
@click.option("--dry-run", is_flag=True, help="List the cells; run none.")
@click.option("--resume", is_flag=True, help="Its default: for make, which gives all suites the same options.")
def command(
    data_path: str,
    trials: int,
    results: Path,
    dry_run: bool,
    resume: bool,  # noqa: ARG001 (it always does)
) -> None:
    """Every algorithm over block-stream and tcp to 97 % on MNIST; continues an interrupted one."""
    if not data_path:
        click.echo(
            "Skipped: the algorithms are compared on MNIST alone. Name its folder with --data, or the one that has it "
            "in its folder mnist in the environment variable SPARKDL_DATA.",
            err=True,
        )
        return
    if not CONF.is_file():
        raise ConfigurationError(f"'{CONF}' is not here. Run this in the project's own folder.")
    plan = load_plan(CONF, (f"data.path={data_path}",), trials)
    cells = in_order(plan, cells_of(plan))
    check_without_jvm(cells)
    matrix.run(plan, cells, results, peers.default_directory(), goes_on=True, dry_run=dry_run)
