"""Mistyped Spark properties are told, and others are left alone."""

from __future__ import annotations

import pytest

from sparkdl_bench import profiles, runfiles, spark_properties
from sparkdl_bench.config import load_run_file


def test_a_mistyped_property_is_doubted() -> None:
    assert spark_properties.doubts(["spark.executor.memroy"]) == [
        "The Spark property 'spark.executor.memroy' is none that Spark documents. Did you mean "
        "'spark.executor.memory'? Spark gets it as it is written, and says nothing where it knows no such name."
    ]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("spark.executor.core", "spark.executor.cores"),
        ("spark.driver.memmory", "spark.driver.memory"),
        ("spark.executor.memoryoverhead", "spark.executor.memoryOverhead"),
        ("spark.executor.instance", "spark.executor.instances"),
        ("spark.task.cpu", "spark.task.cpus"),
    ],
)
def test_the_nearest_is_named(typed: str, meant: str) -> None:
    (said,) = spark_properties.doubts([typed])
    assert f"Did you mean '{meant}'?" in said


@pytest.mark.parametrize(
    "name",
    [
        "spark.executor.memory",
        "spark.executorEnv.MALLOC_ARENA_MAX",
        "spark.hadoop.dfs.replication",
        "spark.sql.shuffle.partitions",
        "spark.yarn.executor.nodeLabelExpression",
        "spark.kubernetes.executor.request.cores",
        "spark.celeborn.master.endpoints",
        "spark.ssl.rpc.enabled",
        "spark.sparkdl.transport",
        "spark.ui.retainedJobs",
        "spark.shuffle.spill.compress",
        "spark.rpc.lookupTimeout",
    ],
)
def test_other_names_are_left_alone(name: str) -> None:
    assert spark_properties.doubts([name]) == []


def test_what_comes_with_the_package_is_not_doubted() -> None:
    for name in profiles.names():
        assert spark_properties.doubts(profiles.load(name)) == [], name
    for name, path in runfiles.shipped().items():
        if "\nbase = " not in path.read_text(encoding="utf-8"):
            assert spark_properties.doubts(load_run_file(path).spark) == [], name
