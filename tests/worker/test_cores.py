"""On which core the JVM's thread of a group runs; here a thread of this process stands in for it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from sparkdl_bench.worker import _cores
from sparkdl_bench.worker._cores import Follower


@pytest.fixture
def thread() -> Iterator[threading.Thread]:
    end = threading.Event()
    made = threading.Thread(target=end.wait, args=(60,), daemon=True)
    made.start()
    yield made
    end.set()
    made.join()


@pytest.mark.parametrize("turns", [1, 3])
def test_it_goes_where_the_waiting_thread_is(
    thread: threading.Thread, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    cores = sorted(os.sched_getaffinity(0))
    follower = Follower(thread.native_id)
    for turn in range(turns):
        here = cores[turn % len(cores)]
        monkeypatch.setattr(_cores, "_getcpu", lambda here=here: here)
        follower.follow()
        assert os.sched_getaffinity(thread.native_id or 0) == {here}
    assert os.sched_getaffinity(0) == set(cores), "the waiting thread itself stays free"


def test_a_thread_that_has_ended_is_left_alone(thread: threading.Thread) -> None:
    ended = threading.Thread(target=lambda: None)
    ended.start()
    ended.join()
    follower = Follower(ended.native_id)
    follower.follow()
    follower.follow()
    assert os.sched_getaffinity(thread.native_id or 0) == os.sched_getaffinity(0), "no other thread is moved"


def test_without_a_thread_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[int] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, _: moved.append(thread))
    Follower(None).follow()
    assert moved == []


def test_cores_are_few_where_a_rank_has_less_than_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert not _cores.are_few(2)
    assert _cores.are_few(3)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert not _cores.are_few(16)
