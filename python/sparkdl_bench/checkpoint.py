"""Checkpoints of a training function of your own, in a folder of any file system that Hadoop knows.

Inside `sparkdl_bench.launch`, with `attempts` of 2 or more, a training goes on after a lost executor:

    state = checkpoint.load(folder) or {"step": 0}
    if state["step"]:
        model.load_state_dict(state["model"])
    for step in range(state["step"] + 1, steps + 1):
        ...
        if step % 100 == 0 and dist.get_rank() == 0:
            checkpoint.save({"step": step, "model": model.state_dict()}, folder)

The executor writes and reads the files, so what Spark's configuration says of the file system holds (`spark.hadoop.*`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.worker import Endpoint, current

__all__ = ["load", "save"]


def save(state: Any, folder: str, keep: int = 2) -> int:
    """Saves the next checkpoint, whole or not at all, by one rank: the others go on meanwhile.

    Args:
        state: what `torch.save` takes, such as a dictionary of state_dicts and numbers.
        folder: of any Hadoop file system that all executors see, such as `hdfs:///user/me/run-7`; of the hosts' own
            file system with its whole path. It holds the checkpoints of one training.
        keep: how many there are at most afterwards, the newest ones; 1 or more.

    Returns:
        the checkpoint's number, from 1.

    Raises:
        ConfigurationError: this process is no rank of a launch, or an argument is not valid.
        RunFailedError: the file system refuses it; what was there before still is. Or it takes longer than the
            launch's `timeout` and 15 s; then it may still become whole.
    """
    endpoint = _endpoint("save")
    if keep < 1:
        raise ConfigurationError(f"keep = {keep}; valid is 1 or more.")
    import torch

    with _memory() as file:
        torch.save(state, file)
        file.flush()
        return endpoint.save(str(folder), file.fileno(), keep)


def load(folder: str, map_location: Any = "cpu", weights_only: bool = True) -> Any | None:
    """The newest checkpoint in a folder; None where there is none yet. For all ranks, before any of them saves.

    Args:
        folder: as given to `save`.
        map_location: as of `torch.load`: where tensors are to be.
        weights_only: as of `torch.load`: refuses what is neither tensors nor plain values.

    Raises:
        ConfigurationError: this process is no rank of a launch, or the folder is not valid.
        RunFailedError: the file system refuses it, or takes too long.
    """
    endpoint = _endpoint("load")
    found = endpoint.newest(str(folder))
    if found is None:
        return None
    import torch

    number, size = found
    with _memory() as file:
        if size:
            os.posix_fallocate(file.fileno(), 0, size)
        endpoint.load(str(folder), number, file.fileno())
        return torch.load(file, map_location=map_location, weights_only=weights_only)


def _endpoint(what: str) -> Endpoint:
    endpoint = current()
    if endpoint is None:
        raise ConfigurationError(
            f"checkpoint.{what} goes through the executor of a rank, and this process is none. Call it in a function "
            f"or script that sparkdl_bench.launch runs; elsewhere use torch.{what}."
        )
    return endpoint


@contextmanager
def _memory() -> Iterator[BinaryIO]:
    """A file without a name, which the executor's JVM opens through /proc."""
    with open(os.memfd_create("sparkdl-checkpoint", os.MFD_CLOEXEC), "w+b") as file:  # noqa: PTH123 (no path)
        yield file
