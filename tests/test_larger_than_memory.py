"""A set larger than the executor's heap trains: its rows are mapped from the local disk, and each is visited once."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import idx
from conftest import ROOT

pytestmark = pytest.mark.on_one_line

HERE = Path(__file__).resolve().parent
TIMEOUT_SECONDS = 300
MEBI = 1 << 20
HEAP = 480 * MEBI  # Spark takes executors of 450 MiB and more
SIDE = 100  # of an image; so a row has 10,000 values
CLASSES = 7
ROWS = CLASSES * SIDE * SIDE  # 700 MB of one byte a value
TEST_ROWS = 50
BATCH = 500


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    if shutil.disk_usage(tmp_path).free < 5 * ROWS * SIDE * SIDE:
        pytest.skip(f"a set of {ROWS * SIDE * SIDE >> 20} MiB and its copy need more room than '{tmp_path}' has")
    write(tmp_path / "data")
    (tmp_path / "local").mkdir()
    yield tmp_path
    for name in ("data", "local"):
        shutil.rmtree(tmp_path / name)


def write(data: Path) -> None:
    """Row r is black but for pixel r mod 10,000, and of class r div 10,000: no two rows are alike."""
    width = SIDE * SIDE
    data.mkdir()
    idx.write(data, idx.TEST, idx.Set(np.zeros((TEST_ROWS, SIDE, SIDE), np.uint8), np.zeros(TEST_ROWS, np.uint8)))
    rows = np.arange(ROWS)
    images, labels = (data / name for name in idx.TRAIN)
    labels.write_bytes(struct.pack(">II", 0x801, ROWS) + (rows // width).astype(np.uint8).tobytes())
    header = struct.pack(">IIII", 0x803, ROWS, SIDE, SIDE)
    images.write_bytes(header)
    pixels = np.memmap(images, np.uint8, "r+", offset=len(header), shape=(ROWS, width))
    pixels[rows, rows % width] = 255
    pixels.flush()


@pytest.mark.long
def test_each_row_is_visited_once_and_none_is_on_the_heap(folder: Path) -> None:
    case = {
        "spark": {
            "spark.master": "local-cluster[1,2,1024]",
            "spark.executor.memory": f"{HEAP // MEBI}m",
            "spark.local.dir": str(folder / "local"),
        },
        "settings": {
            "data": str(folder / "data"),
            "data__classes": CLASSES + 1,
            "workers": 2,
            "batch": BATCH,
            "epochs": 1,
            "learning_rate": 1e-4,
            "transport": "block-stream",
            "results": str(folder / "results"),
        },
        "refused": {"data__memory_limit": 0},
    }
    (folder / "case.json").write_text(json.dumps(case))
    done = subprocess.run(
        [sys.executable, str(HERE / "large_run.py"), str(folder / "case.json"), str(folder / "out.json")],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((folder / "out.json").read_text())
    assert f"-Xmx{HEAP // MEBI}M" in found["command"]
    # On the heap it has no place.
    assert "data.memory_limit=" in found["refusal"]
    assert found["visits"] == [pytest.approx(1, abs=0.02), pytest.approx(1, abs=0.02)]
    size = ROWS * SIDE * SIDE
    assert size > 1.3 * HEAP
    # Pages of the mapped file count as resident while there is memory for them, and are the system's to take back.
    assert found["anonymous"] < HEAP + 400 * MEBI
    assert found["anonymous"] < 0.75 * (HEAP + size)
    run = json.loads((Path(found["results"]) / "run.json").read_text())
    (held,) = (part for part in run["memory_estimate"]["each_executor"] if part["name"] == "data set")
    assert held["bytes"] == 4 * (ROWS + TEST_ROWS)
    assert run["data"]["train_rows"] == ROWS
    # The file's space was given back with the executor.
    left = [path for path in (folder / "local").rglob("*") if path.is_file() and path.stat().st_size > size / 2]
    assert left == []
