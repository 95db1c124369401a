"""What a rank prints, taken at its file descriptors: what native code and child processes print counts, too.

Purpose: lines reach the driver while the rank runs. A thread reads both streams through pipes and hands whole lines on,
ten times a second at most. It is bounded: of a line the first 16 KiB, of what comes between two hand-overs the newest
96 KiB; what is left out is counted.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

STDOUT, STDERR = "stdout", "stderr"
Line = tuple[str, str]
"""The stream's name, and the line without its end."""

TICK_SECONDS = 0.1
LONGEST_LINE = 16 << 10
MOST_WAITING = 96 << 10
_READ = 64 << 10
# Linux's F_SETPIPE_SZ: a writer that holds Python's lock may write this much before anybody can read.
_SET_PIPE_SIZE, _PIPE_SIZE = 1031, 1 << 20
_LINE_BUFFERED = 1
# After the rank's own end: for what its child processes still print, and for a slow driver.
_LAST_SECONDS, _SLOW_SECONDS = 2.0, 30.0


class Lines:
    """Cuts one stream's bytes into lines. A carriage return overwrites, as on a terminal: progress bars do that."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._rest = b""
        self._shown_s = 0.0

    def feed(self, data: bytes) -> list[Line]:
        parts = (self._rest + data).split(b"\n")
        self._rest = parts.pop()
        found = [self._line(part) for part in parts]
        if len(self._rest) > LONGEST_LINE and b"\r" not in self._rest:
            found.append(self._line(self._rest))
            self._rest = b""
        return found

    def overwritten(self, now_s: float) -> list[Line]:
        """The newest state of a line that is written over and over; at most once a second."""
        done, again, rest = self._rest.rpartition(b"\r")
        if not again or now_s - self._shown_s < 1.0:
            if len(self._rest) > LONGEST_LINE:
                self._rest = self._rest[-LONGEST_LINE:]
            return []
        self._shown_s, self._rest = now_s, rest
        return [self._line(done)] if done.strip() else []

    def end(self) -> list[Line]:
        rest, self._rest = self._rest, b""
        return [self._line(rest)] if rest else []

    def _line(self, data: bytes) -> Line:
        shown = data.rstrip(b"\r").rpartition(b"\r")[2]
        text = shown[:LONGEST_LINE].decode("utf-8", "replace")
        return self._stream, text + (" […]" if len(shown) > LONGEST_LINE else "")


class Waiting:
    """Lines that wait to be handed on. Where there are too many, the oldest go: the last words matter most."""

    def __init__(self, most_bytes: int = MOST_WAITING) -> None:
        self._lines: deque[Line] = deque()
        self._most = most_bytes
        self._bytes = 0
        self._left_out = 0

    def add(self, lines: Sequence[Line]) -> None:
        for line in lines:
            self._lines.append(line)
            self._bytes += _size(line)
        while self._bytes > self._most and len(self._lines) > 1:
            self._bytes -= _size(self._lines.popleft())
            self._left_out += 1

    def take(self) -> tuple[list[Line], int]:
        """What waits, and how many lines before it were left out."""
        taken = list(self._lines), self._left_out
        self._lines.clear()
        self._bytes = self._left_out = 0
        return taken


def _size(line: Line) -> int:
    return len(line[1].encode()) + 1


@contextmanager
def captured(send: Callable[[Sequence[Line], int], None], tick: Callable[[], None] = lambda: None) -> Iterator[None]:
    """While it lasts, standard output and error of this process go to `send`, line by line.

    Args:
        send: called from another thread with lines, and how many lines before them were left out.
        tick: called from the same thread, ten times a second.
    """
    _flush()
    kept = {number: os.dup(number) for number in (1, 2)}
    reading: dict[int, Lines] = {}
    for number, name in ((1, STDOUT), (2, STDERR)):
        read_end, write_end = os.pipe()
        _widen(write_end)
        os.dup2(write_end, number)
        os.close(write_end)
        reading[read_end] = Lines(name)
    pump = _Pump(reading, send, tick)
    pump.start()
    try:
        with _line_buffered():
            yield
    finally:
        _flush()
        for number, copy in kept.items():
            os.dup2(copy, number)
            os.close(copy)
        pump.end()


class _Pump(threading.Thread):
    def __init__(
        self, reading: dict[int, Lines], send: Callable[[Sequence[Line], int], None], tick: Callable[[], None]
    ) -> None:
        super().__init__(name="sparkdl-output", daemon=True)
        self._reading = reading
        self._send = send
        self._tick = tick
        self._waiting = Waiting()
        self._ends_s: float | None = None

    def run(self) -> None:
        handed_on_s = 0.0
        left = dict(self._reading)
        while left:
            ends_s = self._ends_s  # before the look, which then sees all that was printed before the end
            ready, _, _ = select.select(list(left), [], [], TICK_SECONDS)
            for each in ready:
                data = os.read(each, _READ)
                self._waiting.add(left[each].feed(data) if data else left.pop(each).end())
            now_s = time.monotonic()
            if now_s - handed_on_s >= TICK_SECONDS:
                handed_on_s = now_s
                self._hand_on(now_s)
            if ends_s is not None and (not ready or now_s > ends_s):
                break  # a child process may hold the pipe open for long
        for lines in left.values():
            self._waiting.add(lines.end())
        self._hand_on(time.monotonic())

    def end(self) -> None:
        """Waits until all is read and handed on."""
        self._ends_s = time.monotonic() + _LAST_SECONDS
        self.join(_SLOW_SECONDS)
        if not self.is_alive():
            for each in self._reading:
                os.close(each)

    def _hand_on(self, now_s: float) -> None:
        for lines in self._reading.values():
            self._waiting.add(lines.overwritten(now_s))
        lines_, left_out = self._waiting.take()
        # A driver that is gone ends the task by itself. Whoever prints must not wait for a reader meanwhile.
        with suppress(Exception):
            if lines_:
                self._send(lines_, left_out)
            self._tick()


@contextmanager
def _line_buffered() -> Iterator[None]:
    """Python's and C's own streams hand on each line when it ends, as on a terminal."""
    streams: list[Any] = [stream for stream in (sys.stdout, sys.stderr) if hasattr(stream, "reconfigure")]
    before = [stream.line_buffering for stream in streams]
    for stream in streams:
        stream.reconfigure(line_buffering=True)
    with suppress(OSError, ValueError, AttributeError):  # a C library that names its streams in another way
        library = ctypes.CDLL(None)
        for name in (STDOUT, STDERR):
            library.setvbuf(ctypes.c_void_p.in_dll(library, name), None, _LINE_BUFFERED, 0)
    try:
        yield
    finally:
        for stream, was in zip(streams, before, strict=True):
            with suppress(ValueError):  # the user's code may have closed it
                stream.reconfigure(line_buffering=was)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)


def _widen(pipe: int) -> None:
    import fcntl

    with suppress(OSError):  # not Linux, or more than this user may have
        fcntl.fcntl(pipe, _SET_PIPE_SIZE, _PIPE_SIZE)
