"""`--master lab:NAME`: the command goes on inside the lab, on its gateway."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

import pyspark

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.lab import hosts, spark
from sparkdl_bench.lab.state import Lab, boot_id, find

_MASTER = re.compile(r"((?:(?:--)?(?:spark\.)?master=)?)lab:(.*)", re.DOTALL)


def named(words: Sequence[str]) -> str | None:
    """The lab that a command line names as its master, if any: `--master lab:x`, `--master=lab:x`, `master=lab:x`."""
    found = [match.group(2) for match in _matches(words) if match]
    return found[-1] if found else None


def enter(words: Sequence[str]) -> None:
    """Replaces this process by the same command inside the lab that it names as its master; none: returns.

    Raises:
        ConfigurationError: there is no such lab, it has no cluster, is there in part, or is of another Spark.
    """
    name = named(words)
    if name is None:
        return
    lab = ready(name)
    if not lab.master:
        raise ConfigurationError(
            f"The lab '{name}' has no Spark cluster (it was made with --cluster none). Take it away, and make it with "
            "--cluster standalone."
        )
    meant = [match.group(1) + lab.master if match else word for word, match in zip(words, _matches(words), strict=True)]
    run(lab, [sys.executable, "-m", "sparkdl_bench", *meant])


def run(lab: Lab, words: Sequence[str]) -> None:
    """Replaces this process by a command on the lab's gateway."""
    whole = hosts.command(lab, 0, *words)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvpe(whole[0], whole, spark.environment(lab, 0))  # noqa: S606 (the user's own command)


def ready(name: str) -> Lab:
    """The lab, for use.

    Raises:
        ConfigurationError: it is not there, or not whole.
    """
    lab = find(name)
    if reason := hosts.obstacle():
        raise ConfigurationError(f"The lab '{name}' cannot be used: {reason}.")
    if not lab.complete or lab.boot != boot_id():
        why = "the machine was started anew since" if lab.boot != boot_id() else "its making was interrupted"
        raise ConfigurationError(
            f"The lab '{name}' is there in part only: {why}. Take it away with `sparkdl-bench lab down {name}`, and "
            "make it again."
        )
    if dead := [f"{daemon.what} on host {daemon.host}" for daemon in lab.daemons if not daemon.is_alive]:
        raise ConfigurationError(
            f"The lab '{name}' has lost its {', '.join(dead)}; the logs are in {lab.folder / 'logs'}. Take it away "
            f"with `sparkdl-bench lab down {name}`, and make it again."
        )
    if lab.spark != pyspark.__version__:
        raise ConfigurationError(
            f"The lab '{name}' runs Spark {lab.spark}, and this is pyspark {pyspark.__version__}. Make one with this "
            "Spark, or use that Python environment."
        )
    return lab


def _matches(words: Sequence[str]) -> list[re.Match[str] | None]:
    """Of each word, in which it names a lab as the master."""
    before = ["", *words][: len(words)]
    return [
        match if (match := _MASTER.fullmatch(word)) and (match.group(1) or previous == "--master") else None
        for word, previous in zip(words, before, strict=True)
    ]
