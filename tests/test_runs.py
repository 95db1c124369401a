"""Every run file under conf/runs trains a few steps, on synthetic rows of its data set's shape."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conftest import RUN_FILES
from sparkdl_bench.config import load_run_file
from sparkdl_bench.runner import follow
from sparkdl_bench.session import check_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Large nets on smaller images, and fewer classes, so that two executors of 1 GB hold them.
SHAPES = {"idx": "1,28,28", "cifar10": "3,32,32", "digits": "1,8,8", "synthetic": "3,64,64"}


@pytest.mark.parametrize("path", RUN_FILES, ids=lambda path: path.stem)
def test_a_run_file_trains(spark: SparkSession, tmp_path: Path, path: Path) -> None:
    settings: dict[str, Any] = dict(load_run_file(path).settings)
    source = settings["data.source"]
    shortened = {
        "results": str(tmp_path),
        "batch": "4",
        "max_steps": "3",
        "evaluate_every": "0",
        "memory_check": "off",
        "transport": "block-manager" if settings["transport"] == "block-manager" else "block-stream",
    }
    if source != "digits":
        shortened |= {
            "data.source": "synthetic",
            "data.shape": SHAPES[source],
            "data.rows": "16",
            "data.test_rows": "4",
        }
        shortened |= {"data.classes": "10"}
    api = check_session(spark)
    run_id = api.start({**settings, **shortened})
    done = follow(api, run_id)
    api.forget(run_id)
    assert done.state == "done"
    assert done.step == 3


def test_there_is_a_run_file_for_every_model() -> None:
    models = {load_run_file(path).settings["model.name"] for path in RUN_FILES}
    assert models >= {
        "softmax",
        "mlp",
        "lenet",
        "cnn",
        "cifar-quick",
        "resnet-18",
        "vgg-16",
        "alexnet",
        "googlenet",
        "resnet-50",
    }
