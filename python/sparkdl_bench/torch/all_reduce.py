"""An all-reduce of `torch.distributed` that may end in its caller's thread or in another one."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from sparkdl_bench.torch import tensors as t
from sparkdl_bench.worker import Group
from sparkdl_bench.worker._cores import are_few
from sparkdl_bench.worker.vectors import Begun, Home

# Longer than any all-reduce of one bucket between ranks that come at the same time; what takes longer waits for a rank.
_PATIENCE_S = 0.05


def patience_s(group: Group) -> float:
    """How long the caller of an asynchronous all-reduce waits for its end: not at all where cores are free for it."""
    return _PATIENCE_S if are_few(group.size) else 0.0


def begin(
    group: Group, tensors: Sequence[Tensor], elements: str, op: str, home: Home | None = None
) -> AllReduce | None:
    """Begins the all-reduce of the one tensor; None where it takes several rounds.

    Args:
        home: of its storage.
    """
    own = tensors[0].detach()
    flat = t.flat(own)
    begun = group.begin_all_reduce(t.read(flat), op, elements, home)
    return None if begun is None else AllReduce(begun, tensors, own, flat)


class AllReduce:
    """One that has been begun (`operations.Begun`). Holds the tensors until its end."""

    def __init__(self, begun: Begun, tensors: Sequence[Tensor], own: Tensor, flat: Tensor) -> None:
        self._begun, self._tensors, self._own, self._flat = begun, tensors, own, flat

    def is_done(self, seconds: float) -> bool:
        return self._begun.is_done(seconds)

    def end(self) -> list[Tensor]:
        self._begun.end()
        if self._flat is not self._own:
            self._own.copy_(self._flat)
        return list(self._tensors)
