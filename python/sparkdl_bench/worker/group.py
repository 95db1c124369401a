"""A process group: some ranks of a launch that exchange arrays over one transport, through their executors' JVMs.

Values lie in memory that Python and the JVM both map; the requests over the socket say where. The JVM has the
operations (`collective/Collective.scala`), this side cuts what is longer than that memory into pieces.
"""

from __future__ import annotations

import functools
import itertools
import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.worker._cores import Follower, are_few, own_core
from sparkdl_bench.worker._memory import Bytes, Memory
from sparkdl_bench.worker._wire import Wire
from sparkdl_bench.worker.messages import Messages
from sparkdl_bench.worker.vectors import Begun, Home, Vector, Vectors

Array = npt.NDArray[Any]
# The places of the names are the numbers that travel: `ElementType.all` and `Reduction.all` in the JVM.
ELEMENTS = ("fp32", "fp64", "fp16", "bf16", "int8", "uint8", "int16", "int32", "int64", "bool")
_SIZES = (4, 8, 2, 2, 1, 1, 2, 4, 8, 1)
REDUCTIONS = ("sum", "product", "min", "max", "average", "band", "bor", "bxor")
_OF_DTYPE = {
    "float32": "fp32",
    "float64": "fp64",
    "float16": "fp16",
    **{name: name for name in ("int8", "uint8", "int16", "int32", "int64", "bool")},
}
_MAP, _ALL_REDUCE, _REDUCE_SCATTER, _ALL_GATHER, _ALL_TO_ALL, _BROADCAST, _BARRIER = range(20, 27)
_BIND, _REDUCE_BOUND, _PLACE, _LEAVE = range(27, 31)
_PART = struct.Struct("<qq")
_MEMORY = struct.Struct("<iq")
_REDUCING = struct.Struct("<ii")
_NUMBER = struct.Struct("<i")
_BINDING = struct.Struct("<iqi")
_REDUCING_BOUND = struct.Struct("<iii")
_PLACING = struct.Struct("<iiiqi")
_LEAVING = struct.Struct("<ii")
_FIRST_BYTES = 1 << 20
# Parts begin at cache lines.
_ALIGNMENT = 64
MOST_BYTES = 1 << 28
# What is reduced in memory of its own where its length comes again.
_BOUND_HEADS = frozenset(_REDUCING.pack(ELEMENTS.index("fp32"), REDUCTIONS.index(each)) for each in ("sum", "average"))


