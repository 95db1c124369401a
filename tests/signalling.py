"""Sends signals to commands at chosen moments, and looks at what is left of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
_MARK = "SPARKDL_TEST_SIGNALS"
_HANDLED_S, _ENDED_S, _GONE_S = 60.0, 60.0, 15.0


@dataclass(frozen=True)
class Ended:
    """What became of a command.

    Attributes:
        left: the processes that it left.
        seconds: from the signal to its end.
        hit: whether the signal came before it had ended by itself.
    """

    status: int
    stdout: str
    stderr: str
    left: tuple[str, ...]
    seconds: float
    hit: bool

    @property
    def lines(self) -> list[str]:
        """Of standard error, beyond progress."""
        return [line for line in self.stderr.splitlines() if line.strip() and not is_progress(line)]


def is_progress(line: str) -> bool:
    """A line of progress begins with the seconds since the command began, or says what is being done …"""
    seconds, unit, _ = (line + "  ").split(" ", 2)
    return (unit == "s" and seconds.isdigit()) or line.endswith("…") or " cells into " in line


def interrupt(
    command: Sequence[str],
    number: int,
    after: float,
    *,
    to_group: bool = False,
    environment: Mapping[str, str] | None = None,
    handled: bool = True,
) -> Ended:
    """Starts a command in a session of its own, and signals it.

    Args:
        after: seconds, since the command handles signals (before that it is Python's start), or else since its start.
        to_group: whether the whole process group gets the signal, as from a terminal or a scheduler.
        handled: whether to wait until the command handles signals, or ignores SIGHUP as under `nohup`.
    """
    mark = f"{os.getpid()}-{time.time_ns()}"
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "SPARK_LOCAL_IP": "127.0.0.1", _MARK: mark}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            list(command),
            cwd=ROOT,
            env={**variables, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            # Under nohup they would inherit that SIGHUP is ignored.
            preexec_fn=_heed_hang_ups,
        )
        try:
            if handled:
                _await_handler(process)
            hit = False
            try:
                process.wait(after)
            except subprocess.TimeoutExpired:
                hit = True
                (os.killpg if to_group else os.kill)(process.pid, number)
            sent = time.monotonic()
            status = process.wait(_ENDED_S)
            seconds = time.monotonic() - sent
            left = _left(mark)
        finally:
            for each in [process, *_marked(mark)]:
                each.kill()
            process.wait()
        out.seek(0)
        err.seek(0)
        return Ended(status, out.read(), err.read(), left, seconds, hit)


def sparkdl_bench(*words: str) -> list[str]:
    return [sys.executable, "-m", "sparkdl_bench", *words]


def _heed_hang_ups() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _await_handler(process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _HANDLED_S
    bit = 1 << (signal.SIGHUP - 1)  # the last to be handled
    while process.poll() is None and time.monotonic() < deadline:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigCgt:", "SigIgn:"))]
        if any(mask & bit for mask in masks):
            return
        time.sleep(0.002)


def _left(mark: str) -> tuple[str, ...]:
    deadline = time.monotonic() + _GONE_S
    while (found := _marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return tuple(_told(process) for process in found)


def _told(process: psutil.Process) -> str:
    try:
        return f"{process.pid}: {' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return str(process.pid)


def _marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(_MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found
