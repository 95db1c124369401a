"""When the program beside a task of transport `mpi` naps: over an MPI that is made up, so that it runs everywhere."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

PROGRAM = Path(__file__).resolve().parents[1] / "jvm/src/main/resources/sparkdlbench/mpi/rank.py"
MB = 1_000_000
SLOTS_AT = 128
HEADER = 128


class World:
    """Rank 0 of so many. Requests are numbered; those in `ended` are told of once."""

    rank = 0

    def __init__(self, size: int) -> None:
        self.size = size
        self.begun: list[str] = []
        self.ended: set[str] = set()

    def Dup(self) -> World:
        return World(self.size)

    def Isend(self, data: Any, peer: int, tag: int) -> str:
        return self._begin(f"send {tag} to {peer}")

    def Irecv(self, data: Any, peer: int, tag: int) -> str:
        return self._begin(f"receive {tag} from {peer}")

    def _begin(self, what: str) -> str:
        self.begun.append(what)
        return what

    def testsome(self, requests: list[str], statuses: list[Any]) -> list[int]:
        assert len(statuses) == len(requests)
        told = [index for index, request in enumerate(requests) if request in self.ended]
        self.ended.clear()
        return told


def opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, outgoing: int, incoming: int
) -> tuple[Any, World]:
    """A relay with a lane to rank 1 and one from there, for messages of so many bytes at most."""
    world = World(size)
    mpi = SimpleNamespace(
        COMM_WORLD=world,
        BYTE="byte",
        Status=lambda: SimpleNamespace(Get_count=lambda _: 8),
        Request=SimpleNamespace(Testsome=world.testsome),
    )
    package = ModuleType("mpi4py")
    package.MPI = mpi  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mpi4py", package)
    spec = importlib.util.spec_from_file_location("sparkdl_mpi_rank", PROGRAM)
    assert spec
    assert spec.loader
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    relay = program.Relay(tmp_path, {"pid": 1, "started": "1"})
    strides = [SLOTS_AT + 2 * ((capacity + 63) // 64 * 64) for capacity in (outgoing, incoming)]
    mapped = tmp_path / "mapped"
    mapped.write_bytes(bytes(HEADER + sum(strides)))
    lanes = {
        "outgoing": [{"id": 0, "capacity": outgoing, "offset": HEADER, "peer": 1}],
        "incoming": [{"id": 1, "capacity": incoming, "offset": HEADER + strides[0], "peer": 1}],
    }
    wanted = tmp_path / "open-0.json"
    wanted.write_text(json.dumps({"path": str(mapped), **lanes}))
    relay.open(wanted)
    return relay, world


def test_it_naps_soon_where_messages_are_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    relay, _ = opened(tmp_path, monkeypatch, size=2, outgoing=64, incoming=64)
    relay.active = 100.0
    assert not relay.quiet(100.004)
    assert relay.quiet(100.006)


@pytest.mark.parametrize("size", [2, 4])
def test_it_waits_for_as_much_as_may_be_on_its_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    relay, _ = opened(tmp_path, monkeypatch, size=size, outgoing=64, incoming=3 * MB)
    relay.active = 100.0
    # 30 MB per second: a tenth of a second for each other rank.
    assert not relay.quiet(100.0 + 0.1 * (size - 1))
    assert relay.quiet(100.01 + 0.1 * (size - 1))


def test_it_does_not_nap_while_it_sends_but_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    relay, world = opened(tmp_path, monkeypatch, size=2, outgoing=6 * MB, incoming=64)
    relay.active = 100.0
    lane = relay.outgoing[0]
    lane.words[1], lane.words[2] = 6 * MB, 3 * MB
    lane.words[0] = 2  # the task has published two messages
    assert relay.start()
    assert world.begun == ["send 0 to 1"] * 2 + ["receive 1 from 1"] * 2
    assert relay.leaving == 9 * MB
    assert not relay.quiet(100.3)
    assert relay.quiet(100.4), "whoever should take them does not"
    assert not relay.finish()
    world.ended = {"send 0 to 1"}
    assert relay.finish()
    assert relay.leaving == 0
    assert lane.words[8] == 2
    assert relay.quiet(100.01)


def test_what_has_arrived_is_told_with_its_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    relay, world = opened(tmp_path, monkeypatch, size=2, outgoing=64, incoming=64)
    assert not relay.start(), "receives that are made ready are no messages"
    world.ended = {"receive 1 from 1"}
    assert relay.finish()
    lane = relay.incoming[0]
    assert (lane.words[0], lane.words[1], lane.words[2]) == (2, 8, 8)
    assert relay.requests == []
    assert not relay.finish()
