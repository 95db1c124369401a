"""`sparkdl-bench doctor` as a user calls it. Every single fault is planted in jvm's DoctorSuite."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from conftest import CommandLine
from sparkdl_bench import doctor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLUSTER = "local-cluster[2,1,1024]"


def test_a_healthy_cluster_has_nothing(command_line: CommandLine) -> None:
    done = command_line.run("doctor", "--master", CLUSTER, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout) == []


def test_a_fault_in_the_running_session_and_its_remedy(command_line: CommandLine) -> None:
    done = command_line.run("doctor", "--master", CLUSTER, "--set", "workers=3")
    assert done.returncode == 1
    assert "slots: workers = 3" in done.stdout
    assert "Set workers to 2 or less" in done.stdout
    assert done.stdout.rstrip().endswith("1 finding.")


@pytest.mark.parametrize(
    ("words", "check"),
    [
        (["--set", "spark.dynamicAllocation.enabled=true"], "dynamic-allocation"),
        (["--set", "spark.network.crypto.enabled=true"], "encryption"),
        (["--set", "engine.threads=2"], "blas-threads"),
        (["--set", "codec=fp31"], "settings"),
        (["--set", "spark.shuffle.manager=com.example.None"], "shuffle-manager"),
        (["--spark-conf", "celeborn"], "shuffle-manager"),
    ],
)
def test_faults_that_need_no_session(command_line: CommandLine, words: list[str], check: str) -> None:
    done = command_line.run("doctor", "--master", CLUSTER, "--json", "--no-start", *words)
    assert done.returncode == 1, done.stderr
    assert [finding["check"] for finding in json.loads(done.stdout)] == [check]


def test_missing_jars_are_a_finding(command_line: CommandLine, tmp_path: object) -> None:
    done = command_line.run("doctor", "--json", "--no-start", SPARKDL_JARS=str(tmp_path))
    assert done.returncode == 1
    [finding] = json.loads(done.stdout)
    assert finding["check"] == "installation"
    assert str(tmp_path) in finding["message"]


def test_a_session_of_the_user_s_own(spark: SparkSession) -> None:
    assert doctor.examine_session(spark, {"batch": "32"}) == []
    found = doctor.examine_session(spark, {"batch": "32", "workers": "5", "slots_wait": "1"})
    assert [finding.check for finding in found] == ["slots"]
