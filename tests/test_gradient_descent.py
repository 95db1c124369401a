"""`algorithm=gd` beside MLlib's solver of that name: the same steps from the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyspark.ml.classification import MultilayerPerceptronClassifier
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.linalg import Vectors

from sparkdl_bench import Trainer
from sparkdl_bench.peers.programs.measure.mllib_fit import initial_weights

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# pyspark leaves the sockets of `collect` to the garbage collector.
pytestmark = [
    pytest.mark.on_one_line,
    pytest.mark.usefixtures("sockets_end_here"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
# MLlib takes the mean of the means of its blocks: of full ones the mean of all rows.
BLOCK = 128


@pytest.mark.parametrize("transport", ["auto", "shuffle"])
def test_it_takes_mllibs_steps(transport: str, spark: SparkSession, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    labels = rng.integers(3, size=2 * BLOCK)
    points = rng.normal(size=(2 * BLOCK, 4)) + labels[:, None]
    rows = [(*map(float, point), float(label)) for point, label in zip(points, labels, strict=True)]
    frame = spark.createDataFrame(rows, "a double, b double, c double, d double, label double").coalesce(1).cache()

    def trained(epochs: int) -> list[float]:
        topology = {"topology": "tree"} if transport == "shuffle" else {}
        trainer = Trainer(
            {"name": "mlp", "hidden": [5], "activation": "sigmoid"},
            {"table": frame, "test_table": frame, "label": "label", "classes": 3},
            algorithm="gd",
            gd={"rows": 50},
            transport=transport,
            learning_rate=0.5,
            epochs=epochs,
            seed=1,
            results=tmp_path / "results",
            **topology,
        )
        return initial_weights(layers(trainer.fit(spark).weights()))

    vectors = VectorAssembler(inputCols=["a", "b", "c", "d"], outputCol="features").transform(frame)
    start = trained(epochs=0)
    theirs = MultilayerPerceptronClassifier(
        layers=[4, 5, 3],
        solver="gd",
        stepSize=0.5,
        maxIter=8,
        tol=0.0,
        blockSize=BLOCK,
        initialWeights=Vectors.dense(start),
    ).fit(vectors)
    ours = trained(epochs=8)
    np.testing.assert_allclose(ours, theirs.weights.toArray(), atol=1e-5)
    assert np.abs(np.subtract(ours, start)).max() > 0.1


def layers(weights: Any) -> list[tuple[Any, Any]]:
    """Each layer's weights, out × in, and bias, in order."""
    arrays = list(weights.values())
    return list(zip(arrays[::2], arrays[1::2], strict=True))
