"""What the golden files of the models hold, and how PyTorch finds it: python tests/golden.py FOLDER.

The folder holds NAME.json as `sparkdlbench.model.ParityModels` writes them (rows, learning_rate, model); this adds
loss, gradient and losses in double precision. Rows, fingerprints and steps are those of `ParityModels` and
`ParityProbe`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from sparkdl_bench import engines, models
from sparkdl_bench.engines import Batch, Engine
from sparkdl_bench.models import ModelSpec, initializers

FOLDER = Path(__file__).resolve().parents[1] / "jvm" / "src" / "test" / "resources" / "golden" / "models"
SEED = 1
STEPS = 20
TEST = 99


def batch(spec: ModelSpec, rows: int, step: int) -> Batch:
    """Row r of class c = (3 r + step) mod classes: uniform-0.5, plus 1 at each place i with i mod classes = c."""
    width = int(np.prod(spec.input_shape))
    noise = initializers.values("uniform-0.5", (rows, width), 1000 + step, 0).reshape(rows, width)
    labels = np.array([(3 * row + step) % spec.classes for row in range(rows)], np.int64)
    marks = np.arange(width)[None, :] % spec.classes == labels[:, None]
    features = noise + marks.astype(np.float32)
    return Batch(features.reshape(rows, *spec.input_shape), labels, step=step)


def fingerprint(spec: ModelSpec, gradient: Any) -> list[list[float]]:
    """Norm and two projections of each tensor's gradient."""
    found = []
    for index, tensor in enumerate(spec.parameters):
        values = gradient[tensor.offset : tensor.offset + tensor.length].astype(np.float64)
        projections = [
            float(values @ initializers.values("uniform-1", tensor.shape, seed, index).astype(np.float64))
            for seed in (77, 78)
        ]
        found.append([float(np.linalg.norm(values)), *projections])
    return found


def measure(engine: Engine, spec: ModelSpec, rows: int, learning_rate: float) -> dict[str, Any]:
    """Mean loss and gradient of step 0, the mean losses of 20 steps of plain SGD, and the mean test loss after them."""
    losses = [_step(engine, spec, rows, 0)]
    gradient = fingerprint(spec, engine.gradients)
    for step in range(1, STEPS if learning_rate > 0 else 0):
        engine.parameters[:] -= engine.parameters.dtype.type(learning_rate) * engine.gradients
        losses.append(_step(engine, spec, rows, step))
    test = engine.evaluate(batch(spec, rows, TEST)).loss_sum / rows
    return {"loss": losses[0], "gradient": gradient, "losses": losses if learning_rate > 0 else [], "test_loss": test}


def deviation(found: dict[str, Any], exact: dict[str, Any]) -> float:
    """By how much loss and gradient differ, relative to the loss and to each tensor's norm."""
    whole = float(np.linalg.norm([each[0] for each in exact["gradient"]]))
    parts = [abs(found["loss"] / exact["loss"] - 1), abs(found["test_loss"] / exact["test_loss"] - 1)]
    for own, other in zip(found["gradient"], exact["gradient"], strict=True):
        scale = max(other[0], 1e-2 * whole)
        parts.append(max(abs(one - two) for one, two in zip(own, other, strict=True)) / scale)
    return max(parts)


def tolerance(content: dict[str, Any]) -> float:
    """1e-4, or four times what PyTorch's own single precision is off where a net amplifies rounding by more."""
    return max(1e-4, 4 * float(content["single_precision_error"]))


def _step(engine: Engine, spec: ModelSpec, rows: int, step: int) -> float:
    return engine.step(batch(spec, rows, step), 1 / rows) / rows


def main(folder: Path) -> None:
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        spec = models.read(content["model"])
        exact, single = (
            measure(engines.find("torch").load(spec, SEED, double), spec, content["rows"], content["learning_rate"])
            for double in (True, False)
        )
        found = {**exact, "single_precision_error": deviation(single, exact)}
        path.write_text(json.dumps({**content, **found}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
