"""Keras 3 in the ranks of a launch: an optimiser that takes the mean of all ranks' gradients, whatever Keras's backend.

    import keras
    from sparkdl_bench import keras as together

    model = ...
    model.compile(together.synchronized(keras.optimizers.SGD(0.1)), loss="mse")
    together.broadcast(model)
    model.fit(own_rows, own_targets)   # each rank its share, with as many steps

In a function that `sparkdl_bench.launch` runs, with `sync="none"`: gradients travel by `sparkdl_bench.collective`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from sparkdl_bench import collective
from sparkdl_bench.errors import ConfigurationError

__all__ = ["broadcast", "synchronized"]

_Optimizer = TypeVar("_Optimizer")


def synchronized(optimizer: _Optimizer) -> _Optimizer:
    """The same optimiser, which from now on applies the mean of all ranks' gradients, those of a step in one message.

    Args:
        optimizer: of Keras 3, without `gradient_accumulation_steps`, before the model is compiled with it.

    Raises:
        ConfigurationError: it is no optimiser of Keras 3, or Keras has a backend other than TensorFlow, JAX, PyTorch.
    """
    import keras

    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ConfigurationError(
            f"synchronized takes an optimiser of Keras 3, and was given a {type(optimizer).__name__}. Give an object, "
            "such as keras.optimizers.SGD(0.1)."
        )
    kind, means = type(optimizer), _of_backend(keras.backend.backend())

    class Synchronized(kind):  # type: ignore[misc, valid-type]
        def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
            return super().apply(means(grads), trainable_variables)

    Synchronized.__name__, Synchronized.__qualname__ = kind.__name__, kind.__qualname__
    Synchronized.__module__ = kind.__module__  # what Keras writes into a saved model
    optimizer.__class__ = Synchronized
    return optimizer


def broadcast(model: Any, root: int = 0) -> None:
    """All ranks' models become that of rank `root`; a model that is built.

    Raises:
        ConfigurationError: this process is no rank of a launch.
    """
    model.set_weights([collective.broadcast(each, root) for each in model.get_weights()])


def _of_backend(name: str) -> Any:
    ways = {"jax": _jax, "tensorflow": _tensorflow, "torch": _torch}
    if name not in ways:
        raise ConfigurationError(
            f"Keras's backend is {name}. Valid: {', '.join(ways)}. Set KERAS_BACKEND before Keras is imported."
        )
    return ways[name]


def _means(*gradients: Any) -> list[Any]:
    return list(collective.all_reduce_many([np.asarray(each) for each in gradients], "average"))


def _given(gradients: Sequence[Any]) -> list[Any]:
    """Those that there are; Keras has None for what the loss does not depend on."""
    return [each for each in gradients if each is not None]


def _put_back(gradients: Sequence[Any], means: Sequence[Any]) -> list[Any]:
    left = iter(means)
    return [None if each is None else next(left) for each in gradients]


def _torch(gradients: Sequence[Any]) -> list[Any]:
    import torch

    found = _means(*(each.detach().cpu().numpy() for each in _given(gradients)))
    devices = [each.device for each in _given(gradients)]
    means = [torch.from_numpy(each).to(device) for each, device in zip(found, devices, strict=True)]
    return _put_back(gradients, means)


def _jax(gradients: Sequence[Any]) -> list[Any]:
    """Ordered, so that all ranks' steps meet in the same order also where JAX compiles the step."""
    import jax
    from jax.experimental import io_callback

    given = _given(gradients)
    shapes = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in given]
    return _put_back(gradients, io_callback(_means, shapes, *given, ordered=True))


def _tensorflow(gradients: Sequence[Any]) -> list[Any]:
    import tensorflow as tf

    given = [tf.convert_to_tensor(each) for each in _given(gradients)]  # slices of embeddings become dense
    means = tf.numpy_function(_means, given, [each.dtype for each in given])
    for mean, each in zip(means, given, strict=True):
        mean.set_shape(each.shape)
    return _put_back(gradients, means)
