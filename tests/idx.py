"""Small IDX data sets, written by the tests."""

from __future__ import annotations

import gzip
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


@dataclass(frozen=True)
class Set:
    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.uint8]


def stripes(rows: int, seed: int) -> Set:
    """4 x 5 images of noise in which one of five columns is bright: its number is the class."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 5, rows).astype(np.uint8)
    images = random.integers(0, 120, (rows, 4, 5)).astype(np.uint8)
    images[np.arange(rows), :, labels] += 80
    return Set(images, labels)


def write(folder: Path, names: tuple[str, str], data: Set, *, compressed: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    images = struct.pack(">IIII", 0x803, *data.images.shape) + data.images.tobytes()
    labels = struct.pack(">II", 0x801, len(data.labels)) + data.labels.tobytes()
    for name, content in zip(names, (images, labels), strict=True):
        if compressed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)


def write_both(folder: Path, *, compressed: bool = False) -> tuple[Set, Set]:
    train, test = stripes(1001, seed=1), stripes(203, seed=2)
    write(folder, TRAIN, train, compressed=compressed)
    write(folder, TEST, test, compressed=compressed)
    return train, test
