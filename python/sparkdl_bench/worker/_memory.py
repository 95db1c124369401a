"""Memory without a name that a Python worker and its executor's JVM both map."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import weakref

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
_PAGE = 4096


class Memory:
    """`size` bytes of a memfd. Nothing is left of it, however the processes end.

    Attributes:
        descriptor: its file descriptor, which the JVM opens through /proc.
        data: the bytes; no view of them may be used after `close`.
    """

    def __init__(self, size: int) -> None:
        self.size = max(_PAGE, size)
        self.descriptor = os.memfd_create("sparkdl", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            # Really there: a page that the host cannot give later would kill both processes where they touch it.
            os.posix_fallocate(self.descriptor, 0, self.size)
            # And it stays: what the JVM has mapped must not become shorter.
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            self._map = mmap.mmap(self.descriptor, self.size)
        except BaseException:
            os.close(self.descriptor)
            raise
        self.data: Bytes = np.frombuffer(self._map, np.uint8)
        # Also of a group that nobody closes: Python workers are used again.
        self._close_descriptor = weakref.finalize(self, os.close, self.descriptor)

    def close(self) -> None:
        """The JVM may keep its own mapping."""
        self.data = np.empty(0, np.uint8)
        self._close_descriptor()
        with contextlib.suppress(BufferError):  # somebody still holds a view; then it goes with that
            self._map.close()
