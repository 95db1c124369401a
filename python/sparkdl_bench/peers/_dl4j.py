"""What the peers of DL4J share: its jars on the class path of Spark 3.5, driven from Python through py4j."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparkdl_bench.errors import ConfigurationError, RunFailedError
from sparkdl_bench.peers import Case, FitCase
from sparkdl_bench.peers._abilities import Abilities, same
from sparkdl_bench.peers._base import PROGRAMS, EnvironmentPeer, Launch
from sparkdl_bench.peers._environment import INSTALL_TIMEOUT_S, Environment, tail
from sparkdl_bench.peers._java import Java

_DL4J, _JAVACPP, _OPENBLAS = "1.0.0-M2", "1.5.7", "0.3.19-1.5.7"
_PLATFORM = "linux-x86_64"
_JAVA = Java(17, 17)


class _WithPorts(Environment):
    """With the class that gives each executor a port of its own, which DL4J takes an instance of."""

    def unable(self) -> str | None:
        reason = super().unable()
        if reason is None and not _compiler().is_file():
            return (
                f"It compiles one class when it is installed, and {_JAVA.home()} is a JRE without javac. Install a JDK."
            )
        return reason

    def build(self, directory: Path) -> None:
        spark = self.site_packages(directory) / "pyspark" / "jars"
        jars = [*spark.glob("*.jar"), *self.jar_folder(directory).glob("*.jar")]
        folder = self.classes(directory)
        folder.mkdir(exist_ok=True)
        source = PROGRAMS / "measure" / "ExecutorPorts.java"
        command = [str(_compiler()), "-d", str(folder), "-cp", os.pathsep.join(map(str, jars)), str(source)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)  # noqa: S603
        except subprocess.TimeoutExpired as error:
            raise RunFailedError(f"Compiling {source.name} took more than {INSTALL_TIMEOUT_S:.0f} s.") from error
        if done.returncode:
            raise RunFailedError(f"Compiling {source.name} failed: {tail(done.stderr or done.stdout)}")

    def classes(self, directory: Path) -> Path:
        """Where what is compiled lies."""
        return self.folder(directory) / "classes"


def _compiler() -> Path:
    return _JAVA.home() / "bin" / "javac"


_ENVIRONMENT = _WithPorts(
    name="dl4j",
    requirements=("pyspark==3.5.9", "numpy==1.26.4", "setuptools==80.9.0"),
    imports=("pyspark",),
    newest_python=(3, 11),
    java=_JAVA,
    disk_gb=1.2,
    jars=(
        f"org.deeplearning4j:dl4j-spark_2.12:{_DL4J}",
        f"org.deeplearning4j:dl4j-spark-parameterserver_2.12:{_DL4J}",
        f"org.nd4j:nd4j-native:{_DL4J}",
        f"org.nd4j:nd4j-native:{_DL4J}:{_PLATFORM}",
        f"org.bytedeco:javacpp:{_JAVACPP}",
        f"org.bytedeco:javacpp:{_JAVACPP}:{_PLATFORM}",
        f"org.bytedeco:openblas:{_OPENBLAS}",
        f"org.bytedeco:openblas:{_OPENBLAS}:{_PLATFORM}",
    ),
    # Spark 3.5 has its own of these.
    jars_without=("org.apache.spark", "org.apache.hadoop", "org.scala-lang", "ch.qos.logback", "org.slf4j"),
)


@dataclass(frozen=True)
class Dl4j(EnvironmentPeer):
    """Attributes: mode: which TrainingMaster of DL4J's, `averaging` or `shared`."""

    mode: str = "averaging"

    def check(self, case: Case) -> None:
        super().check(case)
        if isinstance(case, FitCase) and case.specification:
            _check_layers(self.name, [str(layer["kind"]) for layer in json.loads(case.specification)["layers"]])
        rule = case.optimizer if isinstance(case, FitCase) else {}
        plain = same(rule.get("momentum", "0"), "0") or not same(rule.get("nesterov", "false"), "false")
        if rule.get("name", "sgd") == "sgd" and not plain:
            raise ConfigurationError(
                f"The peer '{self.name}' has Nesterov's momentum alone. Set optimizer.nesterov = true or "
                "optimizer.momentum = 0, or leave the peer out."
            )

    def variables(self, launch: Launch) -> Mapping[str, str]:
        spark_home = launch.environment.site_packages(launch.directory) / "pyspark"
        own = launch.environment.jar_folder(launch.directory)
        # Spark's own first: what both have is Spark's.
        paths = [spark_home / "jars" / "*", _ENVIRONMENT.classes(launch.directory), own / "*"]
        return {
            **super().variables(launch),
            "SPARK_HOME": str(spark_home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(launch.python),
            "SPARKDL_DL4J": self.mode,
            "SPARKDL_DL4J_CLASSES": os.pathsep.join(map(str, paths)),
        }


def _check_layers(name: str, kinds: Sequence[str]) -> None:
    """DL4J's layers are linear ones with an activation each; the last one has the softmax."""
    chain = [kind for kind in kinds if kind != "flatten"]
    activated = [kind != "linear" for kind in chain]
    if activated != [at % 2 == 1 for at in range(len(chain))] or len(chain) % 2 == 0:
        raise ConfigurationError(
            f"The peer '{name}' computes linear layers with an activation between each two of them, and the model has "
            f"{', '.join(kinds)}. Take model.name = mlp with model.output_activation = none, or leave the peer out."
        )


def peer(name: str, mode: str, doc: str, optimizers: Mapping[str, frozenset[str]]) -> EnvironmentPeer:
    return Dl4j(
        name=name,
        doc=f"DL4J {_DL4J} on Spark 3.5: {doc}",
        kinds=frozenset({"fit"}),
        environment=_ENVIRONMENT,
        program="dl4j_fit",
        fit_program="dl4j_fit",
        abilities=Abilities(
            optimizers,
            frozenset({"linear", "relu", "tanh", "sigmoid", "flatten"}),
            chain=True,
            most_workers=None,
            divides=True,
        ),
        on_spark=True,
        mode=mode,
    )
