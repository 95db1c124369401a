"""A process that trains runs in one session, some at once; for test_loss_curves.py.

`python curves_run.py CASE.json OUT.json`: `spark` (properties), `results` (a folder), `runs` (keywords of `Trainer` by
name) and `at_once` (how many of them). OUT gets each run's `losses`, one an epoch, and counted `bytes` by channel; or
the text of its error.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import case_session
import sparkdl_bench
from sparkdl_bench.errors import SparkDLError


def main() -> None:
    sys.modules["matplotlib.figure"] = None  # type: ignore[assignment] # a run that draws nothing is over sooner
    case = json.loads(Path(sys.argv[1]).read_text())
    spark = case_session.start(case["spark"])

    def train(item: tuple[str, dict[str, Any]]) -> tuple[str, object]:
        name, settings = item
        try:
            fitted = sparkdl_bench.Trainer(results=case["results"], name=name, **settings).fit(spark)
        except SparkDLError as error:
            return name, str(error)
        losses = [epoch["train_loss"] for epoch in fitted.history]
        return name, {"losses": losses, "bytes": fitted.summary["bytes"]}

    with ThreadPoolExecutor(case["at_once"]) as pool:
        found = dict(pool.map(train, case["runs"].items()))
    Path(sys.argv[2]).write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
