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
    follower = Follower(thread.native_id, cores[0])
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
    follower = Follower(ended.native_id, 0)
    follower.follow()
    follower.follow()
    assert os.sched_getaffinity(thread.native_id or 0) == os.sched_getaffinity(0), "no other thread is moved"


def test_without_a_thread_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[int] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, _: moved.append(thread))
    follower = Follower(None, 0)
    follower.follow()
    follower.wait(lambda _: pytest.fail("nobody waits for it here"), 4)
    assert moved == []


def test_the_waiting_thread_stays_with_it_and_is_free_again(thread: threading.Thread) -> None:
    free = os.sched_getaffinity(0)
    follower = Follower(thread.native_id, min(free))
    follower.follow()
    (core,) = os.sched_getaffinity(thread.native_id or 0)
    seen: list[object] = []

    def answer(seconds: float) -> bool:
        seen.extend([os.sched_getaffinity(0), seconds])
        return True

    follower.wait(answer, 10**6)
    assert seen == [{core}, pytest.approx(1.2e-3)]
    assert os.sched_getaffinity(0) == free
    assert os.sched_getaffinity(thread.native_id or 0) == {core}


@pytest.mark.parametrize("fails", [False, True])
def test_where_an_answer_is_late_or_never_comes_nobody_is_held(thread: threading.Thread, fails: bool) -> None:
    free = os.sched_getaffinity(0)
    follower = Follower(thread.native_id, min(free))
    follower.follow()

    def answer(_: float) -> bool:
        if fails:
            raise OSError("the connection is closed")
        return False

    if fails:
        with pytest.raises(OSError, match="closed"):
            follower.wait(answer, 4)
    else:
        follower.wait(answer, 4)
        assert os.sched_getaffinity(thread.native_id or 0) == free
    assert os.sched_getaffinity(0) == free
    if not fails:  # the thread that goes on waiting, perhaps another one, is not held
        follower.wait(lambda _: pytest.fail("nobody is held here"), 4)
    follower.follow()
    assert len(os.sched_getaffinity(thread.native_id or 0)) == 1


def test_now_and_then_it_goes_back_to_the_ranks_own_core(
    thread: threading.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("one core alone")
    monkeypatch.setattr(_cores, "_getcpu", lambda: cores[1])
    follower = Follower(thread.native_id, cores[0])
    places = []
    for _ in range(2 * _cores._PATIENCE + 2):
        follower.follow()
        places.append(min(os.sched_getaffinity(thread.native_id or 0)))
    assert places.count(cores[0]) == 2
    assert places[_cores._PATIENCE] == cores[0]


def test_each_rank_of_a_host_has_a_core_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 5, 7})
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert [_cores.own_core(rank) for rank in range(4)] == [2, 5, 7, 2]
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert _cores.own_core(9) == 5


def test_cores_are_few_where_a_rank_has_less_than_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert not _cores.are_few(2)
    assert _cores.are_few(3)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert not _cores.are_few(16)
