"""What the golden files of the models hold, and how PyTorch finds it: python tests/golden.py FOLDER.

The folder holds NAME.json as `sparkdlbench.model.ParityModels` writes them (rows, learning_rate, model); this adds
what `measure` finds in double precision, and how well it is conditioned:

* `single_precision_error`: by how much PyTorch's own single precision is off;
* `perturbed_error`: by how much all of it changes, at most, with initial weights that are off by `PERTURBATION`;
* `untrained_loss`: of the last step's rows, with the initial weights.

Rows, fingerprints and steps are those of `ParityModels` and `ParityProbe`.
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

# Of losses, and of a gradient relative to its tensor's norm.
TOLERANCE = 1e-4
# Of each weight, relative: more than what rounding does to activations, so that none of them is near enough to a kink
# (of a ReLU, of max-pooling) for engines to differ about its side. Beyond a kink the gradient is another one.
PERTURBATION = 5e-7
# So many times, each with other deviations: whether one of them meets a kink is chance.
PERTURBED = 3


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
    for step in range(1, STEPS):
        engine.parameters[:] -= engine.parameters.dtype.type(learning_rate) * engine.gradients
        losses.append(_step(engine, spec, rows, step))
    test = engine.evaluate(batch(spec, rows, TEST)).loss_sum / rows
    return {"loss": losses[0], "gradient": gradient, "losses": losses, "test_loss": test}


def deviation(found: dict[str, Any], exact: dict[str, Any]) -> float:
    """By how much losses and gradient differ, relative to the loss and to each tensor's norm.

    A tensor's norm counts as 1 % of the whole gradient's where it is less.
    """
    losses = zip(*([each["loss"], each["test_loss"], *each["losses"]] for each in (found, exact)), strict=True)
    parts = [abs(own / other - 1) for own, other in losses]
    whole = float(np.linalg.norm([each[0] for each in exact["gradient"]]))
    for own, other in zip(found["gradient"], exact["gradient"], strict=True):
        # Some gradients are zero but for rounding: those of a bias that batch normalisation takes away again.
        scale = max(other[0], 1e-2 * whole)
        parts.append(max(abs(one - two) for one, two in zip(own, other, strict=True)) / scale)
    return float(np.max(parts))


def objections(content: dict[str, Any]) -> list[str]:
    """Why a golden file would prove nothing, or fail engines that are right."""
    moved = abs(content["losses"][-1] / content["untrained_loss"] - 1)
    found = [] if moved >= 100 * TOLERANCE else [f"20 steps move the loss by {moved:.1e}: train faster"]
    return found + [
        f"{error} is {content[error]:.1e}: train more slowly, or take other rows or initial weights"
        for error in ("single_precision_error", "perturbed_error")
        if not content[error] <= TOLERANCE / 4
    ]


def single(engine_name: str, content: dict[str, Any]) -> dict[str, Any]:
    """What an engine finds in single precision for a golden file's content."""
    spec = models.read(content["model"])
    return measure(engines.find(engine_name).load(spec, SEED, False), spec, content["rows"], content["learning_rate"])


def repeat(folder: Path, out: str) -> None:
    """Writes to `out` what PyTorch finds in single precision: by name of the golden file."""
    contents = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    found = {name: single("torch", content) for name, content in contents.items()}
    Path(out).write_text(json.dumps(found), encoding="utf-8")


def _step(engine: Engine, spec: ModelSpec, rows: int, step: int) -> float:
    return engine.step(batch(spec, rows, step), 1 / rows) / rows


def main(folder: Path) -> None:
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        content.update(_exact(content))
        path.write_text(json.dumps(content) + "\n", encoding="utf-8")
        for objection in objections(content):
            print(f"{path.stem}: {objection}")


def _exact(content: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a golden file."""
    spec, rows = models.read(content["model"]), content["rows"]

    def load() -> Engine:
        return engines.find("torch").load(spec, SEED, True)

    untrained = _step(load(), spec, rows, STEPS - 1)
    exact = measure(load(), spec, rows, content["learning_rate"])
    perturbed = []
    for chance in range(PERTURBED):
        off = load()
        off.parameters[:] *= 1 + PERTURBATION * np.random.default_rng(chance).standard_normal(spec.parameter_count)
        perturbed.append(deviation(measure(off, spec, rows, content["learning_rate"]), exact))
    return {
        **exact,
        "single_precision_error": deviation(single("torch", content), exact),
        "perturbed_error": max(perturbed),
        "untrained_loss": untrained,
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
