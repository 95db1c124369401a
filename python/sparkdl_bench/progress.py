"""How far a run is: the numbers, and the two ways to show them."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bar

from sparkdl_bench import signals

_LINE_SECONDS = 1.0
_HTML_SECONDS = 0.5


@dataclass(frozen=True)
class Progress:
    """One moment of a run, as the JVM tells it. What is not known yet is None.

    Attributes:
        state: `running`, `done`, `failed`, `diverged` or `cancelled`.
        loss: mean training loss of the last step, nats.
        test_accuracy: of the last evaluation, 0 to 1; None of a regression, which has `test_rmse` and `test_r2`.
        cores: processor cores that driver and executors use together.
        resident_bytes: what they hold in memory together.
        error: why the run failed, one paragraph.
        error_kind: `configuration` where the user can fix it (a rank found out what nobody could tell before), else
            `diverged` or `run`.
        results: the run's folder.
        doing: what it does where it makes no steps, such as "waiting for 5 slots, 2 registered"; "training" else.
        notices: what happened to it, such as an executor that stopped, a line each.
    """

    state: str
    epoch: int = 0
    epochs: int = 0
    step: int = 0
    steps: int = 0
    loss: float | None = None
    test_accuracy: float | None = None
    test_rmse: float | None = None
    test_r2: float | None = None
    rows_per_second: float | None = None
    seconds_left: float | None = None
    cores: float | None = None
    resident_bytes: int | None = None
    error: str | None = None
    error_kind: str | None = None
    results: str | None = None
    doing: str | None = None
    notices: Sequence[str] = ()

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Progress:
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in record.items() if name in known and value is not None})

    def describe(self) -> str:
        """One line: epoch, step, loss, accuracy, rows per second, time left."""
        waits = self.waiting()
        if waits and not self.step:
            return waits
        parts = [f"epoch {self.epoch}/{self.epochs}", f"step {self.step:,}/{self.steps:,}", *self.measures()]
        return "  ".join([*parts, f"({waits})"] if waits else parts)

    def waiting(self) -> str:
        """What a running run does where it makes no steps; empty where it trains."""
        return self.doing if self.state == "running" and self.doing and self.doing != "training" else ""

    def measures(self) -> list[str]:
        parts = []
        if self.loss is not None:
            parts.append(f"loss {self.loss:.4f}")
        if self.test_accuracy is not None:
            parts.append(f"test accuracy {self.test_accuracy:.2%}")
        if self.test_rmse is not None:
            parts.append(f"test RMSE {self.test_rmse:.4g}")
        if self.test_r2 is not None:
            parts.append(f"R² {self.test_r2:.4f}")
        if self.rows_per_second:
            parts.append(f"{self.rows_per_second:,.0f} rows/s")
        if self.seconds_left is not None:
            parts.append(f"{duration(self.seconds_left)} left")
        return parts

    def use(self) -> list[str]:
        """What the run uses now."""
        parts = []
        if self.cores is not None:
            parts.append(f"{self.cores:.1f} cores")
        if self.resident_bytes:
            parts.append(f"{self.resident_bytes / 2**30:.2f} GiB")
        return parts


@contextmanager
def shown(stream: IO[str]) -> Iterator[Callable[[Progress], None]]:
    """Shows progress: as HTML in a notebook; else on `stream`, a bar on a terminal, or lines, at most one a second.

    Lines begin with the seconds since the command began. What happens to the run is told at once, in a line of its own.
    """
    if in_notebook():
        yield _html()
        return
    console = Console(file=stream)
    if console.is_terminal:
        with _bar(console) as show:
            yield show
    else:
        yield _lines(stream)


@contextmanager
def decoding(stream: IO[str]) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Shows what the start of a run waits for, such as executors, or how far a set is decoded.

    A bar on a terminal, else a line at the beginning and one a second.
    """
    console = Console(file=stream)
    if not console.is_terminal or in_notebook():
        yield _decoding_lines(stream)
        return
    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %  {task.fields[rows]} rows"),
    ]
    with Bar(*columns, console=console, transient=True) as bar:
        task: TaskID | None = None

        def show(now: Mapping[str, Any]) -> None:
            nonlocal task
            if not now:
                return
            if task is None:
                task = bar.add_task("starting", total=None, rows="0")
            if "waiting" in now:
                bar.update(task, description=now["waiting"])
                return
            decoded = {"total": now["parts"], "completed": now["done"], "rows": f"{now['rows']:,}"}
            bar.update(task, description=f"decodes {now['source']}", **decoded)

        yield show


