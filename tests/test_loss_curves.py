"""Synchronous SGD is one computation: step by step the same losses over every topology and transport, to rounding.

Three executors, each with one rank of a run, so that nothing is exchanged within a process; what one worker makes of
the same batches is the measure. The suite `CombinationLaws` goes through all algorithms, with ranks as threads of one
process.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from programs import execute, our_environment
from sparkdl_bench.bench.spark_collective import spark_transport_missing

pytestmark = pytest.mark.on_one_line

HERE = Path(__file__).resolve().parent
TIMEOUT_SECONDS = 600
STEPS = 50
EXECUTORS = 3
# While the ranks of one run meet, for which Spark looks once a second, another one computes. Fewer than executors, so
# that none of them has room for all ranks of a run.
AT_ONCE = 2
TRAIN_ROWS = 1438
COMMON: dict[str, Any] = {
    "model": {"name": "mlp", "hidden": [32]},
    "data": "digits",
    "workers": EXECUTORS,
    # One step an epoch, so that the epochs' losses are those of the steps.
    "batch": TRAIN_ROWS,
    "epochs": STEPS,
    "evaluate_every": 0,
    "learning_rate": 0.05,
    "momentum": 0.9,
    "bucket_bytes": 4000,
    "resources": {"hertz": 0},
}
ALONE = "one worker"


@dataclass(frozen=True)
class Case:
    """One run: what differs from `COMMON`, over which channels its values must have gone, and how near it must come."""

    settings: dict[str, Any]
    channels: frozenset[str]
    tolerance: float = 1e-4

    @property
    def missing(self) -> str | None:
        return spark_transport_missing(self.settings["transport"])


def case(transport: str, topology: str, *channels: str, **settings: Any) -> Case:
    return Case({"transport": transport, "topology": topology, **settings}, frozenset(channels or {transport}))


CASES = {
    f"{name}, {topology}": case(transport, topology, name, **settings)
    for name, transport, settings in (
        ("block-stream", "block-stream", {"host_local": "off"}),
        ("host-local", "block-stream", {"host_local": "on"}),
        ("tcp", "tcp", {}),
        ("ucx", "ucx", {}),
        ("mpi", "mpi", {}),
    )
    for topology in ("sliced", "ring", "recursive", "ps")
} | {
    "block-manager, sliced": case("block-manager", "sliced"),
    # Blocks of 250 values, four for a slice of 803.
    "block-manager, sliced, cut up": case("block-manager", "sliced", slice_limit=1000),
    # Weights and gradients are rounded to 8 bits of mantissa, 1 part in 256.
    "block-manager, sliced, bf16": replace(case("block-manager", "sliced", codec="bf16"), tolerance=2e-2),
    "shuffle, sliced": case("shuffle", "sliced"),
    "shuffle, tree": case("shuffle", "tree", "task-result", "broadcast"),
}
# A run over one of them has nothing on the others.
ONE_STAGE = {"block-stream", "host-local", "in-process", "tcp", "ucx", "mpi"}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each run that can be made here gave, in one session: its losses and bytes, or its error's text."""
    folder = tmp_path_factory.mktemp("curves")
    runs = {ALONE: {"transport": "block-stream", "workers": 1}}
    runs |= {name: each.settings for name, each in CASES.items() if not each.missing}
    given = {
        # Once all executors are there, each has room for a rank of each run, and Spark gives each one of them.
        "spark": {
            "spark.master": f"local-cluster[{EXECUTORS},{AT_ONCE},1024]",
            "spark.cores.max": str(EXECUTORS * AT_ONCE),
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        },
        "results": str(folder / "results"),
        "at_once": AT_ONCE,
        "runs": {name: {**COMMON, **settings} for name, settings in runs.items()},
    }
    (folder / "case.json").write_text(json.dumps(given))
    command = [sys.executable, HERE / "curves_run.py", "case.json", "out.json"]
    execute(command, our_environment(), folder, timeout=TIMEOUT_SECONDS)
    results: dict[str, Any] = json.loads((folder / "out.json").read_text())
    return results


def test_one_worker_learns(found: dict[str, Any]) -> None:
    losses = found[ALONE]["losses"]
    assert len(losses) == STEPS
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("name", CASES)
def test_the_loss_of_every_step_is_that_of_one_worker(found: dict[str, Any], name: str) -> None:
    reason = CASES[name].missing
    if reason:
        pytest.skip(reason)
    told, expected = found[name], found[ALONE]["losses"]
    assert isinstance(told, dict), told
    assert len(told["losses"]) == STEPS
    apart = [abs(loss / of_one - 1) for loss, of_one in zip(told["losses"], expected, strict=True)]
    assert max(apart) < CASES[name].tolerance, apart
    sent = {channel for channel, count in told["bytes"].items() if count}
    channels = CASES[name].channels
    assert channels <= sent
    assert not sent & (ONE_STAGE - channels)
