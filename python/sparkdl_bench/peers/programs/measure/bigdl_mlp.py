"""BigDL's DistriOptimizer on a multilayer perceptron: ms an iteration, from the times at which iterations ended."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ._bigdl import session
from ._harness import read_arguments, training_rows, write

BLOCK_STEPS = 10


def main() -> None:
    case, out = read_arguments()
    with session(case["workers"]) as (spark, folder):
        ended_s, facts = _train(spark.sparkContext, case, folder)
    write(out, _block_means_ms(ended_s, case), facts, steps=BLOCK_STEPS)


def _train(context: Any, case: dict[str, Any], folder: Path) -> tuple[list[float], dict[str, Any]]:
    from bigdl.dllib.nn.criterion import ClassNLLCriterion  # type: ignore[import-not-found, unused-ignore]
    from bigdl.dllib.nn.layer import Linear, LogSoftMax, ReLU, Sequential  # type: ignore[import-not-found, unused-ignore]
    from bigdl.dllib.optim.optimizer import SGD, MaxIteration, Optimizer, TrainSummary  # type: ignore[import-not-found, unused-ignore]
    from bigdl.dllib.utils.common import Sample, init_engine  # type: ignore[import-not-found, unused-ignore]

    init_engine()
    x, y = training_rows(case)
    rows = context.parallelize(list(zip(x, y, strict=True)), case["workers"])
    samples = rows.map(lambda row: Sample.from_ndarray(row[0], np.array(float(row[1]) + 1)))
    widths = [case["features"], *case["hidden"], case["classes"]]
    model = Sequential()
    for index, (wide, narrow) in enumerate(pairwise(widths)):
        model.add(Linear(wide, narrow)).add(ReLU() if index < len(widths) - 2 else LogSoftMax())
    iterations = case["warmup_steps"] + case["steps"]
    optimizer = Optimizer(
        model=model,
        training_rdd=samples,
        criterion=ClassNLLCriterion(),
        optim_method=SGD(learningrate=case["learning_rate"]),
        end_trigger=MaxIteration(iterations),
        batch_size=case["batch"],
    )
    summary = TrainSummary(str(folder / "summary"), "run")
    optimizer.set_train_summary(summary)
    start = time.perf_counter()
    optimizer.optimize()
    seconds = time.perf_counter() - start
    losses, throughput = summary.read_scalar("Loss"), summary.read_scalar("Throughput")
    facts = {
        "bigdl-dllib": "2.4.0",
        "spark": context.version,
        "master": "standalone",
        "iterations": len(losses),
        "seconds_with_start": seconds,
        # BigDL's own clock, which leaves out its bookkeeping between two iterations; ours below is the whole interval.
        "own_ms_per_step_median": float(
            np.median(case["batch"] / np.asarray([row[1] for row in throughput[case["warmup_steps"] :]]) * 1e3)
        ),
        "first_loss": float(losses[0][1]),
        "last_loss": float(losses[-1][1]),
    }
    return [float(row[2]) for row in throughput], facts


def _block_means_ms(ended_s: list[float], case: dict[str, Any]) -> list[float]:
    """Mean interval between the ends of consecutive iterations, over blocks of BLOCK_STEPS, warm-up left out."""
    measured = ended_s[case["warmup_steps"] - 1 if case["warmup_steps"] else 0 :]
    ends = measured[::BLOCK_STEPS]
    return [(later - earlier) / BLOCK_STEPS * 1e3 for earlier, later in pairwise(ends)]


if __name__ == "__main__":
    main()
