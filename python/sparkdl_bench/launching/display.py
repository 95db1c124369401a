"""Shows a launch while it runs: what its ranks print, each line with its rank, and the newest numbers they report."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

from sparkdl_bench import progress
from sparkdl_bench.launching.capture import STDERR, Line

_LINE_SECONDS = 1.0
_PAGE_SECONDS = 0.5
# Of numbers beside step, epoch and loss.
_MOST_NUMBERS = 6


class Display:
    """Lines go to this process's own streams, as they were printed; the numbers to standard error.

    The numbers of the lowest rank that reports any are shown: on a terminal in its last line, in a notebook below the
    cell, elsewhere in a line of their own, at most once a second.

    Args:
        numbers: whether to show them where nobody sits at a terminal or notebook.
    """

    def __init__(self, workers: int, numbers: bool) -> None:
        self._workers = workers
        self._terminal = sys.stderr.isatty()
        self._notebook = progress.in_notebook()
        self._numbers = numbers or self._terminal or self._notebook
        self._rank: int | None = None
        self._last: dict[str, Any] = {}
        self._said = ""
        self._shown_s = 0.0
        self._drawn = False
        self._handle: Any = None

    def printed(self, rank: int, lines: Sequence[Line], left_out: int) -> None:
        self._clear()
        head = f"[rank {rank}] "
        if left_out:
            _put(sys.stderr, f"{head}[{left_out} lines left out: they came faster than they could be sent]")
        for name, text in lines:
            _put(sys.stderr if name == STDERR else sys.stdout, head + text)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self._draw(again=True)

    def reported(self, rank: int, report: Mapping[str, Any]) -> None:
        if self._rank is None or rank < self._rank:
            self._rank, self._last = rank, {}
        if rank == self._rank:
            self._last.update(report)
            self._draw()

    def noticed(self, line: str) -> None:
        self._clear()
        _put(sys.stderr, progress.since_start() + line)
        sys.stderr.flush()

    def end(self) -> None:
        """The last numbers stay, in a line of their own."""
        if self._numbers and self._last and not self._notebook and described(self._last) != self._said:
            self._clear()
            _put(sys.stderr, progress.since_start() + described(self._last))
        elif self._drawn:
            sys.stderr.write("\n")
        self._drawn = False
        if self._notebook and self._last:
            self._page()
        sys.stderr.flush()

    def _draw(self, again: bool = False) -> None:
        if not self._numbers or not self._last:
            return
        now = time.monotonic()
        if self._terminal and (again or now - self._shown_s >= _PAGE_SECONDS):
            self._shown_s, self._drawn = now, True
            sys.stderr.write(f"\r\x1b[K{described(self._last)[:120]}")
            sys.stderr.flush()
        elif self._notebook and not again and now - self._shown_s >= _PAGE_SECONDS:
            self._shown_s = now
            self._page()
        elif not self._terminal and not self._notebook and not again and now - self._shown_s >= _LINE_SECONDS:
            self._shown_s, self._said = now, described(self._last)
            _put(sys.stderr, progress.since_start() + self._said)
            sys.stderr.flush()

    def _clear(self) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            self._drawn = False

    def _page(self) -> None:
        from IPython.display import HTML, display

        page = HTML(f'<div role="status">{html.escape(described(self._last))}</div>')
        if self._handle is None:
            self._handle = display(page, display_id=True)
        else:
            self._handle.update(page)


@contextmanager
def shown(workers: int, numbers: bool) -> Iterator[Display]:
    display = Display(workers, numbers)
    try:
        yield display
    finally:
        display.end()


def described(numbers: Mapping[str, Any]) -> str:
    """`epoch 1  step 20  loss 0.6931  test_accuracy 0.91`."""
    first = [f"{name} {_text(numbers[name])}" for name in ("epoch", "step", "loss") if name in numbers]
    others = [f"{name} {_text(value)}" for name, value in numbers.items() if name not in ("epoch", "step", "loss")]
    return "  ".join([*first, *others[:_MOST_NUMBERS]])


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)


def _put(stream: IO[str], line: str) -> None:
    stream.write(line + "\n")
