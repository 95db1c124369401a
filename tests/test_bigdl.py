"""The engine `bigdl` through the command line: a whole run on Spark 3.5, a reason on Spark 4."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyspark
import pytest

from conftest import ROOT, CommandLine
from sparkdl_bench import peers
from sparkdl_bench.jarfiles import spark_line

LINE = spark_line(pyspark.__version__)


def train(command_line: CommandLine, folder: Path, *settings: str) -> Any:
    words = [word for setting in (f"results={folder}", "epochs=2", *settings) for word in ("--set", setting)]
    return command_line.run("run", str(ROOT / "conf" / "runs" / "digits-mlp.toml"), *words)


@pytest.mark.skipif(LINE == "3.5", reason="this is Spark 3.5")
def test_spark_4_is_refused_before_any_job(command_line: CommandLine, tmp_path: Path) -> None:
    done = train(command_line, tmp_path, "engine.name=bigdl")
    assert done.returncode == 2
    assert "engine.name=bigdl needs Spark 3.5" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(LINE != "3.5", reason="BigDL is for Spark 3.5")
def test_it_trains_what_libtorch_trains(command_line: CommandLine, tmp_path: Path) -> None:
    missing = peers.find("bigdl").missing(peers.default_directory())
    if missing:
        pytest.skip(missing)
    losses = {}
    for engine in ("bigdl", "libtorch"):
        done = train(command_line, tmp_path / engine, f"engine.name={engine}")
        assert done.returncode == 0, done.stderr
        (folder,) = (tmp_path / engine).iterdir()
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        losses[engine] = [epoch["train_loss"] for epoch in summary["history"]]
        assert json.loads((folder / "run.json").read_text(encoding="utf-8"))["engine"]["engine"] == engine
    assert losses["bigdl"] == pytest.approx(losses["libtorch"], rel=1e-4)
