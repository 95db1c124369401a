"""Where a rank is, and the environment variables by which frameworks learn it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """One rank among all.

    Attributes:
        local_rank: its number among the ranks of its host, from 0.
        local_size: how many ranks its host has.
        node: the number of its host, from 0, in the order of the hosts' first ranks.
        nodes: how many hosts there are.
        host: as Spark names it.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    node: int
    nodes: int
    host: str


def places(addresses: Sequence[str]) -> list[Place]:
    """The places of all ranks, from the addresses (`host:port`) of their executors, by rank."""
    hosts = [address.rpartition(":")[0] or address for address in addresses]
    nodes = list(dict.fromkeys(hosts))
    return [
        Place(
            rank=rank,
            size=len(hosts),
            local_rank=hosts[:rank].count(host),
            local_size=hosts.count(host),
            node=nodes.index(host),
            nodes=len(nodes),
            host=host,
        )
        for rank, host in enumerate(hosts)
    ]


def variables(place: Place, launch_id: str, attempt: int, attempts: int) -> dict[str, str]:
    """What torchrun sets, but for the address of a store: that depends on the way of synchronising."""
    return {
        "RANK": str(place.rank),
        "WORLD_SIZE": str(place.size),
        "LOCAL_RANK": str(place.local_rank),
        "LOCAL_WORLD_SIZE": str(place.local_size),
        "GROUP_RANK": str(place.node),
        "NODE_RANK": str(place.node),
        "GROUP_WORLD_SIZE": str(place.nodes),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(place.rank),
        "ROLE_WORLD_SIZE": str(place.size),
        "TORCHELASTIC_RUN_ID": launch_id,
        "TORCHELASTIC_RESTART_COUNT": str(attempt),
        "TORCHELASTIC_MAX_RESTARTS": str(attempts - 1),
    }


def visible_devices(own: Sequence[str], all_ranks: Sequence[tuple[str, Sequence[str]]], host: str) -> dict[str, str]:
    """CUDA_VISIBLE_DEVICES where Spark has given this rank GPUs: those of all ranks of the host, by local rank.

    So that device `LOCAL_RANK` is this rank's own, as scripts written for torchrun expect.

    Args:
        all_ranks: host and GPU addresses of each rank.
    """
    if not own:
        return {}
    of_host = [gpu for other, gpus in all_ranks if other == host for gpu in gpus]
    return {"CUDA_VISIBLE_DEVICES": ",".join(dict.fromkeys(of_host))}


@contextmanager
def restored() -> Iterator[None]:
    """Puts environment, arguments, import path and working folder back: Spark uses Python workers again."""
    environment, arguments, path = dict(os.environ), list(sys.argv), list(sys.path)
    folder: Path | None = None
    with suppress(OSError):  # somebody has removed it
        folder = Path.cwd()
    try:
        yield
    finally:
        _replace(environment)
        sys.argv[:], sys.path[:] = arguments, path
        if folder is not None:
            with suppress(OSError):  # the folder may be gone
                os.chdir(folder)


def _replace(environment: Mapping[str, str]) -> None:
    for name in set(os.environ) - set(environment):
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
