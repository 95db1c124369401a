"""Messages between two ranks of a group, any number at a time."""

from __future__ import annotations

import struct
import threading
from bisect import bisect_left, insort
from concurrent.futures import Future
from dataclasses import dataclass

from sparkdl_bench.errors import ConfigurationError, RunFailedError, SparkDLError
from sparkdl_bench.worker._memory import Bytes, Memory
from sparkdl_bench.worker._wire import Wire

_MAP, _SEND, _RECEIVE = 20, 30, 31
_MEMORY = struct.Struct("<iq")
_MESSAGE = struct.Struct("<iiqq")
_SOURCE = struct.Struct("<i")
_ANY = -1
_FIRST_BYTES = 1 << 18
_ALIGNMENT = 64
_JOIN_SECONDS = 5.0
MOST_BYTES = 1 << 30


class _Arena:
    """Memory that messages take places of; it goes when the last one is done and a larger one is there.

    A place is used again as soon as its message is done, however long others wait: the memory is as large as what is
    under way at once, and does not grow with what has travelled.
    """

    def __init__(self, size: int) -> None:
        self.memory = Memory(size)
        self._taken: list[tuple[int, int]] = []
        # Until the JVM has opened it by the number of its descriptor, that must not become another file's.
        self.is_mapped = False

    def take(self, size: int) -> int | None:
        """Where `size` bytes are free; None where they are not."""
        length = max(1, -(-size // _ALIGNMENT)) * _ALIGNMENT
        at = 0
        for start, end in self._taken:
            if start - at >= length:
                break
            at = end
        if at + size > self.memory.size:
            return None
        insort(self._taken, (at, at + length))
        return at

    def give_back(self, at: int) -> None:
        del self._taken[bisect_left(self._taken, (at, 0))]

    @property
    def is_needed(self) -> bool:
        return bool(self._taken) or not self.is_mapped


@dataclass(frozen=True)
class _Pending:
    arena: _Arena
    at: int
    place: Bytes
    target: Bytes | None
    future: Future[int]


class Messages:
    """Sends and receives by tag. A message travels once both ends want it; those of one sender and tag keep order.

    Futures are completed in a thread of its own, which nobody may hold up.
    """

    def __init__(self, wire: Wire, name: str) -> None:
        self._wire = wire
        self._turn = threading.Lock()
        self._pending: dict[int, _Pending] = {}
        self._mapping: dict[int, _Arena] = {}
        self._broken: SparkDLError | None = None
        self._arena = _Arena(_FIRST_BYTES)
        self._tell_memory()
        self._reader = threading.Thread(target=self._read, name=f"sparkdl-messages-{name}", daemon=True)
        self._reader.start()

    def send(self, data: Bytes, to: int, tag: int) -> Future[int]:
        """Its result, `to`, comes when the other end has taken the message; `data` may be changed at once."""
        return self._post(_SEND, data, to, tag)

    def receive(self, data: Bytes, source: int | None, tag: int) -> Future[int]:
        """Its result is the rank that the message came from; then it is in `data`, which has its length."""
        return self._post(_RECEIVE, data, _ANY if source is None else source, tag)

    def close(self) -> None:
        self._wire.shut()
        if threading.current_thread() is not self._reader:
            self._reader.join(_JOIN_SECONDS)  # somebody's callback may hold it up
        self._wire.close()
        self._arena.memory.close()

    def _post(self, kind: int, data: Bytes, peer: int, tag: int) -> Future[int]:
        if data.size > MOST_BYTES:
            raise ConfigurationError(
                f"A message has {data.size} bytes; valid are up to {MOST_BYTES}. Send it in parts, or use a collective."
            )
        future: Future[int] = Future()
        with self._turn:
            if self._broken is not None:
                raise self._broken
            arena, at = self._place(data.size)
            place = arena.memory.data[at : at + data.size]
            if kind == _SEND:
                place[:] = data
            number = self._wire.send(kind, _MESSAGE.pack(peer, tag, at, data.size))
            self._pending[number] = _Pending(arena, at, place, data if kind == _RECEIVE else None, future)
        return future

    def _place(self, size: int) -> tuple[_Arena, int]:
        at = self._arena.take(size)
        if at is None:
            # What is under way keeps its place in the old one.
            before, self._arena = self._arena, _Arena(max(min(2 * self._arena.memory.size, MOST_BYTES), size))
            self._close_if_done(before)
            self._tell_memory()
            at = self._arena.take(size)
        return self._arena, at or 0

    def _close_if_done(self, arena: _Arena) -> None:
        if arena is not self._arena and not arena.is_needed:
            arena.memory.close()

    def _tell_memory(self) -> None:
        memory = self._arena.memory
        self._mapping[self._wire.send(_MAP, _MEMORY.pack(memory.descriptor, memory.size))] = self._arena

    def _read(self) -> None:
        try:
            while True:
                self._wire.await_answer()
                self._finish(*self._wire.receive_any())
        except SparkDLError as error:
            self._fail(error)

    def _finish(self, number: int, body: bytes, error: SparkDLError | None) -> None:
        with self._turn:
            mapped = self._mapping.pop(number, None)
            if mapped is not None:
                mapped.is_mapped = True
                self._close_if_done(mapped)
            done = self._pending.pop(number, None)
            if done is None:
                return
            if error is None and done.target is not None:
                done.target[:] = done.place
            done.arena.give_back(done.at)
            self._close_if_done(done.arena)
        if error is None:
            done.future.set_result(_SOURCE.unpack(body)[0])
        else:
            self._fail(error)
            done.future.set_exception(error)

    def _fail(self, error: SparkDLError) -> None:
        """Nothing comes any more."""
        with self._turn:
            self._broken = self._broken or RunFailedError(str(error))
            pending, self._pending = list(self._pending.values()), {}
        for each in pending:
            each.future.set_exception(self._broken)
