"""Elephas, mode `asynchronous`: a parameter server on the driver, used once an epoch, with locks."""

from __future__ import annotations

from sparkdl_bench.peers import _keras

PEER = _keras.elephas(
    "elephas-async", "asynchronous", "a parameter server on the driver, used once an epoch, with locks"
)
