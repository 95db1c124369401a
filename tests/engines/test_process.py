"""An engine in a process of its own, asked as the JVM asks it."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import golden
from conftest import ROOT
from sparkdl_bench import engines, models
from sparkdl_bench.engines import Batch
from sparkdl_bench.engines._losses import Loss
from sparkdl_bench.version import __version__

ROWS = 20
STEP, EVALUATION, PREDICTION = 1, 2, 3


class Asking:
    """What `PythonEngine` does in the JVM: makes the files, starts the process, asks."""

    def __init__(self, folder: Path, engine: str, model: str, **question: Any) -> None:
        self.content = json.loads((golden.FOLDER / f"{model}.json").read_text(encoding="utf-8"))["model"]
        self.spec = models.read(self.content)
        width = int(np.prod(self.spec.input_shape))
        self.parameters = self._file(folder, "parameters", np.float32, self.spec.parameter_count)
        self.gradients = self._file(folder, "gradients", np.float32, self.spec.parameter_count)
        self.statistics = self._file(folder, "statistics", np.float32, max(1, self.spec.statistics_count))
        self.parameters[:] = self.spec.initial_parameters(golden.SEED)
        self.statistics[: self.spec.statistics_count] = self.spec.initial_statistics()
        labels_at = -(-4 * ROWS * width // 8) * 8
        batch = self._file(folder, "batch", np.uint8, labels_at + 12 * ROWS)
        self.features = batch[: 4 * ROWS * width].view(np.float32).reshape(ROWS, width)
        self.labels = batch[labels_at : labels_at + 8 * ROWS].view(np.int64)
        self.ids = batch[labels_at + 8 * ROWS :].view(np.int32)
        folders = [str(ROOT / "python"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sparkdl_bench.engines._process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(folders), "OMP_NUM_THREADS": "1"},
        )
        first = {
            "version": __version__,
            "engine": engine,
            "device": "cpu",
            "seed": golden.SEED,
            "rows": ROWS,
            "loss": "cross-entropy",
            "delta": 1.0,
            "class_weights": [],
            "ignored_label": None,
            "model": self.content,
            "files": {name: str(folder / name) for name in ("parameters", "gradients", "statistics", "batch")},
            "labels_at": labels_at,
            "ids_at": labels_at + 8 * ROWS,
        }
        self._write(json.dumps({**first, **question}).encode() + b"\n")
        self.status, self.told = self._words()

    def compute(self, what: int, batch: Batch, weight: float, ids: list[int]) -> tuple[int, float, int]:
        """Status, sum of the losses, rows that are classified rightly."""
        rows = len(batch.labels)
        self.features[:rows], self.labels[:rows] = batch.features.reshape(rows, -1), batch.labels
        self.ids[:rows] = ids
        return self.ask(what, rows, batch.step, weight)

    def ask(self, what: int, rows: int, step: int = 0, weight: float = 1.0) -> tuple[int, float, int]:
        self._write(struct.pack(">iiqd", what, rows, step, weight))
        status = struct.unpack(">i", self._read(4))[0]
        if status:
            self.told = self._read(struct.unpack(">i", self._read(4))[0]).decode()
            return status, 0.0, 0
        loss, correct = struct.unpack(">dq", self._read(16))
        if what == EVALUATION:
            self.scores = np.frombuffer(self._read(struct.unpack(">i", self._read(4))[0]), ">f4").reshape(rows, -1)
        return 0, loss, correct

    def predict(self, features: Any) -> Any:
        """The class scores of rows."""
        rows = len(features)
        self.features[:rows] = features.reshape(rows, -1)
        self._write(struct.pack(">iiqd", PREDICTION, rows, 0, 1.0))
        status, length = struct.unpack(">ii", self._read(8))
        assert status == 0
        return np.frombuffer(self._read(length), ">f4").reshape(rows, -1)

    def end(self) -> int:
        """Its exit status; what it wrote to standard error is `said`."""
        _, said = self.process.communicate(timeout=60)
        self.said = said.decode()
        return self.process.returncode

    def _words(self) -> tuple[int, str]:
        status, length = struct.unpack(">ii", self._read(8))
        return status, self._read(length).decode()

    def _write(self, content: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(content)
        self.process.stdin.flush()

    def _read(self, count: int) -> bytes:
        assert self.process.stdout is not None
        content = self.process.stdout.read(count)
        assert len(content) == count, self.end()
        return content

    @staticmethod
    def _file(folder: Path, name: str, kind: Any, count: int) -> Any:
        return np.memmap(folder / name, kind, "w+", shape=(count,))


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Callable[..., Asking]]:
    made: list[Asking] = []

    def make(engine: str, model: str, **question: Any) -> Asking:
        made.append(Asking(tmp_path, engine, model, **question))
        return made[-1]

    yield make
    for each in made:
        # One that has ended has pipes, too, which would complain in a later test when they are collected.
        each.process.kill()
        each.process.wait()
        for pipe in (each.process.stdin, each.process.stdout, each.process.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


def test_a_regressions_labels_cross_as_the_bits_of_numbers(asking: Callable[..., Asking]) -> None:
    asked = asking("numpy", "mlp-784-100-50-10", loss="huber", delta=0.5)
    assert asked.status == 0, asked.told
    rng = np.random.default_rng(3)
    features = rng.normal(size=(4, 784)).astype(np.float32)
    labels = np.array([-1.5, 0.0, 3.25, 0.1], np.float32)
    asked.features[:4], asked.labels[:4], asked.ids[:4] = features, labels.view(np.int32), range(4)
    status, loss, _ = asked.ask(STEP, 4, weight=0.25)
    own = engines.find("numpy").load(asked.spec, golden.SEED, False, loss=Loss("huber", 0.5))
    # OpenBLAS sums in another order where buffers lie otherwise; labels that were read as other numbers are far away.
    assert (status, loss) == (0, pytest.approx(own.step(Batch(features, labels), 0.25), rel=1e-6))
    np.testing.assert_allclose(asked.gradients, own.gradients, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("engine", ["numpy", "torch"])
@pytest.mark.parametrize("loss", ["cross-entropy", "absolute", "huber", "mean-squared"])
def test_weights_cross_in_the_upper_halves_of_labels(asking: Callable[..., Asking], engine: str, loss: str) -> None:
    if engine == "torch":
        pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'sparkdl-bench[torch]'")
    asked = asking(engine, "mlp-784-100-50-10", loss=loss)
    rng = np.random.default_rng(3)
    features = rng.normal(size=(4, 784)).astype(np.float32)
    weights = np.array([2, 0, 1, 0.25], np.float32)
    labels: Any = np.array([0, 9, 3, 3]) if loss == "cross-entropy" else np.array([-1.5, 0, 3.25, -0.1], np.float32)
    lower = labels.astype(np.int32) if loss == "cross-entropy" else labels.view(np.int32)
    upper = (weights.view(np.int32) ^ np.float32(1).view(np.int32)).astype(np.int64)
    asked.features[:4], asked.ids[:4] = features, range(4)
    asked.labels[:4] = (upper << 32) | (lower.astype(np.int64) & 0xFFFFFFFF)
    status, found, _ = asked.ask(STEP, 4, weight=0.25)
    own = engines.find("numpy").load(asked.spec, golden.SEED, False, loss=Loss(loss))
    wanted = own.step(Batch(features, labels, weights=weights), 0.25)
    assert (status, found) == (0, pytest.approx(wanted, rel=1e-5))
    np.testing.assert_allclose(asked.gradients, own.gradients, atol=1e-5)
    assert wanted != pytest.approx(own.step(Batch(features, labels), 0.25), rel=0.01)


@pytest.mark.parametrize(("engine", "model"), [("numpy", "mlp-784-100-50-10"), ("torch", "every-layer")])
def test_it_computes_what_the_engine_computes(asking: Callable[..., Asking], engine: str, model: str) -> None:
    if engine == "torch":
        pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'sparkdl-bench[torch]'")
    other = asking(engine, model)
    assert other.status == 0, other.told
    facts = json.loads(other.told)
    assert facts["device"] == "cpu"
    assert facts["process"] == sys.executable
    assert engine in facts
    own = engines.find(engine).load(other.spec, golden.SEED, False)
    for step in range(3):
        rows = ROWS - step  # fewer than there is room for
        ids = [7 * row + step for row in range(rows)]  # which key dropout masks
        batch = golden.batch(other.spec, rows, step)
        status, loss, _ = other.compute(STEP, batch, 1 / rows, ids)
        wanted = own.step(Batch(batch.features, batch.labels, ids, batch.step), 1 / rows)
        assert (status, loss) == (0, pytest.approx(wanted, rel=1e-5))
        scores = other.predict(batch.features)
        own.parameters[:], own.statistics[:] = other.parameters, other.statistics[: own.statistics.size]
        np.testing.assert_allclose(scores, own.predict(batch), rtol=1e-5, atol=1e-5)
        shifted = np.exp(scores.astype(float))
        losses = -np.log((shifted / shifted.sum(axis=1, keepdims=True))[np.arange(rows), batch.labels])
        assert own.evaluate(batch).loss_sum == pytest.approx(losses.sum(), rel=1e-4)
        np.testing.assert_allclose(other.gradients, own.gradients, rtol=1e-3, atol=1e-6)
        for one in (other.parameters, own.parameters):
            one[:] -= np.float32(0.05) * own.gradients
    np.testing.assert_allclose(other.statistics[: other.spec.statistics_count], own.statistics, rtol=1e-5)
    batch = golden.batch(other.spec, ROWS, golden.TEST)
    found = own.evaluate(batch)
    told = other.compute(EVALUATION, batch, 1.0, list(range(ROWS)))
    assert told == (0, pytest.approx(found.loss_sum, rel=1e-5), found.correct)
    assert other.end() == 0  # with its requests
    assert other.said == ""


@pytest.mark.parametrize(
    ("engine", "question", "words"),
    [
        ("numpy", {"version": "9.9.9"}, "The jar of sparkdl-bench is of version 9.9.9"),
        ("numpy", {"device": "cuda"}, "it has the CPU alone"),
        ("tensor", {}, "There is no engine 'tensor' of one process. Valid: numpy, torch."),
        ("torch", {"device": "cuda:77"}, "device 'cuda:77', which PyTorch"),
    ],
)
def test_what_the_user_can_mend_is_told(
    asking: Callable[..., Asking], engine: str, question: dict[str, Any], words: str
) -> None:
    if engine == "torch":
        pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'sparkdl-bench[torch]'")
    refused = asking(engine, "mlp-784-100-50-10", **question)
    assert refused.status == 1
    assert words in refused.told
    assert "\n" not in refused.told
    assert refused.end() == 0


def test_a_model_that_numpy_does_not_have(asking: Callable[..., Asking]) -> None:
    refused = asking("numpy", "lenet")
    assert (refused.status, "layer 'conv1' is of kind 'conv2d'" in refused.told) == (1, True)


def test_a_failure_is_told_and_the_next_request_answered(asking: Callable[..., Asking]) -> None:
    other = asking("numpy", "softmax")
    assert other.ask(STEP, ROWS + 1)[0] == 2
    assert other.told == f"ValueError: a batch of {ROWS + 1} rows was given to an engine loaded for at most {ROWS}"
    assert other.ask(9, ROWS)[0] == 2
    batch = golden.batch(other.spec, ROWS, 0)
    assert other.compute(STEP, batch, 1 / ROWS, list(range(ROWS)))[0] == 0
    assert other.end() == 0
    assert other.said.count("Traceback") == 2
