"""A model of ours trained by BigDL's DistriOptimizer for whole epochs, from our weights, tested after each."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ._bigdl import session
from ._fit import Clock, Rows, Start, flag, learning_rate, option
from ._harness import read_arguments, write
from ._spark import rows_rdd


def main() -> None:
    case, out = read_arguments()
    with session(case["workers"]) as (spark, folder):
        trained = _train(spark, case, folder)
    write(out, *trained)


def _train(spark: Any, case: dict[str, Any], folder: Path) -> tuple[list[float], dict[str, Any]]:
    from bigdl.dllib.nn.criterion import ClassNLLCriterion  # type: ignore[import-not-found, unused-ignore]
    from bigdl.dllib.optim.optimizer import (  # type: ignore[import-not-found, unused-ignore]
        EveryEpoch,
        Loss,
        MaxEpoch,
        Optimizer,
        Top1Accuracy,
        TrainSummary,
        ValidationSummary,
    )
    from bigdl.dllib.utils.common import Sample, init_engine  # type: ignore[import-not-found, unused-ignore]

    init_engine()
    workers = case["workers"]
    spark.sparkContext.parallelize(range(workers), workers).count()  # the executors are there
    clock = Clock()
    start = Start.read(case)
    shape = start.specification["input_shape"]

    def samples(part: str) -> Any:
        return rows_rdd(spark, case, part, workers).map(
            lambda row: Sample.from_ndarray(row[1].reshape(shape), np.array(float(row[0]) + 1))
        )

    optimizer = Optimizer(
        model=model(start),
        training_rdd=samples("train"),
        criterion=ClassNLLCriterion(),
        optim_method=_method(case),
        end_trigger=MaxEpoch(case["epochs"]),
        batch_size=case["batch"],
    )
    methods = [Top1Accuracy(), Loss(ClassNLLCriterion())]
    optimizer.set_validation(case["batch"], samples("test"), EveryEpoch(), methods)
    steps, tests = TrainSummary(str(folder / "summary"), "run"), ValidationSummary(str(folder / "summary"), "run")
    optimizer.set_train_summary(steps)
    optimizer.set_val_summary(tests)
    clock.prepared()
    optimizer.optimize()
    begun_s = clock.started_ms / 1e3
    rows = len(Rows.read(case).y_train)
    losses = [(float(row[2]) - begun_s, float(row[1])) for row in steps.read_scalar("Loss")]
    accuracies = [(float(row[2]) - begun_s, float(row[1])) for row in tests.read_scalar("Top1Accuracy")]
    test_losses = [float(row[1]) for row in tests.read_scalar("Loss")]
    samples_ms, history, evaluation_s = by_epoch(losses, accuracies, test_losses)
    facts = {
        **clock.facts(rows, 1),
        "seconds_evaluation": evaluation_s,
        "history": history,
        "bigdl-dllib": "2.4.0",
        "spark": spark.version,
        "master": "standalone",
        "order": "BigDL's own",
    }
    return samples_ms, facts


def by_epoch(
    losses: list[tuple[float, float]], accuracies: list[tuple[float, float]], test_losses: list[float]
) -> tuple[list[float], list[dict[str, Any]], float]:
    """From when each iteration and each test has ended (seconds of the clock): the steps but the first of each epoch,
    which follows a test or the start (milliseconds), the history, and the seconds of all tests.
    """
    samples_ms: list[float] = []
    history: list[dict[str, Any]] = []
    evaluation_s, first = 0.0, 0
    for epoch, ((tested_s, accuracy), test_loss) in enumerate(zip(accuracies, test_losses, strict=True), start=1):
        last = next((place for place in range(first, len(losses)) if losses[place][0] > tested_s), len(losses))
        own = losses[first:last]
        samples_ms += [(later - earlier) * 1e3 for (earlier, _), (later, _) in pairwise(own)]
        evaluation_s += max(0.0, tested_s - own[-1][0]) if own else 0.0
        history.append(
            {
                "epoch": epoch,
                "seconds": round(tested_s, 4),
                "train_loss": float(np.mean([loss for _, loss in own])) if own else None,
                "test_loss": test_loss,
                "accuracy": accuracy,
            }
        )
        first = last
    return samples_ms, history, evaluation_s


def model(start: Start) -> Any:
    """BigDL's layers with our weights, and the logarithms of the classes' probabilities at the end."""
    from bigdl.dllib.nn import layer as layers  # type: ignore[import-not-found, unused-ignore]

    tensors = start.tensors()
    net = layers.Sequential()
    pictures = len(start.specification["input_shape"]) == 3
    for layer in start.specification["layers"]:
        kind, options = layer["kind"], layer.get("options", {})
        if kind == "flatten" or (kind == "linear" and pictures):
            net.add(layers.InferReshape([-1], True))
            pictures = False
        if kind == "flatten":
            continue
        made = _LAYERS[kind](layers, options)
        weight, bias = tensors.get(f"{layer['name']}.weight"), tensors.get(f"{layer['name']}.bias")
        if weight is not None:
            shaped = weight.reshape(1, *weight.shape) if weight.ndim == 4 else weight
            made.set_weights([shaped] if bias is None else [shaped, bias])
        net.add(made)
    return net.add(layers.LogSoftMax())


def _method(case: Mapping[str, Any]) -> Any:
    from bigdl.dllib.optim import optimizer as methods  # type: ignore[import-not-found, unused-ignore]

    rate, decay = learning_rate(case, 0), option(case, "weight_decay", 0)
    if case["optimizer"].get("name", "sgd") == "adam":
        beta1, beta2 = option(case, "beta1", 0.9), option(case, "beta2", 0.999)
        return methods.Adam(learningrate=rate, beta1=beta1, beta2=beta2, epsilon=option(case, "epsilon", 1e-8))
    momentum = option(case, "momentum", 0)
    return methods.SGD(
        learningrate=rate, weightdecay=decay, momentum=momentum, dampening=0.0, nesterov=flag(case, "nesterov")
    )


def _conv(layers: Any, options: Mapping[str, Any]) -> Any:
    kernel, stride, padding = (int(options.get(name, default)) for name, default in _SIZES)
    return layers.SpatialConvolution(
        int(options["in"]),
        int(options["out"]),
        kernel,
        kernel,
        stride,
        stride,
        padding,
        padding,
        with_bias=bool(int(options.get("bias", 1))),
    )


def _pool(kind: str) -> Any:
    def make(layers: Any, options: Mapping[str, Any]) -> Any:
        kernel, padding = int(options["kernel"]), int(options.get("padding", 0))
        stride = int(options.get("stride", kernel))
        ceil = bool(int(options.get("ceil", 0)))
        return getattr(layers, kind)(kernel, kernel, stride, stride, padding, padding, to_ceil=ceil)

    return make


_SIZES = (("kernel", 1), ("stride", 1), ("padding", 0))
_LAYERS: dict[str, Any] = {
    "linear": lambda layers, options: layers.Linear(
        int(options["in"]), int(options["out"]), with_bias=bool(int(options.get("bias", 1)))
    ),
    "conv2d": _conv,
    "max-pool": _pool("SpatialMaxPooling"),
    "relu": lambda layers, _: layers.ReLU(),
    "tanh": lambda layers, _: layers.Tanh(),
    "sigmoid": lambda layers, _: layers.Sigmoid(),
    "dropout": lambda layers, options: layers.Dropout(float(options.get("rate", 0.5))),
}


if __name__ == "__main__":
    main()
