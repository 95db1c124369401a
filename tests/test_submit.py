"""Spark's properties reach the JVM by a file that nobody else may read, and stand on no command line."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from sparkdl_bench import _jvm, profiles, session, submit

SECRETS = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": "s3cr3t-authenticate",
    "spark.hadoop.fs.s3a.secret.key": "s3cr3t-s3a",
    "spark.hadoop.fs.azure.account.key.acme.dfs.core.windows.net": "s3cr3t-azure==",
    "spark.executorEnv.MY_TOKEN": "s3cr3t-token",
    "spark.jdbc.url": "jdbc:postgresql://h/d?password=s3cr3t-jdbc",
}
TIMEOUT_SECONDS = 300


def test_the_file_is_the_users_own_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    given = "--conf spark.a.password=s3cr3t --name 'a b' -c spark.b=2 --conf=spark.c=3 pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", given)
    properties = {"spark.x": "ä = b", "spark.y": "a\\b: #c", "spark.empty": ""}
    with submit.handed_over(properties) as inherited:
        option, name, *others = shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"])
        assert option == "--properties-file"
        assert others == ["--name", "a b", "pyspark-shell"]
        file = Path(name)
        assert file.is_file(), "as Spark looks"
        assert os.path.realpath(name).endswith("(deleted)"), "nothing is left where this process is killed"
        assert inherited == (int(file.name),)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        text = file.read_text(encoding="utf-8")
        assert {key: value for key, value, _ in profiles.properties(text)} == properties
    assert not os.path.realpath(name).endswith("(deleted)")
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == given


def test_the_file_goes_where_the_jvm_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    files: list[int] = []

    def start() -> None:
        with submit.handed_over({}) as inherited:
            files.extend(inherited)
            raise OSError("no JVM")

    with pytest.raises(OSError, match="no JVM"):
        start()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(files[0])
    assert "PYSPARK_SUBMIT_ARGS" not in os.environ


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--properties-file {file} pyspark-shell", {"spark.a": "file", "spark.b": "file"}),
        ("--properties-file={file} --conf spark.b=word", {"spark.a": "file", "spark.b": "word"}),
        (
            "--load-spark-defaults --properties-file {file}",
            {"spark.a": "file", "spark.b": "file", "spark.c": "defaults"},
        ),
        ("pyspark-shell", {"spark.a": "defaults", "spark.c": "defaults"}),
    ],
)
def test_a_properties_file_of_the_users_own_holds_as_spark_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, expected: dict[str, str]
) -> None:
    monkeypatch.setattr(_jvm, "is_running", lambda: False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text("spark.a defaults\nspark.c defaults\n", encoding="utf-8")
    (tmp_path / "mine.conf").write_text("spark.a file\nspark.b=file\n", encoding="utf-8")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", words.format(file=tmp_path / "mine.conf"))
    assert session.standing_options() == expected


def _command_lines(process: subprocess.Popen[bytes]) -> set[str]:
    """Those that anybody could read while the process ran."""
    seen: set[str] = set()
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while process.poll() is None:
        assert time.monotonic() < deadline
        for child in psutil.Process(process.pid).children(recursive=True):
            try:
                seen.add(" ".join(child.cmdline()))
            except psutil.Error:
                continue
        time.sleep(0.05)
    return seen


def test_no_secret_stands_on_a_command_line_or_in_what_a_run_leaves(tmp_path: Path) -> None:
    table = "\n".join(f'"{name}" = "{value}"' for name, value in SECRETS.items())
    run = (
        'name = "secrets"\ntransport = "block-stream"\nworkers = 1\nbatch = 50\nepochs = 1\n'
        '[data]\nsource = "digits"\n[model]\nname = "mlp"\nhidden = [8]\n'
        f'[spark]\nmaster = "local-cluster[1,1,1024]"\n{table}\n'
    )
    (tmp_path / "run.toml").write_text(run, encoding="utf-8")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "sparkdl_bench", "run", "run.toml", "--set", "results=results"],
            cwd=tmp_path,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "TMPDIR": str(temporary)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            lines = _command_lines(process)
        finally:
            process.kill()
            process.wait(TIMEOUT_SECONDS)
    said = (tmp_path / "log").read_text(encoding="utf-8")
    assert process.returncode == 0, said
    assert any("org.apache.spark.deploy.SparkSubmit" in line for line in lines)
    assert any("CoarseGrainedExecutorBackend" in line for line in lines)
    assert not [line for line in lines if "s3cr3t" in line]
    assert "s3cr3t" not in said
    assert not list(temporary.glob("sparkdl-bench-*"))
    (folder,) = (tmp_path / "results").iterdir()
    left = [file for file in folder.iterdir() if file.is_file()]
    assert {"run.json", "page.html", "events.jsonl", "summary.json"} <= {file.name for file in left}
    assert not [file.name for file in left if b"s3cr3t" in file.read_bytes()]
    assert "spark.hadoop.fs.s3a.secret.key" in (folder / "run.json").read_text(encoding="utf-8")
    for name in ("run.json", "page.html", "events.jsonl", "summary.json"):
        assert stat.S_IMODE((folder / name).stat().st_mode) & 0o007 == 0, name
