"""A model of ours trained by spark-tensorflow-distributor: a barrier stage whose tasks are TensorFlow's workers."""

from __future__ import annotations

import time
from typing import Any

from ._harness import read_arguments, write
from ._spark import session


def main() -> None:
    from spark_tensorflow_distributor import MirroredStrategyRunner  # type: ignore[import-not-found, unused-ignore]

    case, out = read_arguments()
    settings = {"spark.executorEnv.CUDA_VISIBLE_DEVICES": "", "spark.task.cpus": str(case["threads"])}
    with session(case, "tensorflow-distributor", settings) as spark:
        runner = MirroredStrategyRunner(
            num_slots=case["workers"], use_gpu=False, use_custom_strategy=True, local_mode=False
        )
        samples_ms, facts = runner.run(_worker, case=case, started_ms=time.time() * 1e3)
        write(out, samples_ms, {**facts, "spark": spark.version})


def _worker(case: dict[str, Any], started_ms: float) -> tuple[list[float], dict[str, Any]]:
    from measure._mirrored import train  # type: ignore[import-not-found, unused-ignore]

    made: tuple[list[float], dict[str, Any]] = train(case, started_ms)
    return made


if __name__ == "__main__":
    main()
