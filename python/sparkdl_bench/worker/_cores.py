"""On which core the JVM's thread of a group runs."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

_getcpu: Callable[[], int] | None = getattr(ctypes.CDLL(None), "sched_getcpu", None)
# So many operations somewhere else, and the next one is on the rank's own core again.
_PATIENCE = 64
# What an operation takes where nothing else is at work: s, bytes/s.
_SHORT_S, _SLOW = 2e-4, 1e9


def are_few(ranks: int) -> bool:
    """Whether a rank has fewer than two cores, so that its process and its executor's thread must share one.

    Args:
        ranks: of the group, where nobody has told how many of them are on this host.
    """
    told = os.environ.get("LOCAL_WORLD_SIZE", "")
    ranks_here = int(told) if told.isdigit() else ranks
    return len(os.sched_getaffinity(0)) < 2 * ranks_here


def own_core(rank: int) -> int:
    """A core for each rank of this host, where there are as many.

    Args:
        rank: of the launch, where nobody has told which of the host's ranks this is.
    """
    told = os.environ.get("LOCAL_RANK", "")
    cores = sorted(os.sched_getaffinity(0))
    return cores[(int(told) if told.isdigit() else rank) % len(cores)]


class Follower:
    """Has a thread of the JVM run on the core of the thread that waits for it.

    The two never run at the same time, and each reads what the other has just written. On another core that comes out
    of that core's cache, and the kernel has to wake a core that may be idle: together several times what a short
    all-reduce takes. While it waits the waiting thread stays there, too: the kernel would wake it on another core that
    is idle, which is that of a rank that waits, and there the two ranks would be in each other's way. Where an answer
    is late both are free again, as somebody else may be at work on that core.

    Args:
        thread: its number at the kernel; None: it may run anywhere.
        own: the core to come back to now and then, another one for each rank of the host.
    """

    def __init__(self, thread: int | None, own: int) -> None:
        self._thread = thread if _getcpu is not None else None
        self._own = own
        self._core = -1
        self._elsewhere = 0

    def follow(self) -> None:
        """Called by the thread that is going to wait, before it asks for anything."""
        if self._thread is None or _getcpu is None:
            return
        core = _getcpu()
        if core == self._own:
            self._elsewhere = 0
        elif self._elsewhere == _PATIENCE:
            self._elsewhere = 0
            core = self._own
        else:
            self._elsewhere += 1
        if core != self._core:
            self._core = core
            self._place(self._thread, {core})

    def wait(self, answer: Callable[[float], bool], size: int) -> None:
        """The calling thread waits on the core of the JVM's thread, but not for long: others may be at work there.

        Args:
            answer: waits for an answer at most so many seconds; whether it is there.
            size: bytes of the operation.
        """
        if self._thread is None or self._core < 0:  # which it is after an answer that was late
            return
        free = os.sched_getaffinity(0)
        self._place(0, {self._core})
        try:
            in_time = answer(_SHORT_S + size / _SLOW)
        finally:
            self._place(0, free)
        if not in_time and self._thread is not None:
            self._core = -1
            self._place(self._thread, free)

    def _place(self, thread: int, cores: set[int]) -> None:
        try:
            os.sched_setaffinity(thread, cores)
        except OSError:  # a sandbox forbids it, the thread has ended, or the core is not ours any more
            self._thread = None
