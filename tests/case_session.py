"""The Spark session of a test program that is a process of its own and has its properties from a file."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

import sparkdl_bench


def start(properties: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder
    for key, value in properties.items():
        builder = builder.config(key, value)
    return sparkdl_bench.configure(builder).getOrCreate()
