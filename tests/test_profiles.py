from __future__ import annotations

import re
from pathlib import Path

import pytest

from conftest import CommandLine
from sparkdl_bench import _jvm, profiles, session
from sparkdl_bench.config import load_run_file
from sparkdl_bench.errors import ConfigurationError

RUN = """
workers = 1
spark_profile = "celeborn"
[spark]
master = "local[1]"
spark.shuffle.service.enabled = true
"""
MANAGER = "spark.shuffle.manager"


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    path = tmp_path / "one.toml"
    path.write_text(RUN)
    return path


def test_every_profile_can_be_read() -> None:
    expected = {
        "celeborn",
        "osu-rdma-spark",
        "rapids",
        "secure",
        "sort",
        "sparkrdma",
        "sparkucx",
        "sparkucx-nvidia",
        "uniffle",
    }
    assert set(profiles.names()) == expected
    for name in expected:
        assert profiles.load(name)
    assert profiles.load("celeborn")[MANAGER] == "org.apache.spark.shuffle.celeborn.SparkShuffleManager"


def test_spark_defaults_are_understood() -> None:
    text = "# a comment\n\nspark.one   1 2\nspark.two=a=b\n spark.three : x\n"
    assert profiles.parse(text, "a.conf") == {"spark.one": "1 2", "spark.two": "a=b", "spark.three": "x"}


def test_a_profile_is_read_as_sparks_own_defaults_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "! a comment\nspark.one   1 2 \t\nspark.two=a,\\\n  b\nspark.thr\\u0065e : x\nspark.one 3\n"
    (tmp_path / "spark-defaults.conf").write_text(text)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    monkeypatch.setattr(_jvm, "is_running", lambda: False)
    read = {"spark.one": "3", "spark.two": "a,b", "spark.three": "x"}
    assert profiles.parse(text, "a.conf") == session.standing_options() == read


@pytest.mark.parametrize("line", ["spark.one", "workers 2", "= 3"])
def test_other_lines_are_refused(line: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"A line of the Spark profile 'a\.conf' is '{re.escape(line)}'"):
        profiles.parse(f"# comment\n{line}", "a.conf")


def test_an_unknown_profile_names_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"no Spark profile 'celebron'.*celeborn, .*uniffle"):
        profiles.load("celebron")


def test_a_runs_profile_lies_below_its_own_table(run_file: Path) -> None:
    run = load_run_file(run_file)
    assert run.spark["spark.master"] == "local[1]"
    assert run.spark[MANAGER].endswith("celeborn.SparkShuffleManager")
    assert run.spark["spark.shuffle.service.enabled"] == "true"
    assert run.settings == {"name": "one", "workers": "1"}


def test_the_command_line_wins(run_file: Path, tmp_path: Path) -> None:
    assert load_run_file(run_file, ["spark_profile=uniffle"]).spark[MANAGER].endswith("RssShuffleManager")
    own = tmp_path / "own.conf"
    own.write_text(
        "spark.shuffle.manager sort\nspark.sparkdl.engine.blas openblas\nspark.one 1\nhadoop.ib.enabled true"
    )
    run = load_run_file(run_file, ["spark.one=2"], str(own))
    assert (run.spark[MANAGER], run.spark["spark.one"], run.spark["hadoop.ib.enabled"]) == ("sort", "2", "true")
    assert run.settings["engine.blas"] == "openblas"
    assert load_run_file(run_file, spark_conf="secure").spark["spark.authenticate"] == "true"


def test_a_profile_whose_jar_is_missing_ends_before_spark_starts(command_line: CommandLine) -> None:
    done = command_line.run("run", "conf/runs/digits-mlp.toml", "--spark-conf", "celeborn")
    assert done.returncode == 2, done.stderr
    assert "celeborn-client-spark-" in done.stderr
    assert "spark.executor.extraClassPath" in done.stderr
