"""A Spark session with BigDL's jars and settings, on a standalone cluster of its own with one core an executor."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ._standalone import standalone_cluster

EXECUTOR_MB = 2048
# What a worker has beyond its executor's heap.
OVERHEAD_MB = 512


@contextmanager
def session(workers: int) -> Iterator[tuple[Any, Path]]:
    """The session and a folder for what a training writes; both are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="sparkdl-bigdl-") as name:
        folder = Path(name)
        with standalone_cluster(workers, EXECUTOR_MB + OVERHEAD_MB, folder) as master:
            spark = _started(master, workers)
            try:
                yield spark, folder
            finally:
                spark.stop()


def _started(master: str, workers: int) -> Any:
    from pyspark.sql import SparkSession  # type: ignore[import-not-found, unused-ignore]

    jars = _jars()
    made = (
        SparkSession.builder.master(master)
        .appName("sparkdl-peer-bigdl")
        .config("spark.jars", ",".join(jars))
        .config("spark.driver.extraClassPath", ":".join(jars))
        .config("spark.executor.extraClassPath", ":".join(jars))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.executor.memory", f"{EXECUTOR_MB}m")
        .config("spark.executor.cores", "1")
        .config("spark.cores.max", str(workers))
        .config("spark.shuffle.reduceLocality.enabled", "false")
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "120s")
        .config("spark.speculation", "false")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("ERROR")
    return made


def _jars() -> list[str]:
    import importlib.util

    found: list[str] = []
    for package in ("bigdl.share.dllib", "bigdl.share.core"):
        spec = importlib.util.find_spec(package)
        for place in spec.submodule_search_locations if spec and spec.submodule_search_locations else []:
            found += [str(jar) for jar in sorted(Path(place).rglob("*.jar"))]
    if len(found) < 2:
        raise SystemExit(f"BigDL's jars were not found beside its Python packages (found {found})")
    return found
