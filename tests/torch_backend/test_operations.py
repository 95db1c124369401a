"""The order of a process group's operations, without a group."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

pytest.importorskip(
    "torch", reason="PyTorch is not installed: `make test-torch` runs these tests in its own environment"
)

import torch

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.torch.operations import Operations, Work

PATIENCE = timedelta(seconds=60)


@pytest.fixture
def operations() -> Iterator[Operations]:
    made = Operations("test")
    yield made
    made.close()


class Log:
    """Operations that tell when they were done; the first one waits until it is let go."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.go = threading.Event()

    def operation(self, name: str, *, waits: bool = False) -> Callable[[], list[torch.Tensor]]:
        def run() -> list[torch.Tensor]:
            if waits:
                assert self.go.wait(60)
            self.done.append(name)
            return [torch.ones(1)]

        return run


def test_a_synchronous_operation_is_done_in_its_callers_thread_after_what_is_pending(operations: Operations) -> None:
    log, threads = Log(), []
    first = operations.run(log.operation("first", waits=True), asynchronous=True)
    threading.Timer(0.01, log.go.set).start()

    def here() -> list[torch.Tensor]:
        threads.append(threading.current_thread())
        return log.operation("second")()

    assert operations.run(here, asynchronous=False).is_completed()
    assert log.done == ["first", "second"]
    assert threads == [threading.current_thread()]
    assert first.wait(PATIENCE)


def test_what_a_callback_calls_is_done_before_the_next_operation(operations: Operations) -> None:
    """However early the next one was called: other ranks may be slower."""
    log = Log()

    def then(_: object) -> list[torch.Tensor]:
        operations.run(log.operation("of callback"), asynchronous=False)
        return operations.run(log.operation("of callback, later"), asynchronous=True).result()

    first = operations.run(log.operation("first", waits=True), asynchronous=True)
    chained = first.get_future().then(then)
    second = operations.run(log.operation("second"), asynchronous=True)
    log.go.set()
    second.wait(PATIENCE)
    assert chained.wait() == [torch.ones(1)]
    assert log.done == ["first", "of callback", "of callback, later", "second"]


def test_a_callback_may_wait_for_what_is_pending(operations: Operations) -> None:
    log = Log()
    works: list[Work] = []
    first = operations.run(log.operation("first", waits=True), asynchronous=True)
    chained = first.get_future().then(lambda _: works[-1].wait(PATIENCE))
    works += [operations.run(log.operation(name), asynchronous=True) for name in ("second", "third")]
    log.go.set()
    assert chained.wait() is True
    assert log.done == ["first", "second", "third"]


def test_an_error_reaches_who_waits_and_the_next_operation_is_done(operations: Operations) -> None:
    def fails() -> list[torch.Tensor]:
        raise ValueError("rank 1 is gone")

    work = operations.run(fails, asynchronous=True)
    with pytest.raises(ValueError, match="rank 1 is gone"):
        work.wait(PATIENCE)
    assert work.is_completed()
    assert not work.is_success()
    with pytest.raises(RuntimeError, match="rank 1 is gone"):
        work.get_future().wait()
    with pytest.raises(RuntimeError, match="rank 1 is gone"):
        work.get_future().then(lambda done: done.value()).wait()
    with pytest.raises(ValueError, match="rank 1 is gone"):
        operations.run(fails, asynchronous=False)
    assert operations.run(Log().operation("next"), asynchronous=False).result() == [torch.ones(1)]


class Elsewhere:
    """An operation that goes on elsewhere until it is let go."""

    def __init__(self, log: Log, error: Exception | None = None) -> None:
        self._log, self._error = log, error

    def begin(self) -> Elsewhere:
        self._log.done.append("begun")
        return self

    def is_done(self, seconds: float) -> bool:
        return self._log.go.wait(seconds)

    def end(self) -> list[torch.Tensor]:
        assert self._log.go.wait(60)
        self._log.done.append("ended")
        if self._error is not None:
            raise self._error
        return [torch.ones(1)]


