"""Models as a training leaves them, with weights of a seed."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparkdl_bench import Model, models, saved


def normal(specification: dict[str, Any], rows: dict[str, Any], seed: int) -> Model:
    """A model without running statistics, its weights drawn from a normal distribution."""
    random = np.random.default_rng(seed)
    places = models.read(specification).parameters
    weights = {place.name: random.normal(size=place.shape).astype(np.float32) for place in places}
    return Model(saved.SavedModel(specification, weights, rows))


def perceptron(classes: int = 3, **rows: Any) -> Model:
    """Of two values, with four hidden units.

    Args:
        rows: what it knows of its rows, besides their shape: names of columns, of classes.
    """
    layers = [
        {"name": "fc1", "kind": "linear", "options": {"in": 2, "out": 4}},
        {"name": "relu1", "kind": "relu"},
        {"name": "fc2", "kind": "linear", "options": {"in": 4, "out": classes}},
    ]
    written = {"name": "mlp", "input_shape": [2], "classes": classes, "layers": layers}
    return normal(written, {"shape": [2], **rows}, seed=1)
