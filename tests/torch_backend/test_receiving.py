"""Tensors that are received, from a group that a test completes by hand."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import pytest

pytest.importorskip(
    "torch", reason="PyTorch is not installed: `make test-torch` runs these tests in its own environment"
)

import torch

from sparkdl_bench.torch.process_group import SparkDLProcessGroup

PATIENCE = timedelta(seconds=30)


class OtherEnd:
    """A group of two ranks, in which everything that is received holds ones and comes by another thread."""

    rank, size, name = 0, 2, "test"

    def receive(self, array: Any, source: int | None, tag: int) -> Future[int]:
        future: Future[int] = Future()

        def come() -> None:
            array.view("float32")[:] = 1
            future.set_result(1)

        threading.Timer(0.05, come).start()
        return future


def received(tensor: torch.Tensor) -> torch.Tensor:
    SparkDLProcessGroup(OtherEnd()).recv([tensor], 1).wait(PATIENCE)  # type: ignore[arg-type]
    return tensor


@pytest.mark.parametrize("in_inference", [False, True])
@pytest.mark.parametrize("lies_apart", [False, True])
def test_values_come_to_where_the_tensor_has_them(in_inference: bool, lies_apart: bool) -> None:
    with torch.inference_mode(in_inference):
        tensor = torch.zeros(4, 6).t() if lies_apart else torch.zeros(6, 4)
        assert torch.equal(received(tensor), torch.ones(6, 4))


def test_a_tensor_of_before_is_received_into_in_inference_mode() -> None:
    tensor = torch.zeros(4, 6).t()
    with torch.inference_mode():
        received(tensor)
    assert torch.equal(tensor, torch.ones(6, 4))


def test_a_tensor_that_cannot_be_written_ends_with_its_error() -> None:
    with pytest.raises(RuntimeError, match="single memory location"):
        received(torch.zeros(1).expand(6))
