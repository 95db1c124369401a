"""BigDL's DistriOptimizer: the in-band trainer that published comparisons measured, on Spark 3.5.

Its wheel cannot be resolved by pip (it asks for pyspark==3.1.3 and for a bigdl-core that was never published), so its
two packages are installed without their dependencies, beside versions that were found to work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.peers import Case, TrainCase
from sparkdl_bench.peers._abilities import SGD, Abilities
from sparkdl_bench.peers._base import EnvironmentPeer, Launch
from sparkdl_bench.peers._environment import Environment
from sparkdl_bench.peers._java import Java

SAMPLE_STEPS = 10


@dataclass(frozen=True)
class BigDL(EnvironmentPeer):
    def check(self, case: Case) -> None:
        super().check(case)
        if isinstance(case, TrainCase) and case.steps < 2 * SAMPLE_STEPS:
            raise ConfigurationError(
                f"The peer 'bigdl' takes one sample every {SAMPLE_STEPS} steps; {case.steps} measured steps are too "
                f"few. Ask for at least {2 * SAMPLE_STEPS}."
            )

    def engine_jars(self, directory: Path) -> list[Path]:
        """BigDL's jars, which our engine of the same name computes with."""
        reason = self.missing(directory)
        if reason:
            raise ConfigurationError(f"engine.name=bigdl computes with the jars of BigDL. {reason}")
        return sorted((self.environment.site_packages(directory) / "bigdl" / "share").glob("*/lib/*.jar"))

    def variables(self, launch: Launch) -> Mapping[str, str]:
        spark_home = launch.environment.site_packages(launch.directory) / "pyspark"
        return {
            **super().variables(launch),
            "SPARK_HOME": str(spark_home),
            "SPARK_CONF_DIR": str(spark_home / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(launch.python),
            "PYSPARK_DRIVER_PYTHON": str(launch.python),
            # Its jar holds logging settings that would write all of Spark's log to one file for ever.
            "LOG4J_CONFIGURATION_FILE": "org/apache/spark/log4j2-defaults.properties",
        }


PEER = BigDL(
    name="bigdl",
    doc="BigDL 2.4 DistriOptimizer on a standalone Spark 3.5 cluster on loopback, one 1-core executor a worker",
    kinds=frozenset({"train", "fit"}),
    environment=Environment(
        name="bigdl",
        requirements=("pyspark==3.5.9", "numpy==1.26.4", "six==1.17.0"),
        without_dependencies=("bigdl-dllib-spark3==2.4.0", "bigdl-core==2.3.0"),
        imports=("pyspark", "bigdl.dllib"),
        newest_python=(3, 11),
        java=Java(17, 17),
        disk_gb=0.6,
    ),
    program="bigdl_mlp",
    fit_program="bigdl_fit",
    abilities=Abilities(
        {"sgd": SGD, "adam": frozenset({"beta1", "beta2", "epsilon"})},
        frozenset({"linear", "relu", "tanh", "sigmoid", "flatten", "dropout", "conv2d", "max-pool"}),
        chain=True,
        most_workers=None,
        most_threads=1,
        divides=True,
    ),
    on_spark=True,
)
