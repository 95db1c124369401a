"""What `MultipliersSuite` holds our optimisers against: PyTorch's with a parameter group for each tensor.

    python tests/golden_multipliers.py jvm/src/test/resources/golden/multipliers.json

Start, gradients and groups follow from the file itself: weights uniform-1 of seed 1, the gradient of step s uniform-1
of seed 100 + s, each over the whole vector; `groups` are (length, learning rate's factor, weight decay's factor).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]

from sparkdl_bench.models import initializers

GROUPS = [(70, 1.0, 1.0), (7, 2.0, 0.0), (40, 0.5, 3.0), (3, 0.0, 1.0)]
LENGTH = sum(length for length, _, _ in GROUPS)
STEPS = 10
RATE, DECAY = 0.05, 0.01
OPTIMIZERS: list[tuple[dict[str, str], Any, dict[str, Any]]] = [
    ({"optimizer.name": "sgd"}, torch.optim.SGD, {}),
    ({"optimizer.name": "sgd", "optimizer.momentum": "0.9"}, torch.optim.SGD, {"momentum": 0.9}),
    (
        {"optimizer.name": "sgd", "optimizer.momentum": "0.9", "optimizer.nesterov": "true"},
        torch.optim.SGD,
        {"momentum": 0.9, "nesterov": True},
    ),
    ({"optimizer.name": "adam"}, torch.optim.Adam, {}),
    ({"optimizer.name": "adamw"}, torch.optim.AdamW, {}),
    ({"optimizer.name": "adagrad"}, torch.optim.Adagrad, {"eps": 1e-8}),
]


def trained(make: Any, options: dict[str, Any]) -> list[float]:
    """The weights after all steps, in double precision."""
    start = torch.from_numpy(initializers.values("uniform-1", (LENGTH,), 1, 0).astype(np.float64))
    tensors = list(torch.split(start, [length for length, _, _ in GROUPS]))
    optimizer = make(
        [
            {"params": [tensor], "lr": RATE * rate, "weight_decay": DECAY * decay}
            for tensor, (_, rate, decay) in zip(tensors, GROUPS, strict=True)
        ],
        **options,
    )
    for step in range(STEPS):
        gradient = torch.from_numpy(initializers.values("uniform-1", (LENGTH,), 100 + step, 0).astype(np.float64))
        for tensor, part in zip(tensors, torch.split(gradient, [length for length, _, _ in GROUPS]), strict=True):
            tensor.grad = part.clone()
        optimizer.step()
    return [float(value) for value in torch.cat(tensors)]


def main(path: Path) -> None:
    content = {
        "groups": GROUPS,
        "steps": STEPS,
        "learning_rate": RATE,
        "weight_decay": DECAY,
        "optimizers": [
            {"settings": settings, "weights": trained(make, options)} for settings, make, options in OPTIMIZERS
        ],
    }
    path.write_text(json.dumps(content) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
