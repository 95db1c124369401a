"""On which core the JVM's thread of a group runs."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

_getcpu: Callable[[], int] | None = getattr(ctypes.CDLL(None), "sched_getcpu", None)


def are_few(ranks: int) -> bool:
    """Whether a rank has fewer than two cores, so that its process and its executor's thread must share one.

    Args:
        ranks: of the group, where nobody has told how many of them are on this host.
    """
    told = os.environ.get("LOCAL_WORLD_SIZE", "")
    ranks_here = int(told) if told.isdigit() else ranks
    return len(os.sched_getaffinity(0)) < 2 * ranks_here


class Follower:
    """Has a thread of the JVM run on the core of the thread that waits for it.

    The two never run at the same time, and each reads what the other has just written. On another core that comes out
    of that core's cache, and the kernel has to wake a core that may be idle: together several times what a short
    all-reduce takes. The waiting thread stays free to go wherever the kernel wants it, and the JVM's goes along.

    Args:
        thread: its number at the kernel; None: it may run anywhere.
    """

    def __init__(self, thread: int | None) -> None:
        self._thread = thread if _getcpu is not None else None
        self._core = -1

    def follow(self) -> None:
        """Called by the thread that is going to wait, before it asks for anything."""
        if self._thread is None or _getcpu is None:
            return
        core = _getcpu()
        if core != self._core:
            self._core = core
            try:
                os.sched_setaffinity(self._thread, {core})
            except OSError:  # a sandbox forbids it, or the thread has ended
                self._thread = None
