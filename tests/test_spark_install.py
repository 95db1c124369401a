"""A Spark or a Java that cannot be the right one is named before anything starts."""

from __future__ import annotations

import os
from pathlib import Path

import pyspark
import pytest

from conftest import CommandLine
from sparkdl_bench import spark_install
from sparkdl_bench.errors import ConfigurationError


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_HOME", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)


def spark(folder: Path, version: str) -> Path:
    for file in (f"jars/spark-core_2.13-{version}.jar", "bin/spark-submit"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    return folder


def refusal(version: str = "4.1.4") -> str:
    with pytest.raises(ConfigurationError) as refused:
        spark_install.check(version)
    return str(refused.value)


def test_a_spark_home_without_a_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert refusal() == (
        f"SPARK_HOME is '{tmp_path}', and there is no bin/spark-submit in it. Unset SPARK_HOME, so that the Spark "
        "inside pyspark starts, or set it to the folder of a Spark."
    )


def test_a_spark_home_of_another_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(spark(tmp_path, "3.5.8")))
    assert refusal() == (
        f"SPARK_HOME is '{tmp_path}', which holds Spark 3.5.8, and pyspark here is 4.1.4. Unset SPARK_HOME, so that "
        "the Spark inside pyspark starts, or install the pyspark of that Spark: pip install 'pyspark==3.5.8'."
    )
    spark_install.check("3.5.9")


def test_this_spark_is_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spark_install.spark_version() == pyspark.__version__
    monkeypatch.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))
    spark_install.check(pyspark.__version__)


def test_a_java_home_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert refusal() == (
        f"JAVA_HOME is '{tmp_path}', and there is no bin/java in it. Set it to a JDK 17 or later, or unset it where "
        "java is on the PATH."
    )


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refusal() == (
        "There is no java on the PATH, and JAVA_HOME is not set. Spark needs a JDK 17 or later: install one, or set "
        "JAVA_HOME to its folder."
    )


def test_a_java_that_is_too_old(command_line: CommandLine, tmp_path: Path) -> None:
    # What Java 11 prints of classes that were compiled for 17, by a program in its place.
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        "#!/bin/sh\n"
        "echo 'Error: LinkageError occurred while loading main class org.apache.spark.launcher.Main' >&2\n"
        "echo '\tjava.lang.UnsupportedClassVersionError: (class file version 61.0), up to 55.0' >&2\n"
        "exit 1\n"
    )
    java.chmod(0o755)
    done = command_line.run("run", "digits-mlp", JAVA_HOME=str(tmp_path), PATH=os.environ["PATH"])
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1] == (
        f"The Java that Spark found ({tmp_path}) is older than JDK 17, which Spark's classes need. Set JAVA_HOME to a "
        "newer one."
    )
