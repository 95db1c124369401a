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

WINDOW = {"kernel": 3, "padding": 1}
# Small, with a graph: batch normalisation, dropout, a residual sum, a concatenation, means of whole channels.
GRAPH = [
    {
        "name": "conv1",
        "kind": "conv2d",
        "options": {"in": 1, "out": 6, "bias": 0, **WINDOW},
        "initializer": "he-normal",
    },
    {"name": "bn1", "kind": "batch-norm", "options": {"channels": 6}, "initializer": "one"},
    {"name": "relu1", "kind": "relu"},
    {"name": "conv2", "kind": "conv2d", "options": {"in": 6, "out": 6, **WINDOW}, "initializer": "he-normal"},
    {"name": "sum", "kind": "add", "inputs": ["conv2", "relu1"]},
    {"name": "drop", "kind": "dropout", "options": {"rate": 0.25}},
    {"name": "both", "kind": "concat", "inputs": ["drop", "relu1"]},
    {"name": "mean", "kind": "global-avg-pool"},
    {"name": "fc", "kind": "linear", "options": {"in": 12, "out": 10}, "initializer": "xavier-uniform"},
]


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
@pytest.mark.parametrize("net", ["mlp", "graph"])
def test_it_trains_what_libtorch_trains(command_line: CommandLine, tmp_path: Path, net: str) -> None:
    missing = peers.find("bigdl").missing(peers.default_directory())
    if missing:
        pytest.skip(missing)
    model: list[str] = []
    if net == "graph":
        specification = {"name": "graph", "input_shape": [1, 8, 8], "classes": 10, "layers": GRAPH}
        path = tmp_path / "graph.json"
        path.write_text(json.dumps(specification), encoding="utf-8")
        # 1,438 training rows: the last batch of an epoch is smaller.
        model = ["model.name=file", f"model.spec={path}", "batch=50"]
    losses = {}
    for engine in ("bigdl", "libtorch"):
        done = train(command_line, tmp_path / engine, f"engine.name={engine}", *model)
        assert done.returncode == 0, done.stderr
        (folder,) = (tmp_path / engine).iterdir()
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        losses[engine] = [epoch[loss] for epoch in summary["history"] for loss in ("train_loss", "test_loss")]
        assert json.loads((folder / "run.json").read_text(encoding="utf-8"))["engine"]["engine"] == engine
    assert losses["bigdl"] == pytest.approx(losses["libtorch"], rel=1e-4)
