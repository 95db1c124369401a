"""What programs share that train whole epochs: rows, model, initial weights, learning rates, and the facts to write."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np


class Clock:
    """One training's clock. Starts when this is made: the process is up, as a run's executors are."""

    def __init__(self, started_ms: float | None = None) -> None:
        """Args: started_ms: since 1970, on this host, where another process of the training has started it."""
        now_ms = time.time() * 1e3
        self.started_ms = now_ms if started_ms is None else started_ms
        self._start = time.perf_counter() - (now_ms - self.started_ms) / 1e3
        self._prepared_s = 0.0
        self._evaluation_s = 0.0
        self.history: list[dict[str, Any]] = []

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def prepared(self) -> None:
        """The first step comes next."""
        self._prepared_s = self.seconds

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        before = time.perf_counter()
        try:
            yield
        finally:
            self._evaluation_s += time.perf_counter() - before

    def tested(self, train_loss: float | None, test_loss: float | None, accuracy: float) -> None:
        """The evaluation of an epoch has ended now."""
        self.history.append(
            {
                "epoch": len(self.history) + 1,
                "seconds": round(self.seconds, 4),
                "train_loss": train_loss,
                "test_loss": test_loss,
                "accuracy": accuracy,
            }
        )

    def facts(self, rows: int, threads: int) -> dict[str, Any]:
        """What every program of this kind tells; `threads` as the library that computes says, where it does."""
        return {
            "threads": threads,
            "train_rows": rows,
            "clock_started_ms": self.started_ms,
            "seconds_total": self.seconds,
            "seconds_prepare": self._prepared_s,
            "seconds_evaluation": self._evaluation_s,
            "history": self.history,
        }


@dataclass(frozen=True)
class Rows:
    """x: rows × values, fp32; y: int64."""

    x_train: Any
    y_train: Any
    x_test: Any
    y_test: Any

    @classmethod
    def read(cls, case: Mapping[str, Any]) -> Rows:
        with np.load(case["data_path"]) as data:
            return cls(*(data[name] for name in ("x_train", "y_train", "x_test", "y_test")))


@dataclass(frozen=True)
class Start:
    """The model and where its training starts: the bits that a run of ours starts from."""

    specification: Mapping[str, Any]
    parameters: Any
    orders: Any

    @classmethod
    def read(cls, case: Mapping[str, Any]) -> Start:
        with np.load(case["start_path"]) as start:
            return cls(json.loads(case["specification"]), start["parameters"], start["orders"])

    def tensors(self) -> dict[str, Any]:
        """By name (`fc1.weight`), out × in, in the shapes of the specification."""
        return {
            each["name"]: self.parameters[each["offset"] : each["offset"] + math.prod(each["shape"])].reshape(
                each["shape"]
            )
            for each in self.specification["parameters"]
        }

    def perceptron(self) -> list[tuple[Any, Any]]:
        """Weight (out × in) and bias of each linear layer, in order."""
        tensors = self.tensors()
        names = [layer["name"] for layer in self.specification["layers"] if layer["kind"] == "linear"]
        return [(tensors[f"{name}.weight"], tensors.get(f"{name}.bias", np.zeros(1, np.float32))) for name in names]


def learning_rate(case: Mapping[str, Any], step: int) -> float:
    """That of a step from 0, as docs/reference/variants.md has it."""
    schedule = case["schedule"]
    name = schedule.get("name", "constant")
    gamma, warmup = float(schedule.get("gamma", 0.1)), int(schedule.get("warmup_steps", 0))
    factor = (step + 1) / warmup if step < warmup else 1.0
    if name == "step":
        factor *= gamma ** (step // int(schedule.get("every", 1000)))
    elif name == "multistep":
        milestones = [int(each) for each in str(schedule.get("milestones", "")).split(",") if each.strip()]
        factor *= gamma ** sum(each <= step for each in milestones)
    elif name == "inv":
        factor *= (1 + gamma * step) ** -float(schedule.get("power", 0.75))
    elif name == "cosine":
        steps = max(1, int(schedule.get("steps", 1)))
        factor *= 0.0 if step >= steps else (1 + math.cos(math.pi * step / steps)) / 2
    elif name != "constant":
        raise SystemExit(f"This program knows no schedule called '{name}'.")
    return float(case["optimizer"].get("learning_rate", 0.1)) * factor


def option(case: Mapping[str, Any], name: str, default: float) -> float:
    """A number of the optimiser's."""
    return float(case["optimizer"].get(name, default))


def flag(case: Mapping[str, Any], name: str) -> bool:
    return str(case["optimizer"].get(name, "false")).lower() in ("true", "on", "1")


def own_share(rows: Any, rank: int, workers: int) -> Any:
    """This rank's contiguous part of a batch, as a run of ours cuts it."""
    return rows[rank * len(rows) // workers : (rank + 1) * len(rows) // workers]


def tested(scores: Any, labels: Any) -> tuple[float, float]:
    """Mean cross-entropy (nats) and accuracy of scores before any softmax (rows × classes)."""
    scores = np.asarray(scores, dtype=np.float64)
    shifted = scores - scores.max(axis=1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(labels)), labels]
    return float(losses.mean()), float((scores.argmax(axis=1) == labels).mean())


def pool_threads(default: int) -> int:
    """Threads that OpenMP and BLAS were told, for libraries that do not tell."""
    return int(os.environ.get("OMP_NUM_THREADS", default))
