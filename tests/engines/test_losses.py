"""The losses: in NumPy, in the engine's process, and beside PyTorch where that is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparkdl_bench import ConfigurationError, engines, models
from sparkdl_bench.engines import Batch
from sparkdl_bench.engines._losses import NAMES, Loss

REGRESSIONS = [name for name in NAMES if Loss(name).is_regression]
MODEL = {
    "schema": 1,
    "name": "line",
    "input_shape": [3],
    "classes": 1,
    "layers": [{"name": "fc", "kind": "linear", "options": {"in": 3, "out": 1}, "initializer": "zero"}],
}


def batch(rows: int = 7) -> Batch:
    rng = np.random.default_rng(1)
    return Batch(rng.normal(size=(rows, 3)).astype(np.float32), (2 * rng.normal(size=rows)).astype(np.float32))


@pytest.mark.parametrize("name", [*REGRESSIONS, "binary-cross-entropy"])
def test_a_step_is_the_loss_and_its_derivative(name: str) -> None:
    engine = engines.find("numpy").load(models.read(MODEL), 0, True, loss=Loss(name, 0.8))
    weights = np.array([0.3, -0.2, 0.5, 0.1])
    rows = batch()
    if name == "binary-cross-entropy":
        rows = Batch(rows.features, (rows.labels > 0).astype(np.float32))

    def loss(at: Any) -> float:
        engine.parameters[:] = at
        found = engine.evaluate(rows)
        assert found.rows == 7
        right = (found.scores[:, 0] > 0) == (rows.labels > 0.5)
        assert found.correct == (0 if name in REGRESSIONS else right.sum())
        return found.loss_sum

    wanted = [(loss(weights + step) - loss(weights - step)) / 2e-6 for step in 1e-6 * np.eye(4)]
    engine.parameters[:] = weights
    assert engine.step(rows, 0.5) == pytest.approx(loss(weights))
    np.testing.assert_allclose(engine.gradients, 0.5 * np.array(wanted), atol=1e-5)


@pytest.mark.parametrize("name", REGRESSIONS)
def test_as_pytorch_has_them(name: str) -> None:
    torch = pytest.importorskip("torch")
    of = {"mean-squared": torch.nn.MSELoss, "absolute": torch.nn.L1Loss, "huber": torch.nn.HuberLoss}[name]
    given = {"delta": 0.8} if name == "huber" else {}
    outputs = torch.tensor([[0.2], [-3.0], [1.0], [0.5]], requires_grad=True)
    labels = np.array([0.0, 1.0, 1.0, 2.0], np.float32)
    wanted = of(reduction="sum", **given)(outputs, torch.from_numpy(labels)[:, None])
    wanted.backward()
    loss, gradient = Loss(name, 0.8).of(outputs.detach().numpy(), labels)
    assert loss == pytest.approx(wanted.item())
    np.testing.assert_allclose(gradient, outputs.grad.numpy(), atol=1e-6)


@pytest.mark.parametrize("ignored", [None, -1])
def test_binary_cross_entropy_as_pytorch_has_it(ignored: int | None) -> None:
    torch = pytest.importorskip("torch")
    outputs = torch.tensor([[0.2, -3.0, 90.0], [-90.0, 0.0, 4.0]], requires_grad=True)
    labels = np.array([[1, 0, 0], [0.5, 1, 1 if ignored is None else -1]], np.float32)
    counted = torch.from_numpy(labels >= 0).float()
    each = torch.nn.BCEWithLogitsLoss(weight=counted, reduction="sum")(outputs, torch.from_numpy(labels).clamp(min=0))
    (each / 3).backward()
    loss = Loss("binary-cross-entropy", ignored_label=ignored)
    found, gradient = loss.of(outputs.detach().numpy(), labels)
    assert found == pytest.approx(each.item() / 3)
    np.testing.assert_allclose(gradient, outputs.grad.numpy(), atol=1e-6)
    linear = {"name": "fc", "kind": "linear", "options": {"in": 3, "out": 3}, "initializer": "zero"}
    spec = models.read({**MODEL, "classes": 3, "layers": [linear]})
    features = np.random.default_rng(6).normal(size=(2, 3)).astype(np.float32)
    told = []
    for engine in ("numpy", "torch"):
        loaded = engines.find(engine).load(spec, 0, True, loss=loss)
        loaded.parameters[:] = np.random.default_rng(7).normal(size=len(loaded.parameters))
        summed = loaded.step(Batch(features, labels), 0.5)
        evaluated = loaded.evaluate(Batch(features, labels))
        told.append((summed, np.array(loaded.gradients), evaluated.rows, evaluated.correct))
    assert told[0][0] == pytest.approx(told[1][0])
    np.testing.assert_allclose(told[0][1], told[1][1], atol=1e-9)
    assert told[0][2:] == told[1][2:]


def test_class_weights_count_a_row_as_often_as_they_say() -> None:
    rng = np.random.default_rng(2)
    logits, labels = rng.normal(size=(4, 3)), np.array([0, 2, 1, 2])
    loss, gradient = Loss(class_weights=(1.0, 0.0, 2.0)).of(logits, labels)
    often = np.array([0, 1, 1, 3, 3])
    wanted, each = Loss().of(logits[often], labels[often])
    assert loss == pytest.approx(wanted)
    np.testing.assert_allclose(gradient, [each[0], 2 * each[1], 0 * each[0], 2 * each[3]], atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("class_weights", [(), (1.0, 0.5, 2.0)])
def test_row_weights_count_a_row_as_often_as_they_say(name: str, class_weights: tuple[float, ...]) -> None:
    rng = np.random.default_rng(3)
    classes = name == "cross-entropy"
    outputs = rng.normal(size=(4, 1 if Loss(name).is_regression else 3))
    labels = np.array([0, 2, 1, 2]) if classes else rng.normal(size=4)
    if name == "binary-cross-entropy":
        labels = rng.integers(0, 2, (4, 3)).astype(np.float32)
    loss = Loss(name, 0.8, class_weights)
    found, gradient = loss.of(outputs, labels, np.array([2, 0, 1, 3], np.float32))
    often = np.array([0, 0, 2, 3, 3, 3])
    wanted, each = loss.of(outputs[often], labels[often])
    assert found == pytest.approx(wanted)
    np.testing.assert_allclose(gradient, [2 * each[0], 0 * each[0], each[2], 3 * each[3]], atol=1e-12)


@pytest.mark.parametrize("engine", ["numpy", "torch"])
@pytest.mark.parametrize("ignored", [-1, 1, 255])
def test_a_row_whose_label_is_ignored_is_as_none(engine: str, ignored: int) -> None:
    if engine == "torch":
        pytest.importorskip("torch")
    linear = {"name": "fc", "kind": "linear", "options": {"in": 3, "out": 3}, "initializer": "zero"}
    spec = models.read({**MODEL, "classes": 3, "layers": [linear]})
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(6, 3)).astype(np.float32)
    labels = np.array([0, ignored, 2, ignored, 0, 2])
    kept = labels != ignored
    found = []
    for batch in (Batch(rows, labels), Batch(rows[kept], labels[kept])):
        loss = Loss(class_weights=(1.0, 0.5, 2.0), ignored_label=ignored)
        loaded = engines.find(engine).load(spec, 0, True, loss=loss)
        loaded.parameters[:] = np.random.default_rng(5).normal(size=len(loaded.parameters))
        summed = loaded.step(batch, 0.5)
        found.append((summed, loaded.evaluate(batch), np.array(loaded.gradients)))
    (one, evaluation, gradient), (other, wanted, wanted_gradient) = found
    assert one == pytest.approx(other)
    assert (evaluation.rows, evaluation.correct) == (4, wanted.correct)
    assert wanted.rows == 4
    assert evaluation.loss_sum == pytest.approx(wanted.loss_sum)
    np.testing.assert_allclose(gradient, wanted_gradient, atol=1e-9)


def test_what_is_no_loss() -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"There is no loss 'mse'\. Valid: absolute, binary-cross-entropy, cross-entropy, huber",
    ):
        Loss("mse")
    with pytest.raises(ConfigurationError, match="delta is 0"):
        Loss("huber", 0)
