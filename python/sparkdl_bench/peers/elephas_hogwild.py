"""Elephas, mode `hogwild`: a parameter server on the driver, used once an epoch, without locks."""

from __future__ import annotations

from sparkdl_bench.peers import _keras

PEER = _keras.elephas(
    "elephas-hogwild", "hogwild", "a parameter server on the driver, used once an epoch, without locks"
)
