"""Through what memory of the host's a GPU's tensors are reduced. Needs no GPU: tensors that say they lie on one."""

from __future__ import annotations

import gc

import pytest

pytest.importorskip(
    "torch", reason="PyTorch is not installed: `make test-torch` runs these tests in its own environment"
)

import torch

from sparkdl_bench.torch import homes, stages
from sparkdl_bench.torch.homes import Homes
from sparkdl_bench.torch.stages import Stages

LENGTH = 50_000


class OnGpu(torch.Tensor):
    """Has values in the host's memory all the same."""

    @property
    def is_cuda(self) -> bool:
        return True


def on_gpu(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(*shape, dtype=dtype).as_subclass(OnGpu)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The addresses that CUDA knows."""
    known: list[int] = []

    class Runtime:
        def cudaHostRegister(self, address: int, size: int, flags: int) -> int:
            assert (size, flags) == (4 * LENGTH, 0)
            known.append(address)
            return 0

        def cudaHostUnregister(self, address: int) -> int:
            known.remove(address)
            return 0

    monkeypatch.setattr(torch.cuda, "cudart", Runtime)
    return known


def test_a_length_that_comes_again_has_a_place_that_is_kept(registered: list[int]) -> None:
    known = Stages()
    assert known.of(on_gpu(LENGTH)) is None
    place = known.of(on_gpu(LENGTH))
    assert place is not None
    assert place.is_shared()
    assert registered == [place.data_ptr()]
    other = known.of(on_gpu(LENGTH // 2, 4, dtype=torch.bfloat16))
    assert other is not None
    assert (other.shape, other.dtype, other.data_ptr()) == ((LENGTH // 2, 4), torch.bfloat16, place.data_ptr())
    assert known.of(on_gpu(2 * LENGTH)) is None


def test_a_place_is_a_home(registered: list[int]) -> None:
    known, at = Stages(), Homes()
    places = [known.of(on_gpu(LENGTH)) for _ in range(4)]
    found = [at.of(place) for place in places if place is not None]
    assert found[:2] == [None, None]
    assert found[2] is not None


def test_cuda_forgets_the_pages_with_the_group(registered: list[int]) -> None:
    known = Stages()
    place = [known.of(on_gpu(LENGTH)) for _ in range(2)][1]
    assert len(registered) == 1
    del known, place
    gc.collect()
    assert registered == []


def test_pages_that_cuda_refuses_serve_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def cudaHostRegister(self, *_: int) -> int:
            return 2

    monkeypatch.setattr(torch.cuda, "cudart", Refusing)
    known = Stages()
    assert [known.of(on_gpu(LENGTH)) is None for _ in range(2)] == [True, False]
    del known
    gc.collect()  # and takes nothing back


def test_there_is_none_without_need_or_room(registered: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(tensor: torch.Tensor) -> torch.Tensor | None:
        known = Stages()
        known.of(tensor)
        return known.of(tensor)

    assert twice(torch.ones(LENGTH)) is None
    assert twice(on_gpu(100)) is None
    monkeypatch.setattr(stages, "MOST_BYTES", 4 * LENGTH - 1)
    assert twice(on_gpu(LENGTH)) is None
    monkeypatch.setattr(stages, "MOST_BYTES", 4 * LENGTH)
    assert twice(on_gpu(LENGTH)) is not None
    with monkeypatch.context() as full:
        full.setattr(homes, "_SPARE_BYTES", 1 << 60)
        assert twice(on_gpu(LENGTH)) is None
    monkeypatch.setenv("SPARKDL_COPY_BUCKETS", "1")
    assert twice(on_gpu(LENGTH)) is None
