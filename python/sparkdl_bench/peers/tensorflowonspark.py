"""TensorFlowOnSpark: TensorFlow's MultiWorkerMirroredStrategy in Spark's tasks, gradients over TensorFlow's gRPC."""

from __future__ import annotations

from sparkdl_bench.peers import _tensorflow

PEER = _tensorflow.peer(
    "tensorflowonspark",
    "tfos_fit",
    "TensorFlowOnSpark: MultiWorkerMirroredStrategy in Spark's tasks, gRPC between them",
)
