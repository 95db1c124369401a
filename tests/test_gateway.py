"""The driver's JVM tells its port, or the command says within a bound why it does not. `spark-submit` is a script."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from sparkdl_bench import _jvm, gateway
from sparkdl_bench.errors import ConfigurationError

Submit = Callable[[str], None]


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Submit:
    """Makes a `spark-submit` of a shell script's text; temporary folders are in `tmp_path / "tmp"`."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    for variable in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        monkeypatch.delenv(variable, raising=False)

    def write(text: str) -> None:
        script = tmp_path / "bin" / "spark-submit"
        script.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        script.chmod(0o755)

    return write


def fails(said: str, limit: float = 60) -> None:
    """The launch fails with these words, and leaves neither processes nor folders."""
    began = time.monotonic()
    before = psutil.Process().children(recursive=True)
    with pytest.raises(gateway.GatewayError, match=said):
        gateway.launch(limit=limit)
    assert time.monotonic() - began < 30
    assert psutil.Process().children(recursive=True) == before


def test_a_jvm_that_never_listens_is_ended(submit: Submit, tmp_path: Path) -> None:
    submit("exec sleep 600")
    fails("did not listen within 0.5 seconds", limit=0.5)
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize("status", [0, 3])
def test_a_jvm_that_ends_is_not_waited_for(submit: Submit, tmp_path: Path, status: int) -> None:
    submit(f"exit {status}")
    fails(f"ended with status {status}")
    assert not list((tmp_path / "tmp").iterdir())


def test_a_jvm_with_nowhere_to_tell_its_port_is_ended(submit: Submit, tmp_path: Path) -> None:
    submit('rm -r "$(dirname "$_PYSPARK_DRIVER_CONN_INFO_PATH")"\nexec sleep 600')
    fails("the folder '.*sparkdl-gateway-.*', where it tells its port, was removed")
    assert not list((tmp_path / "tmp").iterdir())


def test_a_jvm_that_names_a_dead_port_is_ended(submit: Submit) -> None:
    # Port 1, and a secret of one letter: numbers are big-endian.
    submit(r'printf "\0\0\0\1\0\0\0\1s" > "$_PYSPARK_DRIVER_CONN_INFO_PATH"; exec sleep 600')
    before = psutil.Process().children(recursive=True)
    with pytest.raises(Exception, match=r"(?i)connect|refused|network"):
        gateway.launch()
    assert psutil.Process().children(recursive=True) == before
    assert "PYSPARK_GATEWAY_PORT" not in os.environ
    assert "PYSPARK_GATEWAY_SECRET" not in os.environ


def test_the_user_reads_why_the_jvm_did_not_start(
    submit: Submit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark import SparkContext

    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(_jvm, "_quiet_py4j", lambda: None)
    submit('echo "Exception: of no use" >&2; rm -r "$(dirname "$_PYSPARK_DRIVER_CONN_INFO_PATH")"\nexec sleep 600')
    with (tmp_path / "log").open("w+b") as log:
        with pytest.raises(ConfigurationError, match=r"did not start: the folder '.*was removed while it started"):
            _jvm.start({"spark.master": "local[1]"}, log)
        log.truncate(0)
        submit('echo "java.lang.Exception: the port is taken" >&2; exit 1')
        with pytest.raises(ConfigurationError, match=r"did not start: .*the port is taken"):
            _jvm.start({"spark.master": "local[1]"}, log)
