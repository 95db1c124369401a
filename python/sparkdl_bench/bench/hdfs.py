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
from sparkdl_bench.lab import hadoop

_MAIN = "org.apache.hadoop.test.MiniDFSClusterManager"
_START_S = 120.0


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """The URI of an HDFS that lives as long as the context; `folder` holds its jars, or will."""
    class_path = os.pathsep.join(str(jar) for jar in jars.fetch_jars(folder, list(hadoop.JARS)))
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
