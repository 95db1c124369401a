"""A model of ours trained by TensorFlowOnSpark: TensorFlow's processes in Spark's tasks, gradients over its gRPC."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from ._harness import read_arguments, write
from ._spark import session


def main() -> None:
    from tensorflowonspark import TFCluster  # type: ignore[import-not-found, unused-ignore]

    case, out = read_arguments()
    settings = {
        "spark.executorEnv.TFOS_SERVER_HOST": "127.0.0.1",
        "spark.executorEnv.CUDA_VISIBLE_DEVICES": "",
        "spark.task.maxFailures": "1",
        "spark.task.cpus": str(case["threads"]),
    }
    told = out.with_name(f"{out.name}.chief")
    with session(case, "tensorflowonspark", settings) as spark:
        cluster = TFCluster.run(
            spark.sparkContext,
            _worker,
            {"case": case, "started_ms": time.time() * 1e3, "told": str(told)},
            case["workers"],
            num_ps=0,
            tensorboard=False,
            input_mode=TFCluster.InputMode.TENSORFLOW,
            master_node="chief",
            reservation_timeout=120,
        )
        cluster.shutdown(timeout=3600)
        if not told.is_file():
            raise SystemExit("TensorFlowOnSpark's chief has left no result; its executors' logs say why.")
        samples_ms, facts = json.loads(told.read_text())
        told.unlink()
        write(out, samples_ms, {**facts, "spark": spark.version})


def _worker(arguments: dict[str, Any], context: Any) -> None:
    from measure._mirrored import train  # type: ignore[import-not-found, unused-ignore]

    made = train(arguments["case"], arguments["started_ms"])
    if context.job_name == "chief":
        Path(arguments["told"]).write_text(json.dumps(made))


if __name__ == "__main__":
    main()