class Group:
    """A process group. Every rank calls the same operations in the same order, with the same lengths and types.

    Each operation returns when its result is there. Arrays are C-contiguous; results are written in place. The result
    of a reduction has the same bits on all ranks and in all runs: values are combined in the order of ranks. Sums and
    averages of fp32 whose length, at least 64 KiB, comes again go by the topology of the settings, in its order. After
    a RunFailedError (a rank is gone, or did not answer in time) the group cannot be used any more; a ConfigurationError
    was found before anything was sent. Calls of several threads go one after the other.

    Made by `Endpoint.group`.

    Attributes:
        name: as given, and a number that makes it unique.
        rank: in the group.
        size: ranks of the group.
        ranks: of the launch, in the order of the group.
        transport: what carries it.
    """

    def __init__(
        self,
        wire: Wire,
        messages: Wire | None,
        name: str,
        rank: int,
        ranks: Sequence[int],
        transport: str,
        thread: int | None = None,
    ) -> None:
        self._follower = Follower(thread if are_few(len(ranks)) else None, own_core(rank))
        self._takes_homes = True
        self._wire, self._memory = wire, Memory(_FIRST_BYTES)
        self._messages = Messages(messages, name) if messages else None
        # Taken where an operation begins, and given back where it ends, which may be another thread.
        self._turn = threading.Lock()
        self._closed = False
        self._vectors = Vectors()
        self.name, self.rank, self.ranks, self.size, self.transport = name, rank, tuple(ranks), len(ranks), transport
        try:
            self._tell_memory()
        except BaseException:
            self.close()
            raise

    def all_reduce(self, array: Array, op: str = "sum", elements: str | None = None, home: Home | None = None) -> None:
        """`array` becomes the reduction of all ranks' arrays.

        Args:
            array: of any shape.
            op: one of `REDUCTIONS`; average of floating point alone, bit operations of integers and bool.
            elements: the type of its values, one of `ELEMENTS`, where the array's own does not say it: bf16, which
                NumPy has not, or bytes.
            home: as in `begin_all_reduce`.
        """
        begun = self.begin_all_reduce(array, op, elements, home)
        if begun is not None:
            begun.end()
            return
        head, size = _reducing(array.dtype, op, elements)
        data = _bytes(array, "array")
        with self._turn:
            for piece in _pieces(data.size, _whole(MOST_BYTES, size)):
                (at,) = self._lay_out([piece.stop - piece.start])
                at[:] = data[piece]
                self._call(_ALL_REDUCE, head, [at])
                data[piece] = at

    def begin_all_reduce(
        self, array: Array, op: str = "sum", elements: str | None = None, home: Home | None = None
    ) -> Begun | None:
        """Begins what `all_reduce` does; None where it cannot be begun without waiting, since it takes several rounds.

        The array must not be touched until the end.

        Args:
            home: the array lies in this memory, from its start on, and may be reduced there. That concerns this rank
                alone: others may have theirs elsewhere.
        """
        head, size = _reducing(array.dtype, op, elements)
        data = _bytes(array, "array")
        if data.size > _whole(MOST_BYTES, size):
            return None
        self._turn.acquire()
        try:
            self._check()
            self._follower.follow()
            vector = self._vectors.find(data.size) if head in _BOUND_HEADS else None
            place: Bytes | None
            if vector is None:
                self._has_room_for(data.size)
                place = self._memory.data[: data.size]
                place[:] = data
                requests = [self._wire.send(_ALL_REDUCE, head + _PART.pack(0, data.size))]
            else:
                number = self._place_of(vector, home)
                place = None if number else vector.place
                if place is not None:
                    place[:] = data
                # Ranks wait for each other where a vector is bound, so that answer is awaited at the end, too.
                requests = self._bind(vector) if vector.is_new else []
                reduction = _REDUCING.unpack(head)[1]
                requests.append(self._wire.send(_REDUCE_BOUND, _REDUCING_BOUND.pack(vector.number, reduction, number)))
            return Begun(self._wire, self._turn, self._follower, requests, place, data)
        except BaseException:
            self._turn.release()
            raise

    def _place_of(self, vector: Vector, home: Home | None) -> int:
        """The number of the array's home in this vector; 0 where it has none there."""
        if home is None or vector.is_new or not self._takes_homes:
            return 0
        if home.vector is None:
            place = vector.homes + 1
            values = vector.place.size // 4
            try:
                self._wire.ask(_PLACE, _PLACING.pack(vector.number, place, home.descriptor, home.size, values))
            except ConfigurationError:  # of another transport or topology
                self._takes_homes = False
                return 0
            vector.homes = home.place = place
            home.vector = vector
        return home.place if home.vector is vector else 0

    def leave(self, home: Home) -> None:
        """The array that had this home is no more."""
        with self._turn:
            if home.vector is not None and not self._closed:
                self._wire.ask(_LEAVE, _LEAVING.pack(home.vector.number, home.place))
            home.close()

    def _bind(self, vector: Vector) -> list[int]:
        vector.is_new = False
        memory, values = vector.memory, vector.place.size // 4
        return [self._wire.send(_BIND, _BINDING.pack(memory.descriptor, memory.size, values))]

    def reduce_scatter(
        self, inputs: Sequence[Array], output: Array, op: str = "sum", elements: str | None = None
    ) -> None:
        """`output` becomes the reduction of every rank's `inputs[rank]`.

        Args:
            inputs: one array per rank; that of a rank has the same length on all ranks.
            output: as long as this rank's own input.
        """
        head, size = _reducing(output.dtype, op, elements)
        self._one_per_rank(inputs, "inputs")
        parts = [_bytes(each, "input") for each in inputs]
        result = _bytes(output, "output")
        self._same(parts[self.rank], result)
        with self._turn:
            for cuts in self._rounds([part.size for part in parts], size, copies=1, extra=1):
                mine, *sources = self._lay_out([_length(cuts[self.rank]), *map(_length, cuts)])
                for source, part, cut in zip(sources, parts, cuts, strict=True):
                    source[:] = part[cut]
                self._call(_REDUCE_SCATTER, head, [mine, *sources])
                result[cuts[self.rank]] = mine

    def all_gather(self, array: Array, outputs: Sequence[Array]) -> None:
        """`outputs[r]` becomes rank r's `array`. Arrays may differ in length, in the same way on all ranks."""
        self._one_per_rank(outputs, "outputs")
        mine = _bytes(array, "array")
        parts = [_bytes(each, "output") for each in outputs]
        self._same(mine, parts[self.rank])
        with self._turn:
            for cuts in self._rounds([part.size for part in parts], 1, copies=1):
                places = self._lay_out(map(_length, cuts))
                places[self.rank][:] = mine[cuts[self.rank]]
                self._call(_ALL_GATHER, b"", [places[self.rank], *places])
                for place, part, cut in zip(places, parts, cuts, strict=True):
                    part[cut] = place

    def all_to_all(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """`outputs[r]` becomes rank r's `inputs[rank]`. Lengths may be any, equal on both ends."""
        self._one_per_rank(inputs, "inputs")
        self._one_per_rank(outputs, "outputs")
        sources = [_bytes(each, "input") for each in inputs]
        targets = [_bytes(each, "output") for each in outputs]
        self._same(sources[self.rank], targets[self.rank])
        with self._turn:
            # Each pair has its own number of pieces; where it has none left, nothing travels between the two.
            for cuts in self._rounds([each.size for each in [*sources, *targets]], 1, copies=2):
                places = self._lay_out(map(_length, cuts))
                for place, source, cut in zip(places, sources, cuts, strict=False):
                    place[:] = source[cut]
                self._call(_ALL_TO_ALL, b"", places)
                for place, target, cut in zip(places[self.size :], targets, cuts[self.size :], strict=True):
                    target[cut] = place

    def broadcast(self, array: Array, root: int) -> None:
        """`array` becomes that of the rank `root` of the group."""
        data = _bytes(array, "array")
        with self._turn:
            for piece in _pieces(data.size, MOST_BYTES):
                (at,) = self._lay_out([_length(piece)])
                if self.rank == root:
                    at[:] = data[piece]
                self._call(_BROADCAST, _NUMBER.pack(root), [at])
                data[piece] = at

    def barrier(self) -> None:
        """Returns when all ranks have called it."""
        with self._turn:
            self._call(_BARRIER, b"", [])

    def send(self, array: Array, to: int, tag: int = 0) -> Future[int]:
        """Sends to a rank of the group that receives as many bytes with this tag.

        Returns:
            A future that ends when the other rank has taken the message; `array` may be changed at once.
        """
        return self._to_one(to).send(_bytes(array, "array"), to, tag)

    def receive(self, array: Array, source: int | None = None, tag: int = 0) -> Future[int]:
        """Receives the next message with this tag from a rank of the group; None: from whichever comes first.

        Receives hold nothing up: any number of them may wait, beside other operations.

        Returns:
            A future of the sender's rank; when it ends the message is in `array`, which has its length.
        """
        return self._to_one(source).receive(_bytes(array, "array"), source, tag)

    def abort(self) -> None:
        """Leaves the group at once; a call that waits in an operation raises a RunFailedError."""
        self._wire.shut()
        self.close()

    def close(self) -> None:
        """Leaves the group; the others may still receive what this rank has sent. The launch's other groups stay."""
        with self._turn:
            if not self._closed:
                self._closed = True
                self._wire.close()
                self._memory.close()
                self._vectors.close()
                if self._messages is not None:
                    self._messages.close()

    def _call(self, kind: int, head: bytes, places: Sequence[Bytes]) -> None:
        self._check()
        self._follower.follow()
        request = self._wire.send(kind, head + self._where(places))
        self._follower.wait(self._wire.await_shortly, sum(each.size for each in places))
        self._wire.answer_to(request)

    def _where(self, places: Sequence[Bytes]) -> bytes:
        start = self._memory.data.ctypes.data
        return b"".join(_PART.pack(each.ctypes.data - start if each.size else 0, each.size) for each in places)

    def _lay_out(self, sizes: Iterable[int]) -> list[Bytes]:
        """Places of so many bytes each in the shared memory, one behind the other."""
        lengths = list(sizes)
        starts = [0, *itertools.accumulate(-(-length // _ALIGNMENT) * _ALIGNMENT for length in lengths)]
        self._check()
        self._has_room_for(starts[-1])
        return [self._memory.data[at : at + length] for at, length in zip(starts, lengths, strict=False)]

    def _has_room_for(self, size: int) -> None:
        if size > self._memory.size:
            larger = Memory(max(size, 2 * self._memory.size))  # where there is none, the group goes on with what it has
            self._memory.close()
            self._memory = larger
            self._tell_memory()

    def _tell_memory(self) -> None:
        self._wire.ask(_MAP, _MEMORY.pack(self._memory.descriptor, self._memory.size))

    def _rounds(self, sizes: Sequence[int], unit: int, copies: int, extra: int = 0) -> Iterator[list[slice]]:
        """Which bytes of each part take part in each round; at least one round, in which all ranks take part."""
        step = _whole(max(unit, MOST_BYTES // (copies * self.size + extra)), unit)
        for start in range(0, max(1, max(sizes, default=0)), step):
            yield [slice(min(start, size), min(start + step, size)) for size in sizes]

    def _to_one(self, peer: int | None) -> Messages:
        self._check()
        valid = [rank for rank in range(self.size) if rank != self.rank]
        if self._messages is None or (peer is not None and peer not in valid):
            raise ConfigurationError(
                f"Rank {self.rank} of the group {self.name} has no messages with rank {peer}. Valid are {valid}."
            )
        return self._messages

    def _check(self) -> None:
        if self._closed:
            raise ConfigurationError(f"The group {self.name} is closed. Open another one.")

    def _one_per_rank(self, arrays: Sequence[Array], what: str) -> None:
        if len(arrays) != self.size:
            raise ConfigurationError(
                f"{what} has {len(arrays)} arrays, but the group has {self.size} ranks. Give one array per rank, an "
                "empty one where there is nothing."
            )

    def _same(self, mine: Bytes, part: Bytes) -> None:
        if mine.size != part.size:
            raise ConfigurationError(
                f"Rank {self.rank}'s own part has {mine.size} bytes on one side and {part.size} on the other. Give "
                "both the same length."
            )


@functools.lru_cache(maxsize=1024)
def _head(name: str, op: str) -> tuple[bytes, int]:
    """The head of a request that reduces, and the bytes of a value."""
    number = ELEMENTS.index(name)
    return _REDUCING.pack(number, REDUCTIONS.index(op)), _SIZES[number]


def elements_of(dtype: np.dtype[Any], elements: str | None = None) -> str:
    """The name of a type of values; ConfigurationError for one that cannot be reduced."""
    name = elements or _OF_DTYPE.get(dtype.name, dtype.name)
    if name not in ELEMENTS or (elements is None and not dtype.isnative):
        raise ConfigurationError(
            f"Values of type {elements or dtype} cannot be reduced; valid are {', '.join(ELEMENTS)}. Convert them."
        )
    return name


def _reducing(dtype: np.dtype[Any], op: str, elements: str | None) -> tuple[bytes, int]:
    """The head of a request that reduces, and the bytes of a value."""
    name = elements_of(dtype, elements)
    if op not in REDUCTIONS:
        raise ConfigurationError(f"op = {op!r}; valid are {', '.join(REDUCTIONS)}.")
    return _head(name, op)


def _bytes(array: Array, what: str) -> Bytes:
    """The array's memory."""
    if not array.flags.c_contiguous:
        raise ConfigurationError(
            f"An {what} of shape {array.shape} is not C-contiguous. Give numpy.ascontiguousarray of it, and copy back."
        )
    return array.reshape(-1).view(np.uint8)


def _pieces(size: int, step: int) -> Iterator[slice]:
    for start in range(0, max(1, size), step):
        yield slice(start, min(start + step, size))


def _whole(size: int, unit: int) -> int:
    return max(unit, size // unit * unit)


def _length(cut: slice) -> int:
    length: int = cut.stop - cut.start
    return length
