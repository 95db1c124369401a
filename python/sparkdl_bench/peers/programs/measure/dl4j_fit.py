"""A perceptron of ours trained by DL4J on Spark, by the TrainingMaster that SPARKDL_DL4J (of the environment) names.

`averaging`: each worker trains on its part of the rows and the driver averages their weights after every 5 steps, as
DL4J's guide has it. `shared`: each worker sends what of its updates is above a threshold to all others, and waits for
nobody. DL4J's classes are called through py4j; arrays go to and fro as .npy files, which it reads and writes.
"""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ._fit import Clock, Rows, Start, learning_rate, option, tested
from ._harness import read_arguments, write
from ._spark import session

_AVERAGING_STEPS = 5
_THRESHOLD = 1e-3
# Of Aeron's native memory on Java 17; and its publications stand still for long while a JVM is compiling.
_OPENED = (
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED --add-exports=java.base/sun.nio.ch=ALL-UNNAMED "
    "-Daeron.publication.unblock.timeout=60000000000"
)
_ACTIVATIONS = {"relu": "RELU", "tanh": "TANH", "sigmoid": "SIGMOID"}


def main() -> None:
    case, out = read_arguments()
    classes, threads = os.environ["SPARKDL_DL4J_CLASSES"], str(case["threads"])
    media = os.environ["SPARKDL_PEER_SHARED_MEMORY"]  # Aeron's files would stay in /dev/shm
    settings = {
        **{f"spark.{each}.extraClassPath": classes for each in ("driver", "executor")},
        "spark.driver.extraJavaOptions": f"{_OPENED} -Daeron.dir={media}/driver",
        "spark.executor.extraJavaOptions": f"{_OPENED} -Daeron.dir={media}/executor-{{{{EXECUTOR_ID}}}}",
        "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
        **{f"spark.executorEnv.{name}": threads for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")},
    }
    with session(case, "dl4j", settings) as spark, tempfile.TemporaryDirectory(prefix="sparkdl-dl4j-") as folder:
        samples_ms, facts = _train(spark, case, os.environ["SPARKDL_DL4J"], Path(folder))
        write(out, samples_ms, facts, steps=facts["steps_per_sample"])


def _train(spark: Any, case: dict[str, Any], mode: str, folder: Path) -> tuple[list[float], dict[str, Any]]:
    context = spark.sparkContext
    dl4j = _Dl4j(context, folder)
    clock = Clock()
    rows, start = Rows.read(case), Start.read(case)
    workers = case["workers"]
    each = max(1, -(-case["batch"] // workers))
    steps = max(1, -(-len(rows.y_train) // (each * workers)))
    train = dl4j.rows(rows.x_train, rows.y_train, start, each, workers)
    master = dl4j.averaging(workers, each) if mode == "averaging" else dl4j.shared(each)
    network = dl4j.network(case, start, master)
    held = dl4j.array(rows.x_test.reshape(len(rows.x_test), -1))
    clock.prepared()
    samples_ms: list[float] = []
    for _ in range(case["epochs"]):
        before = clock.seconds
        network.fit(train)
        samples_ms.append((clock.seconds - before) * 1e3 / steps)
        with clock.evaluating():
            probabilities = dl4j.read(network.getNetwork().output(held))
            test_loss, accuracy = tested(np.log(np.maximum(probabilities, 1e-30)), rows.y_test)
        clock.tested(None, test_loss, accuracy)
    facts = {
        **clock.facts(len(rows.y_train), case["threads"]),
        "spark": spark.version,
        "dl4j": "1.0.0-M2",
        "mode": mode,
        "order": "DL4J's own",
        "batch": each * workers,
        "steps_per_sample": steps,
        **({"averaging_steps": _AVERAGING_STEPS} if mode == "averaging" else {"threshold": _THRESHOLD}),
    }
    return samples_ms, facts


class _Dl4j:
    """DL4J's classes in the driver's JVM."""

    def __init__(self, context: Any, folder: Path) -> None:
        self._context, self._folder = context, folder
        self._learning = context._jvm.org.deeplearning4j
        self._arrays = context._jvm.org.nd4j.linalg
        self._files = 0

    def array(self, values: Any) -> Any:
        """An INDArray of fp32 values."""
        path = self._file()
        np.save(path, np.ascontiguousarray(values, dtype=np.float32))
        return self._arrays.factory.Nd4j.createFromNpyFile(self._context._jvm.java.io.File(str(path)))

    def read(self, array: Any) -> Any:
        """Its values."""
        path = self._file()
        self._arrays.factory.Nd4j.writeAsNumpy(array, self._context._jvm.java.io.File(str(path)))
        return np.load(path)

    def rows(self, x: Any, y: Any, start: Start, batch: int, workers: int) -> Any:
        """The training rows as mini-batches, each a record of an RDD, on the executors."""
        classes = len(start.perceptron()[-1][1])
        whole = self._arrays.dataset.DataSet(
            self.array(x.reshape(len(x), -1)), self.array(np.eye(classes, dtype=np.float32)[y])
        )
        # Direct: DL4J trains on what the RDD has, as its guide has it for rows that are in memory; not cached, since
        # it would move the arrays' memory under Spark's copies.
        rdd = self._context._jsc.parallelize(whole.batchBy(batch), workers)
        rdd.count()
        return rdd

    def network(self, case: dict[str, Any], start: Start, master: Any) -> Any:
        """The net, from our weights, to be trained by `master`."""
        layers, kinds = start.perceptron(), [layer["kind"] for layer in start.specification["layers"]]
        nonlinear = [_ACTIVATIONS[kind] for kind in kinds if kind in _ACTIVATIONS]
        conf, activation = self._learning.nn.conf, self._arrays.activations.Activation
        written = conf.NeuralNetConfiguration.Builder().seed(0).updater(self._updater(case)).list()
        for at, (weight, bias) in enumerate(layers):
            if at < len(layers) - 1:
                layer = conf.layers.DenseLayer.Builder().activation(activation.valueOf(nonlinear[at]))
            else:
                loss = self._arrays.lossfunctions.LossFunctions.LossFunction.MCXENT
                layer = conf.layers.OutputLayer.Builder(loss).activation(activation.SOFTMAX)
            written = written.layer(layer.nIn(weight.shape[1]).nOut(len(bias)).build())
        spark = self._learning.spark.impl.multilayer.SparkDl4jMultiLayer(self._context._jsc, written.build(), master)
        # In × out by columns, which is out × in by rows, then the bias.
        values = np.concatenate([part for weight, bias in layers for part in (weight.ravel(), bias)])
        spark.getNetwork().setParams(self.array(values.reshape(1, -1)))
        return spark

    def averaging(self, workers: int, batch: int) -> Any:
        """A TrainingMaster whose workers meet on the driver; each record of the RDD holds `batch` rows."""
        builder = self._learning.spark.impl.paramavg.ParameterAveragingTrainingMaster.Builder(workers, batch)
        return (
            builder.rddTrainingApproach(self._learning.spark.api.RDDTrainingApproach.Direct)
            .batchSizePerWorker(batch)
            .averagingFrequency(_AVERAGING_STEPS)
            .workerPrefetchNumBatches(0)
            .build()
        )

    def shared(self, batch: int) -> Any:
        """A TrainingMaster whose workers send each other their updates."""
        server = self._context._jvm.org.nd4j.parameterserver.distributed
        conf = (
            server.conf.VoidConfiguration.builder()
            .portSupplier(self._context._jvm.ExecutorPorts(_free_port()))
            .networkMask("127.0.0.0/8")
            .controllerAddress("127.0.0.1")
            .meshBuildMode(server.v2.enums.MeshBuildMode.PLAIN)
            .build()
        )
        encoding = self._learning.optimize.solvers.accumulation.encoding.threshold
        return (
            self._learning.spark.parameterserver.training.SharedTrainingMaster.Builder(conf, batch)
            .rngSeed(0)
            .workersPerNode(1)
            .rddTrainingApproach(self._learning.spark.api.RDDTrainingApproach.Direct)
            .batchSizePerWorker(batch)
            .workerPrefetchNumBatches(0)
            .thresholdAlgorithm(encoding.AdaptiveThresholdAlgorithm(_THRESHOLD))
            .build()
        )

    def _updater(self, case: dict[str, Any]) -> Any:
        rules, rate = self._arrays.learning.config, learning_rate(case, 0)
        if case["optimizer"].get("name", "sgd") == "adam":
            beta1, beta2 = option(case, "beta1", 0.9), option(case, "beta2", 0.999)
            return rules.Adam(rate, beta1, beta2, option(case, "epsilon", 1e-8))
        momentum = option(case, "momentum", 0)
        return rules.Nesterovs(rate, momentum) if momentum else rules.Sgd(rate)

    def _file(self) -> Path:
        self._files += 1
        return self._folder / f"{self._files}.npy"


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


if __name__ == "__main__":
    main()
