"""What each rank of a measuring launch does: the very loops of the peers `gloo` and `pytorch-ddp`, in the group that is
there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

# Samples in milliseconds, the mean over the ranks, and facts.
Measured = tuple[list[float], dict[str, Any]]


def all_reduces(case: dict[str, Any]) -> Measured:
    """All-reduces of a `CollectiveCase`."""
    import torch
    import torch.distributed as dist

    from sparkdl_bench.peers.programs.measure import gloo_allreduce

    samples_ms, correct = gloo_allreduce.measured(dist.get_rank(), case)
    return samples_ms, {"correct": correct, "torch": torch.__version__, "backend": dist.get_backend()}


def ddp_steps(case: dict[str, Any]) -> Measured:
    """Steps of a `TrainCase` with DistributedDataParallel: the net of its specification, else a perceptron."""
    import torch.distributed as dist

    from sparkdl_bench.peers.programs.measure import torch_mlp, torch_model

    program = torch_model if case["specification"] else torch_mlp
    measured: Measured = program.measured(dist.get_rank(), case)
    return measured


# By the case's kind.
PROGRAMS: Mapping[str, Callable[[dict[str, Any]], Measured]] = {"allreduce": all_reduces, "train": ddp_steps}
