"""`sparkdl-bench doctor` as a user calls it. Every single fault is planted in jvm's DoctorSuite."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

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


def test_too_few_slots_are_told_before_a_session_starts(command_line: CommandLine) -> None:
    done = command_line.run("doctor", "--no-start", "--master", CLUSTER, "--set", "workers=3")
    assert done.returncode == 1
    assert "slots: workers = 3 must all run at once" in done.stdout
    assert "Set workers=2, or master=local-cluster[3,1," in done.stdout
    assert done.stdout.rstrip().endswith("1 finding.")


def test_all_faults_are_told_at_once(command_line: CommandLine) -> None:
    words = ["wrokers=4", "epochs=many", "batch=1", "spark.dynamicAllocation.enabled=true"]
    done = command_line.run("doctor", "--no-start", "--json", *(word for each in words for word in ("--set", each)))
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert [finding["check"] for finding in found] == ["settings", "settings", "batch", "dynamic-allocation"]
    assert "Did you mean 'workers'?" in found[0]["message"]
    assert "'epochs' has the value 'many'" in found[1]["message"]


def test_without_a_session_it_claims_only_what_it_has_checked(command_line: CommandLine) -> None:
    done = command_line.run("doctor", "--no-start")
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("Nothing found in the run's settings and the session's properties. Not checked, ")
    assert "fit for the run" not in done.stdout


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
        doctor_beforehand=lambda *_: told("ports", "settings", "shuffle-manager", "encryption", "blas-threads"),
        doctor_session=lambda _: told("shuffle-manager", "encryption"),
    )
    monkeypatch.setattr(doctor.session, "check_session", lambda _: api)
    session: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(getConf=lambda: SimpleNamespace(getAll=lambda: [("spark.master", "local")]))
    )
    found = [finding.check for finding in doctor.examine_session(session)]
    assert found == ["encryption", "blas-threads", "shuffle-manager"]
