"""Processes of a lab that live on after the command that starts them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence

from sparkdl_bench.errors import RunFailedError
from sparkdl_bench.lab import hosts
from sparkdl_bench.lab.state import Daemon, Lab, started_at

_START_S = 120.0


def start(lab: Lab, number: int, what: str, words: Sequence[str], environment: Mapping[str, str], ready: str) -> Lab:
    """Starts a daemon on a host, waits until its log says `ready`, and gives the lab with it.

    Raises:
        RunFailedError: it ended, or did not say so within two minutes; its last words are in the message.
    """
    log = lab.folder / "logs" / f"{what}-{number}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as stream:
        process = subprocess.Popen(  # noqa: S603 (the command is ours)
            hosts.command(lab, number, *words),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            # `ip`, the shells and Spark's scripts replace themselves, so that this process id stays the daemon's.
            start_new_session=True,
        )
    lab = lab.add(Daemon(what, number, process.pid, started_at(process.pid) or 0))
    lab.write()
    until = time.monotonic() + _START_S
    while ready not in log.read_text(encoding="utf-8", errors="replace"):
        if process.poll() is not None or time.monotonic() > until:
            how = "ended" if process.returncode is not None else f"was not ready within {_START_S:.0f} s"
            said = log.read_text(encoding="utf-8", errors="replace")[-1500:].strip()
            raise RunFailedError(f"The {what} on host {number} of lab '{lab.name}' {how}. It last said: {said}")
        time.sleep(0.1)
    return lab
