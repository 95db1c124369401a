"""Training over UCX, and over an MPI job beside the executors: every algorithm as over `tcp`, to the same bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from sparkdl_bench import FitResult, Trainer
from sparkdl_bench.bench.spark_collective import spark_transport_missing
from sparkdl_bench.results import RunResults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.on_one_line

ALGORITHMS: dict[str, dict[str, Any]] = {
    "sync-sgd": {"topology": "ring", "momentum": 0.9},
    "local-sgd": {"local": {"tau": 2}},
    "easgd": {"easgd": {"tau": 3}},
    "gossip": {"gossip": {"tau": 2}},
    "lbfgs": {"lbfgs": {"rows": 200}, "max_steps": 4},
    "downpour": {"topology": "ps", "downpour": {"stale": 0}},
}
# What the run's file says of those that carried the bytes.
WITNESSES = {"ucx": "ucx.transports", "ours:mpi": "mpi.library"}


@pytest.fixture(scope="module")
def trained(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], FitResult]:
    """A short training of an algorithm over a transport; each is made once."""
    made: dict[tuple[str, str], FitResult] = {}

    def train(algorithm: str, transport: str) -> FitResult:
        if (algorithm, transport) not in made:
            settings = {"max_steps": 6, "evaluate_every": 0, "batch": 50, **ALGORITHMS[algorithm]}
            trainer = Trainer(
                {"name": "mlp", "hidden": [32]},
                "digits",
                transport=transport,
                algorithm=algorithm,
                results=tmp_path_factory.mktemp("results"),
                **settings,
            )
            made[algorithm, transport] = trainer.fit(spark)
        return made[algorithm, transport]

    return train


@pytest.mark.parametrize("transport", WITNESSES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_it_trains_as_over_tcp(trained: Callable[[str, str], FitResult], algorithm: str, transport: str) -> None:
    reason = spark_transport_missing(transport)
    if reason:
        pytest.skip(reason)
    name = transport.removeprefix("ours:")
    fitted, expected = trained(algorithm, name).weights(), trained(algorithm, "tcp").weights()
    for parameter, array in expected.items():
        # The order in which pushes arrive decides downpour's sums.
        bound = 1e-4 if algorithm == "downpour" else 0.0
        assert np.abs(fitted[parameter] - array).max() <= bound, parameter
    results = RunResults(Path(trained(algorithm, name).results_dir))
    sent = {channel for channel, count in results.summary["bytes"].items() if count}
    assert name in sent
    assert not {"block-stream", "host-local", "tcp"} & sent
    assert any(WITNESSES[transport] in channels for channels in results.run["channels"])
