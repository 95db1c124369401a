"""One worker's part of a training under TensorFlow's MultiWorkerMirroredStrategy, for both peers that start it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._fit import Clock, Rows, Start, own_share, tested
from ._keras import compiled, images, model
from .keras_fit import timed_steps


def train(case: dict[str, Any], started_ms: float) -> tuple[list[float], dict[str, Any]]:
    """What the chief returns is kept. Each worker takes its share of every batch, in our order.

    Args:
        started_ms: when the training's clock started, milliseconds since 1970.
    """
    import tensorflow as tf  # type: ignore[import-not-found, unused-ignore]

    clock = Clock(started_ms)
    tf.config.threading.set_intra_op_parallelism_threads(case["threads"])
    tf.config.threading.set_inter_op_parallelism_threads(1)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank, workers = rank_of(strategy.cluster_resolver), case["workers"]
    if strategy.num_replicas_in_sync != workers:
        raise SystemExit(f"{strategy.num_replicas_in_sync} workers take part instead of {workers}")
    rows, start = Rows.read(case), Start.read(case)
    x_train, x_test = images(rows.x_train, start), images(rows.x_test, start)
    with strategy.scope():
        net = compiled(model(start), case)
    alone = model(start, loaded=False)  # tests outside the strategy, by each worker for itself
    steps = timed_steps(tf, case)
    clock.prepared()
    for epoch in range(case["epochs"]):
        shares = _shares(case, start.orders[epoch], rank)
        # From a function: a data set of its own would be cut into as many parts again.
        batches = strategy.distribute_datasets_from_function(
            lambda _, shares=shares: _batches(tf, shares, x_train, rows.y_train)
        )
        history = net.fit(batches, epochs=1, steps_per_epoch=len(shares), verbose=0, callbacks=[steps])
        with clock.evaluating():
            alone.set_weights(net.get_weights())
            test_loss, accuracy = tested(alone.predict(x_test, batch_size=1000, verbose=0), rows.y_test)
        clock.tested(float(history.history["loss"][-1]), test_loss, accuracy)
    facts = {
        **clock.facts(len(rows.y_train), tf.config.threading.get_intra_op_parallelism_threads()),
        "tensorflow": tf.__version__,
        "strategy": "MultiWorkerMirroredStrategy",
    }
    return steps.samples_ms, facts


def rank_of(resolver: Any) -> int:
    """A chief is rank 0, and the first of the workers beside it, whose number is 0 as well, is rank 1."""
    behind = resolver.task_type == "worker" and "chief" in resolver.cluster_spec().jobs
    return int(resolver.task_id or 0) + (1 if behind else 0)


def _shares(case: dict[str, Any], order: Any, rank: int) -> list[Any]:
    """This worker's rows of each batch; a last one with fewer rows than workers is left out."""
    workers, batch = case["workers"], case["batch"]
    whole = [order[first : first + batch] for first in range(0, len(order), batch)]
    return [own_share(rows, rank, workers) for rows in whole if len(rows) >= workers]


def _batches(tf: Any, shares: list[Any], x: Any, y: Any) -> Any:
    def each() -> Any:
        for share in shares:
            yield x[share], y[share]

    kinds = (
        tf.TensorSpec((None, *x.shape[1:]), tf.float32),
        tf.TensorSpec((None,), tf.as_dtype(np.asarray(y).dtype)),
    )
    return tf.data.Dataset.from_generator(each, output_signature=kinds)
