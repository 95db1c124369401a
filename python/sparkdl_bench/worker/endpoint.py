"""A rank's connection to its executor's JVM, and through that to the driver and the other ranks."""

from __future__ import annotations

import json
import math
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2s
from types import TracebackType
from typing import Any, final

from sparkdl_bench.errors import ConfigurationError, RunFailedError
from sparkdl_bench.worker import _wire
from sparkdl_bench.worker.group import Group
from sparkdl_bench.worker.rows import Rows

_BEGIN_RANK, _BEGIN_GROUP, _BEGIN_MESSAGES, _BEGIN_ROWS = 1, 2, 3, 4
_TELL, _FLUSH, _MEET, _SAVE, _NEWEST, _LOAD = range(10, 16)

_current: Endpoint | None = None


def connect(launch_id: str, attempt: int, rank: int, size: int, timeout_s: float) -> Endpoint:
    """Connects this Python worker of Spark to its executor's JVM, as one rank of a launch that the driver has opened.

    Several ranks may be tasks of one executor. A connection of an earlier attempt of the same rank ends.

    Args:
        launch_id: as in `launchOpen` on the driver.
        attempt: of the launch, from 0; of ranks of earlier ones nobody hears any more.
        rank: from 0.
        size: ranks of the launch.
        timeout_s: the longest wait for any other rank, seconds.

    Raises:
        ConfigurationError: this process is no Python worker, or its executor has no endpoint for it.
        RunFailedError: the executor does not answer.
    """
    global _current
    endpoint = Endpoint(launch_id, attempt, rank, size, timeout_s)
    _current = endpoint
    return endpoint


def current() -> Endpoint | None:
    """The endpoint that this process has connected last, until it is closed."""
    return _current


