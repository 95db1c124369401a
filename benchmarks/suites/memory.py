"""Resident memory of executors and driver during one long run: a leak shows as growth between two steps."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click
import psutil
from rich.table import Table

from sparkdl_bench import statistics
from sparkdl_bench.bench import contestant, store, watched_run
from sparkdl_bench.bench.suite import data_option, results_option, warn_if_busy
from sparkdl_bench.console import default_console
from sparkdl_bench.errors import ConfigurationError, RunFailedError
from sparkdl_bench.peers import TrainCase
from suites import models

NAME = "memory"
GROWTH_LIMIT = 0.05
POLL_S = 0.5
WORKERS = 2
# Two rows per worker: thousands of steps of a large net in minutes, and all its buffers are there.
FEW_ROWS = 4
MNIST_SHAPE = (1, 28, 28)


@dataclass(frozen=True)
class MemoryPlan:
    """One run of a little more than `last_step` steps. Growth is between the windows around the two steps.

    Attributes:
        model: a net of `make bench-models`, with that suite's row shape and executor memory.
        batch: rows per step over both workers.
    """

    transport: str = "block-manager"
    first_step: int = 500
    last_step: int = 5000
    data: str = "synthetic"
    trials: int = 1
    model: str = "mlp"
    batch: int = 128

    def __post_init__(self) -> None:
        if self.first_step >= self.last_step:
            raise ConfigurationError(
                f"The first step is {self.first_step} and the last is {self.last_step}; growth is measured from an "
                "earlier to a later one. Lower --first-step or raise --last-step."
            )

    @property
    def title(self) -> str:
        return f"{self.model} over {self.transport}, steps {self.first_step:,} and {self.last_step:,}"


@dataclass(frozen=True)
class Growth:
    """Resident bytes of one process at the two steps, each the median of a window of samples."""

    process: str
    first_bytes: float
    last_bytes: float

    @property
    def share(self) -> float:
        return self.last_bytes / self.first_bytes - 1

    @property
    def met(self) -> bool:
        return self.share < GROWTH_LIMIT


@dataclass(frozen=True)
class Resident:
    """What the processes of one run held: at `times_s` (Unix time), `bytes_by_process` (None: not there then)."""

    times_s: list[float]
    bytes_by_process: dict[str, list[int | None]]


@click.command(NAME)
@click.option("--transport", default="block-manager", show_default=True, help="Transport of the run.")
@click.option("--model", default="mlp", show_default=True, help="A net of `bench models`, such as resnet-18.")
@click.option(
    "--batch",
    type=click.IntRange(WORKERS),
    help=f"Rows per step [default: the net's own; {FEW_ROWS} where it has convolutions].",
)
@click.option("--first-step", type=click.IntRange(1), default=500, show_default=True)
@click.option("--last-step", type=click.IntRange(2), default=5000, show_default=True)
@data_option
@results_option
@click.option("--timeout", "timeout_s", type=click.FloatRange(1), default=1800.0, show_default=True, help="Seconds.")
def command(
    transport: str,
    model: str,
    batch: int | None,
    first_step: int,
    last_step: int,
    data_path: str,
    results: Path,
    timeout_s: float,
) -> None:
    """Resident memory of driver and executors between two steps of one run; it must grow less than 5 %."""
    plan = plan_of(model, transport, (first_step, last_step), batch, data_path)
    warn_if_busy()
    faults = exceeded(plan, measure(plan, data_path, results, timeout_s))
    if faults:
        raise RunFailedError(faults)


def plan_of(
    model: str, transport: str, steps: tuple[int, int], batch: int | None = None, data_path: str = ""
) -> MemoryPlan:
    """The plan for a net of the suite `models`; MNIST where the net takes such rows and `data_path` names them.

    Args:
        batch: rows per step; None: the net's own, or few where a step takes long, since memory is what is looked at.
    """
    net = models.net_of(model)
    rows = batch or (FEW_ROWS if net.is_convolutional else net.batch)
    data = "mnist" if data_path and net.shape == MNIST_SHAPE else "synthetic"
    return MemoryPlan(transport, *steps, data, model=net.name, batch=rows)


def case_of(plan: MemoryPlan, data_path: str) -> TrainCase:
    return replace(
        models.net_of(plan.model).case(WORKERS),
        batch=plan.batch,
        warmup_steps=0,
        steps=plan.last_step + plan.last_step // 20,
        rows=20_000,
        data_path=data_path if plan.data == "mnist" else "",
    )


def measure(plan: MemoryPlan, data_path: str, results: Path, timeout_s: float) -> list[Growth]:
    """Watch the plan's run, keep all samples in a file of `results`, and show the growth of each process."""
    file = store.create(results, NAME, asdict(plan))
    settings = {**models.net_of(plan.model).settings, "transport": plan.transport}
    with tempfile.TemporaryDirectory(prefix="sparkdl-bench-memory-") as name:
        folder = Path(name)
        conf = folder / "run.toml"
        conf.write_text(contestant.run_file(case_of(plan, data_path), name, settings), encoding="utf-8")
        resident = watch_run(conf, timeout_s)
        reached_s = step_times(contestant.only_run(folder / "results"))
    steps = (plan.first_step, plan.last_step)
    growths = [growth(process, resident, reached_s, steps) for process in resident.bytes_by_process]
    file.set("resident", asdict(resident))
    file.set("growth", [{**asdict(each), "share": each.share, "met": each.met} for each in growths])
    show(growths, plan)
    click.echo(f"All samples: {file.path}")
    return growths


