"""DL4J's SharedTrainingMaster: updates encoded by a threshold, sent to all workers over Aeron's UDP."""

from __future__ import annotations

from sparkdl_bench.peers import _dl4j

PEER = _dl4j.peer(
    "dl4j-shared",
    "shared",
    "updates above a threshold (Strom, 2015), to all workers over UDP, asynchronously",
    {"sgd": frozenset()},
)
