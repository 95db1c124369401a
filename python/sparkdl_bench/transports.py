"""What transports of ours need besides our own jars, and whether it is here."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from sparkdl_bench import ucx
from sparkdl_bench.config import RunFile
from sparkdl_bench.jarfiles import find_jars
from sparkdl_bench.peers import default_directory

_ANSWER_S = 20.0


def missing(run: RunFile) -> str | None:
    """Why a run's transport has not on this host what it needs, with the command that brings it; None where it has.

    What a run names itself (`mpi.python`, jars in `spark.jars`) is not looked at: its ranks do that.

    Raises:
        ConfigurationError: unsupported Spark, or our own jars are not there.
    """
    look = {"mpi": _mpi_missing, "ucx": _ucx_missing}.get(run.settings.get("transport", ""))
    return look(run) if look else None


def _mpi_missing(run: RunFile) -> str | None:
    if any(run.settings.get(key, "auto") != "auto" for key in ("mpi.python", "mpi.launcher")):
        return None
    found = _mpi_programs()
    lacks = _mpi_lacks(*found) if found else "there are none"
    if lacks is None:
        return None
    return f"It needs Open MPI 5 and mpi4py ({lacks}); install them with `sparkdl-bench peers install mpi`."


def _mpi_programs() -> tuple[Path, Path] | None:
    """Python and launcher as the ranks look for them: ours, or those of a system's MPI."""
    python = default_directory() / "mpi" / "bin" / "python"
    if not os.access(python, os.X_OK):
        on_path = shutil.which("python3")
        if on_path is None:
            return None
        python = Path(on_path)
    beside = python.parent / "mpiexec"
    launcher = str(beside) if os.access(beside, os.X_OK) else shutil.which("mpiexec")
    return (python, Path(launcher)) if launcher else None


@functools.cache
def _mpi_lacks(python: Path, launcher: Path) -> str | None:
    """What the ranks would say of these programs; asked once in a process."""
    version = _answer(launcher, "--version")
    number = re.search(r"\b(\d+)\.\d+", version.said)
    if "Open MPI" not in version.said or number is None or int(number.group(1)) < 5:
        return f"'{launcher}' is not Open MPI 5 or later"
    if _answer(python, "-c", "import mpi4py").status != 0:
        return f"'{python}' cannot import mpi4py"
    return None


class _Answer(NamedTuple):
    status: int
    said: str


def _answer(program: Path, *words: str) -> _Answer:
    # The launcher looks for its own helpers on the PATH.
    path = f"{program.parent}{os.pathsep}{os.environ.get('PATH', '/usr/bin:/bin')}"
    try:
        done = subprocess.run(  # noqa: S603 (the ranks would start the same)
            [str(program), *words],
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return _Answer(-1, str(error))
    return _Answer(done.returncode, done.stdout)


def _ucx_missing(run: RunFile) -> str | None:
    import pyspark

    wanted = {ucx.JUCX.file_name, ucx.LIBRARIES_JAR}
    if run.settings.get("ucx.libraries"):
        wanted.remove(ucx.LIBRARIES_JAR)
    held = {path.name for path in find_jars(pyspark.__version__).dependencies}
    if all(name in held or _is_given(name, run.spark) for name in wanted):
        return None
    return "It needs jucx and the UCX libraries; bring them with `sparkdl-bench jars fetch --ucx`."


def _is_given(jar: str, properties: Mapping[str, str]) -> bool:
    return any(jar in properties.get(key, "") for key in ("spark.jars", "spark.executor.extraClassPath"))
