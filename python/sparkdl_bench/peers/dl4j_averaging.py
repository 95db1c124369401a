"""DL4J's ParameterAveragingTrainingMaster: the workers' weights are averaged on the driver every few steps."""

from __future__ import annotations

from sparkdl_bench.peers import _dl4j

PEER = _dl4j.peer(
    "dl4j-averaging",
    "averaging",
    "the workers' weights averaged on the driver after every 5 steps",
    {"sgd": frozenset({"momentum", "nesterov"}), "adam": frozenset({"beta1", "beta2", "epsilon"})},
)
