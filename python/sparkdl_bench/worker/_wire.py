"""The connection of a Python worker to its executor's JVM (`worker/WorkerConnection.scala` is the other end).

A connection is a Unix domain socket. Python sends b"SDLW" and the secret, then requests; the JVM answers those that
have an answer, each with the request's id. Request and answer alike: int32 length of the body, int32 kind, int64 id
(little-endian), body. The kinds stand in `WorkerConnection.scala`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparkdl_bench.errors import ConfigurationError, RunFailedError, SparkDLError
from sparkdl_bench.version import __version__

ANNOUNCEMENT = "sparkdl-worker.json"
MOST_BODY = 1 << 20
_MAGIC = b"SDLW"
_HEAD = struct.Struct("<iiq")
_TIMEVAL = struct.Struct("@ll")
_DONE, _USER_ERROR, _FAILED = 0, 1, 2
# Added to the time that the JVM may take, which ends its waits itself and says why.
_GRACE_SECONDS = 15.0

# Descriptors that select() knows end here (FD_SETSIZE).
_MOST_SELECTED = 1024

_open: weakref.WeakSet[Wire] = weakref.WeakSet()


class Wire:
    """One connection. Frames are sent by any thread that holds `sending`'s turn, and received by one thread at a time.

    Args:
        path: of the socket.
        secret: 32 bytes.
        timeout_s: how long the JVM may take for an answer, seconds.
    """

    def __init__(self, path: str, secret: bytes, timeout_s: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._next = 0
        try:
            # By the kernel: a timeout of Python's own costs a poll before each call.
            self._patience_s = timeout_s + _GRACE_SECONDS
            bound = _TIMEVAL.pack(int(self._patience_s), int(self._patience_s % 1 * 1e6))
            for direction in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                self._socket.setsockopt(socket.SOL_SOCKET, direction, bound)
            self._socket.connect(path)
            self._socket.sendall(_MAGIC + secret)
        except OSError as error:
            self._socket.close()
            raise _gone(error) from error
        _open.add(self)

    def send(self, kind: int, body: bytes | bytearray | memoryview = b"") -> int:
        """Sends a request; returns its id."""
        self._next += 1
        head = _HEAD.pack(len(body), kind, self._next)
        try:
            self._socket.sendall(head + body)
        except OSError as error:
            # The JVM may have said why before it closed the connection.
            raise self._last_words() or _gone(error) from error
        return self._next

    def receive(self) -> tuple[int, bytes]:
        """The next answer: the request's id, the body. Raises the error that it is."""
        number, body, error = self.receive_any()
        if error is not None:
            raise error
        return number, body

    def receive_any(self) -> tuple[int, bytes, SparkDLError | None]:
        """The next answer, also where it is an error."""
        length, kind, number = _HEAD.unpack(self._read(_HEAD.size))
        if length < 0:
            raise SparkDLError(f"The executor's JVM announced an answer of {length} bytes. Its log may say why.")
        body = self._read(length) if length else b""
        return number, body, None if kind == _DONE else _error(kind, body.decode("utf-8", "replace"))

    def await_answer(self, seconds: float | None = None) -> bool:
        """Waits for an answer, or until somebody calls `shut`; False where neither was within `seconds`."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(None if seconds is None else 1000 * seconds))

    def await_shortly(self, seconds: float) -> bool:
        """As `await_answer`; to the microsecond, where poll counts in milliseconds."""
        if self._socket.fileno() >= _MOST_SELECTED:
            return self.await_answer(seconds)
        return bool(select.select([self._socket], [], [], seconds)[0])

    def await_end(self) -> None:
        """Waits until the other end has closed the connection, or somebody calls `shut`; reads nothing."""
        poll = select.poll()
        poll.register(self._socket, select.POLLRDHUP)
        poll.poll()

    def shut(self) -> None:
        """Ends the connection; a thread that waits for it hears so."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def ask(self, kind: int, body: bytes | bytearray | memoryview = b"") -> bytes:
        """Sends a request and waits for its answer; for connections with one request at a time."""
        return self.answer_to(self.send(kind, body))

    def answer_to(self, expected: int) -> bytes:
        """Waits for the answer to the request of this id, which is the only one under way."""
        number, answer = self.receive()
        if number != expected:
            raise SparkDLError(f"The executor's JVM answered request {number} in place of {expected}.")
        return answer

    def close(self) -> None:
        _open.discard(self)
        self._socket.close()

    def _read(self, count: int) -> bytes:
        try:
            data = self._socket.recv(min(count, MOST_BODY))  # which takes memory at once
            if len(data) == count:
                return data
            parts = [data]
            left = count - len(data)
            while left and data:
                data = self._socket.recv(min(left, MOST_BODY))
                parts.append(data)
                left -= len(data)
        except BlockingIOError as error:
            raise RunFailedError(
                f"The executor's JVM did not answer within {self._patience_s:.0f} s. Look into its log."
            ) from error
        except OSError as error:
            raise _gone(error) from error
        if left:
            raise _gone(None)
        return b"".join(parts)

    def _last_words(self) -> SparkDLError | None:
        try:
            self.receive()
        except SparkDLError as error:
            return error
        return None


def announced() -> tuple[str, bytes]:
    """Socket and secret of this worker's executor. Raises ConfigurationError where there is no endpoint."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    if not folder:
        raise ConfigurationError(
            "This process is no Python worker of Spark: SPARK_LOCAL_DIRS is not set. Call this in a function that "
            "sparkdl_bench.launch runs on the executors."
        )
    file = Path(folder) / ANNOUNCEMENT
    try:
        words = json.loads(file.read_text(encoding="utf-8"))
        return str(words["socket"]), bytes.fromhex(words["secret"])
    except FileNotFoundError as error:
        raise ConfigurationError(
            f"The executor of this Python worker offers no way to it: {file} is not there. Its session needs "
            "spark.plugins=sparkdlbench.SparkDLPlugin (sparkdl_bench.configure sets it), and the jar of version "
            f"{__version__}; where it has them, the executor's log says why."
        ) from error
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigurationError(
            f"What the executor of this Python worker says of its way to it cannot be read ({file}): {error}. The "
            "worker must run as the executor's user."
        ) from error


def hello(words: Mapping[str, Any]) -> bytes:
    """The first request's body."""
    return json.dumps({"version": __version__, "pid": os.getpid(), **words}).encode()


def _error(kind: int, words: str) -> SparkDLError:
    words = words or "it gave no reason"
    if kind == _USER_ERROR:
        return ConfigurationError(words)
    if kind == _FAILED:
        return RunFailedError(words)
    return SparkDLError(f"The executor's JVM failed: {words}. Its log has the stack.")


def _gone(error: OSError | None) -> RunFailedError:
    why = f" ({error})" if error else ""
    return RunFailedError(
        f"The connection to this worker's executor is closed{why}: its JVM has ended, or the task was asked to end. "
        "The reason is in the executor's log or in another rank's error."
    )


def _forget_in_child() -> None:
    """A forked child must not keep the parent's connections open: their end tells that the parent is gone."""
    for wire in list(_open):
        wire.close()


os.register_at_fork(after_in_child=_forget_in_child)
