"""Sessions that a user started without `configure`, each in a process of its own.

One with the jar of the other Spark line is in tests/test_wheel.py, which builds that jar.
"""

from __future__ import annotations

import pyspark
import pytest

from conftest import ROOT, CommandLine

LINE = "3.5" if pyspark.__version__.startswith("3.5") else "4"
PROGRAM = """
import sparkdl_bench
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]"){options}.getOrCreate()
try:
    sparkdl_bench.Trainer(workers=1, epochs=1, results={results!r}).fit(spark)
    print("trained")
except sparkdl_bench.ConfigurationError as error:
    print(error)
"""


def thin_jar(line: str) -> str:
    jars = sorted((ROOT / "target" / f"jars-{line}").glob("sparkdl-bench-spark-*.jar"))
    if not jars:
        pytest.skip(f"target/jars-{line} holds no jar; `make jars` with that line's SPARK builds it")
    return str(jars[-1])


def test_no_jar(command_line: CommandLine) -> None:
    done = command_line.python(PROGRAM.format(options="", results=""))
    assert "spark = sparkdl_bench.configure(SparkSession.builder).getOrCreate()" in done.stdout, done.stderr
    assert f"sparkdl-bench-spark-{LINE}_" in done.stdout


def test_jars_that_the_user_put_there_by_hand(command_line: CommandLine, tmp_path: object) -> None:
    thin_jar(LINE)
    jars = ",".join(str(jar) for jar in sorted((ROOT / "target" / f"jars-{LINE}").glob("*.jar")))
    done = command_line.python(PROGRAM.format(options=f".config('spark.jars', {jars!r})", results=str(tmp_path)))
    assert done.stdout == "trained\n", done.stdout + done.stderr
