"""The training of `torch_fit`, started by Spark's TorchDistributor. The clock starts when the session is up."""

from __future__ import annotations

import time
from typing import Any

from ._harness import read_arguments, write
from ._spark import session


def main() -> None:
    from pyspark.ml.torch.distributor import TorchDistributor  # type: ignore[import-not-found, unused-ignore]

    case, out = read_arguments()
    # Its processes meet at the address of rank 0, which has to be one of this host.
    with session(case, "torch-distributor", {"spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1"}) as spark:
        distributor = TorchDistributor(num_processes=case["workers"], local_mode=False, use_gpu=False)
        samples_ms, facts = distributor.run(_rank, case, time.time() * 1e3)  # type: ignore[misc]
        write(out, samples_ms, {**facts, "spark": spark.version})


def _rank(case: dict[str, Any], started_ms: float) -> tuple[list[float], dict[str, Any]]:
    """In each process; Spark brings back what rank 0 returns."""
    import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]
    from measure.torch_fit import Fit, means  # type: ignore[import-not-found, unused-ignore]

    dist.init_process_group("gloo")
    fit = Fit(case, dist.get_rank(), started_ms)
    samples_ms, facts = fit.run()
    if case["workers"] > 1:
        samples_ms, facts = means(case, samples_ms, facts)
    dist.barrier()
    dist.destroy_process_group()
    return samples_ms, facts


if __name__ == "__main__":
    main()
