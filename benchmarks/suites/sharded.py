"""A set that no executor holds, trained from Parquet in small executors.

Each row's visits are counted, memory and disk are watched, and rows per second stand beside those of rows in memory.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, final

import click
import psutil
from rich.table import Table

from sparkdl_bench import statistics
from sparkdl_bench.bench import contestant, store, visits, watched_run
from sparkdl_bench.bench.suite import results_option, warn_if_busy
from sparkdl_bench.console import default_console
from sparkdl_bench.errors import ConfigurationError, RunFailedError
from sparkdl_bench.peers._process import run_to_end
from sparkdl_bench.saved import load

NAME = "sharded"
WORKERS = 2
RATE_TARGET = 0.85
READ_TOLERANCE = 0.1
GIGABYTE = 10**9
GIBIBYTE = 1 << 30
# What Spark adds to an executor's heap where a resource manager counts its memory (spark.executor.memoryOverhead).
OVERHEAD_BYTES = 384 << 20
POLL_S = 0.5
# Of a run's steps the first are slower: the JIT compiler, and files that are opened.
_WARMUP_SHARE = 0.1
# A row group is held by who reads it.
_GROUP_BYTES = 16 << 20
_FILE_BYTES = 256 << 20
_LABEL_BYTES = 4
# Long enough for the JIT compiler to have done with either.
_RATE_EPOCHS = 16
# Of files whose zeros are given back: time without a change, least size, longest wait.
_STILL_S = 2.0
_WORTH_BYTES = 1 << 20
_DIG_S = 120.0


@dataclass(frozen=True)
class ShardedPlan:
    """What is trained.

    Attributes:
        gigabytes: of the Parquet files, and of the decoded rows.
        memory_gigabytes: of the rows that are trained on held in memory, and sharded; they fit the executors.
        heap: of each executor.
        disk_bytes: budget of each executor's local disk.
        holes: blocks of zeros take no room on the disk.
    """

    gigabytes: float = 12.0
    memory_gigabytes: float = 0.4
    epochs: int = 2
    trials: int = 3
    heap: str = "1g"
    disk_bytes: int = GIBIBYTE
    holes: bool = False

    @property
    def counted(self) -> visits.CountedSet:
        return visits.CountedSet.of_bytes(round(self.gigabytes * GIGABYTE))

    @property
    def memory_rows(self) -> int:
        """Whole batches."""
        counted = self.counted
        rows = min(counted.rows, int(self.memory_gigabytes * GIGABYTE / counted.width))
        return max(1, rows // counted.batch) * counted.batch

    @property
    def memory_bytes(self) -> int:
        return contestant.mebibytes(self.heap) * (1 << 20) + OVERHEAD_BYTES

    @property
    def share_bytes(self) -> float:
        """What one executor is to read in an epoch."""
        return self.counted.rows * (self.counted.width + _LABEL_BYTES) / WORKERS

    @property
    def spark(self) -> dict[str, str]:
        return {
            "spark.master": f"local-cluster[{WORKERS},1,{contestant.mebibytes(self.heap)}]",
            "spark.executor.memory": self.heap,
            "spark.ui.enabled": "false",
        }


@dataclass
class Watched:
    """What was held at `times_s` (Unix time).

    Attributes:
        anonymous: by executor, memory of its own (not the file system's cache), bytes; None where it was not there.
        local_disk: of all executors and the driver together, their folders for temporary files, bytes.
    """

    times_s: list[float] = field(default_factory=list)
    anonymous: dict[str, list[int | None]] = field(default_factory=dict)
    local_disk: list[int] = field(default_factory=list)

    @property
    def most_anonymous(self) -> int:
        return max((each or 0 for column in self.anonymous.values() for each in column), default=0)

    @property
    def most_disk(self) -> int:
        return max(self.local_disk, default=0)

    def look(self, processes: Sequence[psutil.Process], local: Path) -> None:
        held = _anonymous(processes)
        self.times_s.append(time.time())
        self.local_disk.append(_folder_bytes(local))
        for name in sorted({*self.anonymous, *held}):
            column = self.anonymous.setdefault(name, [None] * (len(self.times_s) - 1))
            column.append(held.get(name))


@click.command(NAME)
@click.option(
    "--gigabytes", type=click.FloatRange(0, min_open=True), default=12.0, show_default=True, help="Of the set."
)
@click.option(
    "--memory-gigabytes",
    type=click.FloatRange(0, min_open=True),
    default=0.4,
    show_default=True,
    help="Of the rows that are held in memory for comparison.",
)
@click.option("--epochs", type=click.IntRange(1, visits.MOST_EPOCHS), default=2, show_default=True)
@click.option("--trials", type=click.IntRange(1), default=3, show_default=True, help="Of the comparison of speed.")
@click.option("--heap", default="1g", show_default=True, help="Of each executor.")
@click.option(
    "--disk-bytes", type=click.IntRange(1), default=GIBIBYTE, show_default=True, help="Budget of an executor."
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="Where the set and its decoded rows go. [default: a temporary one]",
)
@click.option(
    "--holes",
    is_flag=True,
    help="Give blocks of zeros back to the disk as soon as they are written (fallocate --dig-holes). The files are as "
    "long, and take less than half of the room.",
)
@results_option
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(1), default=3600.0, show_default=True, help="Of a run, s."
)
def command(
    gigabytes: float,
    memory_gigabytes: float,
    epochs: int,
    trials: int,
    heap: str,
    disk_bytes: int,
    folder: Path | None,
    holes: bool,
    results: Path,
    timeout_s: float,
) -> None:
    """A set that no executor holds: each row's visits, memory, disk, bytes read, and rows/s beside rows in memory."""
    plan = ShardedPlan(gigabytes, memory_gigabytes, epochs, trials, heap, disk_bytes, holes)
    file = store.create(results, NAME, asdict(plan))
    warn_if_busy()
    with tempfile.TemporaryDirectory(prefix="sparkdl-bench-sharded-", dir=folder) as name:
        _check_room(plan, Path(name))
        with Digger(Path(name)) if holes else nullcontext():
            outcome = measure(plan, Path(name), file, timeout_s)
    show(outcome, plan)
    click.echo(f"All samples: {file.path}")
    faults = missed(outcome, plan)
    if faults:
        raise RunFailedError(" ".join(faults))


def _check_room(plan: ShardedPlan, folder: Path) -> None:
    # The rows that fit in memory come when those of the whole set are gone.
    needed = (1.0 if plan.holes else 2.1) * max(plan.gigabytes, plan.memory_gigabytes) * GIGABYTE
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ConfigurationError(
            f"The set and its decoded rows need {needed / GIGABYTE:.1f} GB, and '{folder}' has {free / GIGABYTE:.1f}. "
            "Name another place with --folder, or a smaller set with --gigabytes."
        )


def measure(plan: ShardedPlan, folder: Path, file: store.ResultFile, timeout_s: float) -> dict[str, Any]:
    """All of it; each part is kept as soon as it is there."""
    began = time.monotonic()
    whole = _write(plan, plan.counted.rows, folder / "whole", timeout_s)
    seconds = {"write": time.monotonic() - began}
    parquet_bytes = sum(each.stat().st_size for each in Path(whole.folder).rglob("*") if each.is_file())
    watched = Watched()
    run = Trained(folder / "run", {**whole.data, **plan.counted.settings(plan.epochs), **_placed(plan)}, plan)
    run.train(timeout_s, watched)
    visited = plan.counted.visits(run.weights, plan.epochs)
    outcome: dict[str, Any] = {
        "parquet_bytes": parquet_bytes,
        "rows": plan.counted.rows,
        "visited_once": visits.once(visited),
        "visits_of_a_row_by_epoch": [[int(each.min()), int(each.max())] for each in visited],
        "bytes_read": run.bytes_read,
        "share_bytes": plan.share_bytes,
        "most_anonymous_bytes": watched.most_anonymous,
        "most_local_disk_bytes": watched.most_disk,
        "rows_per_second": run.rows_per_second,
        "phases_ms": run.phases_ms,
    }
    file.set("outcome", outcome)
    file.set("watched", asdict(watched))
    plot(watched, plan, run.epoch_starts_s, file.path.with_suffix(".svg"))
    shutil.rmtree(whole.folder)
    shutil.rmtree(folder / "run" / "decoded")
    seconds["run"] = time.monotonic() - began - seconds["write"]
    outcome["rates"] = rates(plan, folder, timeout_s)
    outcome["ratio"] = statistics.median(outcome["rates"]["sharded"]) / statistics.median(outcome["rates"]["memory"])
    outcome["seconds"] = {**seconds, "rates": time.monotonic() - began - sum(seconds.values())}
    file.set("outcome", outcome)
    return outcome


def rates(plan: ShardedPlan, folder: Path, timeout_s: float) -> dict[str, list[float]]:
    """Rows per second of the same net on the same rows: held in memory, and sharded; in turns."""
    part = _write(plan, plan.memory_rows, folder / "part", timeout_s)
    decoded = {"data.cache_dir": str(folder / "part-decoded")}
    settings: dict[str, Any] = {
        **part.data,
        **plan.counted.settings(plan.epochs),
        **decoded,
        "epochs": _RATE_EPOCHS,
        "schedule.name": "constant",
    }
    settings.pop("schedule.gamma", None)
    settings.pop("schedule.milestones", None)
    found: dict[str, list[float]] = {"memory": [], "sharded": []}
    for trial in range(plan.trials):
        for name, placement in (("memory", "replicated"), ("sharded", "sharded")):
            run = Trained(folder / f"{name}-{trial}", {**settings, "data.placement": placement}, plan)
            run.train(timeout_s, Watched())
            found[name].append(run.rows_per_second)
    return found


def _write(plan: ShardedPlan, rows: int, folder: Path, timeout_s: float) -> visits.ParquetCase:
    counted = plan.counted
    files = max(WORKERS, rows * counted.width // _FILE_BYTES)
    folder.mkdir(parents=True)
    local = {"spark.local.dir": str(folder / "local")}
    case = visits.ParquetCase(
        counted.width, counted.classes, rows, str(folder / "parquet"), files, _GROUP_BYTES, {**plan.spark, **local}
    )
    case.save(folder / "case.json")
    command = [sys.executable, "-m", "sparkdl_bench.bench.visits", str(folder / "case.json")]
    run_to_end("writing the set", command, timeout_s)
    return case


def _placed(plan: ShardedPlan) -> dict[str, Any]:
    """By its size: over the budget a set is sharded by itself."""
    counted = plan.counted
    fits = counted.rows * counted.width <= plan.disk_bytes
    return {
        "data.placement": "sharded" if fits else "auto",
        "data.disk_limit": plan.disk_bytes,
        "data.shuffle_buffer": counted.shuffle_buffer(counted.rows),
    }


class Trained:
    """One run of `sparkdl-bench run`, and what its results say."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], plan: ShardedPlan) -> None:
        folder.mkdir(parents=True)
        self._folder, self._plan = folder, plan
        self._local = folder / "local"
        own: dict[str, Any] = {
            "name": NAME,
            "results": str(folder / "results"),
            "workers": WORKERS,
            "seed": 1,
            "data.cache_dir": str(folder / "decoded"),
            **settings,
            **plan.spark,
            "spark.local.dir": str(self._local),
        }
        tables: dict[str, dict[str, Any]] = {"": {}}
        for key, value in own.items():
            table, _, name = ("spark", "", key) if key.startswith("spark.") else key.rpartition(".")
            tables.setdefault(table, {})[name] = value
        self._conf = folder / "run.toml"
        text = "\n".join(contestant.toml(table, values) for table, values in tables.items())
        self._conf.write_text(text, encoding="utf-8")

    def train(self, timeout_s: float, watched: Watched) -> None:
        """Trains, and looks at memory and disk meanwhile, from before the decoding on.

        Raises:
            RunFailedError: it failed, or took too long.
        """
        watched_run.train(self._conf, timeout_s, lambda processes: watched.look(processes, self._local), POLL_S)
        self._results = contestant.only_run(self._folder / "results")

    @property
    def weights(self) -> Any:
        """Of the net's one layer."""
        (weights,) = (each for each in load(self._results / "model").weights.values() if each.ndim == 2)
        return weights

    @property
    def bytes_read(self) -> list[list[int]]:
        """By epoch, then by rank."""
        return [event["metadata"]["bytes_by_rank"] for event in self._events("data_read")]

    @property
    def epoch_starts_s(self) -> list[float]:
        return [event["time_ms"] / 1e3 for event in self._events("epoch_start")]

    @property
    def rows_per_second(self) -> float:
        """Over all steps but the first ones, waits for rows included."""
        steps: list[float] = json.loads((self._results / "steps.json").read_text(encoding="utf-8"))
        measured = steps[int(len(steps) * _WARMUP_SHARE) :]
        return self._plan.counted.batch * len(measured) / sum(measured) * 1e3

    @property
    def phases_ms(self) -> dict[str, float]:
        summary = json.loads((self._results / "summary.json").read_text(encoding="utf-8"))
        phases: dict[str, float] = summary["phases_ms"]
        return phases

    def _events(self, key: str) -> list[dict[str, Any]]:
        lines = (self._results / "events.jsonl").read_text(encoding="utf-8").splitlines()
        return [event for event in map(json.loads, lines) if event["key"] == key]


def missed(outcome: Mapping[str, Any], plan: ShardedPlan) -> list[str]:
    """What does not hold, a sentence each."""
    faults = []
    if not outcome["visited_once"]:
        faults.append(
            f"Rows were visited {outcome['visits_of_a_row_by_epoch']} times (least and most) by epoch, not once."
        )
    if outcome["most_anonymous_bytes"] > plan.memory_bytes:
        faults.append(
            f"An executor took {outcome['most_anonymous_bytes']:,} bytes of memory; its limit is {plan.memory_bytes:,}."
        )
    if outcome["most_local_disk_bytes"] > plan.disk_bytes:
        faults.append(
            f"The local disks took {outcome['most_local_disk_bytes']:,} bytes; one's budget is {plan.disk_bytes:,}."
        )
    share = plan.share_bytes
    strayed = [each for epoch in outcome["bytes_read"] for each in epoch if abs(each / share - 1) > READ_TOLERANCE]
    if strayed or len(outcome["bytes_read"]) != plan.epochs:
        faults.append(
            f"Bytes read by epoch and executor are {outcome['bytes_read']}; "
            f"a share is {share:,.0f} ± {READ_TOLERANCE:.0%}."
        )
    if outcome["ratio"] < RATE_TARGET:
        faults.append(f"Sharded rows reach {outcome['ratio']:.2f} × the rows/s of rows in memory, not {RATE_TARGET}.")
    return faults


def show(outcome: Mapping[str, Any], plan: ShardedPlan) -> None:
    counted = plan.counted
    table = Table(title=f"{counted.rows:,} rows of {counted.width:,} values, {outcome['parquet_bytes'] / 1e9:.2f} GB")
    for heading in ("what", "found", "target"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    read = [each / plan.share_bytes for epoch in outcome["bytes_read"] for each in epoch] or [0.0]
    table.add_row("each row once an epoch", "yes" if outcome["visited_once"] else "no", "yes")
    table.add_row("memory of an executor, MB", *_megabytes(outcome["most_anonymous_bytes"], plan.memory_bytes))
    table.add_row("local disks together, MB", *_megabytes(outcome["most_local_disk_bytes"], plan.disk_bytes))
    table.add_row("bytes read / share", f"{min(read):.3f} to {max(read):.3f}", f"1 ± {READ_TOLERANCE}")
    table.add_row("rows/s of the whole set", f"{outcome['rows_per_second']:,.0f}", "")
    table.add_row("rows/s sharded / in memory", f"{outcome['ratio']:.2f}", f"≥ {RATE_TARGET}")
    default_console().print(table)


def plot(watched: Watched, plan: ShardedPlan, epochs_s: Sequence[float], path: Path) -> None:
    """Memory and disk over the run, with their limits."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    start = watched.times_s[0]
    times = [each - start for each in watched.times_s]
    for name, column in watched.anonymous.items():
        above.plot(times, [None if each is None else each / 1e6 for each in column], label=name)
    above.axhline(plan.memory_bytes / 1e6, color="grey", linestyle="--", label="limit")
    above.set_ylabel("memory of its own, MB")
    below.plot(times, [each / 1e6 for each in watched.local_disk], label="all local disks")
    below.axhline(plan.disk_bytes / 1e6, color="grey", linestyle="--", label="budget of one executor")
    below.set_ylabel("local disk, MB")
    below.set_xlabel("seconds from the command")
    for axes in (above, below):
        for each in epochs_s:
            axes.axvline(each - start, color="lightgrey", linewidth=1)
        axes.set_ylim(bottom=0)
        axes.legend(loc="lower right")
    figure.suptitle(f"{plan.gigabytes:g} GB on two executors; grey lines: an epoch begins")
    figure.savefig(path, metadata={"Date": None})


def _megabytes(found: int, limit: int) -> tuple[str, str]:
    return f"{found / 1e6:,.0f}", f"≤ {limit / 1e6:,.0f}"


def _anonymous(processes: Sequence[psutil.Process]) -> dict[str, int]:
    held: dict[str, int] = {}
    for process in processes:
        try:
            name = watched_run.role(process.cmdline())
            if name.startswith("executor"):
                lines = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8").splitlines()
                (found,) = (line.split()[1] for line in lines if line.startswith("RssAnon:"))
                held[name] = int(found) * 1024
        except (psutil.Error, OSError, ValueError):  # it has ended
            continue
    return held


@final
class Digger:
    """Gives the blocks of zeros in a folder's files back to the disk, as soon as a file has stood still for a while.

    Raises:
        ConfigurationError: this machine has no `fallocate`.
        RunFailedError: at the end, where the file system has no holes.
    """

    def __init__(self, folder: Path) -> None:
        if shutil.which("fallocate") is None:
            raise ConfigurationError("--holes needs the command fallocate (util-linux). Install it, or leave it out.")
        self._failure = ""
        self._folder = folder
        self._done: set[int] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._dig, name="digger", daemon=True)

    def __enter__(self) -> Digger:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(_DIG_S)
        if self._failure:
            raise RunFailedError(f"Blocks of zeros were not given back to the disk: {self._failure}")

    def _dig(self) -> None:
        while not self._end.wait(POLL_S):
            for parent, _, names in os.walk(self._folder):
                for name in names:
                    self._dig_file(Path(parent, name))

    def _dig_file(self, file: Path) -> None:
        try:
            found = file.lstat()
            still = time.time() - found.st_mtime > _STILL_S
            if found.st_ino in self._done or not still or found.st_size < _WORTH_BYTES:
                return
            subprocess.run(["fallocate", "--dig-holes", str(file)], check=True, timeout=_DIG_S)  # noqa: S603, S607
            self._done.add(found.st_ino)
        except (OSError, subprocess.SubprocessError) as error:
            if file.exists():  # else it is gone, or has another name, by which the next look finds it
                self._failure = str(error)


def _folder_bytes(folder: Path) -> int:
    """What its files take of the disk."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512  # noqa: PTH118 (many files, often)
            except OSError:  # it is gone
                continue
    return total
