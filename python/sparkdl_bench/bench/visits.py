"""A set whose trained weights tell how often each row was visited, epoch by epoch.

`python -m sparkdl_bench.bench.visits CASE.json` writes one as Parquet files, in a Spark session of its own.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkdl_bench.errors import ConfigurationError, RunFailedError

# The learning rate falls by this factor after each epoch, so that visits of one epoch are told from those of another.
BASE = 8
MOST_EPOCHS = 6
_MOST_WIDTH = 12_288  # three channels of 64 x 64
_WIDTH_STEP = 64
_BUFFER_BYTES = 64 << 20  # of rows that are shuffled among each other, as runs have it by themselves
_BUFFERS = 20  # in a set, at least
# Of a row that is visited once: what the estimate may be off by, before it is no longer trusted.
_DOUBT = 0.25


@dataclass(frozen=True)
class CountedSet:
    """Rows of which each has one value that is not zero: row r the value r div `classes`, of class r mod `classes`.

    So no two rows are alike, and a softmax regression that starts at zero weights and learns slowly keeps a count of
    each. No row is of the last class, by which the others' counts are corrected.

    Attributes:
        width: values of a row, one byte each as they are decoded.
        classes: that have rows.
        most_batch: rows per step at most.
    """

    width: int
    classes: int
    most_batch: int = 512

    @staticmethod
    def of_bytes(size: int) -> CountedSet:
        """The set of about `size` bytes: wide rows, and classes enough.

        Raises:
            ConfigurationError: it is too small.
        """
        width = min(_MOST_WIDTH, int((size / 20) ** 0.5) // _WIDTH_STEP * _WIDTH_STEP)
        if width < _WIDTH_STEP:
            least = 20 * _WIDTH_STEP**2
            raise ConfigurationError(
                f"A set of {size} bytes is too small to count in; valid are {least} bytes or more."
            )
        return CountedSet(width, max(2, round(size / width**2)))

    @property
    def rows(self) -> int:
        return self.width * self.classes

    @property
    def batch(self) -> int:
        """Rows per step that divide the set: a smaller last step would weigh its rows more."""
        return min(self.most_batch, self.rows & -self.rows)

    @property
    def steps_per_epoch(self) -> int:
        return self.rows // self.batch

    def shuffle_buffer(self, rows: int) -> int:
        """`data.shuffle_buffer` for so many of the rows: small beside them.

        What is read in an epoch includes the first windows of the next one.
        """
        return max(self.batch, min(_BUFFER_BYTES // self.width, rows // _BUFFERS))

    def settings(self, epochs: int) -> dict[str, Any]:
        """Keys of a run whose weights `visits` can read."""
        if not 1 <= epochs <= MOST_EPOCHS:
            raise ConfigurationError(f"Visits are counted over 1 to {MOST_EPOCHS} epochs, not over {epochs}.")
        settings: dict[str, Any] = {
            "batch": self.batch,
            "epochs": epochs,
            "evaluate_every": 0,
            "model.name": "softmax",
            "data.classes": self.classes + 1,
            "optimizer.name": "sgd",
            # So slow that each visit meets the same, even scores.
            "optimizer.learning_rate": self.rate(epochs),
            "optimizer.momentum": 0.0,
        }
        if epochs == 1:
            return settings
        milestones = [self.steps_per_epoch * each for each in range(1, epochs)]
        return {
            **settings,
            "schedule.name": "multistep",
            "schedule.gamma": 1 / BASE,
            "schedule.milestones": ",".join(map(str, milestones)),
        }

    @staticmethod
    def rate(epochs: int) -> float:
        """The learning rate of the first epoch."""
        return 1e-4 / float(BASE**epochs)

    def visits(self, weights: npt.NDArray[np.float32], epochs: int) -> npt.NDArray[np.int64]:
        """How often each row was computed in each epoch, as (epoch, row).

        A visit of the row of class c whose value i is 1 adds rate / batch · (1 - 1 / classes) to weight (c, i), and
        takes rate / batch / classes from the weights (k, i) of all other classes.

        Args:
            weights: of the trained softmax regression, (classes + 1, width).

        Raises:
            RunFailedError: the weights are none that whole numbers of visits leave.
        """
        expected = (self.classes + 1, self.width)
        if weights.shape != expected:
            raise RunFailedError(f"Weights of shape {weights.shape} were trained, where {expected} was expected.")
        steps = weights.astype(np.float64) * self.batch / self.rate(epochs)
        together = -steps[-1] * len(steps)
        # (class, value) -> row, in units of the last epoch.
        counted = (steps[:-1] + together / len(steps)).T.reshape(-1) * BASE ** (epochs - 1)
        whole = np.rint(counted)
        doubt = float(np.abs(counted - whole).max())
        if doubt > _DOUBT or whole.min() < 0:
            raise RunFailedError(
                f"The trained weights tell no whole numbers of visits: off by up to {doubt:.2f}, the least is "
                f"{whole.min():.0f}. Some row was visited in part, or more than {BASE - 1} times in an epoch."
            )
        numbers = whole.astype(np.int64)
        return np.stack([numbers // BASE ** (epochs - 1 - each) % BASE for each in range(epochs)])

    def write_libsvm(self, folder: Path) -> dict[str, Any]:
        """Writes it as text, and two rows to test on; returns a run's keys. Decoded, a value takes four bytes."""
        folder.mkdir(parents=True)
        rows = (f"{row % self.classes} {row // self.classes + 1}:1" for row in range(self.rows))
        (folder / "train.svm").write_text("\n".join(rows) + "\n", encoding="utf-8")
        (folder / "test.svm").write_text("0 1:1\n1 1:1\n", encoding="utf-8")
        return {
            "data.source": "libsvm",
            "data.path": str(folder / "train.svm"),
            "data.test_path": str(folder / "test.svm"),
            "data.shape": str(self.width),
        }


