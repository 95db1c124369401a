"""Parameters in-band inherit Spark's authentication and encryption: shown on the captured traffic of real runs.

And what `tcp.tls` does for those out-of-band over `tcp`. The Scala suites `BlockStreamSecuritySuite` and `TcpSuite`
show the other half: who has no secret, or sends nonsense, gets nothing in.
"""

from __future__ import annotations

import json
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyspark
import pytest

import capture
from programs import execute, our_environment
from sparkdl_bench.bench import encryption

Weights = dict[str, npt.NDArray[np.float32]]

# Below the ephemeral ports, and hardly those of another suite on this machine, whose known gradients look the same.
# Spark tries the next 16 where one is taken.
_FIRST_PORT = 20_000 + 100 * secrets.randbelow(100)
PORTS = range(_FIRST_PORT, _FIRST_PORT + 100)
TCP_PORTS = {"tcp": PORTS[60:70], "tcp-tls": PORTS[70:80]}


def over_tcp(name: str, **settings: object) -> dict[str, object]:
    ports = TCP_PORTS[name]
    return {"transport": "tcp", "tcp": {"ports": f"{ports[0]}-{ports[-1]}", **settings}}


# A job per step is slow, and a few steps of it show the same.
_FEW = {"max_steps": 10}
RUNS: dict[str, dict[str, object]] = {
    "block-stream": {"transport": "block-stream"},
    "block-manager": {"transport": "block-manager", **_FEW},
    "shuffle": {"transport": "shuffle", **_FEW},
    "shuffle-tree": {"transport": "shuffle", "topology": "tree", **_FEW},
    "tcp": over_tcp("tcp"),
    "tcp-tls": over_tcp("tcp-tls", tls=True),
}
# What a session that encrypts refuses.
IN_THE_CLEAR = {"tcp"}
# Of the encryptions, those of every run of the suite; the others are other ciphers for the same bytes.
ALWAYS = ("crypto", "tls")
# Those that OpenSSL does in Spark's place, and how records name them.
BY_OPENSSL = {"crypto": "AES-CTR by OpenSSL", "crypto-gcm": "AES-GCM by OpenSSL"}
# What carries gradients and weights, as the runs count it. Two workers' tree has the driver alone above them.
CHANNELS = {
    "block-stream": ("block-stream",),
    "block-manager": ("block-manager",),
    "shuffle": ("shuffle",),
    "shuffle-tree": ("task-result", "broadcast"),
    "tcp": ("tcp",),
    "tcp-tls": ("tcp",),
}
# So that what is looked for is on the wire, and in its own bytes: executors of one host would read each other's files.
VISIBLE = {
    "spark.shuffle.readHostLocalDisk": "false",
    "spark.shuffle.compress": "false",
    "spark.broadcast.compress": "false",
}
HERE = Path(__file__).resolve().parent
TIMEOUT_SECONDS = 300
NEEDLE_VALUES = 16
NET_VALUES = 300_000  # messages of several of the blocks that are encrypted at once
SEED = secrets.randbelow(1 << 31)  # so that the weights are nobody else's


@dataclass(frozen=True)
class Captured:
    """One session, in which each of `RUNS` trained once: how it ended, and what was on the wire meanwhile.

    Attributes:
        weights, sent: by run, less those `IN_THE_CLEAR` where the session encrypts; `sent` is what the runs counted, by
            channel.
    """

    weights: dict[str, Weights]
    sent: dict[str, dict[str, int]]
    wire: capture.LoopbackCapture

    def carried(self, run: str) -> int:
        """Bytes of gradients and weights, as the run has counted them."""
        return sum(self.sent[run][channel] for channel in CHANNELS[run])

    @property
    def channel_bytes(self) -> int:
        return sum(self.carried(run) for run in self.sent)


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
    """One all-reduce of known gradients and the training runs, on two executors, through sockets."""
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
        "spark": {**ports, **VISIBLE, **properties},
        "net": {name: str(value) for name, value in {**common, **known}.items()},
        # A seed each, so that the weights of one run are not those of the other.
        "runs": {
            run: {**common, **model, **settings, "seed": SEED + number}
            for number, (run, settings) in enumerate(RUNS.items())
            if not (properties and run in IN_THE_CLEAR)
        },
    }
    (folder / "case.json").write_text(json.dumps(case))
    with capture.LoopbackCapture(PORTS) as wire:
        program = [sys.executable, HERE / "secure_run.py", folder / "case.json"]
        execute(program, our_environment(), timeout=TIMEOUT_SECONDS)
    sent = {run: json.loads((folder / f"{run}.json").read_text()) for run in case["runs"]}
    return Captured({run: weights_of(folder, run) for run in sent}, sent, wire)


def weights_of(folder: Path, run: str) -> Weights:
    with np.load(folder / f"{run}.npz") as stored:
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
    for run in RUNS.keys() - {"tcp-tls"}:
        needles = pieces(plain.weights[run])
        assert len(needles) > 200
        # A stretch at the edge of a slice or of a packet may lie in two places.
        assert plain.wire.count(needles) > 0.8 * len(needles), run
    assert plain.wire.byte_count > plain.channel_bytes > 0


def test_on_connections_of_our_own_they_can_be_read_without_tls_alone(plain: Captured) -> None:
    for run, ports in TCP_PORTS.items():
        # As many bytes were seen there as the run counted, so the capture has not simply missed them.
        assert sum(len(stream) for stream in plain.wire.at(ports)) > plain.carried(run) > 0
    needles = pieces(plain.weights["tcp"])
    assert plain.wire.count(needles, TCP_PORTS["tcp"]) > 0.8 * len(needles) > 100
    needles = pieces(plain.weights["tcp-tls"])
    assert len(needles) > 200
    assert plain.wire.count([*needles, *swapped(needles)], TCP_PORTS["tcp-tls"]) == 0


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ALWAYS else pytest.mark.campaign)
        for name in encryption.CHOICES
        if name != encryption.OFF
    ],
)
def test_with_encryption_they_cannot_and_the_training_is_the_same(name: str, plain: Captured, folder: Path) -> None:
    reason = encryption.missing(name, pyspark.__version__)
    if reason:
        pytest.skip(reason)
    done = train(folder / name, encryption.properties(name, folder))
    assert done.wire.count([*gradients(), *swapped(gradients())]) == 0
    assert done.sent.keys() == RUNS.keys() - IN_THE_CLEAR
    for run in done.sent:
        weights, expected = done.weights[run], plain.weights[run]
        assert weights.keys() == expected.keys()
        assert all(np.array_equal(weights[each], expected[each]) for each in expected), run
        needles = pieces(weights)
        assert done.wire.count([*needles, *swapped(needles)]) == 0, run
        assert done.carried(run) == plain.carried(run), run
    # As many bytes were seen as the runs counted, so the capture has not simply missed them.
    assert done.wire.byte_count > done.channel_bytes
    if name in BY_OPENSSL:
        records = [each.read_text(encoding="utf-8") for each in folder.glob(f"{name}/results/*/run.json")]
        assert any(BY_OPENSSL[name] in each for each in records)
