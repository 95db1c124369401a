"""The environment of the peers made of Keras, and what they can be told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparkdl_bench.peers._abilities import Abilities
from sparkdl_bench.peers._base import EnvironmentPeer, Launch
from sparkdl_bench.peers._environment import Environment
from sparkdl_bench.peers._java import Java

KERAS = Environment(
    name="keras",
    requirements=("elephas==7.3.0", "pyspark==4.0.0", "tensorflow==2.19.1", "keras==3.15.1", "numpy==1.26.4"),
    imports=("tensorflow", "elephas.spark_model"),
    newest_python=(3, 11),
    java=Java(17, 21),
    disk_gb=2.6,
)
LAYERS = frozenset({"linear", "relu", "tanh", "sigmoid", "flatten", "dropout", "conv2d", "max-pool", "avg-pool"})
# Keras takes weight decay out of the gradient, as AdamW does; only there it means what ours does.
OPTIMIZERS = {
    "sgd": frozenset({"momentum", "nesterov"}),
    "adam": frozenset({"beta1", "beta2", "epsilon"}),
    "adamw": frozenset({"beta1", "beta2", "epsilon", "weight_decay"}),
}


@dataclass(frozen=True)
class Elephas(EnvironmentPeer):
    """Attributes: mode: Elephas' own word."""

    mode: str = "synchronous"

    def variables(self, launch: Launch) -> Mapping[str, str]:
        return {**super().variables(launch), "SPARKDL_ELEPHAS": self.mode, "SPARK_LOCAL_IP": "127.0.0.1"}


def elephas(name: str, mode: str, doc: str) -> Elephas:
    return Elephas(
        name=name,
        doc=f"Elephas (Keras on Spark), {doc}",
        kinds=frozenset({"fit"}),
        environment=KERAS,
        program="elephas_fit",
        fit_program="elephas_fit",
        abilities=Abilities(OPTIMIZERS, LAYERS, chain=True, most_workers=None, divides=True),
        on_spark=True,
        mode=mode,
    )
