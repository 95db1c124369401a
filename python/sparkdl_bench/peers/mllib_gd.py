"""Spark MLlib's perceptron with gradient descent: a job over all rows for each step (treeAggregate)."""

from __future__ import annotations

from sparkdl_bench.peers import _mllib

PEER = _mllib.peer("gd", "gradient descent")
