"""Sums of sparse tensors: of embeddings' gradients, where few rows are touched."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2s

import numpy as np
import torch
from torch import Tensor

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.torch import tensors as t
from sparkdl_bench.worker import Group

_HEADER = np.dtype(np.int64)


def is_sparse(tensor: Tensor) -> bool:
    """Whether it holds indices and values (`torch.sparse_coo`), on the CPU."""
    return bool(tensor.is_cpu and tensor.layout == torch.sparse_coo)


def check(tensors: Sequence[Tensor], op: str) -> None:
    """Refuses dense ones among them, and another reduction than the sum: that alone leaves what no rank holds at 0."""
    if op != "sum" or not all(is_sparse(each) for each in tensors):
        raise ConfigurationError(
            f'The backend "sparkdl" has no {op} of sparse and dense tensors together, or of sparse ones other than the '
            "sum. Call all_reduce with ReduceOp.SUM and one sparse tensor, or give .to_dense()."
        )


def all_reduce(group: Group, tensor: Tensor) -> None:
    """`tensor` becomes the sum of all ranks' tensors, coalesced.

    Ranks may hold other indices, and other numbers of them. Every rank gets every rank's indices and
    values: bytes received are those of all others together.

    Raises:
        ConfigurationError: the tensors' shapes or types differ between the ranks.
    """
    own = tensor.coalesce()
    counts = _counts(group, own)
    indices, values = own.indices().contiguous(), own.values().contiguous()
    every_index = [indices.new_empty((own.sparse_dim(), count)) for count in counts]
    every_value = [values.new_empty((count, *values.shape[1:])) for count in counts]
    for mine, parts in ((indices, every_index), (values, every_value)):
        group.all_gather(t.read(mine), [t.read(each) for each in parts])
    # In the order of ranks, so that all have the same bits.
    joined = torch.cat(every_index, 1), torch.cat(every_value)
    whole = torch.sparse_coo_tensor(*joined, own.shape, check_invariants=False)
    tensor.copy_(whole.coalesce())


def _counts(group: Group, own: Tensor) -> list[int]:
    """How many indices each rank has; all have tensors of the same kind."""
    kind = f"{own.dtype} {tuple(own.shape)}, {own.sparse_dim()} sparse dimensions"
    digest = int.from_bytes(blake2s(kind.encode(), digest_size=8).digest(), "little", signed=True)
    headers = [np.empty(2, _HEADER) for _ in range(group.size)]
    group.all_gather(np.array([own._nnz(), digest], _HEADER), headers)
    others = [rank for rank, (_, theirs) in enumerate(headers) if theirs != digest]
    if others:
        raise ConfigurationError(
            f"A sparse tensor of rank {group.rank} is {kind}, and those of ranks {others} are of another shape or "
            "type. Give tensors of one shape and type on all ranks."
        )
    return [int(count) for count, _ in headers]
