"""Which tensors are reduced where they lie."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip(
    "torch", reason="PyTorch is not installed: `make test-torch` runs these tests in its own environment"
)

import torch

from sparkdl_bench.torch import homes
from sparkdl_bench.torch.homes import Homes
from sparkdl_bench.worker.vectors import Home

LENGTH = 50_000


def met(tensor: torch.Tensor, times: int = 3, may_move: bool = True) -> tuple[Homes, Home | None]:
    known = Homes()
    found = [known.of(tensor, may_move) for _ in range(times)]
    assert found[:-1] == [None] * (times - 1)
    return known, found[-1]


def test_a_bucket_moves_when_it_is_met_for_the_third_time_and_keeps_its_values() -> None:
    bucket = torch.arange(float(LENGTH))
    view = bucket[10:20]
    _, home = met(bucket)
    assert home is not None
    assert home.address == bucket.data_ptr()
    assert home.size == bucket.nbytes
    assert os.fstat(home.descriptor).st_size == bucket.nbytes
    bucket += 1
    assert view.tolist() == [float(i + 11) for i in range(10)]
    assert os.pread(home.descriptor, 4, 40) == torch.tensor([11.0]).numpy().tobytes()


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(100),
        lambda: torch.ones(2 * LENGTH)[:LENGTH],
        lambda: torch.from_numpy(torch.ones(LENGTH).numpy()),
    ],
    ids=["short", "a part", "of NumPy"],
)
def test_what_is_not_the_buckets_own_alone_stays(make: Callable[[], torch.Tensor]) -> None:
    tensor = make()
    address = tensor.data_ptr()
    assert met(tensor)[1] is None
    assert tensor.data_ptr() == address


@pytest.mark.parametrize("may_move", [True, False])
def test_what_the_user_has_shared_is_at_home_where_it_is(may_move: bool) -> None:
    tensor = torch.arange(float(LENGTH)).share_memory_()
    array, address = tensor.numpy(), tensor.data_ptr()
    known, home = met(tensor, may_move=may_move)
    assert home is not None
    assert home.address == tensor.data_ptr() == address
    array[7] = 70.0
    assert os.pread(home.descriptor, 4, 28) == torch.tensor([70.0]).numpy().tobytes()
    assert known.of(tensor[: LENGTH // 2]) is home
    assert known.of(tensor[1:]) is None
    assert known.of(tensor.view(100, -1).t()) is None


def test_a_tensor_of_the_users_own_never_moves() -> None:
    tensor = torch.ones(LENGTH)
    address = tensor.data_ptr()
    assert met(tensor, 10, may_move=False)[1] is None
    assert tensor.data_ptr() == address


def test_what_is_shared_by_a_name_or_lies_in_a_file_stays(tmp_path: Path) -> None:
    before = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy("file_system")
    try:
        named = torch.ones(LENGTH).share_memory_()
    finally:
        torch.multiprocessing.set_sharing_strategy(before)
    of_file = torch.from_file(str(tmp_path / "values"), shared=True, size=LENGTH)
    for tensor in (named, of_file):
        address = tensor.data_ptr()
        assert tensor.is_shared()
        assert met(tensor, 5)[1] is None
        assert tensor.data_ptr() == address


def test_whose_address_numpy_has_stays() -> None:
    bucket = torch.ones(LENGTH)
    array = bucket.numpy()
    assert met(bucket)[1] is None
    bucket += 1
    assert array[0] == 2


def test_nothing_moves_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes, "_SPARE_BYTES", 1 << 60)
    assert met(torch.ones(LENGTH))[1] is None


def test_nothing_moves_where_that_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARKDL_COPY_BUCKETS", "1")
    assert met(torch.ones(LENGTH))[1] is None


def test_homes_whose_bucket_is_gone_are_told_once() -> None:
    bucket = torch.ones(LENGTH)
    known, home = met(bucket)
    assert known.gone() == []
    del bucket
    assert known.gone() == [home]
    assert known.gone() == []


def test_many_buckets_that_come_once_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes, "_MOST_KNOWN", 4)
    known = Homes()
    for _ in range(20):
        known.of(torch.ones(LENGTH), may_move=True)
    assert len(known._known) <= 4
    bucket = torch.ones(LENGTH)
    assert [known.of(bucket, may_move=True) is None for _ in range(3)] == [True, True, False]
