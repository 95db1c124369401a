"""A real HDFS on this host for benchmarks: Hadoop's own test cluster, in a process of its own, loopback only."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparkdl_bench import jars
from sparkdl_bench.bench import machine
from sparkdl_bench.errors import RunFailedError

_MAIN = "org.apache.hadoop.test.MiniDFSClusterManager"
_START_S = 120.0
_FETCH_S = 1800.0
_MODULES = (
    ("org.apache.hadoop", "hadoop-client-minicluster", "3.5.0"),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
    ("org.junit.jupiter", "junit-jupiter-api", "5.10.2"),
    ("org.mockito", "mockito-core", "4.11.0"),
)


def default_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base, "sparkdl-bench", "hdfs-3.5.0")


def fetch(folder: Path) -> list[Path]:
    """The jars, brought by their coordinates with all that they need."""
    done = folder / ".complete"
    if not done.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = folder / "ivy.xml"
        wanted = "".join(
            f'<dependency org="{org}" name="{name}" rev="{version}" conf="default->default"/>'
            for org, name, version in _MODULES
        )
        descriptor.write_text(
            '<ivy-module version="2.0"><info organisation="sparkdl-bench" module="hdfs"/><configurations>'
            f'<conf name="default"/></configurations><dependencies>{wanted}</dependencies></ivy-module>',
            encoding="utf-8",
        )
        chosen = os.environ.get(jars.SETTINGS_VARIABLE)
        command = [
            *(machine.java(), "-jar", str(jars.ivy())),
            *(("-settings", chosen) if chosen else ()),
            *("-cache", str(folder / "cache"), "-ivy", str(descriptor), "-confs", "default", "-warn"),
            *("-retrieve", f"{folder}/[artifact]-[revision].[ext]"),
        ]
        ended = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=_FETCH_S, check=False, stdin=subprocess.DEVNULL
        )
        if ended.returncode != 0 or not list(folder.glob("hadoop-client-minicluster-*.jar")):
            raise jars.FetchFailedError(
                f"Ivy could not bring HDFS's jars: {(ended.stdout + ended.stderr)[-2000:].strip()}"
            )
        shutil.rmtree(folder / "cache", ignore_errors=True)  # a second copy of every jar
        done.touch()
    return sorted(folder.glob("*.jar"))


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """The URI of an HDFS that lives as long as the context; `folder` holds its jars, or will."""
    class_path = os.pathsep.join(str(jar) for jar in fetch(folder))
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
