"""`sparkdl_bench.collective` in the ranks of launches: NumPy's arrays, without PyTorch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyspark import cloudpickle

import sparkdl_bench
from sparkdl_bench import collective
from sparkdl_bench.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# pyspark's collect leaves its socket to the garbage collector, which says so.
pytestmark = [
    pytest.mark.usefixtures("sockets_end_here"),
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"),
]
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def exchanges() -> dict[str, Any]:
    """Every operation once; what came of it on this rank."""
    rank = collective.rank()
    own = np.arange(6, dtype=np.float32).reshape(2, 3) + rank
    returned = collective.all_reduce(own)
    turned = np.asfortranarray(np.arange(6.0).reshape(2, 3) + rank)
    collective.all_reduce(turned, "average")
    locked = np.full(3, rank + 1)
    locked.flags.writeable = False
    first, second, third = np.ones(2, np.float32), np.array(2.0 + rank), np.full((1, 3), 5, np.float32)
    many = collective.all_reduce_many([first, second, third])
    sent = np.array([rank, 10 * rank])
    collective.broadcast(sent, 1)
    gathered = collective.all_gather(np.array([rank, 7]))
    collective.barrier()
    return {
        "in place": returned is own and own.tolist() == [[1, 3, 5], [7, 9, 11]],
        "turned": turned.tolist(),
        "locked": (collective.all_reduce(locked, "max").tolist(), locked.tolist()),
        "list": collective.all_reduce([1, 2 + rank]).tolist(),
        "many": [each.tolist() for each in many],
        "many in place": many[0] is first and many[1] is second,
        "sent": sent.tolist(),
        "gathered": [each.tolist() for each in gathered],
        "numbers": (rank, collective.size(), collective.all_gather(np.float64(rank))[1].shape),
    }


def test_every_operation(spark: SparkSession, tmp_path: Path) -> None:
    for rank, found in enumerate(sparkdl_bench.launch(exchanges, spark, sync="none", results=tmp_path)):
        assert found == {
            "in place": True,
            "turned": [[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]],
            "locked": ([2, 2, 2], [rank + 1] * 3),
            "list": [2, 5],
            "many": [[2, 2], 5.0, [[10, 10, 10]]],
            "many in place": True,
            "sent": [1, 10],
            "gathered": [[0, 7], [1, 7]],
            "numbers": (rank, 2, ()),
        }


def test_it_travels_by_the_launchs_settings(spark: SparkSession, tmp_path: Path) -> None:
    def transport() -> str:
        from sparkdl_bench import collective

        collective.barrier()
        return collective._group().transport

    for name in ("tcp", "block-stream"):
        found = sparkdl_bench.launch(
            transport, spark, sync="none", settings={"transport": name}, results=tmp_path / name
        )
        assert found == [name] * 2


def test_a_type_that_cannot_be_reduced_is_named(spark: SparkSession, tmp_path: Path) -> None:
    def texts() -> str:
        from sparkdl_bench import collective

        collective.all_reduce(np.array(["a", "b"]))
        return ""

    with pytest.raises(ConfigurationError, match="cannot be reduced; valid are fp32"):
        sparkdl_bench.launch(texts, spark, sync="none", results=tmp_path)


def test_outside_a_launch_it_says_so() -> None:
    with pytest.raises(ConfigurationError, match=r"sparkdl_bench\.launch"):
        collective.all_reduce(np.ones(3))


def test_beside_gloo_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class OfGloo:
        rank, size = 0, 1

    endpoint = OfGloo()
    collective.attach(endpoint, None)
    monkeypatch.setattr(collective, "current", lambda: endpoint)
    with pytest.raises(ConfigurationError, match="travels in-band, and this launch has sync='gloo'"):
        collective.barrier()
    with pytest.raises(ConfigurationError, match=r"root = 1; valid are 0 to 0"):
        collective.broadcast(np.ones(1), 1)
