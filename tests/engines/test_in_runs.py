"""Runs whose engine is a Python process beside each worker: the same computation as in the executors' JVM."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conftest import ROOT, CommandLine
from signalling import is_progress
from sparkdl_bench import ConfigurationError, Trainer, doctor, engines
from sparkdl_bench.engines.numpy import KINDS
from sparkdl_bench.results import RunResults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DIGITS = "conf/runs/digits-mlp.toml"
HAS_TORCH = importlib.util.find_spec("torch") is not None
NEEDS_TORCH = pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is an extra: pip install 'sparkdl-bench[torch]'")


def history(spark: SparkSession, results: Path, engine: str, **settings: Any) -> list[dict[str, Any]]:
    common = {"batch": 32, "hidden": [32], "epochs": 3, "seed": 5, "transport": "block-stream"}
    trainer = Trainer("mlp", results=results, engine__name=engine, **{**common, **settings})
    return trainer.fit(spark).history


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("engine", ["numpy", pytest.param("torch", marks=NEEDS_TORCH)])
def test_the_losses_are_those_of_libtorch(spark: SparkSession, tmp_path: Path, engine: str, workers: int) -> None:
    settings = {"workers": workers, "learning_rate": 0.1, "momentum": 0.9, "schedule__warmup_steps": 20}
    wanted = history(spark, tmp_path, "libtorch", **settings)
    found = history(spark, tmp_path, engine, **settings)
    for own, other in zip(found, wanted, strict=True):
        assert own["train_loss"] == pytest.approx(other["train_loss"], rel=1e-4)
        assert own["test_loss"] == pytest.approx(other["test_loss"], rel=1e-4)
        assert own["test_accuracy"] == pytest.approx(other["test_accuracy"], abs=0.003)


@NEEDS_TORCH
def test_the_losses_on_a_gpu(spark: SparkSession, tmp_path: Path) -> None:
    if not pytest.importorskip("torch").cuda.is_available():
        pytest.skip("no GPU that PyTorch can use")
    wanted, found = (
        history(spark, tmp_path, engine, workers=1, engine__device=device)
        for engine, device in (("libtorch", "cpu"), ("torch", "cuda"))
    )
    for own, other in zip(found, wanted, strict=True):
        assert own["train_loss"] == pytest.approx(other["train_loss"], rel=1e-3)


@NEEDS_TORCH
def test_batch_normalisation_and_dropout_are_those_of_libtorch(spark: SparkSession, tmp_path: Path) -> None:
    spec = tmp_path / "net.toml"
    spec.write_text("""
name = "net"
input_shape = [1, 8, 8]
classes = 10
[[layers]]
name = "conv"
kind = "conv2d"
options = { in = 1, out = 4, kernel = 3, padding = 1 }
initializer = "he-normal"
[[layers]]
name = "norm"
kind = "batch-norm"
options = { channels = 4 }
initializer = "one"
[[layers]]
name = "relu"
kind = "relu"
[[layers]]
name = "drop"
kind = "dropout"
options = { rate = 0.25 }
[[layers]]
name = "fc"
kind = "linear"
options = { in = 256, out = 10 }
initializer = "xavier-uniform"
""")
    settings = {"model": {"name": "file", "spec": spec}, "epochs": 2, "learning_rate": 0.05, "workers": 2, "batch": 64}

    def losses(engine: str) -> list[float]:
        fitted = Trainer(results=tmp_path, engine__name=engine, transport="block-stream", **settings).fit(spark)
        return [record[name] for record in fitted.history for name in ("train_loss", "test_loss")]

    assert losses("torch") == pytest.approx(losses("libtorch"), rel=1e-3)


@pytest.mark.parametrize("engine", ["numpy", pytest.param("torch", marks=NEEDS_TORCH)])
def test_the_digits_from_the_command_line(command_line: CommandLine, tmp_path: Path, engine: str) -> None:
    alone = {"engine.name": engine, "engine.threads": "1", "workers": "1", "master": "local[1]"}
    words = [word for key, value in alone.items() for word in ("--set", f"{key}={value}")]
    done = command_line.run("run", DIGITS, "--set", f"results={tmp_path}", *words)
    assert done.returncode == 0, done.stderr
    (folder,) = tmp_path.iterdir()
    results = RunResults(folder)
    assert results.summary["final"]["test_accuracy"] >= 0.95
    facts = results.run["engine"]
    assert (facts["engine"], facts["device"], facts["threads"]) == (engine, "cpu", "1")
    assert engine in facts
    assert sum(results.summary["phases_ms"].values()) > results.summary["phases_ms"]["compute"] > 0


@pytest.mark.parametrize(
    ("assignments", "words"),
    [
        (["engine.name=numpy", "model.hidden=8", "engine.device=cuda"], "the engine 'numpy' has the CPU alone"),
        (["engine.name=numpy", "engine.blas=mkl"], "engine.blas=mkl was asked for"),
        (["engine.name=numpy", "engine.python=/no/such/python"], "'/no/such/python' cannot be started"),
        (["engine.name=libtorch", "engine.device=cuda:1"], "or engine.name=torch, which computes on a GPU"),
        # Without PyTorch that is what is told, before a JVM starts.
        (
            ["engine.name=torch", "engine.device=gpu"],
            "Valid: cpu, cuda, cuda:N" if HAS_TORCH else "pip install 'sparkdl-bench",
        ),
        (
            ["engine.name=torch", "engine.device=cuda:77"],
            "which PyTorch" if HAS_TORCH else "pip install 'sparkdl-bench",
        ),
    ],
)
def test_what_it_cannot_do_is_2_and_one_paragraph(
    command_line: CommandLine, tmp_path: Path, assignments: list[str], words: str
) -> None:
    given = [f"results={tmp_path}", "workers=1", "master=local[1]", *assignments]
    done = command_line.run("run", DIGITS, *(word for each in given for word in ("--set", each)))
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert len([line for line in done.stderr.splitlines() if not is_progress(line)]) == 1, done.stderr


def test_a_model_that_numpy_does_not_have_is_refused_before_any_job(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="layer 'conv1' is of kind 'conv2d'"):
        Trainer("lenet", "synthetic", data__shape="1,28,28", engine__name="numpy", results=tmp_path / "none").fit(spark)
    assert not (tmp_path / "none").exists()


def test_the_doctor_finds_a_python_that_is_not_there(spark: SparkSession) -> None:
    settings = {"engine.name": "numpy", "engine.python": "/no/such/python", "transport": "block-stream"}
    found = doctor.examine_session(spark, settings)
    # On the driver, before any job, and then on the executors, where it may be otherwise.
    assert [each.check for each in found] == ["engine", "native-libraries"]
    assert all("'/no/such/python' cannot be started" in each.message for each in found)


def test_both_sides_know_the_same_engines_and_kinds() -> None:
    folder = ROOT / "jvm" / "src" / "main" / "scala" / "sparkdlbench" / "engine" / "python"
    sources = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*Variant.scala")}
    names = {name for text in sources.values() for name in re.findall(r'def name = "(\w+)"', text)}
    assert names == set(engines.discover())
    listed = re.search(r"Kinds = Seq\((.*?)\)", sources["NumpyVariant.scala"])
    assert listed
    assert re.findall(r'"([\w-]+)"', listed[1]) == list(KINDS)