@final
class Endpoint:
    """One rank's way to the driver and to the other ranks, while its task runs. For any thread; a context manager.

    Attributes:
        launch_id, attempt, rank, size, timeout_s: as given to `connect`.
        host: of the executor, as Spark knows it.
    """

    def __init__(self, launch_id: str, attempt: int, rank: int, size: int, timeout_s: float) -> None:
        if not 0 <= rank < size:
            raise ConfigurationError(f"rank = {rank} of size = {size}; valid are 0 to {size - 1}.")
        if not 0 < timeout_s <= _MOST_SECONDS:
            raise ConfigurationError(f"timeout_s = {timeout_s}; valid is a number above 0, up to {_MOST_SECONDS}.")
        self.launch_id, self.attempt, self.rank, self.size = launch_id, attempt, rank, size
        self.timeout_s = timeout_s
        self._path, self._secret = _wire.announced()
        self._wire = _wire.Wire(self._path, self._secret, timeout_s)
        self._sending = threading.Lock()
        self._asking = threading.Lock()
        self._closed = False
        self._groups: weakref.WeakSet[Group | Rows] = weakref.WeakSet()
        self._opened: dict[tuple[str, tuple[int, ...]], int] = {}
        self._watcher: threading.Thread | None = None
        words = {"launch": launch_id, "attempt": attempt, "rank": rank, "size": size}
        try:
            answer = json.loads(
                self._wire.ask(_BEGIN_RANK, _wire.hello({**words, "timeout_ms": max(1, round(1000 * timeout_s))}))
            )
        except BaseException:
            self._wire.close()
            raise
        self._session = int(answer["session"])
        self.host = str(answer["host"])

    def when_lost(self, action: Callable[[], None]) -> None:
        """Calls `action` once, in another thread, when the executor's JVM has ended, or knows that the launch is over.

        Not after `close`. It learns of the end of a launch within a second or so.
        """
        self._watcher = threading.Thread(target=self._watch, args=(action,), name="sparkdl-lost", daemon=True)
        self._watcher.start()

    def _watch(self, action: Callable[[], None]) -> None:
        self._wire.await_end()
        if not self._closed:
            action()

    def tell(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Sends the driver a message, one way; `launchMessages` has it there.

        Numbers that JSON has not (NaN, infinities) become None. Messages of one rank keep their order. What the driver
        does not read in time is dropped there, counted and told.

        Args:
            kind: what it is, in the words of who reads it.
            payload: what JSON can hold, up to a MiB.

        Raises:
            ConfigurationError: the payload is too long, or JSON cannot hold it.
            RunFailedError: the executor's JVM has ended.
        """
        name = kind.encode()
        try:
            words = json.dumps(_finite(dict(payload)), allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f"A message '{kind}' to the driver holds what JSON cannot: {error}. Give numbers, texts, lists and "
                "dictionaries."
            ) from error
        body = len(name).to_bytes(4, "little") + name + words
        if len(body) > _wire.MOST_BODY:
            raise ConfigurationError(
                f"A message '{kind}' to the driver has {len(body)} bytes; valid are up to {_wire.MOST_BODY}. Send "
                "it in parts."
            )
        with self._sending:
            self._check()
            self._wire.send(_TELL, body)

    def flush(self) -> None:
        """Returns when the driver has all that this rank told it. Due before a task ends whose words matter."""
        self._ask(_FLUSH, b"")

    def meet(self, text: str) -> list[str]:
        """Every rank's text, by rank; each rank calls it as often, and it returns when all have.

        The texts go over the driver, so it is for what is exchanged once, not for steps.

        Raises:
            ConfigurationError: the text is longer than a MiB.
            RunFailedError: a rank did not come within the timeout, or the launch is over.
        """
        body = text.encode()
        if len(body) > _wire.MOST_BODY:
            raise ConfigurationError(f"A text to meet with has {len(body)} bytes; valid are up to {_wire.MOST_BODY}.")
        texts: list[str] = json.loads(self._ask(_MEET, body))
        return texts

    def save(self, folder: str, descriptor: int, keep: int) -> int:
        """Saves the bytes of a memfd as the next checkpoint in a folder of any Hadoop file system; returns its number.

        Args:
            keep: how many there are at most afterwards, the newest ones.

        Raises:
            RunFailedError: the file system refuses it.
        """
        words = {"folder": folder, "descriptor": descriptor, "keep": keep}
        return int(json.loads(self._ask(_SAVE, json.dumps(words).encode()))["number"])

    def newest(self, folder: str) -> tuple[int, int] | None:
        """Number and bytes of the newest checkpoint in the folder; None where there is none."""
        found = json.loads(self._ask(_NEWEST, json.dumps({"folder": folder}).encode()))
        return (int(found["number"]), int(found["bytes"])) if found else None

    def load(self, folder: str, number: int, descriptor: int) -> None:
        """Writes a checkpoint's bytes to a memfd."""
        words = {"folder": folder, "number": number, "descriptor": descriptor}
        self._ask(_LOAD, json.dumps(words).encode())

    def group(
        self,
        settings: Mapping[str, str],
        name: str = "world",
        ranks: Sequence[int] | None = None,
        timeout_s: float | None = None,
    ) -> Group:
        """Opens a process group; a collective call of its ranks.

        Args:
            settings: of its transport, as a run has them: `transport` (auto: as runs choose it) and that one's keys.
            name: the same on all of its ranks; may be used again for another group.
            ranks: of the launch, in the order of the group; None: all. This rank is one of them.
            timeout_s: the longest wait for any of them, seconds; None: the endpoint's.

        Raises:
            ConfigurationError: a setting is not valid, or the session does not carry it.
            RunFailedError: a rank did not come in time.
        """
        members = list(range(self.size)) if ranks is None else [int(rank) for rank in ranks]
        timeout = self.timeout_s if timeout_s is None else timeout_s
        with self._asking:
            # All ranks of the group open it as often, so they agree on the number.
            number = self._opened[name, tuple(members)] = self._opened.get((name, tuple(members)), 0) + 1
            self._check()
        unique = f"{name}/{blake2s(repr(members).encode(), digest_size=8).hexdigest()}/{number}"
        words = _wire.hello(
            {
                "session": self._session,
                "name": unique,
                "ranks": members,
                "settings": dict(settings),
                "timeout_ms": max(1, round(1000 * timeout)),
            }
        )
        kinds = [_BEGIN_GROUP, _BEGIN_MESSAGES] if len(members) > 1 else [_BEGIN_GROUP]
        wires = [_wire.Wire(self._path, self._secret, timeout) for _ in kinds]
        try:
            for wire, kind in zip(wires, kinds, strict=True):
                wire.send(kind, words)
            answers = [json.loads(wire.receive()[1]) for wire in wires]
            messages = wires[1] if len(wires) > 1 else None
            transport, thread = str(answers[0]["transport"]), answers[0].get("thread")
            group = Group(wires[0], messages, unique, members.index(self.rank), members, transport, thread)
            self._groups.add(group)
            return group
        except BaseException:
            for wire in wires:
                wire.close()
            raise

    def rows(self, settings: Mapping[str, str]) -> Rows:
        """Opens this rank's batches of a decoded set.

        Args:
            settings: of a set that the driver has prepared (`PythonApi.feed`), with `batch` and `seed`.

        Raises:
            ConfigurationError: the decoded rows cannot be read here.
            RunFailedError: the executor does not answer.
        """
        self._check()
        wire = _wire.Wire(self._path, self._secret, self.timeout_s)
        try:
            words = _wire.hello({"session": self._session, "settings": dict(settings)})
            rows = Rows(wire, json.loads(wire.ask(_BEGIN_ROWS, words)))
        except BaseException:
            wire.close()
            raise
        self._groups.add(rows)
        return rows

    def close(self) -> None:
        """Ends the rank: the JVM closes all that it holds for it. What was told and not flushed may be lost."""
        global _current
        self._closed = True
        if _current is self:
            _current = None
        if self._watcher is not None:
            self._wire.shut()
            if threading.current_thread() is not self._watcher:
                self._watcher.join(_JOIN_SECONDS)
        # Who waits in a group hears of the end by this connection, and lets go of it.
        self._wire.close()
        for group in list(self._groups):
            group.close()

    def _ask(self, kind: int, body: bytes) -> bytes:
        # Answers belong to who asks; words to the driver may be sent meanwhile.
        with self._asking:
            with self._sending:
                self._check()
                expected = self._wire.send(kind, body)
            number, answer, error = self._wire.receive_any()
            while 0 < number < expected:  # of requests whose answers came too late
                number, answer, error = self._wire.receive_any()
            if error is not None:
                raise error
            if number != expected:
                raise RunFailedError(f"The executor's JVM answered request {number} in place of {expected}.")
            return answer

    def _check(self) -> None:
        if self._closed:
            raise ConfigurationError(f"The endpoint of rank {self.rank} is closed. Connect again in each task.")

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


_MOST_SECONDS = 1_000_000
_JOIN_SECONDS = 5.0


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return value
