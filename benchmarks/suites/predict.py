"""`python -m sparkdl_bench.bench predict`: predictions on a DataFrame beside PyTorch's and beside a Python UDF."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import click

from sparkdl_bench.bench.contestant import Contestant, PeerContestant
from sparkdl_bench.bench.predicting import PredictContestant
from sparkdl_bench.bench.suite import Options, options, run_suite
from sparkdl_bench.bench.trials import Comparison
from sparkdl_bench.peers import PredictCase

NAME = "predict"
COMPARISONS = [
    # At least 0.8 times the rows per second of one process a core.
    Comparison("MLP 784-1024-10, 2 × 1 core, 1,000 rows", "transform", "pytorch-predict", 1.25),
    # At least 5 times those of a UDF.
    Comparison("the same beside a Python UDF, row by row", "transform", "udf", 0.2),
]


@dataclass(frozen=True)
class PredictPlan:
    """What is measured.

    Attributes:
        rows: of a pass over both workers; of the UDF `udf_rows`, since it is slow.
        held_rows: in memory, of which a pass is made.
        samples: passes in a trial.
    """

    rows: int = 1_000_000
    held_rows: int = 100_000
    udf_rows: int = 50_000
    samples: int = 3

    def groups(self, shared: Options) -> list[list[Contestant]]:
        case = PredictCase(rows=self.rows, held_rows=self.held_rows, samples=self.samples)
        fewer = replace(case, rows=self.udf_rows, held_rows=min(self.udf_rows, self.held_rows), samples=1)
        return [
            [
                PredictContestant("transform", "transform", case),
                PeerContestant("pytorch-predict", "pytorch-predict", case, shared.peers_dir),
                PredictContestant("udf", "udf", fewer),
            ]
        ]


@click.command(NAME)
@click.option("--rows", type=click.IntRange(100), default=1_000_000, show_default=True, help="Rows of a pass.")
@click.option("--held-rows", type=click.IntRange(2), default=100_000, show_default=True, help="Rows in memory.")
@click.option("--udf-rows", type=click.IntRange(100), default=50_000, show_default=True, help="Rows of the UDF's pass.")
@click.option("--samples", type=click.IntRange(1), default=3, show_default=True, help="Passes a trial.")
@options
def command(shared: Options, rows: int, held_rows: int, udf_rows: int, samples: int) -> None:
    """Model.transform beside one PyTorch process per core, and beside a Python UDF."""
    plan = PredictPlan(rows, min(held_rows, rows), udf_rows, samples)
    run_suite(NAME, asdict(plan), plan.groups(shared), COMPARISONS, shared)
