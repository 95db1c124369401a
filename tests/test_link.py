"""The yardstick of bandwidths: bits over seconds, the median of ten windows after a warm-up; by a clock of ours."""

from __future__ import annotations

import io
import types
from typing import Any

import pytest

from sparkdl_bench.bench import link
from sparkdl_bench.errors import RunFailedError


class Wire:
    """A server, and its only connection, on which every read takes 0.25 s; the clock is its own."""

    def __init__(self, counts: list[int]) -> None:
        self.counts = counts
        self.now = 0.0
        self.limits: list[float] = []
        self.closed = 0

    def perf_counter(self) -> float:
        return self.now

    def accept(self) -> tuple[Wire, str]:
        return self, "somebody"

    def settimeout(self, seconds: float) -> None:
        self.limits.append(seconds)

    def recv_into(self, buffer: bytearray) -> int:
        assert len(buffer) == 1 << 20
        self.now += 0.25
        return self.counts.pop(0)

    def getsockname(self) -> tuple[str, int]:
        return "10.0.0.1", 4711

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed += 1


def wired(monkeypatch: pytest.MonkeyPatch, counts: list[int]) -> Wire:
    made = Wire(counts)
    monkeypatch.setattr(link, "time", made)
    return made


def test_a_window_is_bits_over_the_time_that_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = wired(monkeypatch, [125_000_000, 62_500_000, 62_500_000, 99])
    # Four reads of 0.25 s fill 0.6 s: three do.
    assert link._receive(wire, 0.6) == pytest.approx(2.0 / 0.75)  # type: ignore[arg-type]
    assert wire.counts == [99]
    # A window ends as soon as its time is over.
    wire = wired(monkeypatch, [125_000_000, 0])
    assert link._receive(wire, 0.25) == 4.0  # type: ignore[arg-type]


def test_a_sender_that_has_gone_is_no_bandwidth(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="the sender has gone"):
        link._receive(wired(monkeypatch, [1, 0]), 1.0)  # type: ignore[arg-type]
    # A byte is one that is there.
    assert link._receive(wired(monkeypatch, [1]), 0.1) == pytest.approx(8e-9 / 0.25)  # type: ignore[arg-type]


def test_the_median_of_ten_windows_counts_after_one_that_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    # 2.5 s are ten windows of one read; the warm-up's bytes would be the median of none.
    windows = [31_250_000 * each for each in (3, 1, 9, 2, 8, 4, 40, 5, 7, 6)]
    wire = wired(monkeypatch, [10**12, *windows])
    assert link._accept(wire, 2.5) == 5.5  # type: ignore[arg-type]
    assert wire.counts == []
    assert (wire.limits, wire.closed) == ([30.0], 1)


def test_a_stream_that_breaks_says_so_and_its_sender_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    sender = types.SimpleNamespace(
        start=lambda: done.append("start"), kill=lambda: done.append("kill"), join=lambda seconds: done.append(seconds)
    )

    def process(target: Any, args: tuple[int, ...], daemon: bool) -> Any:
        done.append((target, args, daemon))
        return sender

    wire = wired(monkeypatch, [5, 0])
    monkeypatch.setattr(link.multiprocessing, "get_context", lambda _: types.SimpleNamespace(Process=process))
    monkeypatch.setattr(link.socket, "create_server", lambda address: done.append(address) or wire)
    with pytest.raises(RunFailedError, match=r"could not be measured: the sender has gone\."):
        link.measure_link_gbps(10.0)
    assert done == [("127.0.0.1", 0), (link._send, (4711,), True), "start", "kill", 30.0]
    assert wire.limits == [30.0, 30.0]
    # Two seconds, if nobody says otherwise: ten windows of one read, which is longer than a fifth of a second.
    wire = wired(monkeypatch, [1, *[31_250_000] * 10])
    monkeypatch.setattr(link.socket, "create_server", lambda _: wire)
    assert link.measure_link_gbps() == 1.0
    assert done[-2:] == ["kill", 30.0]


def test_a_sender_sends_until_the_other_end_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []

    def sendall(buffer: memoryview) -> None:
        sent.append(len(buffer))
        if len(sent) == 3:
            raise ConnectionResetError

    asked: list[Any] = []
    connection = types.SimpleNamespace(sendall=sendall)

    class Connected:
        def __enter__(self) -> Any:
            return connection

        def __exit__(self, *_: object) -> None: ...

    def connect(address: tuple[str, int], timeout: float) -> Connected:
        asked.append((address, timeout))
        return Connected()

    monkeypatch.setattr(link.socket, "create_connection", connect)
    link._send(4711)
    assert sent == [1 << 20] * 3
    assert asked == [(("127.0.0.1", 4711), 30.0)]


def test_its_ends_run_on_hosts_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(link, "_send", lambda *arguments: asked.append(arguments))
    monkeypatch.setattr(link.sys, "argv", ["link", "send", "10.0.0.1", "4711"])
    link.main()
    assert asked == [(4711, "10.0.0.1")]
    wire = wired(monkeypatch, [1, *[62_500_000] * 10])
    monkeypatch.setattr(link.socket, "create_server", lambda address: asked.append(address) or wire)
    monkeypatch.setattr(link.sys, "argv", ["link", "receive", "10.0.0.1", "2.5"])
    out = io.StringIO()
    monkeypatch.setattr(link.sys, "stdout", out)
    link.main()
    assert asked[1:] == [("10.0.0.1", 0)]
    assert out.getvalue() == "port 4711\n2.0\n"
    assert wire.limits == [30.0, 30.0]
