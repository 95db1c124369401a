"""A rank's batches of a decoded set, which its executor's JVM reads (`worker/WorkerRows.scala` is the other end)."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.worker._memory import Memory
from sparkdl_bench.worker._wire import Wire

_MAP, _READ = 40, 41
_MEMORY = struct.Struct("<iq")
_STEP = struct.Struct("<qi")
_ROWS = struct.Struct("<i")
_SLOTS = 2
# What a JVM can map at once.
_MOST_BYTES = (1 << 31) - 1


class Taken(NamedTuple):
    """The rows of one batch; arrays of their own.

    Attributes:
        features: (rows, width), as stored times `data.scale`.
        labels: classes, or of numbers the bits of an fp32.
        ids: the rows' numbers in the set.
    """

    features: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int32]


class _Asked(NamedTuple):
    step: int
    slot: int
    number: int


class Rows:
    """One batch is read while another is computed on. Made by `Endpoint.rows`; one thread at a time.

    Attributes:
        steps: of an epoch, the same on all ranks.
        identity: the same for the same rows in the same order.
    """

    def __init__(self, wire: Wire, about: dict[str, Any]) -> None:
        self._wire = wire
        self._width, self._capacity = int(about["width"]), int(about["capacity"])
        self.steps, self.identity = int(about["steps"]), str(about["identity"])
        self._slot_bytes = self._capacity * (4 * self._width + 8 + 4)
        self._under_way: _Asked | None = None
        self._slot = 0
        if _SLOTS * self._slot_bytes > _MOST_BYTES:
            raise ConfigurationError(
                f"A rank's part of a batch, {self._capacity} rows of {self._width} values, takes {self._slot_bytes} "
                f"bytes; valid are up to {_MOST_BYTES // _SLOTS}. Make the batch smaller, or train with more workers."
            )
        self._memory = Memory(_SLOTS * self._slot_bytes)
        try:
            self._wire.ask(_MAP, _MEMORY.pack(self._memory.descriptor, self._memory.size))
        except BaseException:
            self.close()
            raise

    def read(self, step: int, following: int | None = None) -> Taken:
        """The rank's rows of a step, counted from the start of training.

        Args:
            following: the step that is read meanwhile, since it will be asked for next.
        """
        asked, self._under_way = self._under_way, None
        if asked is not None and asked.step != step:
            self._answer_to(asked)
            asked = None
        asked = asked or self._ask(step)
        rows = self._answer_to(asked)
        if following is not None:
            self._under_way = self._ask(following)
        return self._copied(asked.slot, rows)

    def _ask(self, step: int) -> _Asked:
        self._slot = (self._slot + 1) % _SLOTS
        return _Asked(step, self._slot, self._wire.send(_READ, _STEP.pack(step, self._slot)))

    def _answer_to(self, asked: _Asked) -> int:
        return int(_ROWS.unpack(self._wire.answer_to(asked.number))[0])

    def _copied(self, slot: int, rows: int) -> Taken:
        at = slot * self._slot_bytes
        labels_at = at + 4 * self._width * self._capacity
        ids_at = labels_at + 8 * self._capacity
        data = self._memory.data
        features = data[at : at + 4 * self._width * rows].view(np.float32).reshape(rows, self._width).copy()
        labels = data[labels_at : labels_at + 8 * rows].view(np.int64).copy()
        return Taken(features, labels, data[ids_at : ids_at + 4 * rows].view(np.int32).copy())

    def close(self) -> None:
        self._wire.close()
        self._memory.close()
