"""Sums of sparse tensors, by ranks that are threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip(
    "torch", reason="PyTorch is not installed: `make test-torch` runs these tests in its own environment"
)

import torch

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.torch import sparse
from sparkdl_bench.worker import Group

PATIENCE_S = 60.0


class Ranks:
    """The all-gather of so many threads."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._all_here = threading.Barrier(size, timeout=PATIENCE_S)
        self._given: list[Any] = [None] * size

    def of(self, rank: int) -> Group:
        ranks = self

        class OneRank:
            def __init__(self) -> None:
                self.rank, self.size = rank, ranks.size

            def all_gather(self, array: Any, outputs: Any) -> None:
                ranks._given[rank] = array
                ranks._all_here.wait()
                for given, output in zip(ranks._given, outputs, strict=True):
                    assert given.nbytes == output.nbytes
                    output[:] = given
                ranks._all_here.wait()

        return cast(Group, OneRank())


def reduced(make: Callable[[int], torch.Tensor], size: int) -> list[torch.Tensor]:
    ranks = Ranks(size)

    def run(rank: int) -> torch.Tensor:
        tensor = make(rank)
        sparse.all_reduce(ranks.of(rank), tensor)
        return tensor

    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(run, range(size)))


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.complex64])
def test_it_is_the_sum_of_what_the_ranks_hold(size: int, kind: torch.dtype) -> None:
    """Other indices on each rank, one of them twice, and none on rank 1."""

    def make(rank: int) -> torch.Tensor:
        indices = torch.tensor([[rank, 2 * rank, rank], [0, 1, 0]])[:, : 0 if rank == 1 else 3]
        values = torch.ones(indices.shape[1], 2, dtype=kind) + rank
        return torch.sparse_coo_tensor(indices, values, (9, 2, 2), check_invariants=True)

    wanted = sum(make(rank).to_dense() for rank in range(size))
    for found in reduced(make, size):
        assert found.is_coalesced()
        assert found.dtype == kind
        assert torch.equal(found.to_dense(), torch.as_tensor(wanted))


def test_all_ranks_have_the_same_bits() -> None:
    def make(rank: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(rank)
        indices = torch.randint(0, 20, (1, 400), generator=generator)
        return torch.sparse_coo_tensor(indices, torch.randn(400, generator=generator), (20,), check_invariants=True)

    first, *others = (each.to_dense().numpy().view(np.int32) for each in reduced(make, 3))
    assert all((first == each).all() for each in others)


@pytest.mark.parametrize(
    "other",
    [torch.zeros(4, 2), torch.zeros(3, dtype=torch.float64)],
    ids=["shape", "type"],
)
def test_tensors_of_another_kind_are_refused_on_all_ranks(other: torch.Tensor) -> None:
    ranks = Ranks(2)

    def run(rank: int) -> str:
        with pytest.raises(ConfigurationError) as refused:
            sparse.all_reduce(ranks.of(rank), (torch.ones(3) if rank == 0 else other).to_sparse())
        return str(refused.value)

    with ThreadPoolExecutor(2) as threads:
        words = list(threads.map(run, range(2)))
    assert "of rank 0 is torch.float32 (3,)" in words[0]
    assert "those of ranks [1] are of another shape or type" in words[0]
    assert "those of ranks [0]" in words[1]


def test_only_sums_and_only_sparse_ones() -> None:
    mixed = [torch.ones(3).to_sparse(), torch.ones(3)]
    for tensors, op in ((mixed, "sum"), (mixed[:1], "max"), (mixed[:1], "average")):
        with pytest.raises(ConfigurationError, match="of sparse"):
            sparse.check(tensors, op)
    sparse.check(mixed[:1], "sum")
    assert not sparse.is_sparse(mixed[1])
