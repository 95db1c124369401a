"""The ways to train that are disturbed: transports and topologies, each with a training of a few seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkdl_bench.bench.spark_collective import spark_transport_missing

# Epochs are as many as take a few seconds: the faults come in between, and their checkpoints too.
_TRAINING: dict[str, Any] = {
    "workers": 2,
    "batch": 50,
    "epochs": 200,
    "evaluate_every": 0,
    "checkpoint.every": 500,
    "model.name": "mlp",
    "model.hidden": [32],
    "data.source": "digits",
    "optimizer.name": "sgd",
    "optimizer.learning_rate": 0.02,
    "optimizer.momentum": 0.9,
    # Short, so that what is beyond them is over soon.
    "timeout": 6,
    "start_timeout": 60,
    "slots_wait": 30,
    "recovery.replacement_wait": 10,
    "resources.hertz": 0,
}
_SPARK: dict[str, str] = {
    "master": "local-cluster[2,1,1024]",
    "spark.ui.enabled": "false",
    "spark.network.timeout": "16s",
    "spark.network.timeoutInterval": "4s",
    "spark.executor.heartbeatInterval": "2s",
}
_JOBS: dict[str, Any] = {"epochs": 5, "checkpoint.every": 20}
_SECURE = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": "of-the-campaign",
    "spark.network.crypto.enabled": "true",
}


@dataclass(frozen=True)
class Way:
    """One way to train.

    Attributes:
        settings: keys of the run, beside those that all ways have.
        spark: properties of the session, likewise.
        job_per_step: steps are Spark jobs, and checkpoints the driver's.
        decoded: rows are decoded into files, which the campaign writes a set for.
    """

    name: str
    settings: Mapping[str, Any]
    spark: Mapping[str, str] = field(default_factory=dict)
    job_per_step: bool = False
    decoded: bool = False

    @property
    def run(self) -> dict[str, Any]:
        return {**_TRAINING, **(_JOBS if self.job_per_step else {}), **self.settings}

    @property
    def session(self) -> dict[str, str]:
        return {**_SPARK, **self.spark}

    @property
    def secure(self) -> dict[str, str]:
        """What a cluster's own processes need in common with the session, or they refuse each other."""
        return {key: value for key, value in self.spark.items() if key in _SECURE}

    @property
    def transport(self) -> str:
        return str(self.settings["transport"])

    @property
    def engine(self) -> str:
        return str(self.settings.get("engine.name", "libtorch"))

    def missing(self) -> str | None:
        """Why this machine cannot train so; None where it can."""
        return spark_transport_missing(self.transport)


def _one_stage(name: str, transport: str, topology: str, **more: Any) -> Way:
    spark = more.pop("spark", {})
    settings = {key.replace("__", "."): value for key, value in more.items()}
    return Way(name, {"transport": transport, "topology": topology, **settings}, spark)


def _jobs(name: str, transport: str, **more: Any) -> Way:
    settings = {key.replace("__", "."): value for key, value in more.items()}
    return Way(name, {"transport": transport, **settings}, job_per_step=True)


WAYS: dict[str, Way] = {
    way.name: way
    for way in (
        _one_stage("tcp-ring", "tcp", "ring"),
        _one_stage("tcp-sliced", "tcp", "sliced"),
        _one_stage("tcp-tls", "tcp", "sliced", tcp__tls=True),
        _one_stage("block-stream-sliced", "block-stream", "sliced"),
        # Through sockets; within one host it is mapped memory otherwise.
        _one_stage("block-stream-sockets", "block-stream", "recursive", host_local="off"),
        _one_stage("block-stream-authenticated", "block-stream", "sliced", spark=_SECURE),
        _one_stage("numpy-engine", "block-stream", "sliced", engine__name="numpy", epochs=100),
        Way(
            "decoded-sharded",
            {"transport": "block-stream", "topology": "sliced", "data.placement": "sharded"},
            decoded=True,
        ),
        Way("decoded-held", {"transport": "tcp", "topology": "sliced", "data.placement": "replicated"}, decoded=True),
        _one_stage("ucx-sliced", "ucx", "sliced"),
        _one_stage("mpi-sliced", "mpi", "sliced"),
        _jobs("block-manager-sliced", "block-manager"),
        _jobs("shuffle-two", "shuffle"),
        _jobs("shuffle-one", "shuffle", shuffle__exchanges="one"),
        _jobs("shuffle-tree", "shuffle", topology="tree"),
    )
}
