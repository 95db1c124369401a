"""How a lab comes up, and goes."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyspark

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.lab import hadoop, hosts, spark
from sparkdl_bench.lab.hosts import obstacle
from sparkdl_bench.lab.state import Lab, Plan, base, boot_id, find, names

__all__ = ["down", "obstacle", "up"]


def up(plan: Plan, tell: Callable[[str], None] = lambda _: None) -> Lab:
    """Makes the lab; where that fails, all that was made is taken away again.

    Raises:
        ConfigurationError: this user or system cannot make it, or one of that name is there.
        RunFailedError: the system refused a part of it, or a daemon did not start.
    """
    if reason := obstacle(cpus=bool(plan.cpus)):
        raise ConfigurationError(f"The lab '{plan.name}' cannot be made: {reason}.")
    with _alone():
        if plan.name in names():
            there = find(plan.name)
            state = "is up" if there.complete and there.boot == boot_id() else "is there in part"
            raise ConfigurationError(
                f"The lab '{plan.name}' {state}. Use it, take it away (`sparkdl-bench lab down {plan.name}`), or "
                "choose another name."
            )
        lab = Lab(plan, boot_id(), spark=pyspark.__version__)
        lab.write()
        try:
            tell(f"{plan.hosts} host{'s' if plan.hosts > 1 else ''}")
            hosts.make(lab)
            if plan.hdfs:
                tell("HDFS")
                lab = hadoop.start_hdfs(lab)
            if plan.cluster == "standalone":
                tell("Spark's standalone cluster")
                lab = spark.start(lab)
            if plan.cluster == "yarn":
                tell("YARN")
                lab = hadoop.start_yarn(lab)
            lab = replace(lab, complete=True)
            lab.write()
        except BaseException:
            _remove(lab.name)
            raise
    return lab


def down(name: str) -> list[str]:
    """Takes a lab away, or what a crash has left of one; what was there, in words.

    Raises:
        ConfigurationError: there is none of that name.
        RunFailedError: a part resists.
    """
    if name not in names():
        find(name)  # says what there is
    with _alone():
        return _remove(name)


def _remove(name: str) -> list[str]:
    try:
        lab = find(name)
    except ConfigurationError:  # its file is damaged; all else is found by the name
        lab = Lab(Plan(name), boot_id())
    gone = hosts.unmake(lab if lab.boot == boot_id() else replace(lab, daemons=()))
    shutil.rmtree(lab.folder)
    return [*gone, f"the folder {lab.folder}"]


@contextmanager
def _alone() -> Iterator[None]:
    """One command at a time makes or takes away labs."""
    base().mkdir(parents=True, exist_ok=True)
    with (base() / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigurationError(
                "Another `sparkdl-bench lab up` or `lab down` is at work here. Wait for its end."
            ) from error
        yield
