"""A real standalone Spark cluster on the loopback device: one master and its workers, each a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

SPARK_HOME = Path(pyspark.__file__).parent
START_TIMEOUT_SECONDS = 90
_LOOPBACK = "127.0.0.1"


def spark_environment(**extra: str) -> dict[str, str]:
    """The environment for Spark's own scripts: this pyspark's jars, nothing listening beyond loopback."""
    return {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": _LOOPBACK,
        "SPARK_NO_DAEMONIZE": "1",
        **extra,
    }


@contextmanager
def standalone_cluster(folder: Path, *, workers: int, cores: int = 1, memory: str = "2g") -> Iterator[str]:
    """Starts a master and `workers` workers, gives the master's address, and ends them all."""
    with ExitStack() as stack:
        arguments = ["org.apache.spark.deploy.master.Master", "--host", _LOOPBACK, "--port", "0", "--webui-port", "0"]
        master = stack.enter_context(_daemon(arguments, folder / "master.log"))
        address = _wait_for(master, folder / "master.log", r"Starting Spark master at (spark://\S+)\n")
        for number in range(workers):
            stack.enter_context(standalone_worker(folder, address, number, cores=cores, memory=memory))
        yield address


@contextmanager
def standalone_worker(
    folder: Path, address: str, number: int, *, cores: int = 1, memory: str = "2g"
) -> Iterator[subprocess.Popen[bytes]]:
    """One more worker for the master at `address`, which SIGPWR decommissions; gives its process and ends it."""
    log = folder / f"worker-{number}.log"
    arguments = ["org.apache.spark.deploy.worker.Worker", "--host", _LOOPBACK, "--webui-port", "0"]
    arguments += ["--cores", str(cores), "--memory", memory]
    arguments += ["--work-dir", str(folder / f"work-{number}"), address]
    with _daemon(arguments, log) as worker:
        _wait_for(worker, log, r"(Successfully registered with master)")
        yield worker


@contextmanager
def _daemon(arguments: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            # The script replaces itself by java, so that this process id is the daemon's.
            env=spark_environment(
                SPARK_DAEMON_MEMORY="512m", SPARK_DAEMON_JAVA_OPTS="-Dspark.decommission.enabled=true"
            ),
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)


def _wait_for(process: subprocess.Popen[bytes], log: Path, pattern: str) -> str:
    """The first group of `pattern` as soon as it stands in the log."""
    end = time.monotonic() + START_TIMEOUT_SECONDS
    while time.monotonic() < end:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found.group(1)
        if process.poll() is not None:
            break
        time.sleep(0.2)
    raise AssertionError(f"'{pattern}' did not appear in {log}:\n{log.read_text(errors='replace')[-3000:]}")
