"""What a rank asks after an answer that came too late, with a wire that a test has ready."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from sparkdl_bench.errors import RunFailedError, SparkDLError
from sparkdl_bench.worker.endpoint import Endpoint


class Line:
    """Its answers come one behind the other; None: none within the time."""

    def __init__(self, *answers: tuple[int, bytes, SparkDLError | None] | None) -> None:
        self.answers, self.sent = list(answers), 0

    def send(self, _kind: int, _body: bytes) -> int:
        self.sent += 1
        return self.sent

    def receive_any(self) -> tuple[int, bytes, SparkDLError | None]:
        answer = self.answers.pop(0)
        if answer is None:
            raise RunFailedError("The executor's JVM did not answer")
        return answer


def endpoint_over(line: Line) -> Any:
    made: Any = object.__new__(Endpoint)
    made._wire, made._closed, made.rank = line, False, 0
    made._asking, made._sending = threading.Lock(), threading.Lock()
    return made


def test_answers_that_come_late_are_nobody_elses() -> None:
    late = (2, b"", RunFailedError("of the second"))
    endpoint = endpoint_over(Line(None, None, (1, b"late", None), late, (3, b"own", None), (4, b"", None)))
    for _ in range(2):
        with pytest.raises(RunFailedError, match="did not answer"):
            endpoint._ask(1, b"")
    assert endpoint._ask(1, b"") == b"own"
    endpoint.flush()


def test_an_error_is_its_own_requests() -> None:
    with pytest.raises(RunFailedError, match="the disk is full"):
        endpoint_over(Line((1, b"", RunFailedError("the disk is full"))))._ask(1, b"")
    with pytest.raises(RunFailedError, match="of the connection"):
        endpoint_over(Line((0, b"", RunFailedError("of the connection"))))._ask(1, b"")


def test_an_answer_that_nobody_has_asked_for_is_none() -> None:
    with pytest.raises(RunFailedError, match="answered request 7 in place of 1"):
        endpoint_over(Line((7, b"", None)))._ask(1, b"")
