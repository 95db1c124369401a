"""How far a run is: the numbers, and the two ways to show them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

_LINE_SECONDS = 1.0


@dataclass(frozen=True)
class Progress:
    """One moment of a run, as the JVM tells it. What is not known yet is None.

    Attributes:
        state: `running`, `done`, `failed` or `cancelled`.
        loss: mean training loss of the last step, nats.
        test_accuracy: of the last evaluation, 0 to 1.
        error: why the run failed, one paragraph.
        results: the run's folder.
    """

    state: str
    epoch: int = 0
    epochs: int = 0
    step: int = 0
    steps: int = 0
    loss: float | None = None
    test_accuracy: float | None = None
    rows_per_second: float | None = None
    seconds_left: float | None = None
    error: str | None = None
    results: str | None = None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Progress:
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in record.items() if name in known and value is not None})

    def describe(self) -> str:
        """One line: epoch, step, loss, accuracy, rows a second, time left."""
        parts = [f"epoch {self.epoch}/{self.epochs}", f"step {self.step:,}/{self.steps:,}", *self.measures()]
        return "  ".join(parts)

    def measures(self) -> list[str]:
        parts = []
        if self.loss is not None:
            parts.append(f"loss {self.loss:.4f}")
        if self.test_accuracy is not None:
            parts.append(f"test accuracy {self.test_accuracy:.2%}")
        if self.rows_per_second:
            parts.append(f"{self.rows_per_second:,.0f} rows/s")
        if self.seconds_left is not None:
            parts.append(f"{_duration(self.seconds_left)} left")
        return parts


@contextmanager
def shown(stream: IO[str]) -> Iterator[Callable[[Progress], None]]:
    """Shows progress on `stream`: a bar on a terminal, else plain lines, at most one a second."""
    console = Console(file=stream)
    if console.is_terminal:
        with _bar(console) as show:
            yield show
    else:
        yield _lines(stream)


@contextmanager
def _bar(console: Console) -> Iterator[Callable[[Progress], None]]:
    columns = [
        TextColumn("epoch {task.fields[epoch]}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %  {task.fields[measures]}"),
    ]
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("run", total=None, epoch="–", measures="starting")

        def show(progress: Progress) -> None:
            bar.update(
                task,
                total=progress.steps or None,
                completed=progress.step,
                epoch=f"{progress.epoch}/{progress.epochs}",
                measures="  ".join(progress.measures()) or "starting",
            )

        yield show


def _lines(stream: IO[str]) -> Callable[[Progress], None]:
    last_seconds = -_LINE_SECONDS
    last_step = 0

    def show(progress: Progress) -> None:
        nonlocal last_seconds, last_step
        now = time.monotonic()
        if progress.step > last_step and now - last_seconds >= _LINE_SECONDS:
            last_seconds, last_step = now, progress.step
            stream.write(progress.describe() + "\n")
            stream.flush()

    return show


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"
