"""A second Spark job that keeps the machine's cores busy, as others' jobs do on a cluster that is shared."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparkdl_bench.errors import RunFailedError

_STARTS_S = 120.0
_ENDS_S = 20.0
_READY = "computing"


class OtherJobEndedError(RunFailedError):
    """The second job was not there to the end, so what ran beside it may have had the machine for itself."""


@contextmanager
def busy(cores: int) -> Iterator[None]:
    """A Spark application with so many cores computes until the context ends.

    Raises:
        RunFailedError: it does not come up.
        OtherJobEndedError: it has ended before the context does.
    """
    here = Path(__file__).resolve().parents[1]
    path = os.pathsep.join(filter(None, [str(here), os.environ.get("PYTHONPATH", "")]))
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(  # noqa: S603 (the command is ours)
            [sys.executable, "-m", "papers.busy", str(cores)],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _wait(process, log.fileno())
            yield
            if process.poll() is not None:
                raise OtherJobEndedError(
                    f"The second Spark job ended with status {process.returncode} while others ran. It said: "
                    f"{_said(log.fileno())[-500:]}"
                )
        finally:
            _end(process)


def compute(cores: int) -> None:
    """Sums for ever, on so many cores."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{cores}]").appName("busy").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    print(_READY, flush=True)
    while True:
        spark.range(0, 200_000_000, 1, cores).selectExpr("sum(sqrt(id) * sin(id))").collect()


def _wait(process: subprocess.Popen[bytes], log: int) -> None:
    ends = time.monotonic() + _STARTS_S
    while time.monotonic() < ends:
        said = _said(log)
        if _READY in said:
            return
        if process.poll() is not None:
            raise RunFailedError(f"The second Spark job ended with status {process.returncode}. It said: {said[-500:]}")
        time.sleep(0.2)
    raise RunFailedError(f"The second Spark job did not compute within {_STARTS_S:g} s.")


def _said(log: int) -> str:
    return os.pread(log, 100_000, 0).decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """With the JVM that it has started, which is of its session."""
    for number, patience in ((signal.SIGTERM, _ENDS_S), (signal.SIGKILL, _ENDS_S)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
    process.wait(_ENDS_S)


if __name__ == "__main__":
    compute(int(sys.argv[1]))
