"""Comparisons made of numbers alone, for tests of what is concluded from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sparkdl_bench.report.analysis import Analysis, analyse
from sparkdl_bench.report.load import Comparison

HOST_CORES = 64


def trial(name: str, number: int, seconds: float, workers: int, **changes: Any) -> dict[str, Any]:
    """A finished cell of one thread a worker whose user waited so many seconds."""
    metrics = {"seconds_total": seconds, "seconds_waited": seconds, "seconds_to_accuracy": None}
    metrics |= {"seconds_waited_to_accuracy": None, "test_accuracy": 0.95, "ms_per_step": 1.0, "drift": 1.0}
    record = {
        "group": name,
        "factors": {"variant": name},
        "trial": number,
        "warmup": False,
        "status": "success",
        "workers": workers,
        "threads": 1,
        "cores": workers,
        "batch": 32,
        "in_band": True,
        "metrics": metrics,
        "history": [],
        "steps_ms": [],
        "spark": {"spark.master": "local-cluster[8,1,1024]"},
    }
    return {**record, **changes}


def comparison(records: Sequence[Mapping[str, Any]], host_cores: int = HOST_CORES, **plan: Any) -> Analysis:
    content = {"plan": {"title": "Made up", "warmup_steps": 0, **plan}, "machine": {"cores": host_cores}}
    return analyse(Comparison(content, records))


def of_times(times: Mapping[str, tuple[int, Sequence[float]]]) -> Analysis:
    """Groups by name: their workers, and the seconds of each trial."""
    return comparison(
        [
            trial(name, number, seconds, workers)
            for name, (workers, values) in times.items()
            for number, seconds in enumerate(values, start=1)
        ]
    )


def drawn(
    random: np.random.Generator, workers: Sequence[int], factors: Sequence[float], spread: float, trials: int
) -> dict[str, tuple[int, list[float]]]:
    """Lognormal trials around 20 s × the group's factor, each group with its own spread about `spread`."""
    found = {}
    for place, (count, factor) in enumerate(zip(workers, factors, strict=True)):
        own = spread * random.uniform(0.6, 1.4)
        values = 20.0 * factor * random.lognormal(0.0, own, trials)
        found[f"way {place}, workers {count}"] = (count, values.tolist())
    return found


def first(times: Mapping[str, tuple[int, Sequence[float]]], trials: int) -> dict[str, tuple[int, Sequence[float]]]:
    """The same comparison when it had so many trials."""
    return {name: (workers, values[:trials]) for name, (workers, values) in times.items()}
