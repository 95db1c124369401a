"""`make bench-data`: MNIST into two executors, from IDX beside NumPy and from CSV on HDFS beside Spark's own reader."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from sparkdl_bench import statistics
from sparkdl_bench.bench import hdfs, store
from sparkdl_bench.bench.loading import SMALL_YOUNG, LoadContestant, write_csv
from sparkdl_bench.bench.suite import Options, options, report, warn_if_busy
from sparkdl_bench.bench.trials import Comparison, compare, run_trials
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.lab import hadoop

NAME = "data"
MEMORY_TARGET = 3.0
CSV_COLUMNS = 785
COMPARISONS = [
    Comparison("MNIST from IDX into two executors, a load", "idx", "numpy", 3.0),
    Comparison("CSV on HDFS into two executors, a load", "csv", "spark-csv", 1.0),
]
SPARK = {"spark.master": "local-cluster[2,1,1536]", "spark.executor.memory": "1536m", "spark.ui.enabled": "false"}
# A test cluster has one data node.
HDFS = {"spark.hadoop.dfs.replication": "1"}


@dataclass(frozen=True)
class DataPlan:
    """`samples` loads in each trial; `csv_rows` of MNIST's training rows as CSV."""

    samples: int = 5
    csv_rows: int = 60000

    def groups(self, mnist: str, uri: str) -> list[list[LoadContestant]]:
        idx = {"data.source": "idx", "data.path": mnist, "workers": "2"}
        file = f"{uri}/mnist.csv"
        csv = {
            "data.source": "csv",
            "data.path": file,
            "data.held_as": "uint8",
            "data.cache_dir": f"{uri}/decoded",
            "data.split_bytes": str(16 << 20),
            "workers": "2",
        }
        theirs = {"data.path": file, "columns": str(CSV_COLUMNS)}
        return [
            [
                LoadContestant("idx", "ours", idx, self.samples, SPARK),
                LoadContestant("numpy", "numpy", idx, self.samples),
            ],
            [
                LoadContestant("csv", "ours", csv, self.samples, {**SPARK, **HDFS}),
                LoadContestant("spark-csv", "spark", theirs, self.samples, {**SPARK, **HDFS}),
            ],
            [
                LoadContestant("idx-memory", "ours-memory", idx, 3, {**SPARK, **SMALL_YOUNG}),
                LoadContestant("csv-memory", "ours-memory", csv, 3, {**SPARK, **HDFS, **SMALL_YOUNG}),
            ],
        ]


@click.command(NAME)
@click.option("--samples", type=click.IntRange(1), default=5, show_default=True, help="Loads a trial.")
@click.option("--csv-rows", type=click.IntRange(100), default=60000, show_default=True, help="Rows of the CSV file.")
@click.option("--hdfs", "given", metavar="URI", help="Folder on an HDFS to use. [default: one that is started here]")
@options
def command(shared: Options, samples: int, csv_rows: int, given: str | None) -> None:
    """Loading MNIST beside NumPy, CSV on HDFS beside Spark's reader, and the memory that loading takes."""
    if not shared.data_path:
        raise ConfigurationError(
            "This suite loads MNIST's files. Name their folder with --data, or set SPARKDL_DATA to the folder that "
            "holds 'mnist'."
        )
    plan = DataPlan(samples, csv_rows)
    whole = {"trials": shared.trials, "data": shared.data, **asdict(plan)}
    file = (store.resume(shared.results, NAME, whole) if shared.resume else None) or store.create(
        shared.results, NAME, whole
    )
    warn_if_busy()
    start = time.monotonic()
    with _file_system(given) as uri:
        _upload(shared.data_path, uri, csv_rows)
        groups = plan.groups(shared.data_path, uri)
        run_trials(groups, shared.trials, file, shared.timeout_s, click.echo)
    outcomes = [compare(comparison, file) for comparison in COMPARISONS]
    file.set("outcomes", [{**asdict(outcome), "met": outcome.met} for outcome in outcomes])
    report(file, outcomes, [each.name for group in groups for each in group])
    memory = [memory_ratio(file, name) for name in ("idx-memory", "csv-memory")]
    file.set("memory", dict(zip(("idx", "csv"), memory, strict=True)))
    for name, ratio in zip(("IDX", "CSV"), memory, strict=True):
        met = "met" if ratio <= MEMORY_TARGET else "NOT met"
        click.echo(f"Peak heap while loading from {name}: {ratio:.2f} × the decoded rows (≤ {MEMORY_TARGET:g}: {met}).")
    click.echo(f"{(time.monotonic() - start) / 60:.1f} minutes.")


def memory_ratio(file: store.ResultFile, contestant: str) -> float:
    """The heap's peak above what was in use before, over the decoded rows' bytes: the median of the trials' largest."""
    trials = file.trials(contestant)
    peaks: Sequence[float] = [max(trial.facts["peak_bytes"]) / trial.facts["held_bytes"] for trial in trials]
    return statistics.median(peaks)


@contextmanager
def _file_system(given: str | None) -> Iterator[str]:
    if given:
        yield given.rstrip("/")
        return
    with hdfs.running(hadoop.default_folder()) as uri:
        yield uri


def _upload(mnist: str, uri: str, rows: int) -> None:
    """Puts MNIST's training rows as CSV where the trials read them; by Spark's Hadoop client, in its own process."""
    program = (
        "import sys; from pyspark.sql import SparkSession; "
        "s = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false')"
        ".config('spark.hadoop.dfs.replication', '1').getOrCreate(); j = s._jvm.org.apache.hadoop.fs; "
        "p = j.Path(sys.argv[2]); f = p.getFileSystem(s._jsc.hadoopConfiguration()); "
        "f.copyFromLocalFile(False, True, j.Path(sys.argv[1]), p); s.stop()"
    )
    with tempfile.TemporaryDirectory(prefix="sparkdl-csv-") as folder:
        local = Path(folder, "mnist.csv")
        write_csv(Path(mnist), local, rows)
        subprocess.run(  # noqa: S603 (the command is ours)
            [sys.executable, "-c", program, local.as_uri(), f"{uri}/mnist.csv"],
            check=True,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=300,
        )
