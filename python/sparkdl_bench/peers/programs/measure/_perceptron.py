"""The multilayer perceptron that PyTorch's programs measure."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]


def perceptron(case: dict[str, Any]) -> Any:
    """Linear layers with ReLU in between, their initial weights PyTorch's own."""
    widths = [case["features"], *case["hidden"], case["classes"]]
    layers: list[Any] = []
    for wide, narrow in pairwise(widths):
        layers += [torch.nn.Linear(wide, narrow), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])
