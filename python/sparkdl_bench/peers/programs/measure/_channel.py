"""Over what the processes of one host really talk to one another, as the kernel says: not as they were told."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_ESTABLISHED = "01"
# What OpenMPI maps where its ranks exchange through shared memory.
_SEGMENT = "sm_segment"


def own_connections() -> list[tuple[str, str]]:
    """(own, other) address of each TCP connection of this process, as the kernel writes them."""
    sockets = set()
    for file in Path("/proc/self/fd").iterdir():
        try:
            found = re.fullmatch(r"socket:\[(\d+)\]", str(file.readlink()))
        except OSError:  # closed meanwhile
            continue
        if found:
            sockets.add(found[1])
    lines = [line.split() for name in ("tcp", "tcp6") for line in _lines(Path("/proc/self/net", name))]
    # Fields of proc(5): own address, other address, state, …, inode.
    return [(line[1], line[2]) for line in lines if len(line) > 9 and line[3] == _ESTABLISHED and line[9] in sockets]


def maps_segment() -> bool:
    """Whether this process has a shared segment of OpenMPI's mapped."""
    return any(_SEGMENT in line for line in _lines(Path("/proc/self/maps")))


def told(connections: Sequence[Sequence[tuple[str, str]]], segments: Sequence[bool]) -> str:
    """What all ranks together show.

    Args:
        connections: each rank's `own_connections`.
        segments: each rank's `maps_segment`.
    """
    if len(connections) < 2:
        return "none"
    owners = {own: rank for rank, pairs in enumerate(connections) for own, _ in pairs}
    between = any(owners.get(other, rank) != rank for rank, pairs in enumerate(connections) for _, other in pairs)
    found = [name for name, is_used in (("tcp", between), ("shared memory", all(segments))) if is_used]
    return " + ".join(found) or "unknown"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
