"""The whole machine on one congestion control of TCP: libraries of others take the system's, ours chooses its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparkdl_bench.errors import ConfigurationError

_IPV4 = Path("/proc/sys/net/ipv4")
_CHOSEN = "tcp_congestion_control"
_AVAILABLE = "tcp_available_congestion_control"


def current(folder: Path = _IPV4) -> str:
    """The system's own; empty where it does not say."""
    try:
        return (folder / _CHOSEN).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def missing(name: str, folder: Path = _IPV4) -> str | None:
    """Why the machine cannot be put on `name`; None when it can."""
    try:
        available = (folder / _AVAILABLE).read_text(encoding="ascii").split()
    except OSError as error:
        return f"This system does not say which congestion controls it has: {error}."
    if name not in available:
        return f"This system has no congestion control '{name}'. Valid here: {', '.join(available)}."
    if not os.access(folder / _CHOSEN, os.W_OK):
        return f"Putting the whole machine on '{name}' writes {folder / _CHOSEN}, which needs root."
    return None


@contextmanager
def whole_machine(name: str, folder: Path = _IPV4) -> Iterator[None]:
    """New connections of every process take `name` meanwhile; the system's own comes back at the end."""
    reason = missing(name, folder)
    if reason:
        raise ConfigurationError(f"{reason} Measure without --congestion.")
    before = current(folder)
    (folder / _CHOSEN).write_text(name, encoding="ascii")
    try:
        yield
    finally:
        (folder / _CHOSEN).write_text(before, encoding="ascii")
