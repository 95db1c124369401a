"""What the user's code tells while it trains: `sparkdl_bench.report`, and which attempt it is."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from typing import Any

from sparkdl_bench.errors import ConfigurationError

# Nobody reads more between two looks, ten times a second.
_MOST_WAITING = 5000
_LONGEST_NAME = 200
# A message has to be far below the 1 MiB that an executor takes.
_MOST_CHARS = 128 << 10


class Reports:
    """The reports of one rank that wait to be sent."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[dict[str, Any]] = []
        self._left_out = 0

    def add(self, numbers: Mapping[str, Any]) -> None:
        with self._lock:
            if len(self._waiting) < _MOST_WAITING:
                self._waiting.append({"time_ms": time.time() * 1e3, **numbers})
            else:
                self._left_out += 1

    def take(self) -> list[dict[str, Any]]:
        """Payloads to send: `reports`, and how many were `left_out`."""
        with self._lock:
            waiting, left_out = self._waiting, self._left_out
            self._waiting, self._left_out = [], 0
        payloads: list[dict[str, Any]] = []
        size = _MOST_CHARS
        for each in waiting:
            length = sum(len(name) + 30 for name in each)
            if size + length > _MOST_CHARS:
                payloads.append({"reports": [], "left_out": 0})
                size = 0
            payloads[-1]["reports"].append(each)
            size += length
        if left_out:
            payloads.append({"reports": [], "left_out": left_out})
        return payloads


class _Rank:
    """The rank that this process is at the moment; one at a time, since Spark gives a Python worker one task."""

    def __init__(self) -> None:
        self.reports: Reports | None = None
        self.attempt = 0


current = _Rank()


def report(*, step: int | None = None, loss: float | None = None, epoch: int | None = None, **numbers: Any) -> None:
    """Tells numbers of the training, from inside a `train_fn` or script that `launch` runs.

    They appear in the terminal or notebook, and in the launch's `events.jsonl` and `summary.json`. A call costs
    microseconds: numbers travel to the driver ten times a second, however often they are told. Elsewhere, such as in a
    script that somebody runs alone, it does nothing.

    Args:
        step: the step that is done, from 1. The milliseconds between two steps that rank 0 tells are in `steps.json`.
        loss: of that step, or the mean since the last report.
        epoch: the epoch that is done, from 1. With it, the rank 0's `train_loss`, `test_loss` and `test_accuracy` (a
            share, 0 to 1) become a line of `history`.
        numbers: any others, by name. Tensors and arrays of one value count as numbers.

    Raises:
        ConfigurationError: a value is not a number.
    """
    given = {"step": step, "loss": loss, "epoch": epoch, **numbers}
    told = {name: _number(name, value) for name, value in given.items() if value is not None}
    if current.reports is not None and told:
        current.reports.add(told)


def launch_attempt() -> int:
    """Which submission of the launch this is, from 0: above 0 after a lost executor."""
    return current.attempt


def _number(name: str, value: Any) -> int | float | str:
    """JSON has no NaN or infinity: they travel as their names."""
    item = getattr(value, "item", None)
    try:
        plain = item() if callable(item) else value
    except (ValueError, RuntimeError) as error:
        raise ConfigurationError(_not_a_number(name, value)) from error
    if isinstance(plain, bool) or not isinstance(plain, (int, float)) or len(name) > _LONGEST_NAME:
        raise ConfigurationError(_not_a_number(name, value))
    return plain if math.isfinite(plain) else str(plain)


def _not_a_number(name: str, value: Any) -> str:
    return (
        f"sparkdl_bench.report was given {name[:_LONGEST_NAME]}={str(value)[:100]!r}, a {type(value).__name__}. It "
        "takes numbers, and tensors or arrays of one value: print what is text, and take .mean() of what has many."
    )
