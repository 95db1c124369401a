"""The order in which a process group's operations are done, and the handles for them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol

import torch
import torch.distributed as dist
from torch.futures import Future

from sparkdl_bench.errors import ConfigurationError

Result = list[torch.Tensor]
_NO_TIMEOUT = timedelta(0)


class Work(dist.Work):
    """The handle of one operation.

    PyTorch's own work over a future says nothing of an error when it is waited for; this one raises it.

    Args:
        devices: GPUs that results lie on, which futures must know.
    """

    def __init__(self, help_with: Callable[[Work], None] | None = None, devices: Sequence[torch.device] = ()) -> None:
        super().__init__()
        self._devices = devices
        self._is_done = False
        self._error: BaseException | None = None
        self._source = -1
        self._result: Result = []
        self._help_with = help_with
        # Made for who asks: most operations are waited for without.
        self._making = threading.Lock()
        self._done: threading.Event | None = None
        self._ended: Future[Result] | None = None
        self._future: Future[Result] | None = None

    def finish(self, result: Result, error: BaseException | None = None, source: int = -1) -> None:
        """Ends it; calls what was chained to its future, in this thread."""
        self._error, self._source, self._result = error, source, result
        with self._making:
            self._is_done = True
            done, ended = self._done, self._ended
        if done is not None:
            done.set()
        if ended is not None:
            ended.set_result(result)

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Returns when the operation is done, and raises its error; operations bound their waits themselves."""
        if not self._is_done and self._help_with is not None:
            self._help_with(self)
        if not self._is_done and not self._event().wait(timeout.total_seconds() or None):
            raise RuntimeError(f"The operation was not done within {timeout.total_seconds()} s.")
        if self._error is not None:
            raise self._error
        return True

    def _event(self) -> threading.Event:
        with self._making:
            if self._done is None:
                self._done = threading.Event()
                if self._is_done:
                    self._done.set()
            return self._done

    def is_completed(self) -> bool:
        return self._is_done

    def is_success(self) -> bool:
        return self._is_done and self._error is None

    def exception(self) -> BaseException | None:
        return self._error

    def get_future(self) -> Future[Result]:
        with self._making:
            if self._future is not None:
                return self._future
            ended: Future[Result] = Future(devices=list(self._devices)) if self._devices else Future()
            # An error of a Python future does not reach C++ (DDP's reducer); one of a callback does.
            future = self._future = ended.then(self._value)
            self._ended = ended
            is_late = self._is_done
        if is_late:
            ended.set_result(self._result)
        return future

    def result(self) -> Result:
        self.wait()
        return self._result

    def source_rank(self) -> int:
        """Of a received message, in the group."""
        return self._source

    _source_rank = source_rank

    def _value(self, ended: Future[Result]) -> Result:
        if self._error is not None:
            raise self._error
        value: Result = ended.value()
        return value


class Begun(Protocol):
    """An operation that has been begun, and goes on elsewhere."""

    def is_done(self, seconds: float) -> bool:
        """Waits at most so long; whether `end` would return at once."""

    def end(self) -> Result:
        """Waits for the end, in whatever thread."""


class Operations:
    """Does operations one after the other, in the order of their calls.

    A synchronous one is done in its caller's thread once nothing is pending: a change of threads costs more than a
    small operation. Asynchronous ones have a thread of their own. Callbacks of their futures run in that thread before
    the next operation, and what they call is done at once: the order is then the same on all ranks, however fast each
    is.

    Args:
        patience_s: how long the caller of an asynchronous operation waits for its end before the thread does. Where no
            core is free the thread would only take the caller's.
    """

    def __init__(self, name: str, patience_s: float = 0.0) -> None:
        self._name = name
        self._patience_s = patience_s
        self._change = threading.Condition()
        self._pending: deque[tuple[Callable[[], Result], Work]] = deque()
        self._busy = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._ident: int | None = None

    def run(
        self,
        operation: Callable[[], Result],
        asynchronous: bool,
        begin: Callable[[], Begun | None] | None = None,
        devices: Sequence[torch.device] = (),
    ) -> Work:
        """Does `operation`, now or later; an error of a synchronous one is raised here.

        Args:
            begin: begins the same operation without waiting for other ranks, where that can be done.
            devices: GPUs that its results lie on.
        """
        if threading.get_ident() == self._ident:
            return _done_now(operation, devices)
        if not asynchronous:
            self._await_turn()
            try:
                return _done_now(operation, devices)
            finally:
                self._end_turn()
        if begin is not None and self._patience_s and self._take_turn():
            return self._begun(operation, begin)
        work = Work(self._help, devices)
        with self._change:
            self._check()
            self._pending.append((operation, work))
            self._let_serve()
        return work

    def _take_turn(self) -> bool:
        """Without waiting; False where others come first."""
        with self._change:
            self._check()
            if self._busy or self._pending:
                return False
            self._busy = True
            return True

    def _begun(self, operation: Callable[[], Result], begin: Callable[[], Begun | None]) -> Work:
        """Begins it here, and ends it here if it is done soon."""
        work = Work(self._help)
        left = operation
        try:
            begun = begin()
            if begun is not None:
                left = begun.end
                if begun.is_done(self._patience_s):
                    _do(left, work)
                    return work
        except BaseException as error:
            work.finish([], error)
            return work
        finally:
            with self._change:
                self._busy = False
                if not work.is_completed():
                    # Before what was called meanwhile.
                    self._pending.appendleft((left, work))
                    self._let_serve()
                self._change.notify_all()
        return work

    def _let_serve(self) -> None:
        """There is something for the thread to do. Called by who holds `_change`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=f"sparkdl-{self._name}", daemon=True)
            self._thread.start()
        self._change.notify_all()

    def close(self) -> None:
        """Ends the thread after what is pending."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join()

    def _check(self) -> None:
        if self._closed:
            raise ConfigurationError(f"The process group {self._name} has been destroyed. Make another one.")

    def _await_turn(self) -> None:
        with self._change:
            self._check()
            while self._busy or self._pending:
                self._change.wait()
            self._busy = True

    def _end_turn(self) -> None:
        with self._change:
            self._busy = False
            self._change.notify_all()

    def _serve(self) -> None:
        self._ident = threading.get_ident()
        while True:
            with self._change:
                while self._busy or not self._pending:
                    if self._closed and not self._pending:
                        return
                    self._change.wait()
                self._busy = True
                operation, work = self._pending.popleft()
            _do(operation, work)
            del operation, work  # and with them the tensors, until the next one comes
            self._end_turn()

    def _help(self, awaited: Work) -> None:
        """A callback that waits for what is still pending would wait for itself: it does that first."""
        if threading.current_thread() is not self._thread:
            return
        while not awaited.is_completed():
            with self._change:
                if not self._pending:
                    return
                operation, work = self._pending.popleft()
            _do(operation, work)


def _do(operation: Callable[[], Result], work: Work) -> None:
    try:
        result = _without_gradients(operation)
    except BaseException as error:
        work.finish([], error)
    else:
        work.finish(result)


def _done_now(operation: Callable[[], Result], devices: Sequence[torch.device] = ()) -> Work:
    work = Work(devices=devices)
    work.finish(_without_gradients(operation))
    return work


def _without_gradients(operation: Callable[[], Result]) -> Result:
    """What `torch.no_grad` does, at a fifth of its time, which short operations would notice."""
    before = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)
    try:
        return operation()
    finally:
        torch._C._set_grad_enabled(before)