def exceeded(plan: MemoryPlan, growths: Sequence[Growth]) -> str:
    """A sentence on the processes that have grown too much; empty where none has."""
    grown = [f"{each.process} by {each.share:.1%}" for each in growths if not each.met]
    if not grown:
        return ""
    return (
        f"Resident memory has grown ({plan.title}): {', '.join(grown)}; less than {GROWTH_LIMIT:.0%} is allowed. "
        "docs/performance.md says what makes it grow; on a busy machine measure again."
    )


def watch_run(conf: Path, timeout_s: float) -> Resident:
    """Train as `conf` says in a process of its own and look at its processes' resident memory twice a second."""
    resident = Resident([], {})
    watched_run.train(conf, timeout_s, lambda processes: _look(processes, resident), POLL_S)
    return resident


def step_times(folder: Path) -> list[float]:
    """When each step ended (Unix time): the steps' lengths, added up backwards from the end of their epoch."""
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    starts = [event["time_ms"] / 1e3 for event in events if event["key"] == "epoch_start"]
    steps_ms: list[float] = json.loads((folder / "steps.json").read_text(encoding="utf-8"))
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    per_epoch = -(-int(run["data"]["train_rows"]) // int(run["configuration"]["batch"]))
    times: list[float] = []
    for step, length_ms in enumerate(steps_ms):
        before = starts[step // per_epoch] if step % per_epoch == 0 else times[-1]
        times.append(before + length_ms / 1e3)
    return times


def growth(process: str, resident: Resident, reached_s: Sequence[float], steps: tuple[int, int]) -> Growth:
    """Median resident memory in a window of ± 5 % of the last step around each of the two steps."""
    half = max(1, steps[1] // 20)
    held = []
    for step in steps:
        begin, end = (reached_s[min(max(0, each), len(reached_s) - 1)] for each in (step - half, step + half))
        pairs = zip(resident.times_s, resident.bytes_by_process[process], strict=True)
        window = [size for moment, size in pairs if size is not None and begin <= moment <= end]
        if not window:
            raise RunFailedError(
                f"No sample of the memory of {process} lies around step {step}: the run is too fast for a look every "
                f"{POLL_S} s, or the process was not there. Choose a larger --last-step."
            )
        held.append(statistics.median(window))
    return Growth(process, held[0], held[1])


def show(growths: Sequence[Growth], plan: MemoryPlan) -> None:
    table = Table(title=f"Resident memory, {plan.title}")
    for heading in ("process", f"MB at {plan.first_step}", f"MB at {plan.last_step}", "growth", "target", "met"):
        table.add_column(heading, justify="left" if heading == "process" else "right")
    for each in growths:
        met = "[green]yes[/green]" if each.met else "[red]no[/red]"
        sizes = (f"{each.first_bytes / 1e6:.0f}", f"{each.last_bytes / 1e6:.0f}")
        table.add_row(each.process, *sizes, f"{each.share:+.1%}", f"< {GROWTH_LIMIT:.0%}", met)
    default_console().print(table)


def _look(processes: Sequence[psutil.Process], resident: Resident) -> None:
    sizes = _sizes(processes)
    resident.times_s.append(time.time())
    for name in sorted({*resident.bytes_by_process, *sizes}):
        column = resident.bytes_by_process.setdefault(name, [None] * (len(resident.times_s) - 1))
        column.append(sizes.get(name))


def _sizes(processes: Sequence[psutil.Process]) -> Mapping[str, int]:
    """Resident bytes of the driver's JVM and of each executor; short-lived helpers are left out."""
    sizes: dict[str, int] = {}
    for process in processes:
        try:
            name = watched_run.role(process.cmdline())
            if name:
                sizes[name] = process.memory_info().rss
        except psutil.Error:
            continue
    return sizes
