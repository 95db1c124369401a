"""Spark MLlib's perceptron with L-BFGS: a job over all rows for each evaluation of the loss (treeAggregate)."""

from __future__ import annotations

from sparkdl_bench.peers import _mllib

PEER = _mllib.peer("l-bfgs", "L-BFGS")
