"""A standalone Spark cluster on loopback: one master, and workers that offer one core each."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_TIMEOUT_S = 60.0


@contextmanager
def standalone_cluster(workers: int, memory_mb: int, folder: Path) -> Iterator[str]:
    """Start it and yield its `spark://` address once every worker has registered; stop it afterwards."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        log = folder / "master.log"
        started.append(_start("master.Master", ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"], log))
        master = _wait_for(log, r"Starting Spark master at (spark://\S+)")
        for index in range(workers):
            # One folder a worker: they name their executors' folders alike.
            options = ["--host", "127.0.0.1", "--cores", "1", "--memory", f"{memory_mb}M", "--webui-port", "0"]
            work = ["--work-dir", str(folder / f"worker-{index}"), master]
            started.append(_start("worker.Worker", [*options, *work], folder / f"worker-{index}.log"))
        for index in range(workers):
            _wait_for(folder / f"worker-{index}.log", r"(Successfully registered with master)")
        yield master
    finally:
        for process in started:
            process.terminate()
        for process in started:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()


def _start(name: str, options: list[str], log: Path) -> subprocess.Popen[bytes]:
    program = Path(os.environ["SPARK_HOME"], "bin", "spark-class")
    with log.open("wb") as out:
        return subprocess.Popen(  # noqa: S603 (the command is ours)
            [str(program), f"org.apache.spark.deploy.{name}", *options], stdout=out, stderr=subprocess.STDOUT
        )


def _wait_for(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found.group(1)
        time.sleep(0.1)
    said = log.read_text(errors="replace")[-800:]
    raise SystemExit(f"'{pattern}' did not appear in {log.name} within {START_TIMEOUT_S:.0f} s: {said}")
