"""What the measuring programs share: reading the case, training rows, timing, writing samples."""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def read_arguments() -> tuple[dict[str, Any], Path]:
    """The case, and the file that samples go to."""
    if len(sys.argv) != 3:
        raise SystemExit(f"usage: {sys.argv[0]} CASE.json OUT.jsonl")
    return json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])


def write(out: Path, samples_ms: list[float], facts: dict[str, Any], steps: int = 1) -> None:
    """Append samples (each the mean of `steps` consecutive steps, milliseconds) and facts."""
    with out.open("a") as lines:
        lines.write(json.dumps({"samples_ms": samples_ms, "steps": steps, "facts": facts}) + "\n")


def training_rows(case: dict[str, Any]) -> tuple[Any, Any]:
    """x (rows × features, float32 in [0, 1]) and y (rows, int64): MNIST's first rows, or seeded synthetic ones."""
    if case["data_path"]:
        folder = Path(case["data_path"])
        x = _read_idx(folder / "train-images-idx3-ubyte.gz").reshape(-1, case["features"])[: case["rows"]]
        y = _read_idx(folder / "train-labels-idx1-ubyte.gz")[: case["rows"]]
        return x.astype(np.float32) / 255, y.astype(np.int64)
    random = np.random.default_rng(0)
    x = random.random((case["rows"], case["features"]), dtype=np.float32)
    return x, random.integers(0, case["classes"], case["rows"], dtype=np.int64)


def batches(case: dict[str, Any], rows: int, rank: int = 0, workers: int = 1) -> list[slice]:
    """This rank's rows of each batch of one pass; every slice is full, so every step does the same work."""
    batch = case["batch"]
    first, last = rank * batch // workers, (rank + 1) * batch // workers
    return [slice(start + first, start + last) for start in range(0, rows - batch + 1, batch)]


def time_steps(step: Callable[[int], object], warmup: int, steps: int) -> list[float]:
    """Milliseconds of each of `steps` steps, after `warmup` unmeasured ones."""
    for index in range(warmup):
        step(index)
    samples_ms = []
    for index in range(warmup, warmup + steps):
        start = time.perf_counter_ns()
        step(index)
        samples_ms.append((time.perf_counter_ns() - start) / 1e6)
    return samples_ms


def _read_idx(path: Path) -> Any:
    content = gzip.decompress(path.read_bytes())
    dimensions = content[3]
    shape = [int.from_bytes(content[4 + 4 * i : 8 + 4 * i], "big") for i in range(dimensions)]
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
