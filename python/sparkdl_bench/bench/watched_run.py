"""A training run in a process of its own, whose processes are looked at again and again until it ends."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from sparkdl_bench.errors import RunFailedError
from sparkdl_bench.peers._process import MARK, marked, stop_all

_MOST_SAID = 2000  # characters of an error, the last ones


def train(conf: Path, timeout_s: float, look: Callable[[Sequence[psutil.Process]], None], every_s: float) -> None:
    """Trains as the run file says; whatever it started is gone when this returns or raises.

    Args:
        look: gets the run's living processes.
        every_s: pause between two looks.

    Raises:
        RunFailedError: it failed, or took too long.
    """
    mark = secrets.token_hex(8)
    with tempfile.TemporaryFile("w+") as log:
        child = subprocess.Popen(  # noqa: S603 (the command is ours)
            [sys.executable, "-m", "sparkdl_bench", "run", str(conf)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, MARK: mark},
            start_new_session=True,
        )
        deadline = time.monotonic() + timeout_s
        try:
            while child.poll() is None and time.monotonic() < deadline:
                look(marked(mark))
                time.sleep(every_s)
            timed_out = child.poll() is None
        finally:
            stop_all(child, mark)
        if timed_out or child.returncode != 0:
            log.seek(0)
            reason = f"took longer than {timeout_s:.0f} s" if timed_out else f"ended with status {child.returncode}"
            raise RunFailedError(f"The watched run {reason}. It last said: {log.read()[-_MOST_SAID:].strip()}")


def role(command_line: Sequence[str]) -> str:
    """`driver`, or `executor` and its number; empty for a process that is neither."""
    if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in command_line:
        return f"executor {command_line[command_line.index('--executor-id') + 1]}"
    return "driver" if "org.apache.spark.deploy.SparkSubmit" in command_line else ""
