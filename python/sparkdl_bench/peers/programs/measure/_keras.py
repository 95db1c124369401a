"""A model of ours in Keras, with our weights, and its optimisers; channels last, as TensorFlow computes on CPUs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._fit import Start, flag, learning_rate, option

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")


def pin_threads(threads: int) -> None:
    """Before the first operation."""
    import tensorflow as tf  # type: ignore[import-not-found, unused-ignore]

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def images(values: Any, start: Start) -> Any:
    """Rows of values as the model takes them: pictures with their channels last, others flat."""
    shape = start.specification["input_shape"]
    if not _has_pictures(start):
        return values
    return np.ascontiguousarray(values.reshape(-1, *shape).transpose(0, 2, 3, 1))


def model(start: Start, loaded: bool = True) -> Any:
    """Scores before any softmax come out; `loaded`: with our initial weights."""
    import tensorflow as tf

    keras = tf.keras
    pictures = _has_pictures(start)
    channels, *sides = start.specification["input_shape"] if pictures else (0,)
    size = int(np.prod(start.specification["input_shape"]))
    made = [keras.layers.Input((*sides, channels) if pictures else (size,))]
    for layer in start.specification["layers"]:
        kind, options = layer["kind"], layer.get("options", {})
        if pictures and kind in ("linear", "flatten"):
            # The rows of a weight are in the order channel, height, width.
            made += [keras.layers.Permute((3, 1, 2)), keras.layers.Flatten()]
            pictures = False
        if kind in ("max-pool", "avg-pool"):
            # Which padding gives as many values depends on how many come in.
            height = keras.Sequential(made).output_shape[1]
            options = {**options, "same": pads_as_ceil(layer["name"], height, options)}
        made += _LAYERS[kind](keras, layer["name"], options)
    net = keras.Sequential(made)
    if loaded:
        load(net, start)
    return net


def load(net: Any, start: Start) -> None:
    tensors = start.tensors()
    for layer in net.layers:
        weight = tensors.get(f"{layer.name}.weight")
        if weight is None:
            continue
        bias = tensors.get(f"{layer.name}.bias")
        changed = weight.transpose(2, 3, 1, 0) if weight.ndim == 4 else weight.T
        layer.set_weights([changed] if bias is None else [changed, bias])


def optimizer(case: Mapping[str, Any]) -> Any:
    import tensorflow as tf

    optimizers = tf.keras.optimizers
    name, rate = case["optimizer"].get("name", "sgd"), learning_rate(case, 0)
    if name == "sgd":
        return optimizers.SGD(rate, momentum=option(case, "momentum", 0), nesterov=flag(case, "nesterov"))
    common = {
        "beta_1": option(case, "beta1", 0.9),
        "beta_2": option(case, "beta2", 0.999),
        "epsilon": option(case, "epsilon", 1e-8),
    }
    if name == "adam":
        return optimizers.Adam(rate, **common)
    return optimizers.AdamW(rate, weight_decay=option(case, "weight_decay", 0), **common)


def compiled(net: Any, case: Mapping[str, Any]) -> Any:
    """With cross-entropy; tuned: by XLA, as TensorFlow's guide recommends it."""
    import tensorflow as tf

    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    net.compile(optimizer=optimizer(case), loss=loss, jit_compile=bool(case.get("tuned")))
    return net


def pads_as_ceil(name: str, size: int, options: Mapping[str, Any]) -> bool:
    """Whether Keras' padding `same` pools as the layer does; False where none is needed.

    Raises:
        SystemExit: neither does.
    """
    kernel, stride = int(options["kernel"]), int(options.get("stride", options["kernel"]))
    rest = (size - kernel) % stride
    if int(options.get("padding", 0)) == 0 and (rest == 0 or not int(options.get("ceil", 0))):
        return False
    outputs = -(-(size - kernel) // stride) + 1
    # TensorFlow puts an odd one behind, where `ceil` has it.
    missing = (outputs - 1) * stride + kernel - size
    if int(options.get("padding", 0)) == 0 and outputs == -(-size // stride) and missing == 1:
        return True
    raise SystemExit(
        f"This program has no pooling with the padding of layer '{name}' ({size} values, {dict(options)})."
    )


def _has_pictures(start: Start) -> bool:
    return any(layer["kind"] in ("conv2d", "max-pool", "avg-pool") for layer in start.specification["layers"])


def _pool(kind: str) -> Any:
    def make(keras: Any, name: str, options: Mapping[str, Any]) -> list[Any]:
        kernel = int(options["kernel"])
        padding, stride = "same" if options["same"] else "valid", int(options.get("stride", kernel))
        return [getattr(keras.layers, kind)(kernel, strides=stride, padding=padding, name=name)]

    return make


def _conv(keras: Any, name: str, options: Mapping[str, Any]) -> list[Any]:
    padding = int(options.get("padding", 0))
    around = [keras.layers.ZeroPadding2D(padding)] if padding else []
    conv = keras.layers.Conv2D(
        int(options["out"]),
        int(options["kernel"]),
        strides=int(options.get("stride", 1)),
        groups=int(options.get("groups", 1)),
        use_bias=bool(int(options.get("bias", 1))),
        name=name,
    )
    return [*around, conv]


def _activation(function: str) -> Any:
    return lambda keras, name, _: [keras.layers.Activation(function, name=name)]


_LAYERS: dict[str, Any] = {
    "linear": lambda keras, name, options: [
        keras.layers.Dense(int(options["out"]), use_bias=bool(int(options.get("bias", 1))), name=name)
    ],
    "conv2d": _conv,
    "max-pool": _pool("MaxPooling2D"),
    "avg-pool": _pool("AveragePooling2D"),
    "relu": _activation("relu"),
    "tanh": _activation("tanh"),
    "sigmoid": _activation("sigmoid"),
    "flatten": lambda *_: [],
    "dropout": lambda keras, name, options: [keras.layers.Dropout(float(options.get("rate", 0.5)), name=name)],
}
