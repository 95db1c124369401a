"""A model of ours trained by Elephas (Keras on Spark), which way the environment variable SPARKDL_ELEPHAS says.

Its `fit` is called once an epoch, so that the workers' models meet after each and can be tested: `synchronous` averages
their changes on the driver then; `asynchronous` and `hogwild` send them to a server there, with locks or without.
"""

from __future__ import annotations

import os
import socket
from typing import Any

from ._fit import Clock, Rows, Start, tested
from ._harness import read_arguments, write
from ._keras import compiled, images, model, pin_threads
from ._spark import session


def main() -> None:
    case, out = read_arguments()
    threads = str(case["threads"])
    quiet = {"SPARK_LOCAL_IP": "127.0.0.1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    pinned = {"TF_NUM_INTRAOP_THREADS": threads, "TF_NUM_INTEROP_THREADS": "1", "OMP_NUM_THREADS": threads}
    settings = {f"spark.executorEnv.{name}": value for name, value in {**quiet, **pinned}.items()}
    with session(case, "elephas", settings) as spark:
        samples_ms, facts = _train(spark.sparkContext, case, os.environ["SPARKDL_ELEPHAS"])
        write(out, samples_ms, facts, steps=facts["steps_per_sample"])


def _train(context: Any, case: dict[str, Any], mode: str) -> tuple[list[float], dict[str, Any]]:
    import tensorflow as tf  # type: ignore[import-not-found, unused-ignore]
    from elephas.spark_model import AsynchronousSparkModel, SparkModel  # type: ignore[import-not-found, unused-ignore]
    from elephas.utils.rdd_utils import to_simple_rdd  # type: ignore[import-not-found, unused-ignore]

    pin_threads(case["threads"])
    clock = Clock()
    rows, start = Rows.read(case), Start.read(case)
    x_train, x_test = images(rows.x_train, start), images(rows.x_test, start)
    workers = case["workers"]
    rdd = to_simple_rdd(context, x_train, rows.y_train).repartition(workers).cache()
    rdd.count()
    net = compiled(model(start), {**case, "tuned": False})
    clock.prepared()
    each = -(-case["batch"] // workers)
    steps = max(1, -(-len(rows.y_train) // (each * workers)))
    samples_ms: list[float] = []
    for _ in range(case["epochs"]):
        before = clock.seconds
        if mode == "synchronous":
            trainer = SparkModel(net, num_workers=workers)
        else:
            trainer = AsynchronousSparkModel(
                net, mode=mode, frequency="epoch", parameter_server_mode="socket", num_workers=workers, port=_free()
            )
        trainer.fit(rdd, epochs=1, batch_size=each, verbose=0, validation_split=0.0)
        net = trainer.master_network
        samples_ms.append((clock.seconds - before) * 1e3 / steps)
        with clock.evaluating():
            test_loss, accuracy = tested(net.predict(x_test, batch_size=1000, verbose=0), rows.y_test)
        clock.tested(None, test_loss, accuracy)
    facts = {
        **clock.facts(len(rows.y_train), case["threads"]),
        "spark": context.version,
        "tensorflow": tf.__version__,
        "mode": mode,
        "order": "Elephas' own",
        "batch": each * workers,
        "steps_per_sample": steps,
    }
    return samples_ms, facts


def _free() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


if __name__ == "__main__":
    main()
