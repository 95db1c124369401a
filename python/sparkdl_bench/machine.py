"""What has to be known of the machine to read a measurement, and whether it was idle."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

# Flags that decide how fast arithmetic is; the rest of the list says nothing here.
_FLAG_PREFIXES = ("avx", "amx", "fma", "sse4", "asimd", "sve")
BUSY_LIMIT = 0.1
# After a commit from which the checkout's files differ.
CHANGED = "+changes"


@dataclass(frozen=True)
class Load:
    """How busy the machine was before a measurement.

    Attributes:
        busy: share of all cores' time that somebody used during a short wait, 0 to 1.
        average_1min: the system's load average over the last minute.
    """

    busy: float
    average_1min: float

    @property
    def is_idle(self) -> bool:
        return self.busy <= BUSY_LIMIT


def load(seconds: float = 1.0) -> Load:
    """Watch the processors for that long. Nothing of ours should run meanwhile."""
    return Load(round(psutil.cpu_percent(interval=seconds) / 100, 3), round(os.getloadavg()[0], 2))


def facts() -> dict[str, object]:
    """CPU, cores, memory, kernel, Java, Python and the packages that matter. No host or user name."""
    cpu = _cpu_info()
    return {
        "cpu": cpu.get("model name", platform.processor() or "unknown"),
        "cpu_flags": [flag for flag in cpu.get("flags", "").split() if flag.startswith(_FLAG_PREFIXES)],
        "cores": os.cpu_count() or 1,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "java": _java_version(),
        "python": platform.python_version(),
        "packages": {name: _package_version(name) for name in ("sparkdl-bench", "pyspark", "numpy")},
        "load_average": [round(value, 2) for value in os.getloadavg()],
    }


def slug(machine: dict[str, object]) -> str:
    """A folder name for results of machines of this kind: `amd-epyc-2c-24g`."""
    cpu = re.sub(r"\(r\)|\(tm\)|cpu|processor|@.*", " ", str(machine["cpu"]).lower())
    words = re.sub(r"[^a-z0-9]+", "-", cpu).strip("-") or "unknown"
    return f"{words}-{machine['cores']}c-{round(float(str(machine['memory_gib'])))}g"


def commit() -> str:
    """This checkout's commit, as `commit_of` says it."""
    return commit_of(Path(__file__).resolve().parent)


def commit_of(folder: Path) -> str:
    """The commit of the checkout that holds `folder`, with `+changes` where files differ; `unknown` outside of one."""
    git = shutil.which("git")
    if git is None:
        return "unknown"
    head = _output([git, "-C", str(folder), "rev-parse", "--short=12", "HEAD"])
    changes = _output([git, "-C", str(folder), "status", "--porcelain", "--untracked-files=no"])
    return f"{head}{CHANGED if changes else ''}" if head else "unknown"


def java() -> str:
    """The `java` that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def _cpu_info() -> dict[str, str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    found: dict[str, str] = {}
    for name, value in pairs:
        found.setdefault(name.strip(), value.strip())
    return found


def _java_version() -> str:
    told = _output([java(), "-version"]).splitlines()
    # Before its version Java says which options it takes from the environment.
    lines = [line.strip() for line in told if "Picked up " not in line]
    return lines[1] if len(lines) > 1 else "unknown"


def _package_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603 (the command is ours)
            command, capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout + done.stderr).strip() if done.returncode == 0 else ""
