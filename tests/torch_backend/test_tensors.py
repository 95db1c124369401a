"""Tensors' memory as the exchange takes it."""

from __future__ import annotations

import gc

import pytest

pytest.importorskip(
    "torch", reason="PyTorch is not installed: `make test-torch` runs these tests in its own environment"
)

import torch

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.torch import tensors


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.bool, torch.int64])
def test_bytes_are_the_tensors_own_memory(kind: torch.dtype) -> None:
    tensor = torch.zeros(3, 4, dtype=kind)
    data = tensors.read(tensor)
    assert data.size == 12 * tensor.element_size()
    data[:] = 1
    assert bool((tensor != 0).all())


def test_a_tensor_that_needs_a_gradient_and_a_single_number_have_bytes() -> None:
    weights = torch.ones(5, requires_grad=True)
    tensors.read(weights)[:] = 0
    assert weights.tolist() == [0.0] * 5
    assert tensors.read(torch.tensor(3.0)).size == 4
    assert tensors.read(torch.empty(0)).size == 0


def test_a_tensor_can_be_resized_afterwards() -> None:
    tensor = torch.ones(4)
    tensors.read(tensor)
    assert tensor.resize_(1000).numel() == 1000


def test_bytes_outlive_the_name_of_their_tensor() -> None:
    data = tensors.read(torch.full((100_000,), 7.0))
    gc.collect()
    others = [torch.zeros(100_000) for _ in range(5)]
    assert bool((data.view("float32") == 7).all())
    assert len(others) == 5


def test_what_does_not_lie_in_a_row_is_copied_and_written_back() -> None:
    square = torch.arange(6.0).view(2, 3).t()
    with tensors.written(square) as data:
        assert data.view("float32").tolist() == [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]
        data.view("float32")[:] = range(6)
    assert square.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]


def test_lazy_conjugates_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="resolve_conj"):
        tensors.check([torch.ones(2, dtype=torch.complex64).conj()])


def test_what_is_nowhere_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"on the CPU or a GPU, and this one is torch\.strided on meta"):
        tensors.check([torch.ones(2, device="meta")])


def test_most_tensors_wait_for_no_gpu() -> None:
    assert tensors.devices([torch.ones(2)]) == []
    tensors.settled([torch.ones(2)])()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that PyTorch can use")
def test_on_a_gpu_bytes_are_copies_which_are_written_back() -> None:
    square = torch.arange(6.0, device="cuda").view(2, 3).t()
    tensors.check([square])
    assert tensors.devices([square, square]) == [square.device]
    tensors.settled([square])()
    assert tensors.read(square).view("float32").tolist() == [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]
    with tensors.written(square) as data:
        data.view("float32")[:] = range(6)
    assert square.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    parts = [torch.zeros(2, device="cuda"), torch.zeros(2)]
    with tensors.all_written(parts) as both:
        for each in both:
            each.view("float32")[:] = 7
    assert [each.tolist() for each in parts] == [[7.0, 7.0]] * 2