def _decoding_lines(stream: IO[str]) -> Callable[[Mapping[str, Any]], None]:
    last: tuple[float, Any] | None = None

    def show(now: Mapping[str, Any]) -> None:
        nonlocal last
        seconds = time.monotonic()
        what = now.get("waiting") or now.get("done")
        if now and (last is None or (seconds - last[0] >= _LINE_SECONDS and what != last[1])):
            last = (seconds, what)
            decoded = "waiting" not in now and (
                f"decodes {now['source']}: {now['done']} of {now['parts']} parts, {now['rows']:,} rows"
            )
            stream.write(f"{since_start()}{decoded or now['waiting']}\n")
            stream.flush()

    return show


@contextmanager
def _bar(console: Console) -> Iterator[Callable[[Progress], None]]:
    columns = [
        TextColumn("epoch {task.fields[epoch]}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %  {task.fields[measures]}"),
    ]
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("run", total=None, epoch="–", measures="starting")
        told = 0

        def show(progress: Progress) -> None:
            nonlocal told
            for notice in progress.notices[told:]:
                console.print(notice, highlight=False, markup=False)
            told = len(progress.notices)
            bar.update(
                task,
                total=progress.steps or None,
                completed=progress.step,
                epoch=f"{progress.epoch}/{progress.epochs}",
                measures=_all_of(progress),
            )

        yield show


def _all_of(progress: Progress) -> str:
    waits = [progress.waiting()] if progress.waiting() else []
    return "  ".join([*progress.measures(), *progress.use(), *waits]) or "starting"


def in_notebook() -> bool:
    """True in a Jupyter kernel, where what is displayed may be HTML."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return getattr(shell, "kernel", None) is not None


def _html() -> Callable[[Progress], None]:
    """One output of the cell, written anew at most twice a second, and at the end."""
    from IPython.display import HTML, display

    handle = display(HTML(page_of(Progress("running"))), display_id=True)
    last_seconds = time.monotonic()

    def show(progress: Progress) -> None:
        nonlocal last_seconds
        now = time.monotonic()
        if progress.state != "running" or now - last_seconds >= _HTML_SECONDS:
            last_seconds = now
            handle.update(HTML(page_of(progress)))

    return show


def page_of(progress: Progress) -> str:
    """A moment as HTML: a bar with its text, readable without its colours; below it what happened to the run."""
    is_known = bool(progress.step or progress.waiting())
    text = "  ·  ".join([*progress.describe().split("  "), *progress.use()]) if is_known else "starting"
    state = "" if progress.state == "running" else f"{progress.state}: "
    notices = "".join(f"<div>{html.escape(notice)}</div>" for notice in progress.notices)
    where = f"<div>{html.escape(progress.results)}</div>" if progress.results and progress.state != "running" else ""
    return (
        f'<div role="status"><progress max="{max(1, progress.steps)}" value="{progress.step}" style="width:100%">'
        f"</progress><div>{html.escape(state + text)}</div>{notices}{where}</div>"
    )


def _lines(stream: IO[str]) -> Callable[[Progress], None]:
    last_seconds = -_LINE_SECONDS
    last: tuple[int, str] = (0, "")
    told = 0

    def show(progress: Progress) -> None:
        nonlocal last_seconds, last, told
        now = time.monotonic()
        for notice in progress.notices[told:]:
            stream.write(f"{since_start()}{notice}\n")
        told = len(progress.notices)
        # A run that lost executors goes back to a checkpoint, or to its beginning. The end is told whenever it comes.
        moment = (progress.step, progress.waiting())
        ended = progress.state != "running" and progress.step > 0
        if (progress.step or progress.waiting()) and moment != last and (ended or now - last_seconds >= _LINE_SECONDS):
            last_seconds, last = now, moment
            stream.write(f"{since_start()}{progress.describe()}\n")
        stream.flush()

    return show


def since_start() -> str:
    """How long a user has waited, before a line: seconds since the command began; nothing in a program of their own."""
    return f"{signals.seconds():.0f} s  " if signals.installed() else ""


def tell(line: str) -> None:
    """A line of a command's progress, on a terminal too: its bar begins only when Spark is there."""
    if signals.installed():
        sys.stderr.write(f"{since_start()}{line}\n")
        sys.stderr.flush()


def duration(seconds: float) -> str:
    """`75` as `1:15 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"
