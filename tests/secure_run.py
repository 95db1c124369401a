"""A process that trains in one session with the given Spark properties; for test_security.py.

`python secure_run.py CASE.json`: `spark` (properties), `net` (keys of an all-reduce of known gradients) and `runs`
(keywords of `Trainer` by name). Beside the case it leaves NAME.npz (weights) and NAME.json (counted bytes by channel).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

import case_session
import sparkdl_bench
from sparkdl_bench.session import check_session

sys.modules["matplotlib.figure"] = None  # type: ignore[assignment] # a run that draws nothing is over sooner
path = Path(sys.argv[1])
case = json.loads(path.read_text())
spark = case_session.start({"spark.master": "local-cluster[2,1,1024]", **case["spark"]})
(row,) = check_session(spark).net(case["net"])
assert row["correct"], row
for name, settings in case["runs"].items():
    fitted = sparkdl_bench.Trainer(results=str(path.parent / "results"), **settings).fit(spark)
    np.savez(path.parent / f"{name}.npz", **fitted.weights())
    (path.parent / f"{name}.json").write_text(json.dumps(fitted.summary["bytes"]))
spark.stop()
