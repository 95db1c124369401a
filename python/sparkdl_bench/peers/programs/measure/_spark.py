"""A Spark session of a peer's own, as a run of ours has it: an executor for each worker, a core for each thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

EXECUTOR_MB = 2048


@contextmanager
def session(case: Mapping[str, Any], name: str, settings: Mapping[str, str] | None = None) -> Iterator[Any]:
    """`local-cluster[workers,threads,…]` on loopback, all executors there; stopped afterwards."""
    from pyspark.sql import SparkSession  # type: ignore[import-not-found, unused-ignore]

    workers, threads = case["workers"], case["threads"]
    chosen = {
        "spark.master": f"local-cluster[{workers},{threads},{EXECUTOR_MB}]",
        "spark.app.name": f"sparkdl-peer-{name}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": f"{EXECUTOR_MB}m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        "spark.ui.enabled": "false",
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
