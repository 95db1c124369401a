"""A worker that is held up, as by a quota of the processor, gets fewer rows of each batch."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from sparkdl_bench.bench.victim import Victim


@contextmanager
def held_up(process: psutil.Process, share: float, period_s: float = 0.04) -> Iterator[None]:
    """Stops the process for this share of the time, as cpulimit does."""
    ended = threading.Event()

    def hold() -> None:
        with suppress(psutil.NoSuchProcess):  # the run is over
            while not ended.is_set():
                process.send_signal(signal.SIGSTOP)
                time.sleep(period_s * share)
                process.send_signal(signal.SIGCONT)
                ended.wait(period_s * (1 - share))

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_a_slow_worker_gets_fewer_rows(tmp_path: Path) -> None:
    settings = {
        # Over so many steps the worker is stopped many times, whatever else the machine does.
        "batch_shares": {"by": "speed", "every": 40},
        "model": {"name": "mlp", "hidden": [512, 512]},
        "transport": "tcp",
        "batch": 200,
        "epochs": 30,
        "checkpoint": {"dir": (tmp_path / "checkpoints").as_uri(), "every": 5},
    }
    victim = Victim(tmp_path, settings)
    victim.wait_for_step(5)
    with held_up(victim.executors()[0], 0.8):
        victim.finish()
    rows = victim.summary()["counts"]["share_rows"]
    assert sum(rows) == 200
    assert min(rows) < 80, rows
