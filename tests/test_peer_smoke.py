"""Every peer that trains whole epochs: installed on this host, trained with, and removed again (`make peers`).

`make test` runs none of these: they fetch up to 6 GB each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from programs import ROOT
from sparkdl_bench import peers
from sparkdl_bench.comparison import peer_case, peer_run
from sparkdl_bench.config import load_run_file
from sparkdl_bench.peers import Peer
from sparkdl_bench.results import RunResults

pytestmark = pytest.mark.peers

TRAINERS = sorted(name for name, peer in peers.discover().items() if "fit" in peer.kinds)
# Of peers that have all rows in each step or average once an epoch, which learn less in an epoch.
SLOW = {
    "dl4j-averaging": (15, 0.8),
    "dl4j-shared": (15, 0.3),
    "elephas-async": (5, 0.4),
    "elephas-hogwild": (5, 0.4),
    "mllib-gd": (100, 0.15),
    "mllib-l-bfgs": (40, 0.8),
}
# Whose momentum is Nesterov's, or who have none.
PLAIN = ("dl4j-averaging", "dl4j-shared")
# Of the first epoch on the digits, by all peers that start from our weights and go in our order.
FIRST_TRAIN_LOSS = 0.8933
TIMEOUT_S = 900.0


@pytest.fixture
def directory() -> Path:
    return Path(os.environ.get("SPARKDL_PEERS", peers.default_directory()))


@pytest.fixture(scope="module")
def were_there() -> dict[tuple[str, ...], bool]:
    """By an environment's packages whether it was there before these tests."""
    return {}


@pytest.fixture
def peer(request: pytest.FixtureRequest, directory: Path, were_there: dict[tuple[str, ...], bool]) -> Iterator[Peer]:
    found = peers.find(request.param)
    if reason := found.unable():
        pytest.skip(reason)
    was_there = were_there.setdefault(found.requirements, found.missing(directory) is None)
    found.install(directory)
    assert found.missing(directory) is None
    yield found
    # Several share an environment: the last of them takes it away.
    sharing = [name for name in TRAINERS if peers.find(name).requirements == found.requirements]
    if not was_there and request.param == sharing[-1]:
        found.remove(directory)


@pytest.mark.parametrize("peer", TRAINERS, indirect=True)
def test_a_peer_trains_and_leaves_a_run(peer: Peer, directory: Path, tmp_path: Path) -> None:
    epochs, least = SLOW.get(peer.name, (5, 0.85))
    run = load_run_file(ROOT / "conf/runs/digits-mlp.toml")
    settings = {**run.settings, "epochs": str(epochs), "workers": str(peer.workers)}
    settings |= {"optimizer.momentum": "0"} if peer.name in PLAIN else {}
    case = replace(peer_case.prepare(settings, {}, tmp_path / "data"), threads=1)
    peer.check(case)
    place = tmp_path / "run"
    place.mkdir()
    done = peer_run.train(peer, case, place, TIMEOUT_S, directory)
    peer_run.write(place, peer, case, settings, done)
    results = RunResults(place)
    assert results.summary["final"]["test_accuracy"] > least
    if "order" not in done.facts:
        assert results.history[0]["train_loss"] == pytest.approx(FIRST_TRAIN_LOSS, rel=2e-3)
    assert all(step > 0 for step in done.steps_ms)
    assert 0 < done.facts["seconds_total"] < done.seconds
    assert (place / "resources.json").is_file()
