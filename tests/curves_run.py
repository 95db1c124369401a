"""A process that trains one run after the other in one session; for test_loss_curves.py.

`python curves_run.py CASE.json OUT.json`: `spark` (properties), `results` (a folder) and `runs` (keywords of `Trainer`
by name). OUT gets each run's `losses`, one an epoch, and counted `bytes` by channel; or the text of its error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import sparkdl_bench
from sparkdl_bench.errors import SparkDLError


def main() -> None:
    case = json.loads(Path(sys.argv[1]).read_text())
    builder = SparkSession.builder
    for key, value in case["spark"].items():
        builder = builder.config(key, value)
    spark = sparkdl_bench.configure(builder).getOrCreate()
    found: dict[str, object] = {}
    for name, settings in case["runs"].items():
        try:
            fitted = sparkdl_bench.Trainer(results=case["results"], **settings).fit(spark)
        except SparkDLError as error:
            found[name] = str(error)
        else:
            losses = [epoch["train_loss"] for epoch in fitted.history]
            found[name] = {"losses": losses, "bytes": fitted.summary["bytes"]}
    Path(sys.argv[2]).write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
