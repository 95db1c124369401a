"""A model of ours trained by Keras' own `fit`, one process: an epoch a call, its rows in our order."""

from __future__ import annotations

import time
from typing import Any

from ._fit import Clock, Rows, Start, learning_rate, tested
from ._harness import read_arguments, write
from ._keras import compiled, images, model, pin_threads


def main() -> None:
    case, out = read_arguments()
    import tensorflow as tf  # type: ignore[import-not-found, unused-ignore]

    pin_threads(case["threads"])
    tf.keras.utils.set_random_seed(case["seed"] % 2**32)
    clock = Clock()
    rows, start = Rows.read(case), Start.read(case)
    x_train, x_test = images(rows.x_train, start), images(rows.x_test, start)
    net = compiled(model(start), case)
    steps = timed_steps(tf, case)
    clock.prepared()
    for epoch in range(case["epochs"]):
        order = start.orders[epoch]
        history = net.fit(
            x_train[order],
            rows.y_train[order],
            batch_size=case["batch"],
            epochs=1,
            shuffle=False,
            verbose=0,
            callbacks=[steps],
        )
        with clock.evaluating():
            test_loss, accuracy = tested(net.predict(x_test, batch_size=1000, verbose=0), rows.y_test)
        clock.tested(float(history.history["loss"][-1]), test_loss, accuracy)
    facts = {
        **clock.facts(len(rows.y_train), tf.config.threading.get_intra_op_parallelism_threads()),
        "tensorflow": tf.__version__,
        "keras": tf.keras.__version__,
        "xla": bool(case["tuned"]),
    }
    write(out, steps.samples_ms, facts)


def timed_steps(tf: Any, case: dict[str, Any]) -> Any:
    """Times each step, and sets the learning rate where it changes."""
    changes = case["schedule"].get("name", "constant") != "constant" or float(case["schedule"].get("warmup_steps", 0))

    class Steps(tf.keras.callbacks.Callback):  # type: ignore[misc, name-defined, unused-ignore]
        samples_ms: list[float] = []  # noqa: RUF012 (one of these is made)
        begun = 0

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002 (Keras names them)
            if changes:
                self.model.optimizer.learning_rate = learning_rate(case, len(self.samples_ms))
            self.begun = time.perf_counter_ns()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002 (Keras names them)
            self.samples_ms.append((time.perf_counter_ns() - self.begun) / 1e6)

    return Steps()


if __name__ == "__main__":
    main()
