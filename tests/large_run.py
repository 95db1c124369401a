"""A process that trains once over a set, in one executor of a small heap; for test_larger_than_memory.py.

`python large_run.py CASE.json OUT.json`: `spark` (properties), `settings` (keywords of `Trainer`) and `refused` (more
of them, with which it must not begin). OUT gets the `refusal`; the fewest and the most `visits` of a row; the
executor's `command`, and what it held of `anonymous` memory and of `mapped` files, at most, bytes; `results`, a folder.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil

import case_session
import sparkdl_bench
from sparkdl_bench.errors import ConfigurationError

_EXECUTOR = "CoarseGrainedExecutorBackend"
_POLL_SECONDS = 0.05


class Watch(threading.Thread):
    """Looks at the executor's memory until it is told to end."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.anonymous = self.mapped = 0
        self.ended = threading.Event()
        processes = psutil.Process().children(recursive=True)
        # Of the shells that start Spark some are left as zombies, which have no command.
        living = [each for each in processes if each.status() != psutil.STATUS_ZOMBIE]
        (self.executor,) = (each for each in living if any(_EXECUTOR in word for word in each.cmdline()))
        self.command = " ".join(self.executor.cmdline())

    def run(self) -> None:
        while not self.ended.wait(_POLL_SECONDS):
            status = Path(f"/proc/{self.executor.pid}/status").read_text()
            held = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in status.splitlines() if "Rss" in line}
            self.anonymous = max(self.anonymous, held["RssAnon"])
            self.mapped = max(self.mapped, held["RssFile"])


def visits(weights: npt.NDArray[np.float32], batch: int, rate: float) -> npt.NDArray[np.float64]:
    """How often each row was computed, by its class and the one value of it that is 1.

    Softmax regression starts at zero weights, and with a small rate its scores stay there, so that each class has the
    probability 1 / classes. A visit of the row of class c whose value i is 1 then adds rate / batch · (1 - 1 / classes)
    to weight (c, i), and takes rate / batch / classes from the weights (k, i) of all other classes. No row is of the
    last class: its weights tell how often the rows of each i were visited together.
    """
    steps = weights.astype(np.float64) * batch / rate
    together = -steps[-1] * len(steps)
    return np.asarray(steps[:-1] + together / len(steps))


def main() -> None:
    sys.modules["matplotlib.figure"] = None  # type: ignore[assignment] # a run that draws nothing is over sooner
    case = json.loads(Path(sys.argv[1]).read_text())
    spark = case_session.start(case["spark"])

    def trainer(**more: Any) -> sparkdl_bench.Trainer:
        return sparkdl_bench.Trainer("softmax", **{**case["settings"], **more})

    try:
        trainer(**case["refused"]).fit(spark)
        refusal = ""
    except ConfigurationError as error:
        refusal = str(error)
    watch = Watch()
    watch.start()
    fitted = trainer().fit(spark)
    watch.ended.set()
    watch.join()
    (weights,) = (each for each in fitted.weights().values() if each.ndim == 2)
    counted = visits(weights, int(case["settings"]["batch"]), float(case["settings"]["learning_rate"]))
    found = {
        "refusal": refusal,
        "visits": [float(counted.min()), float(counted.max())],
        "anonymous": watch.anonymous,
        "mapped": watch.mapped,
        "command": watch.command,
        "results": str(fitted.results_dir),
    }
    Path(sys.argv[2]).write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
