"""MNIST's accuracy where every executor holds all rows, beside that where each reads its own part of them."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

from sparkdl_bench.bench import contestant, store
from sparkdl_bench.bench.loading import load_idx
from sparkdl_bench.bench.suite import data_option, results_option
from sparkdl_bench.errors import ConfigurationError, RunFailedError
from sparkdl_bench.peers._process import run_to_end
from sparkdl_bench.results import RunResults

if TYPE_CHECKING:
    from sparkdl_bench.statistics.inference import Welch

NAME = "placement"
PLACEMENTS = ("replicated", "sharded")


@dataclass(frozen=True)
class PlacementPlan:
    """One run for each placement and seed.

    Attributes:
        rows: of MNIST's training rows, the first ones.
        shuffle_buffer: rows that a sharded run shuffles among each other; few, so that its shuffling is weak.
    """

    seeds: int = 5
    epochs: int = 3
    rows: int = 60_000
    shuffle_buffer: int = 8_192
    hidden: int = 128
    batch: int = 128
    learning_rate: float = 0.1

    def conf(self, placement: str, seed: int, folder: Path, results: Path) -> str:
        """The run file of one run, whose set lies in `folder`."""
        tables: dict[str, dict[str, object]] = {
            "": {
                "name": f"{placement}-{seed}",
                "results": str(results),
                "workers": 2,
                "batch": self.batch,
                "epochs": self.epochs,
                "evaluate_every": 0,
                "seed": seed,
            },
            "model": {"name": "mlp", "hidden": [self.hidden]},
            "optimizer": {"name": "sgd", "learning_rate": self.learning_rate},
            "data": {
                "source": "csv",
                "path": str(folder / "train.csv"),
                "test_path": str(folder / "test.csv"),
                "held_as": "uint8",
                "classes": 10,
                "cache_dir": str(folder / "decoded"),
                "placement": placement,
                "shuffle_buffer": self.shuffle_buffer,
            },
            "spark": {"master": "local-cluster[2,1,1024]", "spark.executor.memory": "1g", "spark.ui.enabled": "false"},
        }
        return "\n".join(contestant.toml(table, values) for table, values in tables.items())


@click.command(NAME)
@click.option("--seeds", type=click.IntRange(2), default=5, show_default=True, help="Runs of each placement.")
@click.option("--epochs", type=click.IntRange(1), default=3, show_default=True)
@click.option("--rows", type=click.IntRange(200), default=60_000, show_default=True, help="Training rows.")
@data_option
@results_option
@click.option("--timeout", "timeout_s", type=click.FloatRange(1), default=600.0, show_default=True, help="Of a run, s.")
def command(seeds: int, epochs: int, rows: int, data_path: str, results: Path, timeout_s: float) -> None:
    """Accuracy on MNIST of runs that hold all rows, and of sharded ones; no difference at 95 %."""
    if not data_path:
        raise ConfigurationError(
            "This suite trains on MNIST's files. Name their folder with --data, or set SPARKDL_DATA to the folder that "
            "holds 'mnist'."
        )
    plan = PlacementPlan(seeds, epochs, rows)
    file = store.create(results, NAME, asdict(plan))
    found = measure(plan, Path(data_path), file, timeout_s)
    test = difference(found["replicated"], found["sharded"])
    file.set("difference", asdict(test))
    between = f"95 % from {test.interval.low:+.4f} to {test.interval.high:+.4f}"
    click.echo(f"Accuracy replicated − sharded: {test.difference:+.4f} ({between}, p = {test.p:.2f}).")
    click.echo(f"All samples: {file.path}")
    if test.differs:
        raise RunFailedError(f"Sharded and replicated runs differ in accuracy: {found}.")


def measure(plan: PlacementPlan, mnist: Path, file: store.ResultFile, timeout_s: float) -> dict[str, list[float]]:
    """Test accuracy of each run, by placement; kept as soon as it is there."""
    found: dict[str, list[float]] = {placement: [] for placement in PLACEMENTS}
    with tempfile.TemporaryDirectory(prefix="sparkdl-bench-placement-") as name:
        folder = Path(name)
        _write(mnist, folder, plan.rows)
        for seed in range(1, plan.seeds + 1):
            for placement in PLACEMENTS:
                conf, results = folder / f"{placement}-{seed}.toml", folder / f"results-{placement}-{seed}"
                conf.write_text(plan.conf(placement, seed, folder, results), encoding="utf-8")
                accuracy = _accuracy(conf, results, timeout_s)
                click.echo(f"{placement}, seed {seed}: {accuracy:.4f}")
                found[placement].append(accuracy)
                file.set("accuracy", found)
    return found


def difference(first: Sequence[float], second: Sequence[float]) -> Welch:
    """Welch's test on the accuracies."""
    from sparkdl_bench.statistics import inference

    test = inference.welch(first, second)
    if test is None:
        raise ConfigurationError("Two runs or more of each placement are needed for a difference.")
    return test


def _accuracy(conf: Path, results: Path, timeout_s: float) -> float:
    run_to_end(conf.stem, [sys.executable, "-m", "sparkdl_bench", "run", str(conf)], timeout_s)
    return float(RunResults(contestant.only_run(results)).summary["final"]["test_accuracy"])


def _write(mnist: Path, folder: Path, rows: int) -> None:
    images, labels, test_images, test_labels = load_idx(mnist)
    for name, values, classes, count in (
        ("train", images, labels, rows),
        ("test", test_images, test_labels, len(test_labels)),
    ):
        table = np.column_stack([classes[:count], values[:count].reshape(min(count, len(classes)), -1)])
        np.savetxt(folder / f"{name}.csv", table, fmt="%d", delimiter=",")
