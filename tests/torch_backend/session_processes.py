"""What the processes of a test's Spark session hold: asked from outside, through /proc."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 60.0
_EXECUTOR = "CoarseGrainedExecutorBackend"
_MEMORY = "/memfd:sparkdl"
_OF_LISTENERS = "00010000"


def executors(spark: SparkSession) -> list[psutil.Process]:
    """The JVMs of this session's executors that run now."""
    found = []
    for each in psutil.process_iter():
        try:
            if any(_EXECUTOR in word for word in each.cmdline()) and _is_of(each, spark):
                found.append(each)
        except psutil.Error:  # it has just ended
            continue
    return found


def _is_of(process: psutil.Process, spark: SparkSession) -> bool:
    return str(spark.sparkContext.applicationId) in process.cmdline()


def workers(executor: psutil.Process) -> list[psutil.Process]:
    """Its Python processes: the daemon, and those that tasks have used."""
    try:
        return [each for each in executor.children(recursive=True) if "python" in each.name()]
    except psutil.NoSuchProcess:
        return []


def is_gone(pid: int) -> bool:
    """Also where its parent has not asked for its status yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def awaited(condition: Callable[[], bool], seconds: float = PATIENCE_S) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)
    return condition()


def shared_memory(process: psutil.Process) -> list[str]:
    """Memory of process groups that it has open or mapped."""
    folder = Path(f"/proc/{process.pid}")
    found = []
    try:
        for each in (folder / "fd").iterdir():
            try:
                found.append(str(each.readlink()))
            except FileNotFoundError:
                continue
        maps = (folder / "maps").read_text(errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [each for each in found + [line.split(maxsplit=5)[-1] for line in maps] if each.startswith(_MEMORY)]


def collect_garbage(executor: psutil.Process) -> bool:
    """Has a JVM collect what nobody uses, mapped memory too; False where there is no tool for it."""
    tool = shutil.which("jcmd")
    return tool is not None and subprocess.run([tool, str(executor.pid), "GC.run"], capture_output=True).returncode == 0


def endpoint_connections(spark: SparkSession) -> list[str]:
    """Open connections to the endpoints of this session's executors."""
    mine = {path for path, pid in _endpoints() if pid in {each.pid for each in executors(spark)}}
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return [
        line[-1] for line in lines if len(line) > 7 and line[3] != _OF_LISTENERS and str(Path(line[-1]).parent) in mine
    ]


def left_folders(pids: set[int]) -> list[str]:
    """Folders of endpoints that these executors have left."""
    return [path for path, pid in _endpoints() if pid in pids]


def _endpoints() -> list[tuple[str, int]]:
    found = []
    for folder in Path("/tmp").glob("sparkdl-w-*"):
        try:
            found.append((str(folder), int((folder / ".owner").read_text().split("-")[-2])))
        except (OSError, ValueError):
            continue
    return found


def links(spark: SparkSession) -> int:
    """TCP connections between this session's executors, each of which has two ends here."""
    connections = []
    for each in executors(spark):
        try:
            connections += [c for c in each.net_connections("tcp") if c.status == psutil.CONN_ESTABLISHED]
        except psutil.Error:
            continue
    ends = {each.laddr for each in connections}
    return sum(each.raddr in ends for each in connections) // 2
