"""The memory of messages, without a JVM: a socket pair, whose other end says what the executor would."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparkdl_bench.errors import RunFailedError
from sparkdl_bench.worker import _memory, messages


class Line:
    """Takes requests, and hands out the answers that a test has ready."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, bytes]] = []

    def send(self, kind: int, body: bytes = b"") -> int:
        self.sent.append((kind, body))
        return len(self.sent)

    def await_answer(self) -> None:
        raise RunFailedError("nobody reads here")  # a test finishes requests itself

    def shut(self) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def made() -> Iterator[tuple[Any, Line]]:
    line = Line()
    found: Any = messages.Messages(line, "test")  # type: ignore[arg-type]
    found._reader.join(60)
    found._broken = None
    yield found, line
    found.close()


def finish(found: Any, number: int, peer: int = 1) -> None:
    found._finish(number, struct.pack("<i", peer), None)


def test_memory_is_as_large_as_what_is_under_way_and_does_not_grow_with_what_has_travelled(
    made: tuple[Any, Line],
) -> None:
    found, line = made
    finish(found, 1)
    found.receive(np.empty(100, np.uint8), None, 7)  # waits all the time
    for _ in range(200):
        done = found.send(np.zeros(100_000, np.uint8), 1, 0)
        finish(found, len(line.sent))
        assert done.result(0) == 1
    assert [kind for kind, _ in line.sent].count(20) == 1, "new memory was mapped"
    places = [struct.unpack("<iiqq", body) for kind, body in line.sent if kind != 20]
    assert {at for _, _, at, _ in places[1:]} == {128}


def test_places_of_what_is_under_way_do_not_overlap(made: tuple[Any, Line]) -> None:
    found, line = made
    random = np.random.default_rng(3)
    live: dict[int, tuple[Any, np.ndarray[Any, Any], Any]] = {}
    for _ in range(400):
        if live and random.random() < 0.45:
            number = int(random.choice(list(live)))
            place, data, future = live.pop(number)
            assert np.array_equal(place, data)
            finish(found, number)
            assert future.result(0) == 1
        data = random.integers(0, 256, int(random.choice([0, 1, 63, 64, 5000, 70_000])), np.uint8)
        future = found.send(data, 1, 0)
        number = len(line.sent)
        live[number] = found._pending[number].place, data, future
    for place, data, _ in live.values():
        assert np.array_equal(place, data)


def test_memory_stays_until_the_jvm_has_opened_it(made: tuple[Any, Line]) -> None:
    """It opens it by the number of the descriptor, which must not be another file's by then."""
    found, line = made
    (first,) = (struct.unpack("<iq", body)[0] for _, body in line.sent)
    sent = found.send(np.zeros(1 << 20, np.uint8), 1, 0)  # larger than the first memory
    assert is_memory(first)
    second = struct.unpack("<iq", line.sent[1][1])[0]
    assert second != first
    finish(found, 1)
    finish(found, 2)
    finish(found, 3)
    assert sent.result(0) == 1
    assert not is_memory(first)
    assert is_memory(second)


def test_no_memory_is_larger_than_the_jvm_can_map(monkeypatch: pytest.MonkeyPatch, made: tuple[Any, Line]) -> None:
    monkeypatch.setattr("os.posix_fallocate", lambda descriptor, _, size: os.ftruncate(descriptor, size))
    found, line = made
    data = np.empty(1 << 29, np.uint8)  # whose pages nobody touches
    for tag in range(5):
        found.receive(data, 1, tag)
    sizes = [struct.unpack("<iq", body)[1] for kind, body in line.sent if kind == 20]
    assert sizes[1:] == [1 << 29, 1 << 30, 1 << 30]


def test_memory_that_nobody_closes_goes_with_its_object() -> None:
    memory = _memory.Memory(1)
    descriptor = memory.descriptor
    assert is_memory(descriptor)
    del memory
    assert not is_memory(descriptor)


def is_memory(descriptor: int) -> bool:
    """Whether it is open as shared memory of ours: another thread may have given its number to a file of its own."""
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink()).startswith("/memfd:sparkdl")
    except FileNotFoundError:
        return False
