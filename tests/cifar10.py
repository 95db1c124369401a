"""Small sets in CIFAR-10's binary version, written by the tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np

TRAIN, TEST = "data_batch_1.bin", "test_batch.bin"


def write(folder: Path, train_rows: int, test_rows: int) -> None:
    """Noise; row i is of class i mod 10."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (name, rows) in enumerate(((TRAIN, train_rows), (TEST, test_rows))):
        labels = (np.arange(rows) % 10).astype(np.uint8)
        pixels = np.random.default_rng(seed).integers(0, 256, (rows, 3 * 32 * 32), dtype=np.uint8)
        (folder / name).write_bytes(np.column_stack((labels, pixels)).tobytes())
