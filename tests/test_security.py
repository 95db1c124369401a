"""Parameters in-band inherit Spark's authentication and encryption: shown on the captured traffic of real runs.

The Scala suite `BlockStreamSecuritySuite` shows the other half: who has no secret, or sends nonsense,
gets nothing in.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyspark
import pytest

import capture
from sparkdl_bench.bench import encryption

Weights = dict[str, npt.NDArray[np.float32]]

TRANSPORTS = ("block-stream", "block-manager")
HERE = Path(__file__).resolve().parent
TIMEOUT_SECONDS = 300
NEEDLE_VALUES = 16
# Below the ephemeral ports, and hardly those of another suite on this machine, whose known gradients look the same.
# Spark tries the next 16 where one is taken.
_FIRST_PORT = 20_000 + 100 * secrets.randbelow(100)
PORTS = range(_FIRST_PORT, _FIRST_PORT + 100)
NET_VALUES = 300_000  # messages of several of the blocks that are encrypted at once
SEED = secrets.randbelow(1 << 31)  # so that the weights are nobody else's


@dataclass(frozen=True)
class Captured:
    """One session, in which each transport trained once: how it ended, and what was on the wire meanwhile.

    Attributes:
        weights, sent: by transport; `sent` is what the runs counted, by channel.
    """

    weights: dict[str, Weights]
    sent: dict[str, dict[str, int]]
    wire: capture.LoopbackCapture

    @property
    def channel_bytes(self) -> int:
        return sum(self.sent[transport][transport] for transport in TRANSPORTS)


@pytest.fixture(scope="module", autouse=True)
def _capturing() -> None:
    reason = capture.obstacle()
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("security")


@pytest.fixture(scope="module")
def plain(folder: Path) -> Captured:
    """The session without encryption."""
    return train(folder / "plain", {})


def train(folder: Path, properties: dict[str, str]) -> Captured:
    """One all-reduce of known gradients and one training run a transport, on two executors, through sockets."""
    folder.mkdir()
    ports = {
        "spark.driver.port": str(PORTS[0]),
        "spark.driver.blockManager.port": str(PORTS[20]),
        "spark.blockManager.port": str(PORTS[40]),
    }
    common = {"workers": 2, "host_local": "off"}
    known = {"transport": "block-stream", "net.elements": NET_VALUES, "net.warmup": 1, "net.iterations": 1}
    model = {"model": {"name": "mlp", "hidden": [64]}, "data": "digits", "batch": 50, "epochs": 2}
    case = {
        "spark": {**ports, **properties},
        "net": {name: str(value) for name, value in {**common, **known}.items()},
        # A seed each, so that the weights of one run are not those of the other.
        "runs": {
            transport: {**common, **model, "transport": transport, "seed": SEED + number}
            for number, transport in enumerate(TRANSPORTS)
        },
    }
    (folder / "case.json").write_text(json.dumps(case))
    with capture.LoopbackCapture(PORTS) as wire:
        done = subprocess.run(
            [sys.executable, str(HERE / "secure_run.py"), str(folder / "case.json")],
            env={**os.environ, "PYTHONPATH": str(HERE.parent / "python"), "SPARK_LOCAL_IP": "127.0.0.1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-6000:]
    sent = {transport: json.loads((folder / f"{transport}.json").read_text()) for transport in TRANSPORTS}
    return Captured({transport: weights_of(folder, transport) for transport in TRANSPORTS}, sent, wire)


def weights_of(folder: Path, transport: str) -> Weights:
    with np.load(folder / f"{transport}.npz") as stored:
        return dict(stored)


def pieces(weights: Weights) -> list[bytes]:
    """Stretches of 64 bytes of the weights, as fp32 in the machines' byte order, that say enough to be no accident."""
    rows = [np.ravel(each)[: each.size // NEEDLE_VALUES * NEEDLE_VALUES] for each in weights.values()]
    stretches = np.concatenate(rows).reshape(-1, NEEDLE_VALUES)
    return [each.astype("<f4").tobytes() for each in stretches if len(np.unique(each)) > NEEDLE_VALUES // 2]


def swapped(needles: list[bytes]) -> list[bytes]:
    """The same in the other byte order, as Java's serialization writes arrays."""
    return [np.frombuffer(each, "<f4").astype(">f4").tobytes() for each in needles]


def gradients() -> list[bytes]:
    """What the two ranks of `NetBench` add up, (31 i + 17 rank) mod 13 - 6: one stretch of each."""
    i = np.arange(3 * NEEDLE_VALUES, 5 * NEEDLE_VALUES)
    return [((i * 31 + rank * 17) % 13 - 6).astype("<f4").tobytes() for rank in range(2)]


def test_without_encryption_gradients_and_weights_can_be_read_on_the_wire(plain: Captured) -> None:
    assert plain.wire.count(gradients()) == 2
    for transport in TRANSPORTS:
        needles = pieces(plain.weights[transport])
        assert len(needles) > 200
        # A stretch at the edge of a slice or of a packet may lie in two places.
        assert plain.wire.count(needles) > 0.8 * len(needles), transport
    assert plain.wire.byte_count > plain.channel_bytes > 0


@pytest.mark.parametrize("name", [name for name in encryption.CHOICES if name != encryption.OFF])
def test_with_encryption_they_cannot_and_the_training_is_the_same(name: str, plain: Captured, folder: Path) -> None:
    reason = encryption.missing(name, pyspark.__version__)
    if reason:
        pytest.skip(reason)
    run = train(folder / name, encryption.properties(name, folder))
    assert run.wire.count([*gradients(), *swapped(gradients())]) == 0
    for transport in TRANSPORTS:
        weights, expected = run.weights[transport], plain.weights[transport]
        assert weights.keys() == expected.keys()
        assert all(np.array_equal(weights[each], expected[each]) for each in expected), transport
        needles = pieces(weights)
        assert run.wire.count([*needles, *swapped(needles)]) == 0, transport
    # As many bytes were seen as the runs counted, so the capture has not simply missed them.
    assert run.channel_bytes == plain.channel_bytes
    assert run.wire.byte_count > run.channel_bytes
