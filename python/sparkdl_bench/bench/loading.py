"""How long data take to load: a process of its own for each trial, as the other benchmarks have.

`python -m sparkdl_bench.bench.loading CASE.json OUT.jsonl` is that process.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sparkdl_bench import session
from sparkdl_bench.bench.store import Trial
from sparkdl_bench.peers._process import run_to_end

IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
# A small young generation, so that the heap's peak is what loading needs and not how long garbage may lie.
SMALL_YOUNG = {"spark.executor.extraJavaOptions": "-XX:+UseSerialGC -Xmn24m"}


@dataclass(frozen=True)
class LoadContestant:
    """One way to load a data set.

    Attributes:
        how: `numpy` (one process), `spark` (Spark's own CSV reader, cached), `ours`, or `ours-memory`, where the peak
            of the heap is taken and the times are not to be compared.
        case: for `numpy` and `spark` the path; for `ours` the run's keys.
        samples: loads a trial, after one that is not counted.
        spark: Spark properties.
    """

    name: str
    how: str
    case: Mapping[str, str]
    samples: int
    spark: Mapping[str, str] = field(default_factory=dict)

    def prepare(self) -> None:
        return

    def measure(self, timeout_s: float) -> Trial:
        with tempfile.TemporaryDirectory(prefix=f"sparkdl-load-{self.how}-") as name:
            given, out = Path(name, "case.json"), Path(name, "out.json")
            whole = {"how": self.how, "case": dict(self.case), "samples": self.samples, "spark": dict(self.spark)}
            given.write_text(json.dumps(whole), encoding="utf-8")
            command = [sys.executable, "-m", "sparkdl_bench.bench.loading", str(given), str(out)]
            run_to_end(self.name, command, timeout_s, {"SPARK_LOCAL_IP": "127.0.0.1"})
            found = json.loads(out.read_text(encoding="utf-8"))
        return Trial(found.pop("samples_ms"), 1, found)


def load_idx(folder: Path) -> list[Any]:
    """MNIST's four files as NumPy arrays, compressed or not."""
    arrays = []
    for name in IDX_FILES:
        packed = folder / f"{name}.gz"
        content = gzip.decompress(packed.read_bytes()) if packed.is_file() else (folder / name).read_bytes()
        dimensions = content[3]
        shape = [int.from_bytes(content[4 + 4 * i : 8 + 4 * i], "big") for i in range(dimensions)]
        arrays.append(np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape).copy())
    return arrays


def write_csv(folder: Path, file: Path, rows: int) -> None:
    """MNIST's first training rows as CSV: the label, then 784 pixels."""
    images, labels = load_idx(folder)[:2]
    table = np.column_stack([labels[:rows], images[:rows].reshape(min(rows, len(labels)), -1)])
    np.savetxt(file, table, fmt="%d", delimiter=",")


def _numpy(case: Mapping[str, str], samples: int) -> dict[str, Any]:
    def load() -> int:
        return sum(array.nbytes for array in load_idx(Path(case["data.path"])))

    held = load()
    return {"samples_ms": _timed(load, samples), "held_bytes": held}


def _spark(case: Mapping[str, str], samples: int, properties: Mapping[str, str]) -> dict[str, Any]:
    from pyspark.sql.types import IntegerType, StructField, StructType

    columns = int(case["columns"])
    schema = StructType([StructField(f"c{index}", IntegerType()) for index in range(columns)])
    _, settings = session.start_jvm(properties, natives=False)
    with session.open_session(settings) as spark:

        def load() -> int:
            frame = spark.read.schema(schema).csv(case["data.path"]).cache()
            counted = int(frame.count())
            loads.append(frame)
            return counted

        def unload() -> None:
            loads.pop().unpersist(blocking=True)

        loads: list[Any] = []
        rows = load()
        unload()
        return {"samples_ms": _timed(load, samples, unload), "rows": rows}


def _ours(case: Mapping[str, str], samples: int, properties: Mapping[str, str], memory: bool) -> dict[str, Any]:
    _, settings = session.start_jvm(properties)
    with session.open_session(settings) as spark:
        api = session.check_session(spark)
        api.load_data(case, 1, memory)
        return api.load_data(case, samples, memory)


def _timed(load: Callable[[], object], samples: int, unload: Callable[[], object] = lambda: None) -> list[float]:
    taken = []
    for _ in range(samples):
        start = time.perf_counter_ns()
        load()
        taken.append((time.perf_counter_ns() - start) / 1e6)
        unload()
    return taken


def main() -> None:
    whole = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    how, case, samples, properties = whole["how"], whole["case"], whole["samples"], whole["spark"]
    if how == "numpy":
        found = _numpy(case, samples)
    elif how == "spark":
        found = _spark(case, samples, properties)
    else:
        found = _ours(case, samples, properties, how == "ours-memory")
    Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
