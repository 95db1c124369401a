"""Engines of one process, over the same specification as the JVM's: yardsticks and oracles, no Spark. One file each.

A run takes one by its name too (`engine.name`): `_process` then puts it beside each task, over memory that both map.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sparkdl_bench.engines._losses import CROSS_ENTROPY, Loss
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.models import ModelSpec

Values = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Batch:
    """Rows ready to compute on.

    Attributes:
        features: rows × input shape.
        labels: class of each row; of a regression its number, of answers 0 or 1 for each output, fp32.
        ids: ids of the rows in the data set, None for 0, 1, …; with `step` they key dropout masks.
        step: number of the training step.
        weights: what each row's loss is multiplied by, None: all count alike.
    """

    features: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64] | npt.NDArray[np.float32]
    ids: Sequence[int] | None = None
    step: int = 0
    weights: npt.NDArray[np.float32] | None = None

    @property
    def row_ids(self) -> list[int]:
        return list(range(len(self.labels))) if self.ids is None else list(self.ids)


@dataclass(frozen=True)
class Evaluation:
    """Sums over the rows that count (`Loss.ignored_label`).

    Attributes:
        correct: rows that are classified rightly; 0 of a regression.
        scores: what the model gives for every row, rows × outputs.
    """

    rows: int
    loss_sum: float
    correct: int
    scores: Values


@dataclass(frozen=True)
class Memory:
    """Flat arrays that an engine computes in. Their owner writes the initial values, too.

    Attributes:
        parameters, gradients: in the specification's layout.
        statistics: those of batch normalisation.
    """

    parameters: Values
    gradients: Values
    statistics: Values

    @classmethod
    def fresh(cls, spec: ModelSpec, seed: int, double: bool) -> Memory:
        """Arrays of an engine's own, with the initial weights of that seed; `double`: of 64 bits."""
        kind: Any = np.float64 if double else np.float32
        parameters = spec.initial_parameters(seed).astype(kind)
        return cls(parameters, np.zeros_like(parameters), spec.initial_statistics().astype(kind))


class Engine(Protocol):
    """One model, loaded, with the loss that it was loaded for."""

    @property
    def parameters(self) -> Values:
        """Current weights, flat, in the specification's layout; write to them between steps."""
        ...

    @property
    def gradients(self) -> Values:
        """Gradients of the last `step`, in the same layout."""
        ...

    @property
    def statistics(self) -> Values:
        """Running statistics of batch normalisation, in the specification's layout."""
        ...

    def step(self, batch: Batch, weight: float) -> float:
        """Forward and backward pass: the sum of the rows' losses; the gradient is that of `weight` × this sum."""
        ...

    def evaluate(self, batch: Batch) -> Evaluation:
        """Forward pass only."""
        ...

    def predict(self, batch: Batch) -> Values:
        """Forward pass only: the class scores before any softmax, rows × classes. Labels only say how many rows."""
        ...

    @property
    def facts(self) -> Mapping[str, str]:
        """What really computes: device, versions."""
        ...


class Load(Protocol):
    """See `EngineVariant.load`."""

    def __call__(self, spec: ModelSpec, seed: int, double: bool, *, loss: Loss = CROSS_ENTROPY) -> Engine: ...


@dataclass(frozen=True)
class EngineVariant:
    """An engine by name.

    Attributes:
        load: of (spec, seed, double, loss) sets the initial weights; `double`: 64-bit, for oracles.
        over: of (spec, seed, memory, device, loss) computes in that memory; `seed` is that of dropout masks, `device`
            as in `engine.device`: `cpu`, `cuda` or `cuda:N`.
    """

    name: str
    doc: str
    load: Load
    over: Callable[[ModelSpec, int, Memory, str, Loss], Engine]


def discover() -> dict[str, EngineVariant]:
    """Every engine by name. Importing an engine's file needs no optional package; loading it may."""
    names = (each.name for each in pkgutil.iter_modules(__path__) if not each.name.startswith("_"))
    found = (importlib.import_module(f"{__name__}.{name}").ENGINE for name in names)
    return {engine.name: engine for engine in found}


def find(name: str) -> EngineVariant:
    engines = discover()
    if name not in engines:
        raise ConfigurationError(f"There is no engine '{name}' of one process. Valid: {', '.join(sorted(engines))}.")
    return engines[name]
