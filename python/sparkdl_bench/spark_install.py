"""The Spark and the Java that a session would start: what is wrong with them, before a JVM says so in other words."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.jarfiles import spark_home, spark_line

MIN_JAVA = 17


def check(pyspark_version: str) -> None:
    """Refuses a SPARK_HOME without a Spark or with one of another line than pyspark's, and a Java that is not there.

    Raises:
        ConfigurationError: with what the environment names and what to set.
    """
    home = os.environ.get("SPARK_HOME")
    if home:
        _check_spark(Path(home), pyspark_version)
    _check_java()


def _check_spark(home: Path, pyspark_version: str) -> None:
    remedy = "Unset SPARK_HOME, so that the Spark inside pyspark starts"
    if not (home / "bin" / "spark-submit").is_file():
        raise ConfigurationError(
            f"SPARK_HOME is '{home}', and there is no bin/spark-submit in it. {remedy}, or set it to the folder of a "
            "Spark."
        )
    found = spark_version(home)
    if found and spark_line(found) != spark_line(pyspark_version):
        raise ConfigurationError(
            f"SPARK_HOME is '{home}', which holds Spark {found}, and pyspark here is {pyspark_version}. {remedy}, or "
            f"install the pyspark of that Spark: pip install 'pyspark=={found}'."
        )


def spark_version(home: Path | None = None) -> str | None:
    """Of the Spark in a folder, or that pyspark starts; None where its jars do not say it."""
    jars = sorted(((home or spark_home()) / "jars").glob("spark-core_2.1*-*.jar"))
    found = re.fullmatch(r"spark-core_2\.1\d-(.+)\.jar", jars[-1].name) if jars else None
    return found.group(1) if found else None


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if home and not (Path(home) / "bin" / "java").is_file():
        raise ConfigurationError(
            f"JAVA_HOME is '{home}', and there is no bin/java in it. Set it to a JDK {MIN_JAVA} or later, or unset it "
            "where java is on the PATH."
        )
    if not home and shutil.which("java") is None:
        raise ConfigurationError(
            f"There is no java on the PATH, and JAVA_HOME is not set. Spark needs a JDK {MIN_JAVA} or later: install "
            "one, or set JAVA_HOME to its folder."
        )
