"""Runs what is missing of a comparison, cell by cell, and shows how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timezone
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from sparkdl_bench import machine
from sparkdl_bench.comparison.cells import Cell
from sparkdl_bench.comparison.execute import Executor
from sparkdl_bench.comparison.store import ComparisonFolder
from sparkdl_bench.progress import duration

Tell = Callable[[str], None]


class Estimate:
    """How long the rest will take: the mean of a group's cells so far, or of all where it has none yet."""

    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = {}

    def add(self, group: str, seconds: float) -> None:
        self._seconds.setdefault(group, []).append(seconds)

    def seconds_left(self, cells: Sequence[Cell]) -> float | None:
        everything = [value for values in self._seconds.values() for value in values]
        if not everything:
            return None
        mean = sum(everything) / len(everything)
        known = {group: sum(values) / len(values) for group, values in self._seconds.items()}
        return sum(known.get(cell.group, mean) for cell in cells)


class Display:
    """A bar on a terminal; plain lines otherwise."""

    def __init__(self, tell: Tell, bar: Bar | None, count: int) -> None:
        self._tell, self._bar = tell, bar
        self._task = bar.add_task("compare", total=count, left="", doing="") if bar else None

    def tell(self, line: str) -> None:
        if self._bar:
            self._bar.console.print(line, highlight=False, markup=False)
        else:
            self._tell(line)

    def begin(self, done: int, cell: Cell, seconds_left: float | None) -> None:
        if self._bar and self._task is not None:
            left = "" if seconds_left is None else f"{duration(seconds_left)} left"
            self._bar.update(self._task, completed=done, doing=f"{cell.group}, trial {cell.trial}", left=left)


@contextmanager
def shown(stream: IO[str], count: int) -> Iterator[Display]:
    """Shows progress on `stream`."""
    console = Console(file=stream)
    if not console.is_terminal:
        yield Display(lambda line: print(line, file=stream, flush=True), None, count)
        return
    columns = [
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.fields[doing]}", markup=False),
    ]
    with Bar(*columns, console=console, transient=True) as bar:
        yield Display(lambda _: None, bar, count)


def run_cells(
    cells: Sequence[Cell],
    folder: ComparisonFolder,
    executor: Executor,
    display: Display,
    *,
    retry_failed: bool = False,
    until: float | None = None,
    begun_until: float | None = None,
) -> None:
    """Runs the cells that have no record yet, in this order; each record is kept before the next cell starts.

    Args:
        retry_failed: whether cells that have failed before run again.
        until: when to end, by the monotonic clock: no cell is begun that would probably end after it, once each group
            has been measured.
        begun_until: when to begin no more cells, by the same clock, whatever has been measured.
    """
    estimate = Estimate()
    todo = []
    for cell in cells:
        found = folder.record(cell) if folder.has(cell) else None
        if found and not (retry_failed and found["status"] == "failed"):
            estimate.add(cell.group, float(found["seconds"]))
        else:
            todo.append(cell)
    done = len(cells) - len(todo)
    if done:
        display.tell(f"{done} of {len(cells)} cells are there already.")
    try:
        for index, cell in enumerate(todo):
            if begun_until is not None and time.monotonic() >= begun_until:
                display.tell(f"The time is over: {done + index} of {len(cells)} trials are measured.")
                break
            if until is not None and _is_over(cell, cells, folder, estimate, until):
                display.tell(f"The time is over: {done + index} of {len(cells)} trials are measured.")
                break
            display.begin(done + index, cell, _until(estimate.seconds_left(todo[index:]), until))
            folder.forget(cell)
            record = _timed(cell, executor)
            folder.add(cell, record)
            estimate.add(cell.group, float(record["seconds"]))
            rest = todo[index + 1 :]
            left = _until(estimate.seconds_left(rest), until) if rest else None
            display.tell(f"[{done + index + 1}/{len(cells)}] {describe(record)}{_left(left)}")
    finally:
        executor.close()


def _until(left_s: float | None, until: float | None) -> float | None:
    """What is left, where the time may be over before."""
    if left_s is None or until is None:
        return left_s
    return max(0.0, min(left_s, until - time.monotonic()))


def _is_over(cell: Cell, cells: Sequence[Cell], folder: ComparisonFolder, estimate: Estimate, until: float) -> bool:
    measured = {each.group for each in cells if folder.has(each)}
    if measured != {each.group for each in cells}:
        return False
    return time.monotonic() + (estimate.seconds_left([cell]) or 0.0) > until


def describe(record: Mapping[str, Any]) -> str:
    """One line of a finished cell."""
    trial = f"warm-up {1 - record['trial']}" if record["warmup"] else f"trial {record['trial']}"
    head = f"{record['group']}, {trial}: "
    if record["status"] != "success":
        return f"{head}FAILED. {record['error']}"
    numbers = record["metrics"]
    waited = numbers.get("seconds_waited")  # what reports count, where each run is a command of its own
    parts = [f"{numbers['seconds_total']:.1f} s" if waited is None else f"{waited:.1f} s from the command"]
    if numbers["ms_per_step"] is not None:
        parts.append(f"{numbers['ms_per_step']:.2f} ms per step")
    if numbers["test_accuracy"] is not None:
        parts.append(f"test accuracy {numbers['test_accuracy']:.2%}")
    if numbers.get("test_rmse") is not None:
        parts.append(f"test RMSE {numbers['test_rmse']:.4g}")
    if numbers["seconds_to_accuracy"] is not None:
        parts.append(f"{numbers['seconds_to_accuracy']:.1f} s to the target")
    if record["load"].get("busy", 0.0) > machine.BUSY_LIMIT:
        parts.append(f"the machine was {record['load']['busy']:.0%} busy before")
    return head + ", ".join(parts)


def _timed(cell: Cell, executor: Executor) -> dict[str, Any]:
    load = asdict(machine.load())
    started = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    start = time.monotonic()
    record = executor.run(cell)
    return {"started": started, "seconds": round(time.monotonic() - start, 2), "load": load, **record}


def _left(seconds: float | None) -> str:
    return "" if seconds is None else f" ({duration(seconds)} left)"
