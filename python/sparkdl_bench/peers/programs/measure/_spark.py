"""A Spark session of a peer's own, as a run of ours has it: an executor for each worker, a core for each thread."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

# The driver collects MLlib's weights and scored rows: 1 GB, Spark's default, is too little for CIFAR-10.
DRIVER_MB = 3072
# Of an executor's heap; the least holds MNIST, and more than the most no set of the comparisons needs.
_LEAST_MB, _MOST_MB = 1024, 4096
# What driver and executors together may take of the host's memory.
_SHARE = 0.6
_CGROUP = Path("/sys/fs/cgroup/memory.max")


def executor_mb(workers: int, host_mb: int) -> int:
    """Heap of each executor on a host with so much memory, beside the driver's."""
    left = int(_SHARE * host_mb) - DRIVER_MB
    return max(_LEAST_MB, min(_MOST_MB, left // workers))


def host_mb() -> int:
    """Memory of this host, or of the container that this process is in."""
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    told = _CGROUP.read_text().strip() if _CGROUP.is_file() else "max"
    return min(whole, int(told) if told.isdigit() else whole) >> 20


@contextmanager
def session(case: Mapping[str, Any], name: str, settings: Mapping[str, str] | None = None) -> Iterator[Any]:
    """`local-cluster[workers,threads,…]` on loopback, all executors there; stopped afterwards."""
    from pyspark.sql import SparkSession  # type: ignore[import-not-found, unused-ignore]

    workers, threads = case["workers"], case["threads"]
    memory_mb = executor_mb(workers, host_mb())
    chosen = {
        "spark.master": f"local-cluster[{workers},{threads},{memory_mb}]",
        "spark.app.name": f"sparkdl-peer-{name}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": f"{DRIVER_MB}m",
        "spark.executor.memory": f"{memory_mb}m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",  # bars of a thousand stages would push an error out of what is told
        **(settings or {}),
    }
    builder = SparkSession.builder
    for key, value in chosen.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.sparkContext.parallelize(range(workers), workers).count()  # waits for the executors, as a run of ours does
    try:
        yield spark
    finally:
        spark.stop()


def rows_rdd(spark: Any, case: Mapping[str, Any], part: str, partitions: int) -> Any:
    """(label, values as fp32) of `train` or `test`, each task reading its own stretch of the file."""
    path = case["data_path"]

    def read(places: Any) -> Any:
        with np.load(path) as data:
            x, y = data[f"x_{part}"], data[f"y_{part}"]
        for place in places:
            for row in range(place * len(y) // partitions, (place + 1) * len(y) // partitions):
                yield int(y[row]), x[row]

    return spark.sparkContext.parallelize(range(partitions), partitions).mapPartitions(read)


def vector_frame(spark: Any, case: Mapping[str, Any], part: str, partitions: int) -> Any:
    """A DataFrame of `label` (double) and `features` (dense vector of MLlib's), held in the executors."""
    from pyspark.ml.linalg import Vectors  # type: ignore[import-not-found, unused-ignore]

    rows = rows_rdd(spark, case, part, partitions).map(lambda row: (float(row[0]), Vectors.dense(row[1])))
    frame = rows.toDF(["label", "features"]).cache()
    frame.count()
    return frame


def job_ends_ms(spark: Any, name: str) -> list[float]:
    """When each job whose name begins so has ended, milliseconds since 1970, in order."""
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    found = [jobs.apply(index) for index in range(jobs.size())]
    ends = [job.completionTime() for job in found if job.name().startswith(name)]
    return sorted(float(end.get().getTime()) for end in ends if end.isDefined())
