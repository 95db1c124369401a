"""How `torch.distributed` gets its groups of the backend "sparkdl"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.distributed as dist

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.torch import compiling
from sparkdl_bench.torch.process_group import SparkDLProcessGroup
from sparkdl_bench.worker import Endpoint, current

BACKEND = "sparkdl"
_settings: dict[int, dict[str, str]] = {}


def attach(endpoint: Endpoint, settings: Mapping[str, str] | None = None) -> None:
    """From now on groups of this process go over this endpoint, with these settings of their transport."""
    if current() is not endpoint:
        raise ConfigurationError("This endpoint is not the one that this process has connected last. Connect it again.")
    _settings.clear()
    _settings[id(endpoint)] = dict(settings or {})


def register() -> None:
    """Makes the backend known to `torch.distributed`; again is no matter."""
    if not hasattr(dist.Backend, BACKEND.upper()):
        dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=["cpu", "cuda"])
        compiling.keep_out()


def _create(options: Any, _: Any) -> SparkDLProcessGroup:
    """A group of `torch.distributed`, called on each of its ranks."""
    endpoint = current()
    if endpoint is None:
        raise ConfigurationError(
            f'The backend "{BACKEND}" of torch.distributed works in functions that sparkdl_bench.launch runs on the '
            "executors of Spark, and this process runs none of them. Launch it so, or use the backend gloo."
        )
    ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    if options.group_size > endpoint.size or ranks[options.group_rank] != endpoint.rank:
        raise ConfigurationError(
            f"torch.distributed makes a group with rank {options.group_rank} of {options.group_size} (of all ranks "
            f"{ranks}) in rank {endpoint.rank} of a launch with {endpoint.size}. Take rank and world size from RANK "
            "and WORLD_SIZE."
        )
    # As long as the caller says, but not for ever: a rank that is gone is noticed at once in any case.
    timeout_s = min(options.timeout.total_seconds(), _MOST_SECONDS)
    group = endpoint.group(_settings.get(id(endpoint), {}), f"torch-{options.group_id}", ranks, timeout_s)
    return SparkDLProcessGroup(group)


_MOST_SECONDS = 1_000_000.0
