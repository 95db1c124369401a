"""A worker that is held up, as by a quota of the processor, gets fewer rows of each batch."""

from __future__ import annotations

import json
import signal
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from sparkdl_bench.bench.killable_run import KillableRun


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


EVERY = 40
# Steps that the worker is held up for with an even share, at least: their median is compared.
EVEN_AT_LEAST = 8
# All training rows: one step an epoch, most of which is computing, or there is little to gain.
BATCH = 1438


# It compares times, for a minute. What shares follow from which speeds, and that training is the same with them, is
# shown without a clock (SharesSuite, BatchSharesSuite).
@pytest.mark.campaign
def test_a_slow_worker_gets_fewer_rows_and_steps_take_less_time(tmp_path: Path) -> None:
    settings = {
        # Over so many steps the worker is stopped many times, whatever else the machine does.
        "batch_shares": {"by": "speed", "every": EVERY},
        "model": {"name": "mlp", "hidden": [1024, 1024]},
        "transport": "tcp",
        "batch": BATCH,
        "epochs": 4 * EVERY,
    }
    # Where this process is kept waiting, the hold begins too late before a deal: then once more, with another run.
    for turn in range(3):
        folder = tmp_path / str(turn)
        checkpoint = {"dir": (folder / "checkpoints").as_uri(), "every": 5}
        training = KillableRun(folder, {**settings, "checkpoint": checkpoint})
        training.wait_for_step(5)
        with held_up(training.executors()[0], 0.8):
            begun = training.newest_step()
            training.finish()
        # A checkpoint tells of a step a little later. The first deal after it is the first that can know who is slow.
        first = (begun // EVERY + 1) * EVERY
        if first - (begun + 8) >= EVEN_AT_LEAST:
            break
    else:
        pytest.fail(f"held up after step {begun}, too late, in each of {turn + 1} runs")
    rows = training.summary()["counts"]["share_rows"]
    assert sum(rows) == BATCH
    assert min(rows) < 0.4 * BATCH, rows
    (file,) = (folder / "results").glob("*/steps.json")
    millis: list[float] = json.loads(file.read_text(encoding="utf-8"))
    even, dealt = statistics.median(millis[begun + 8 : first]), statistics.median(millis[-EVERY:])
    # With speeds of 1 and 0.2 a batch is computed in 1 / 1.2 in place of 0.5 / 0.2 of the time, a third.
    # What is exchanged takes as long as before.
    assert dealt < 0.85 * even, (begun, even, dealt)