@pytest.fixture
def patient() -> Iterator[Operations]:
    made = Operations("test", patience_s=0.01)
    yield made
    made.close()


def never() -> list[torch.Tensor]:
    raise AssertionError("it was begun, so it must not be done once more")


def test_what_is_done_soon_ends_in_its_callers_thread(patient: Operations) -> None:
    log = Log()
    log.go.set()
    work = patient.run(never, asynchronous=True, begin=Elsewhere(log).begin)
    assert work.is_completed()
    assert log.done == ["begun", "ended"]
    assert work.get_future().then(lambda done: done.value()).wait() == [torch.ones(1)]


def test_what_takes_long_is_left_to_the_thread_before_what_comes_after_it(patient: Operations) -> None:
    """A rank may have to do something else first, such as sending what the late one waits for."""
    log = Log()
    first = patient.run(never, asynchronous=True, begin=Elsewhere(log).begin)
    assert not first.is_completed()
    second = patient.run(log.operation("second"), asynchronous=True, begin=Elsewhere(log).begin)
    log.go.set()
    assert second.wait(PATIENCE)
    assert first.wait(PATIENCE)
    assert log.done == ["begun", "ended", "second"]


def test_an_error_of_what_was_begun_reaches_who_waits(patient: Operations) -> None:
    log = Log()
    log.go.set()
    work = patient.run(never, asynchronous=True, begin=Elsewhere(log, ValueError("rank 1 is gone")).begin)
    with pytest.raises(ValueError, match="rank 1 is gone"):
        work.wait(PATIENCE)

    def fails() -> Elsewhere:
        raise ValueError("rank 0 is gone")

    with pytest.raises(ValueError, match="rank 0 is gone"):
        patient.run(never, asynchronous=True, begin=fails).wait(PATIENCE)
    assert patient.run(log.operation("next"), asynchronous=False).result() == [torch.ones(1)]


def test_what_cannot_be_begun_is_done_by_the_thread(patient: Operations) -> None:
    log = Log()
    assert patient.run(log.operation("whole"), asynchronous=True, begin=lambda: None).wait(PATIENCE)
    assert log.done == ["whole"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_after_the_end_nothing_is_taken_that_nobody_would_do(operations: Operations, asynchronous: bool) -> None:
    operations.run(Log().operation("first"), asynchronous=True)
    operations.close()
    with pytest.raises(ConfigurationError, match="The process group test has been destroyed"):
        operations.run(Log().operation("late"), asynchronous=asynchronous)


def test_a_result_is_there_as_soon_as_its_operation_is_done() -> None:
    work = Work()
    seen: list[list[torch.Tensor]] = []
    waiting = threading.Thread(target=lambda: seen.append(work.result()))
    work.get_future().then(lambda _: waiting.join(60))
    waiting.start()
    work.finish([torch.ones(1)])
    waiting.join(60)
    assert seen == [[torch.ones(1)]]


def test_a_wait_has_its_timeout(operations: Operations) -> None:
    log = Log()
    work = operations.run(log.operation("late", waits=True), asynchronous=True)
    with pytest.raises(RuntimeError, match=r"not done within 0\.01 s"):
        work.wait(timedelta(seconds=0.01))
    log.go.set()
    assert work.wait(PATIENCE)


def test_nothing_is_computed_with_gradients(operations: Operations) -> None:
    weights = torch.ones(3, requires_grad=True)

    def grows() -> list[torch.Tensor]:
        weights.mul_(2)
        return [weights]

    for asynchronous in (False, True):
        operations.run(grows, asynchronous=asynchronous).wait(PATIENCE)
    assert weights.tolist() == [4, 4, 4]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that PyTorch can use")
def test_a_future_tells_of_results_on_a_gpu(operations: Operations) -> None:
    gpu = torch.device("cuda", 0)
    work = operations.run(lambda: [torch.ones(1, device=gpu)], asynchronous=True, devices=[gpu])
    assert work.get_future().wait()[0].item() == 1
