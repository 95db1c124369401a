"""The digits run on the newest patch of every Spark 4 line beside the one that the other tests run on (`make smoke`).

Each Spark lives in an environment of its own, made once, beside the peers' environments in the user's cache folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from programs import ROOT, execute, our_environment
from sparkdl_bench.peers import default_directory
from sparkdl_bench.peers._environment import Environment

pytestmark = pytest.mark.smoke

VERSIONS = ("4.0.5", "4.2.1", "4.3.0")
# Transport, host_local, and the channel that must have carried the bytes.
WAYS = (
    ("block-manager", "off", "block-manager"),
    ("block-stream", "off", "block-stream"),
    ("block-stream", "on", "host-local"),
)
TIMEOUT_SECONDS = 600
# What the package needs beside pyspark; tests/test_wheel.py holds it to pyproject.toml.
# tomli on every Python, since which one makes the environment is known only when it is made.
BESIDE = {
    "numpy": "2.2.6",
    "psutil": "7.0.0",
    "click": "8.1.8",
    "rich": "14.0.0",
    "javaproperties": "0.8.2",
    "tomli": "2.2.1",
}


@pytest.fixture(scope="module", params=VERSIONS)
def python(request: pytest.FixtureRequest) -> Path:
    """The Python of an environment with one pyspark and what this package needs beside it."""
    version = request.param
    environment = Environment(
        name=f"spark-{version}",
        requirements=(f"pyspark=={version}", *(f"{name}=={pinned}" for name, pinned in BESIDE.items())),
        imports=("pyspark", *BESIDE),
        newest_python=(3, 13),
        disk_gb=0.6,
    )
    environment.install(default_directory())
    return environment.python(default_directory())


@pytest.mark.parametrize(("transport", "host_local", "channel"), WAYS)
def test_digits_train_on(python: Path, transport: str, host_local: str, channel: str, tmp_path: Path) -> None:
    variables = our_environment()
    variables.pop("SPARK_HOME", None)
    command = [
        *(python, "-m", "sparkdl_bench", "run", ROOT / "conf" / "runs" / "digits-mlp.toml"),
        *("--set", f"transport={transport}", "--set", f"host_local={host_local}"),
        *("--set", "spark.master=local-cluster[2,1,1024]", "--set", f"results={tmp_path}"),
    ]
    execute(command, variables, timeout=TIMEOUT_SECONDS, logs=tmp_path)
    (run,) = tmp_path.iterdir()
    summary: dict[str, Any] = json.loads((run / "summary.json").read_text())
    used = json.loads((run / "run.json").read_text())["versions"]["spark"]
    assert f"spark-{used}" == python.parents[1].name
    assert summary["final"]["test_accuracy"] >= 0.95
    assert summary["bytes"][channel] > 0
