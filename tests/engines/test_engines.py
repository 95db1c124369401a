"""The engines of one process against the golden files (PyTorch in double precision) and against one another."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import golden
from sparkdl_bench import engines, models
from sparkdl_bench.errors import ConfigurationError

TOLERANCE = 1e-4
NAMES = sorted(path.stem for path in golden.FOLDER.glob("*.json"))
PERCEPTRONS = [name for name in NAMES if name.startswith(("softmax", "mlp"))]


def contents(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((golden.FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


def compare(engine_name: str, name: str) -> None:
    file = contents(name)
    spec = models.read(file["model"])
    engine = engines.find(engine_name).load(spec, golden.SEED, False)
    found = golden.measure(engine, spec, file["rows"], file["learning_rate"])
    assert golden.deviation(found, file) <= golden.tolerance(file)
    assert found["losses"] == pytest.approx(file["losses"], rel=TOLERANCE)


def test_every_engine_is_found_by_name() -> None:
    assert set(engines.discover()) == {"numpy", "torch"}
    with pytest.raises(ConfigurationError, match="numpy, torch"):
        engines.find("tensor")


@pytest.mark.parametrize("name", PERCEPTRONS)
def test_numpy_is_pytorch(name: str) -> None:
    compare("numpy", name)


@pytest.mark.parametrize("name", NAMES)
def test_torch_repeats_the_golden_files(name: str) -> None:
    pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'sparkdl-bench[torch]'")
    compare("torch", name)


def test_numpy_refuses_what_it_cannot_compute() -> None:
    spec = models.read(contents("lenet")["model"])
    with pytest.raises(ConfigurationError, match="layer 'conv1' is of kind 'conv2d'"):
        engines.find("numpy").load(spec, 0, False)


def test_numpy_gradients_agree_with_central_differences() -> None:
    file = contents("mlp-784-100-50-10")
    spec = models.read(file["model"])
    engine = engines.find("numpy").load(spec, 3, True)
    rows = golden.batch(spec, 5, 2)
    engine.step(rows, 1.0)
    gradient = engine.gradients.copy()
    for index in (0, 10_000, 78_399, 78_450, 83_500, 84_009):
        value, h = engine.parameters[index], 1e-5
        engine.parameters[index] = value + h
        above = engine.evaluate(rows).loss_sum
        engine.parameters[index] = value - h
        below = engine.evaluate(rows).loss_sum
        engine.parameters[index] = value
        assert (above - below) / (2 * h) == pytest.approx(gradient[index], rel=1e-5, abs=1e-8)


def test_it_learns() -> None:
    spec = models.read(contents("mlp-784-100-50-10")["model"])
    engine = engines.find("numpy").load(spec, 0, False)
    for step in range(60):
        rows = golden.batch(spec, 20, step)
        engine.step(rows, 1 / 20)
        engine.parameters[:] -= np.float32(0.1) * engine.gradients
    test = golden.batch(spec, 100, 1000)
    evaluation = engine.evaluate(test)
    assert evaluation.rows == 100
    assert evaluation.correct >= 95


def test_text_that_is_no_specification_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not a model specification"):
        models.read("{}")
