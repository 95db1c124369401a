"""What a training must not leave behind: processes, shared memory, temporary files, half-written files, its lock."""

from __future__ import annotations

import getpass
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import psutil

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (the kernel's)
_GONE_S = 40.0
# A name that tells whose it is: boot id, namespaces of processes and of time, process, its start.
_MARKED = re.compile(r"-[0-9a-f]{32}-\d+-\d+-(\d+)-\d+-")


def processes(living: Callable[[], Sequence[psutil.Process]], patience_s: float = _GONE_S) -> list[str]:
    """Those that still live after `patience_s` seconds, which killed runs' other processes may take to notice."""
    deadline = time.monotonic() + patience_s
    while (found := living()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return [f"process {_told(each)}" for each in found]


def shared_memory(pids: Iterable[int], folder: Path = SHARED_MEMORY) -> list[str]:
    """Files there of the processes with these numbers."""
    numbers = set(pids)
    found = []
    for file in sorted(folder.glob("*")):
        marked = _MARKED.search(file.name)
        if marked and int(marked.group(1)) in numbers:
            found.append(f"shared memory {file}")
    return found


def temporary(folder: Path, named: Path | None = None) -> list[str]:
    """Of ours in the run's folder for temporary files; what Spark leaves there when it is killed is its own.

    Args:
        named: a folder there that the run has told its user of.
    """
    found = [*sorted(folder.glob("sparkdl*")), *sorted(folder.glob("spark-*/**/sparkdl-*"))]
    kept = folder / f"sparkdl-bench-{getpass.getuser()}"  # unpacked natives, which the user's next session takes
    return [f"temporary {each}" for each in found if each not in (named, kept)]


def partial(folder: Path) -> list[str]:
    """Files that are half written."""
    return [f"half-written {each}" for each in sorted(folder.rglob("*.partial"))]


def lock(checkpoints: Path) -> list[str]:
    """The mark of the run that a folder of checkpoints belongs to."""
    owner = checkpoints / "owner.json"
    return [f"lock {owner}"] if owner.exists() else []


def _told(process: psutil.Process) -> str:
    try:
        return f"{process.pid}: {' '.join(process.cmdline())[:160]}"
    except psutil.Error:
        return str(process.pid)