def once(visited: npt.NDArray[np.int64]) -> bool:
    """Whether each row of each epoch was visited once."""
    return bool((visited == 1).all())


@dataclass(frozen=True)
class ParquetCase:
    """Where and how a set is written as Parquet.

    Attributes:
        width, classes: of `CountedSet`.
        rows: the first ones of it.
        files: of the training rows.
        group_bytes: of a row group, which a reader of Parquet holds at once.
        spark: properties of the session.
    """

    width: int
    classes: int
    rows: int
    folder: str
    files: int
    group_bytes: int
    spark: dict[str, str]

    @property
    def data(self) -> dict[str, Any]:
        """A run's keys that read it."""
        return {
            "data.source": "parquet",
            "data.path": f"{self.folder}/train",
            "data.test_path": f"{self.folder}/test",
            "data.label": "label",
            "data.binary": "raw",
            "data.shape": str(self.width),
        }

    def write(self, spark: Any) -> None:
        """Writes it: neither compressed nor with a dictionary, so that a file is as large as its rows."""
        zeros = f"unhex(repeat('00', {self.width}))"
        value = f"cast(id div {self.classes} as int)"
        features = f"concat(substring({zeros}, 1, {value}), X'FF', substring({zeros}, 1, {self.width - 1} - {value}))"
        for name, rows, files in (("train", self.rows, self.files), ("test", 2 * self.classes, 1)):
            frame = spark.range(0, rows, 1, files).selectExpr(
                f"cast(id % {self.classes} as int) as label", f"{features} as features"
            )
            writer = frame.write.option("compression", "none").option("parquet.block.size", str(self.group_bytes))
            writer.option("parquet.enable.dictionary", "false").parquet(f"{self.folder}/{name}")

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


def main() -> None:
    from pyspark.sql import SparkSession

    case = ParquetCase(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    builder = SparkSession.builder
    for name, value in case.spark.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    case.write(spark)
    spark.stop()


if __name__ == "__main__":
    main()
