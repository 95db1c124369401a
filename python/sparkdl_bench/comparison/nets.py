"""A net that fits data, and how it is trained: a start that learns, not the best that there is."""

from __future__ import annotations

from math import prod

from sparkdl_bench.comparison.look import Look

_SMALLEST_BATCH, _LARGEST_BATCH = 8, 128
_SMALLEST_HIDDEN, _LARGEST_HIDDEN = 32, 1024


def fitting(found: Look) -> dict[str, str]:
    """Keys of a run: a convolutional net for images of its own sizes, else an MLP of one hidden layer."""
    batch = _LARGEST_BATCH
    while batch > _SMALLEST_BATCH and 0 < found.rows < 40 * batch:
        batch //= 2
    common = {"batch": str(batch), "seed": "1", "optimizer.name": "sgd", "optimizer.momentum": "0.9"}
    if found.shape == (1, 28, 28):
        return {**common, "model.name": "lenet", "optimizer.learning_rate": "0.01"}
    if found.shape == (3, 32, 32):
        return {**common, "model.name": "cifar-quick", "optimizer.learning_rate": "0.001"}
    width = _SMALLEST_HIDDEN
    while width < min(prod(found.shape), _LARGEST_HIDDEN):
        width *= 2
    return {**common, "model.name": "mlp", "model.hidden": str(width), "optimizer.learning_rate": "0.05"}


def described(settings: dict[str, str]) -> str:
    """`mlp with 64 hidden values, batch 32`."""
    hidden = f" with {settings['model.hidden']} hidden values" if "model.hidden" in settings else ""
    return f"{settings.get('model.name', 'mlp')}{hidden}, batch {settings.get('batch', '128')}"
