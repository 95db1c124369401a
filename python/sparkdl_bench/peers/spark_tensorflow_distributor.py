"""spark-tensorflow-distributor: TensorFlow's MultiWorkerMirroredStrategy in the tasks of a barrier stage."""

from __future__ import annotations

from sparkdl_bench.peers import _tensorflow

PEER = _tensorflow.peer(
    "spark-tensorflow-distributor",
    "std_fit",
    "spark-tensorflow-distributor: MultiWorkerMirroredStrategy in the tasks of a barrier stage, gRPC between them",
)
