"""Keras on TensorFlow in one process, by its own `fit`."""

from __future__ import annotations

from sparkdl_bench.peers._abilities import Abilities
from sparkdl_bench.peers._base import EnvironmentPeer
from sparkdl_bench.peers._keras import KERAS, LAYERS, OPTIMIZERS

PEER = EnvironmentPeer(
    name="keras",
    doc="Keras on TensorFlow, one process, by its own fit",
    kinds=frozenset({"fit"}),
    environment=KERAS,
    program="keras_fit",
    fit_program="keras_fit",
    workers=1,
    abilities=Abilities(OPTIMIZERS, LAYERS, chain=True, schedules=True),
    tuning="XLA (jit_compile)",
)
