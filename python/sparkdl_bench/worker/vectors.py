"""Vectors that a group reduces again and again: each length has memory and lanes of its own, made once."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence

import numpy as np

from sparkdl_bench.worker._cores import Follower
from sparkdl_bench.worker._memory import Bytes, Memory
from sparkdl_bench.worker._wire import Wire

# The shortest one, and all of a group together.
LEAST_BYTES, MOST_BYTES = 1 << 16, 1 << 28


class Home:
    """Shared memory of somebody else's, in which an array's values lie and may be reduced.

    Attributes:
        descriptor: of its file, which the JVM opens through /proc. It is closed with this.
        size: bytes of the file.
        address: where it is mapped here.
        place: its number in the vector `vector` once the JVM knows it; 0 before.
    """

    def __init__(self, descriptor: int, size: int, address: int) -> None:
        self.descriptor, self.size, self.address = descriptor, size, address
        self.vector: Vector | None = None
        self.place = 0
        self._close_descriptor = weakref.finalize(self, os.close, descriptor)

    def close(self) -> None:
        self._close_descriptor()


class Vector:
    """Memory of one length, whose all-reduces the JVM has prepared.

    Attributes:
        number: by which requests name it.
        is_new: it was made just now, and the JVM does not know it yet.
        homes: how many homes it has had.
    """

    def __init__(self, number: int, size: int) -> None:
        self.number, self.memory, self.is_new = number, Memory(size), True
        self.place = self.memory.data[:size]
        self.homes = 0

    def close(self) -> None:
        self.place = np.empty(0, np.uint8)
        self.memory.close()


class Vectors:
    """Those of one group, by length in bytes. All ranks ask in the same order, and so agree on what is bound."""

    def __init__(self) -> None:
        # None: such a one was reduced once.
        self._known: dict[int, Vector | None] = {}
        self._bytes = 0

    @property
    def bound(self) -> list[int]:
        """The lengths that have a vector, in bytes."""
        return [size for size, vector in self._known.items() if vector is not None]

    def find(self, size: int) -> Vector | None:
        """The vector of this length: from its second time on, and while there is room for it."""
        if size not in self._known:
            if size >= LEAST_BYTES and self._bytes + size <= MOST_BYTES:
                self._known[size] = None
                self._bytes += size
            return None
        vector = self._known[size]
        if vector is None:
            vector = self._known[size] = Vector(len(self.bound), size)
        return vector

    def close(self) -> None:
        for vector in self._known.values():
            if vector is not None:
                vector.close()


class Begun:
    """An all-reduce that the JVM does. The group does nothing else until `end`, which any thread may call, once.

    Args:
        turn: the group's, taken.
        follower: of the JVM's thread.
        requests: whose answers are to come; the last one's says that the result is there.
        place: where the result comes to, for `data`; None: to `data` itself.
    """

    def __init__(
        self,
        wire: Wire,
        turn: threading.Lock,
        follower: Follower,
        requests: Sequence[int],
        place: Bytes | None,
        data: Bytes,
    ) -> None:
        self._wire, self._turn, self._follower = wire, turn, follower
        self._requests, self._place, self._data = requests, place, data

    def is_done(self, seconds: float) -> bool:
        """Waits at most so long; whether `end` would return at once."""
        if len(self._requests) != 1:
            return False
        self._follower.wait(self._wire.await_shortly, self._data.size)
        return self._wire.await_answer(seconds)

    def end(self) -> None:
        """Waits for the result and writes it to the array."""
        try:
            self._follower.wait(self._wire.await_shortly, self._data.size)
            for request in self._requests:
                self._wire.answer_to(request)
            if self._place is not None:
                self._data[:] = self._place
        finally:
            self._turn.release()
