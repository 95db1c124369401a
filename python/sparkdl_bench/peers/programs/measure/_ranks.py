"""Starts the ranks of a `torch.distributed` program as processes of this machine; any rank's failure ends all."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

RankMain = Callable[[int, dict[str, Any], str, Path], None]


def run_ranks(rank_main: RankMain, case: dict[str, Any], out: Path) -> None:
    """Run `rank_main(rank, case, rendezvous, out)` in `case["workers"]` processes that talk over loopback."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="sparkdl-ranks-") as folder:
        rendezvous = f"file://{folder}/rendezvous"
        ranks = [
            context.Process(target=_run, args=(rank_main, rank, case, rendezvous, out))
            for rank in range(case["workers"])
        ]
        for process in ranks:
            process.start()
        try:
            _wait(ranks)
        finally:
            for process in ranks:
                process.kill()


def _run(rank_main: RankMain, rank: int, case: dict[str, Any], rendezvous: str, out: Path) -> None:
    """One rank, whose process ends at once when its part is done.

    Taking a gloo process group down while a peer already closes its connections now and then destroys a thread that
    is still running (C++'s "terminate called without an active exception"), after every result has been written.
    """
    rank_main(rank, case, rendezvous, out)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _wait(ranks: list[Any]) -> None:
    """Until all have ended well, or one has not. The program that started this one bounds the whole wait."""
    waiting = list(ranks)
    while waiting:
        for process in list(waiting):
            process.join(timeout=0.1)
            if process.exitcode is None:
                continue
            if process.exitcode != 0:
                raise SystemExit(f"rank {ranks.index(process)} ended with status {process.exitcode}")
            waiting.remove(process)
