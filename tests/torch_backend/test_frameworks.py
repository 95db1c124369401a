"""The blocks of docs/how-to/frameworks.md, each in the ranks of a launch, where its library is there."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sparkdl_bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip(
    "torch", reason="PyTorch is not installed: `make test-torch` runs these tests in its own environment"
)

pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "frameworks.md"


def example(name: str, library: str | None = None) -> Callable[..., Any]:
    if library is not None and importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed: `make test-torch` has it in its own environment")
    found: dict[str, Any] = {"__name__": "frameworks"}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), found)
    function: Callable[..., Any] = found[name]
    return function


@pytest.mark.parametrize("algorithm", ["local-sgd", "easgd", "gossip", "downpour"])
def test_synchronizer(spark: SparkSession, tmp_path: Path, algorithm: str) -> None:
    first, second = sparkdl_bench.launch(example("local_sgd"), spark, args=(algorithm, 150), results=tmp_path)
    assert first == second
    assert first == pytest.approx([1.0] * 8, abs=0.2)


@pytest.mark.parametrize(("name", "library"), [("lightning_net", "lightning"), ("accelerated", "accelerate")])
def test_unchanged_with_gloos_result(spark: SparkSession, tmp_path: Path, name: str, library: str) -> None:
    function = example(name, library)
    found = {sync: sparkdl_bench.launch(function, spark, sync=sync, results=tmp_path) for sync in ("auto", "gloo")}
    assert found["auto"][0] == found["auto"][1]
    assert found["auto"][0] == pytest.approx(found["gloo"][0], abs=1e-5)


@pytest.mark.parametrize(("name", "library"), [("numpy_regression", None), ("jax_regression", "jax")])
def test_arrays(spark: SparkSession, tmp_path: Path, name: str, library: str | None) -> None:
    first, second = sparkdl_bench.launch(example(name, library), spark, sync="none", results=tmp_path)
    assert first == second
    assert first == pytest.approx([1.0] * 8, abs=0.1)


@pytest.mark.parametrize("backend", ["jax", "torch", "tensorflow"])
def test_keras(spark: SparkSession, tmp_path: Path, backend: str) -> None:
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed here")
    regression = example("keras_regression", "keras")

    def train() -> Any:
        import os

        os.environ["KERAS_BACKEND"] = backend
        import keras

        keras.config.set_backend(backend)  # of a worker that has it imported already
        keras.utils.set_random_seed(collective_rank() + 1)
        return regression()

    def collective_rank() -> int:
        from sparkdl_bench import collective

        return collective.rank()

    first, second = sparkdl_bench.launch(train, spark, sync="none", results=tmp_path)
    assert first == second
    assert first == pytest.approx([1.0] * 8, abs=0.2)
