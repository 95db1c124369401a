"""`sparkdl-bench doctor` as a user calls it. Every single fault is planted in jvm's DoctorSuite."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from conftest import CommandLine
from sparkdl_bench import doctor, session
from sparkdl_bench.cli import cli

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLUSTER = "local-cluster[2,1,1024]"


def test_a_healthy_cluster_has_nothing(command_line: CommandLine) -> None:
    done = command_line.run("doctor", "--master", CLUSTER, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout) == []
    told = [line.partition(" s  ")[2] for line in done.stderr.splitlines()]
    assert told[:2] == ["starting the driver's JVM", f"starting Spark ({CLUSTER})"], done.stderr
    assert told[-1] == "looking at the session and its executors"


@pytest.fixture
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a JVM was to be started")

    monkeypatch.setattr(session, "start_jvm", refuse)


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["doctor", *words])


@pytest.mark.usefixtures("no_jvm")
def test_too_few_slots_are_told_without_a_jvm() -> None:
    done = run("--no-start", "--master", CLUSTER, "--set", "workers=3")
    assert done.exit_code == 1
    assert "slots: workers = 3 must all run at once" in done.stdout
    assert "Set workers=2, or master=local-cluster[3,1," in done.stdout
    assert done.stdout.rstrip().endswith("1 finding.")


@pytest.mark.usefixtures("no_jvm")
@pytest.mark.parametrize(
    ("master", "said"), [("", "master: The master is empty. "), ("locl[2]", "master: 'locl[2]' is no Spark master. ")]
)
@pytest.mark.parametrize("more", [[], ["--no-start"]])
def test_no_jvm_starts_for_what_is_no_master(master: str, said: str, more: list[str]) -> None:
    done = run("--master", master, "--set", "wrokers=4", *more)
    assert done.exit_code == 1
    assert said in done.stdout
    assert "Did you mean 'workers'?" in done.stdout
    assert done.stdout.rstrip().endswith("2 findings.")


def test_all_faults_are_told_at_once(command_line: CommandLine) -> None:
    words = ["wrokers=4", "epochs=many", "batch=1", "spark.dynamicAllocation.enabled=true"]
    done = command_line.run("doctor", "--json", *(word for each in words for word in ("--set", each)))
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert [finding["check"] for finding in found] == ["settings", "settings", "batch", "dynamic-allocation"]
    assert "Did you mean 'workers'?" in found[0]["message"]
    assert "'epochs' has the value 'many'" in found[1]["message"]


@pytest.mark.usefixtures("no_jvm")
def test_without_a_jvm_it_claims_only_what_it_has_checked() -> None:
    done = run("--no-start")
    assert done.exit_code == 0, done.stdout
    assert done.stdout == (
        "Nothing found in the run's keys, its master, memory, paths and results, and in what is installed here. Not "
        "checked, because no JVM was started: which values go together, the session's other properties, its executors "
        "and their slots, and the data's content. Leave out --no-start to check these.\n"
    )


@pytest.mark.parametrize(
    ("words", "check"),
    [
        (["--set", "spark.dynamicAllocation.enabled=true"], "dynamic-allocation"),
        (["--set", "spark.network.crypto.enabled=true"], "encryption"),
        (["--spark-conf", "secure", "--set", "spark.authenticate.secret=x", "--set", "transport=tcp"], "encryption"),
        (["--set", "engine.threads=2"], "blas-threads"),
        (["--set", "codec=fp31"], "settings"),
        (["--set", "spark.shuffle.manager=com.example.None"], "shuffle-manager"),
        (["--spark-conf", "celeborn"], "shuffle-manager"),
    ],
)
def test_faults_that_need_no_session(command_line: CommandLine, words: list[str], check: str) -> None:
    done = command_line.run("doctor", "--master", CLUSTER, "--json", *words)
    assert done.returncode == 1, done.stderr
    assert [finding["check"] for finding in json.loads(done.stdout)] == [check]


@pytest.mark.usefixtures("no_jvm")
def test_missing_jars_are_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARKDL_JARS", str(tmp_path))
    done = run("--json", "--no-start")
    assert done.exit_code == 1
    [finding] = json.loads(done.stdout)
    assert finding["check"] == "installation"
    assert str(tmp_path) in finding["message"]


def test_a_session_of_the_user_s_own(spark: SparkSession) -> None:
    assert doctor.examine_session(spark, {"batch": "32"}) == []
    found = doctor.examine_session(spark, {"batch": "32", "workers": "5", "slots_wait": "1"})
    assert [finding.check for finding in found] == ["slots"]


def test_what_the_run_s_transport_would_find_when_it_connects(spark: SparkSession) -> None:
    run = {"batch": "32", "model.hidden": "32"}
    for transport in ("block-stream", "tcp"):
        assert doctor.examine_session(spark, {**run, "transport": transport}) == []
    [found] = doctor.examine_session(spark, {**run, "transport": "tcp", "tcp.interface": "nosuch0"})
    assert found.check == "transport"
    assert "tcp.interface = nosuch0 fits no address" in found.message


def test_a_running_session_s_own_look_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(*checks: str) -> list[dict[str, str]]:
        return [{"check": check, "message": f"Fix {check}."} for check in checks]

    api = SimpleNamespace(
        doctor_before_start=lambda *_: told("ports", "settings", "shuffle-manager", "encryption", "blas-threads"),
        doctor_session=lambda _: told("shuffle-manager", "encryption"),
    )
    monkeypatch.setattr(doctor.session, "check_session", lambda _: api)
    held: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(getConf=lambda: SimpleNamespace(getAll=lambda: [("spark.master", "local")]))
    )
    found = [finding.check for finding in doctor.examine_session(held)]
    assert found == ["encryption", "blas-threads", "shuffle-manager"]
