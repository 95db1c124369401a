"""Runs a program of a test to its end, its output in one text, as a terminal shows it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_SECONDS = 900
_SHOWN = 6000


def our_environment(**more: str) -> dict[str, str]:
    """This process's environment, with the checkout's package and nothing that listens beyond loopback."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "python"), "SPARK_LOCAL_IP": "127.0.0.1", **more}


def execute(
    command: Sequence[str | Path],
    environment: Mapping[str, str],
    cwd: Path = ROOT,
    *,
    status: int = 0,
    timeout: float = TIMEOUT_SECONDS,
    logs: Path | None = None,
) -> str:
    """The program's output; a failed test that shows its end where the exit status is another.

    Args:
        timeout: seconds.
        logs: a folder of results, whose Spark logs are shown as well.
    """
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode != status:
        written = sorted(logs.glob("*/spark.log")) if logs else []
        shown = [done.stdout[-_SHOWN:], *(path.read_text(errors="replace")[-_SHOWN:] for path in written)]
        raise AssertionError(f"{' '.join(map(str, command))}: exit status {done.returncode}\n" + "".join(shown))
    return done.stdout


def assert_refused(output: str, reason: str) -> None:
    """`output` is a reason for the user, without a JVM's stack."""
    assert reason in output, output[-_SHOWN:]
    assert "\tat " not in output, output[-_SHOWN:]
