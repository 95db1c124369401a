"""What transports of ours need besides our own jars, and whether it is here."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from sparkdl_bench import ucx
from sparkdl_bench.config import RunFile
from sparkdl_bench.jarfiles import find_jars
from sparkdl_bench.peers import default_directory


def missing(run: RunFile) -> str | None:
    """Why a run's transport has not on this host what it needs, with the command that brings it; None where it has.

    What a run names itself (`mpi.python`, jars in `spark.jars`) is not looked at: its ranks do that.

    Raises:
        ConfigurationError: unsupported Spark, or our own jars are not there.
    """
    look = {"mpi": _mpi_missing, "ucx": _ucx_missing}.get(run.settings.get("transport", ""))
    return look(run) if look else None


def _mpi_missing(run: RunFile) -> str | None:
    named = any(run.settings.get(key, "auto") != "auto" for key in ("mpi.python", "mpi.launcher"))
    installed = (default_directory() / "mpi" / "bin" / "python").is_file()
    # As the ranks look for it: a system's MPI does as well.
    if named or installed or shutil.which("mpiexec"):
        return None
    return "It needs Open MPI and mpi4py; install them with `sparkdl-bench peers install mpi`."


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
