"""Elephas, mode `synchronous`: the workers' changes averaged on the driver after each epoch."""

from __future__ import annotations

from sparkdl_bench.peers import _keras

PEER = _keras.elephas("elephas-sync", "synchronous", "the workers' changes averaged on the driver after each epoch")
