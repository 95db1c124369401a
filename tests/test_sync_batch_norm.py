"""Batch normalisation over all workers' rows between real executors: through sockets, and through mapped memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from sparkdl_bench import Trainer
from sparkdl_bench.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAYERS = [
    {"name": "fc1", "kind": "linear", "options": {"in": 64, "out": 32, "bias": 0}, "initializer": "he-normal"},
    {"name": "norm", "kind": "batch-norm", "options": {"channels": 32, "sync": 1}, "initializer": "one"},
    {"name": "relu", "kind": "relu"},
    {"name": "fc2", "kind": "linear", "options": {"in": 32, "out": 10}, "initializer": "xavier-uniform"},
]


def fit(spark: SparkSession, folder: Path, workers: int, **more: Any) -> tuple[dict[str, Any], dict[str, int]]:
    path = folder / "model.json"
    path.write_text(json.dumps({"name": "net", "input_shape": [64], "classes": 10, "layers": LAYERS}))
    chosen = {"transport": "block-stream", "workers": workers, "batch": 50, "epochs": 2, "results": str(folder), **more}
    fitted = Trainer(model={"name": "file", "spec": str(path)}, data="digits", seed=3, **chosen).fit(spark)
    return fitted.weights(), fitted.summary["bytes"]


def test_two_executors_train_what_one_does(spark: SparkSession, tmp_path: Path) -> None:
    one, _ = fit(spark, tmp_path, 1)
    for shared, channel in (("off", "block-stream"), ("on", "host-local")):
        two, sent = fit(spark, tmp_path, 2, host_local=shared)
        assert sent.get(channel, 0) > 0
        for name, values in one.items():
            assert np.abs(two[name] - values).max() <= 1e-4 * max(1.0, float(np.abs(values).max())), (shared, name)


def test_a_job_a_step_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="transport block-manager makes a Spark job per step"):
        fit(spark, tmp_path, 2, transport="block-manager")
