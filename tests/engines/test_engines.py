"""The engines of one process against the golden files (PyTorch in double precision) and against one another."""

from __future__ import annotations

import gc
import json
import os
import re
import sysconfig
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import golden
from sparkdl_bench import engines, models, peers
from sparkdl_bench.engines.torch import TorchEngine
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.peers._base import thread_variables
from sparkdl_bench.peers._process import run_to_end
from sparkdl_bench.peers._torch import TORCH

NAMES = sorted(path.stem for path in golden.FOLDER.glob("*.json"))
PERCEPTRONS = [name for name in NAMES if name.startswith(("softmax", "mlp"))]


def contents(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((golden.FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


def check(found: dict[str, Any], file: dict[str, Any]) -> None:
    assert golden.deviation(found, file) <= golden.TOLERANCE


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_file_is_well_conditioned_and_says_something(name: str) -> None:
    assert golden.objections(contents(name)) == []
    assert len(contents(name)["losses"]) == golden.STEPS


def test_every_engine_is_found_by_name() -> None:
    assert {"numpy", "torch"} <= set(engines.discover())
    with pytest.raises(ConfigurationError, match=r"Valid: .*numpy.*torch"):
        engines.find("tensor")


@pytest.mark.parametrize("name", PERCEPTRONS)
def test_numpy_is_pytorch(name: str) -> None:
    check(golden.single("numpy", contents(name)), contents(name))


@pytest.fixture(scope="module")
def by_pytorch(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """What PyTorch finds for a golden file: this environment's, or else the peers', in a process of its own."""
    if find_spec("torch"):
        return lambda name: golden.single("torch", contents(name))
    directory = Path(os.environ.get("SPARKDL_PEERS", peers.default_directory()))
    if reason := peers.find("pytorch").missing(directory):
        pytest.skip(f"PyTorch is not in this environment (the extra 'torch'), and no peer has one: {reason}")
    out = tmp_path_factory.mktemp("pytorch") / "found.json"
    # What this package imports is pure Python. The environment has none of it, and its own NumPy comes first.
    program = "import sys; sys.path.append(sys.argv[1]); import golden; golden.repeat(golden.FOLDER, sys.argv[2])"
    command = [str(TORCH.python(directory)), "-c", program, sysconfig.get_path("purelib"), str(out)]
    folders = (Path(golden.__file__).parent, Path(models.__file__).parents[2])
    run_to_end("pytorch", command, 400, {"PYTHONPATH": os.pathsep.join(map(str, folders)), **thread_variables(1)})
    found: dict[str, dict[str, Any]] = json.loads(out.read_text(encoding="utf-8"))
    return found.__getitem__


@pytest.mark.on_one_line
@pytest.mark.parametrize("name", NAMES)
def test_torch_repeats_the_golden_files(name: str, by_pytorch: Callable[[str], dict[str, Any]]) -> None:
    check(by_pytorch(name), contents(name))


def torch_engine(name: str, device: str) -> Any:
    pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'sparkdl-bench[torch]'")
    spec = models.read(contents(name)["model"])
    return TorchEngine(spec, golden.SEED, False, device=device)


def gpus() -> int:
    torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'sparkdl-bench[torch]'")
    return int(torch.cuda.device_count()) if torch.cuda.is_available() else 0


def test_torch_computes_on_the_cpu_unless_told_otherwise() -> None:
    named = torch_engine("mlp-784-100-50-10", "cpu")
    by_default = engines.find("torch").load(models.read(contents("mlp-784-100-50-10")["model"]), golden.SEED, False)
    rows = golden.batch(models.read(contents("mlp-784-100-50-10")["model"]), 20, 0)
    assert named.step(rows, 1 / 20) == by_default.step(rows, 1 / 20)
    assert np.array_equal(named.gradients, by_default.gradients)
    held = named.parameters  # the buffer itself: what is written to it counts in the next step
    held[:] -= np.float32(0.1) * named.gradients
    assert named.parameters is held
    assert named.step(rows, 1 / 20) < by_default.step(rows, 1 / 20)


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:-1", "cuda:one", ""])
def test_torch_refuses_devices_that_are_none(device: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"no device '{device}'\. Valid are cpu, cuda .* and cuda:N"):
        torch_engine("softmax", device)


def test_torch_refuses_a_gpu_that_is_not_there_and_says_what_pytorch_found() -> None:
    missing = f"cuda:{gpus()}"
    with pytest.raises(ConfigurationError, match=rf"device '{missing}', which PyTorch .* does not have here") as told:
        torch_engine("softmax", missing)
    found = "it finds cuda:0 \\(" if gpus() else r"it is built (without CUDA|for CUDA [\d.]+ and finds no GPU)"
    assert re.search(found, str(told.value))
    assert str(told.value).endswith("or take device cpu.")


@pytest.fixture
def gpu() -> Any:
    """PyTorch, where it has a GPU."""
    if not gpus():
        pytest.skip("no GPU that PyTorch can use")
    return pytest.importorskip("torch")


@pytest.mark.parametrize("name", ["mlp-3072-1024-10", "lenet", "every-layer", "resnet-18", "vgg-16"])
def test_torch_on_a_gpu_repeats_the_golden_files(name: str, gpu: Any) -> None:
    file = contents(name)
    spec = models.read(file["model"])
    engine = TorchEngine(spec, golden.SEED, False, device="cuda")
    before = engine.statistics.copy()
    found = golden.measure(engine, spec, file["rows"], file["learning_rate"])
    check(found, file)
    assert not spec.statistics or not np.array_equal(engine.statistics, before)


def test_torch_on_a_gpu_computes_in_full_precision_whatever_the_process_asks_for(
    gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As TORCH_ALLOW_TF32_CUBLAS_OVERRIDE does, which NVIDIA's containers set."""
    monkeypatch.setattr(gpu.backends.cuda.matmul, "allow_tf32", True)
    file = contents("mlp-3072-1024-10")
    spec = models.read(file["model"])
    engine = TorchEngine(spec, golden.SEED, False, device="cuda")
    check(golden.measure(engine, spec, file["rows"], file["learning_rate"]), file)
    assert gpu.backends.cuda.matmul.allow_tf32, "the process's own setting is left as it was"


def test_torch_on_a_gpu_computes_in_arrays_that_cannot_be_told_to_cuda_too(gpu: Any) -> None:
    """They are already: another engine has the same memory."""
    spec = models.read(contents("mlp-784-1024-10")["model"])
    memory = engines.Memory.fresh(spec, golden.SEED, False)
    one, other = (TorchEngine(spec, golden.SEED, False, "cuda", memory) for _ in range(2))
    rows = golden.batch(spec, 20, 0)
    assert one.step(rows, 1 / 20) == other.step(rows, 1 / 20)
    del one
    gc.collect()
    other.parameters[:] -= np.float32(0.1) * other.gradients
    assert other.step(rows, 1 / 20) > 0


def test_torch_on_a_gpu_needs_no_more_memory_with_every_step(gpu: Any) -> None:
    spec = models.read(contents("every-layer")["model"])
    engine, rows = TorchEngine(spec, golden.SEED, False, device="cuda"), golden.batch(spec, 8, 0)
    held = []
    for _ in range(3):
        for _ in range(100):
            engine.step(rows, 1 / 8)
            assert engine.gradients.any()
        engine.evaluate(rows)
        held.append(gpu.cuda.memory_allocated())
    assert len(set(held)) == 1


def test_numpy_refuses_what_it_cannot_compute() -> None:
    spec = models.read(contents("lenet")["model"])
    with pytest.raises(ConfigurationError, match="layer 'conv1' is of kind 'conv2d'"):
        engines.find("numpy").load(spec, 0, False)


def test_numpy_gradients_agree_with_central_differences() -> None:
    file = contents("mlp-784-100-50-10")
    spec = models.read(file["model"])
    engine = engines.find("numpy").load(spec, 3, True)
    rows = golden.batch(spec, 5, 2)
    engine.step(rows, 1.0)
    gradient = engine.gradients.copy()
    for index in (0, 10_000, 78_399, 78_450, 83_500, 84_009):
        value, h = engine.parameters[index], 1e-5
        engine.parameters[index] = value + h
        above = engine.evaluate(rows).loss_sum
        engine.parameters[index] = value - h
        below = engine.evaluate(rows).loss_sum
        engine.parameters[index] = value
        assert (above - below) / (2 * h) == pytest.approx(gradient[index], rel=1e-5, abs=1e-8)


def test_it_learns() -> None:
    spec = models.read(contents("mlp-784-100-50-10")["model"])
    engine = engines.find("numpy").load(spec, 0, False)
    for step in range(60):
        rows = golden.batch(spec, 20, step)
        engine.step(rows, 1 / 20)
        engine.parameters[:] -= np.float32(0.1) * engine.gradients
    test = golden.batch(spec, 100, 1000)
    evaluation = engine.evaluate(test)
    assert evaluation.rows == 100
    assert evaluation.correct >= 95


def test_text_that_is_no_specification_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not a model specification"):
        models.read("{}")
