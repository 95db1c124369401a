"""A real HDFS on this host for benchmarks: Hadoop's own test cluster, in a process of its own, loopback only."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparkdl_bench import jars, machine
from sparkdl_bench.errors import RunFailedError

_MAIN = "org.apache.hadoop.test.MiniDFSClusterManager"
_START_S = 120.0
# As sbt resolves the four of `MiniHdfs` in build.sbt, so that a host that has built has them already.
JARS = tuple(
    jars.Coordinates(*coordinates.split(":"))
    for coordinates in (
        "org.apache.hadoop:hadoop-client-minicluster:3.5.0",
        "org.slf4j:slf4j-simple:1.7.36",
        "org.junit.jupiter:junit-jupiter-api:5.10.2",
        "org.mockito:mockito-core:4.11.0",
        # What these need.
        "org.apache.hadoop:hadoop-client-api:3.5.0",
        "org.xerial.snappy:snappy-java:1.1.10.4",
        "org.apache.hadoop:hadoop-client-runtime:3.5.0",
        "org.slf4j:slf4j-api:1.7.36",
        "org.opentest4j:opentest4j:1.3.0",
        "org.junit.platform:junit-platform-commons:1.10.2",
        "org.apiguardian:apiguardian-api:1.1.2",
        "net.bytebuddy:byte-buddy:1.12.19",
        "net.bytebuddy:byte-buddy-agent:1.12.19",
        "org.objenesis:objenesis:3.3",
        "commons-logging:commons-logging:1.3.0",
        "com.google.code.findbugs:jsr305:3.0.2",
    )
)


def default_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base, "sparkdl-bench", "hdfs-3.5.0")


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """The URI of an HDFS that lives as long as the context; `folder` holds its jars, or will."""
    class_path = os.pathsep.join(str(jar) for jar in jars.fetch_jars(folder, list(JARS)))
    with tempfile.TemporaryDirectory(prefix="sparkdl-hdfs-") as name:
        room = Path(name)
        port = _free_port()
        command = [
            *(machine.java(), "-Xmx600m", f"-Dtest.build.data={room}", f"-Dhadoop.tmp.dir={room / 'work'}"),
            *("-cp", class_path, _MAIN, "-format", "-datanodes", "1", "-nnport", str(port)),
            *("-writeDetails", str(room / "details.json")),
        ]
        with (room / "log.txt").open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 (the command is ours)
                command, cwd=room, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
            try:
                _await(process, room)
                yield f"hdfs://127.0.0.1:{port}"
            finally:
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _await(process: subprocess.Popen[bytes], room: Path) -> None:
    details = room / "details.json"
    deadline = time.monotonic() + _START_S
    while not (details.is_file() and details.stat().st_size):
        if process.poll() is not None or time.monotonic() > deadline:
            said = (room / "log.txt").read_text(encoding="utf-8", errors="replace")[-2000:]
            raise RunFailedError(f"HDFS did not start within {_START_S:.0f} s. It last said: {said.strip()}")
        time.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
