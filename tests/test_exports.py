"""Models in the files of other programs: ONNX Runtime and PyTorch give our predictions, and the weights come back."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest

import golden
from conftest import CommandLine
from sparkdl_bench import Model, Trainer, exports, load_weights, models, saved
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.exports import _layers
from sparkdl_bench.models import initializers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# pyspark leaves the sockets of `collect` to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
NAMES = sorted(path.stem for path in golden.FOLDER.glob("*.json"))
TOLERANCE = 1e-5


def layer(
    name: str, kind: str, inputs: tuple[str, ...] = (), initializer: str = "", **options: float
) -> dict[str, Any]:
    found = {"name": name, "kind": kind, "options": options, "initializer": initializer}
    return {**found, "inputs": list(inputs)} if inputs else found


# Options at their limits: windows that the edges cut off, more stride than kernel, names of nn.Module's own methods.
SYNTHETIC = {
    "name": "every-kind",
    "input_shape": [2, 11, 14],
    "classes": 4,
    "layers": [
        layer("type", "conv2d", initializer="he-normal", groups=2, kernel=3, out=6, padding=1, **{"in": 2}),
        layer("cut", "max-pool", kernel=3, stride=2, padding=1, ceil=1),
        layer("mean", "avg-pool", kernel=3, stride=2, padding=1, ceil=1),
        layer("mean.bn", "batch-norm", initializer="uniform-1", channels=6, eps=1e-3),
        layer("sparse", "avg-pool", ("cut",), kernel=2, stride=3, ceil=1),
        layer("wider", "conv2d", initializer="he-normal", kernel=1, out=6, padding=1, bias=0, **{"in": 6}),
        layer("lrn", "local-response-norm", size=3, alpha=0.5, beta=0.6, k=2),
        layer("sum", "add", ("lrn", "mean.bn")),
        layer("train", "relu"),
        layer("both", "concat", ("train", "sum", "mean.bn")),
        layer("squashed", "sigmoid"),
        layer("means", "global-avg-pool"),
        layer("dropped", "dropout", rate=0.4),
        layer("flat", "flatten", ("squashed",)),
        layer("fc", "linear", initializer="xavier-uniform", out=7, bias=0, **{"in": 18 * 4 * 5}),
        layer("bent", "tanh"),
        layer("joined", "concat", ("bent", "dropped")),
        layer("fc.bn", "batch-norm", initializer="uniform-1", channels=25),
        layer("out", "linear", initializer="xavier-uniform", out=4, **{"in": 25}),
        layer("log", "log-softmax"),
    ],
}


def with_weights(specification: dict[str, Any], rows: dict[str, Any] | None = None) -> Model:
    """With the initial weights of a seed, and running statistics that are none of a net's first ones."""
    spec = models.read(specification)
    weights = saved.split(
        spec.initial_parameters(golden.SEED),
        [{"name": each.name, "shape": each.shape, "offset": each.offset} for each in spec.parameters],
    )
    for index, each in enumerate(spec.statistics):
        values = initializers.values("uniform-0.4", each.shape, 5, index)
        weights[each.name] = values + np.float32(1 if each.name.endswith("var") else 0)
    return Model(saved.SavedModel(specification, weights, rows or {}))


def content(name: str) -> tuple[dict[str, Any], int]:
    if name == "every-kind":
        return SYNTHETIC, 5
    loaded = json.loads((golden.FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return loaded["model"], loaded["rows"]


def rows_of(model: Model, count: int) -> npt.NDArray[np.float32]:
    return golden.batch(models.read(model.specification), count, 3).features


def softmax(scores: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    powers = np.exp(scores.astype(np.float64) - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def same(found: npt.NDArray[Any], own: npt.NDArray[Any]) -> None:
    assert found.shape == own.shape
    assert np.abs(found - own).max() <= TOLERANCE * max(1, np.abs(own).max())
    assert np.abs(softmax(found) - softmax(own)).max() <= TOLERANCE


def by_onnx(path: Path, rows: npt.NDArray[np.float32]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed (the extra 'dev')")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    scores, probabilities = session.run(["scores", "probabilities"], {"rows": rows})
    return scores, probabilities


@pytest.fixture(scope="module")
def own_scores(spark: SparkSession) -> Any:
    """Our predictions, by NumPy or the JVM's engine, once for each net."""
    kept: dict[str, tuple[Model, npt.NDArray[np.float32], npt.NDArray[np.float32]]] = {}

    def of(name: str) -> tuple[Model, npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        if name not in kept:
            specification, count = content(name)
            model = with_weights(specification)
            rows = rows_of(model, count)
            kept[name] = (model, rows, model.scores(rows))
        return kept[name]

    return of


def test_every_kind_of_layer_is_mapped_and_tested() -> None:
    assert list(_layers.KINDS) == list(models.layers.KINDS)
    assert {each["kind"] for each in SYNTHETIC["layers"]} == set(_layers.KINDS)


@pytest.mark.parametrize("name", [*NAMES, "every-kind"])
def test_onnx_runtime_gives_our_predictions(own_scores: Any, name: str, tmp_path: Path) -> None:
    model, rows, own = own_scores(name)
    model.export(tmp_path / "net.onnx")
    scores, probabilities = by_onnx(tmp_path / "net.onnx", rows)
    same(scores, own)
    assert np.abs(probabilities - softmax(own)).max() <= TOLERANCE


@pytest.mark.parametrize("name", [*NAMES, "every-kind"])
def test_pytorch_gives_our_predictions(own_scores: Any, name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'sparkdl-bench[torch]'")
    model, rows, own = own_scores(name)
    model.export(tmp_path / "net.pt")
    module = with_weights(content(name)[0]).torch_module()
    for parameter in module.parameters():
        torch.nn.init.zeros_(parameter)
    assert module.load_state_dict(torch.load(tmp_path / "net.pt", weights_only=True)).missing_keys == []
    with torch.no_grad():
        same(module(torch.from_numpy(rows)).numpy(), own)


def image_model() -> tuple[Model, npt.NDArray[np.float32]]:
    """A perceptron of 2 × 3 × 3 values in the centre of images of 5 × 4 whose bytes are scaled and normalised."""
    specification = {
        "name": "cropped",
        "input_shape": [2, 3, 3],
        "classes": 3,
        "layers": [layer("fc", "linear", initializer="xavier-uniform", out=3, **{"in": 18})],
    }
    random = np.random.default_rng(4)
    rows = {
        "shape": [2, 5, 4],
        "crop": 3,
        "factor": 1 / 255,
        "subtract": random.uniform(0, 1, 40).tolist(),
        "multiply": random.uniform(1, 4, 40).tolist(),
        "labels": ["a", "b", "ü"],
    }
    return with_weights(specification, rows), random.integers(0, 256, (6, 2, 5, 4)).astype(np.float32)


def test_preprocessing_is_exported_and_labels_are_kept(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is an extra: pip install 'sparkdl-bench[onnx]'")
    model, rows = image_model()
    model.export(tmp_path / "net.onnx")
    same(by_onnx(tmp_path / "net.onnx", rows)[0], model.scores(rows))
    properties = {each.key: json.loads(each.value) for each in onnx.load(tmp_path / "net.onnx").metadata_props}
    assert properties["sparkdl_bench.labels"] == ["a", "b", "ü"]
    assert properties["sparkdl_bench.model"] == model.specification


def test_preprocessing_is_part_of_the_module() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'sparkdl-bench[torch]'")
    model, rows = image_model()
    module = model.torch_module()
    assert sorted(module.state_dict()) == ["fc.bias", "fc.weight"]
    with torch.no_grad():
        same(module(torch.from_numpy(rows)).numpy(), model.scores(rows))


def small() -> Model:
    return with_weights({**SYNTHETIC})


def write(model: Model, path: Path) -> Path:
    """The model as a file, where the package of its format is installed."""
    needed = {".onnx": "onnx", ".safetensors": "safetensors", ".pt": "torch", ".npz": "numpy"}[path.suffix]
    pytest.importorskip(needed, reason=f"{needed} is an extra")
    model.export(path)
    return path


SUFFIXES = ["onnx", "safetensors", "pt", "npz"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_weights_come_back_bit_for_bit(tmp_path: Path, suffix: str) -> None:
    model = small()
    path = write(model, tmp_path / f"net.{suffix}")
    found = load_weights(path)
    assert found.keys() == model._saved.weights.keys()
    for name, array in found.items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, model._saved.weights[name])
    spec = models.read(model.specification)
    assert list(exports.fitting(spec, found, "a file")) == [each.name for each in (*spec.parameters, *spec.statistics)]
    again = path.read_bytes()
    model.export(path)
    assert path.read_bytes() == again


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_damaged_files_are_refused_in_one_paragraph(tmp_path: Path, suffix: str) -> None:
    whole = write(small(), tmp_path / f"net.{suffix}").read_bytes()
    damaged = tmp_path / f"damaged.{suffix}"
    for content in (b"", b"\x00", whole[: len(whole) // 2], whole[:40], b"{" * 5000, struct.pack("<Q", 2**60) + b"{}"):
        damaged.write_bytes(content)
        if suffix == "onnx" and not content:  # which is a message of ONNX
            assert load_weights(damaged) == {}
            continue
        with pytest.raises(ConfigurationError, match=rf"damaged\.{suffix}' cannot be read as") as told:
            load_weights(damaged)
        assert "\n" not in str(told.value)


def test_a_safetensors_header_that_asks_for_more_than_there_is(tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="safetensors is an extra")
    for shape, offsets in (([2**40], [0, 2**42]), ([4], [0, 4]), ([1], [2**40, 2**40 + 4])):
        header = json.dumps({"fc.weight": {"dtype": "F32", "shape": shape, "data_offsets": offsets}}).encode()
        (tmp_path / "net.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
        with pytest.raises(ConfigurationError, match="cannot be read as safetensors"):
            load_weights(tmp_path / "net.safetensors")


def test_initialisers_that_lie_elsewhere_or_are_not_whole_are_refused(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is an extra: pip install 'sparkdl-bench[onnx]'")
    path = write(small(), tmp_path / "net.onnx")

    def changed(change: Any) -> None:
        model = onnx.load(path)
        change(model.graph.initializer[0])
        (tmp_path / "changed.onnx").write_bytes(model.SerializeToString())
        load_weights(tmp_path / "changed.onnx")

    def elsewhere(tensor: Any) -> None:
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="../../etc/passwd")

    with pytest.raises(ConfigurationError, match=r"'type\.weight' lies in another file"):
        changed(elsewhere)
    with pytest.raises(ConfigurationError, match=r"is to have \[1099511627776, 1, 3, 3\] values, and there are 54"):
        changed(lambda tensor: tensor.dims.__setitem__(0, 2**40))
    with pytest.raises(ConfigurationError, match="no floating-point number"):
        changed(lambda tensor: setattr(tensor, "data_type", onnx.TensorProto.INT64))


def test_a_state_dict_runs_no_code(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'sparkdl-bench[torch]'")

    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    torch.save({"fc.weight": Evil()}, tmp_path / "net.pt")
    with pytest.raises(ConfigurationError, match=r"net\.pt' cannot be read as state-dict"):
        load_weights(tmp_path / "net.pt")
    assert not (tmp_path / "ran").exists()


def test_weights_of_others_are_taken_where_names_and_shapes_fit(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'sparkdl-bench[torch]'")
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).half()
    torch.save({"state_dict": net.state_dict(), "epoch": 3}, tmp_path / "net.pt")
    found = load_weights(tmp_path / "net.pt")
    assert sorted(found) == ["0.bias", "0.weight", "1.bias", "1.running_mean", "1.running_var", "1.weight"]
    np.testing.assert_array_equal(found["0.weight"], net[0].weight.detach().float().numpy())
    torch.save([1], tmp_path / "net.pt")
    with pytest.raises(ConfigurationError, match="holds a list, not tensors by name"):
        load_weights(tmp_path / "net.pt")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda weights: weights.pop("fc.weight"), r"'fc\.weight' of the model is not there"),
        (lambda weights: weights.update(head=np.zeros(1, np.float32)), "the model has no 'head'"),
        (
            lambda weights: weights.update({"out.bias": np.zeros(5, np.float32)}),
            r"'out\.bias' has the shape \(5,\), and the model's has \(4,\)",
        ),
        (lambda weights: weights["out.bias"].fill(np.nan), r"'out\.bias' holds NaN or infinite values"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(change: Any, words: str) -> None:
    model = small()
    weights = {name: array.copy() for name, array in model._saved.weights.items()}
    change(weights)
    with pytest.raises(ConfigurationError, match=words) as told:
        exports.fitting(models.read(model.specification), weights, "'net.pt'")
    assert str(told.value).startswith("The weights of 'net.pt' do not fit the model every-kind: ")


def test_formats_and_files_that_are_not_there(tmp_path: Path) -> None:
    assert {"npz", "onnx", "safetensors", "state-dict"} == set(exports.discover())
    with pytest.raises(ConfigurationError, match=r"suffix of '.*net\.h5' names no format.*\.onnx \(onnx\)"):
        small().export(tmp_path / "net.h5")
    with pytest.raises(ConfigurationError, match=r"no format 'onx'.*Did you mean 'onnx'"):
        small().export(tmp_path / "net", "onx")
    with pytest.raises(ConfigurationError, match=r"There is no file '.*nowhere\.npz'"):
        load_weights(tmp_path / "nowhere.npz")
    small().export(tmp_path / "net.weights", "npz")
    assert load_weights(tmp_path / "net.weights", "npz").keys() == small()._saved.weights.keys()
    small().save(tmp_path / "model")
    assert load_weights(tmp_path / "model").keys() == small()._saved.weights.keys()
    assert not list(tmp_path.glob(".*.partial"))


def test_a_package_that_is_not_installed_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(ConfigurationError, match=r"Writing ONNX needs the package onnx.*sparkdl-bench\[onnx\]"):
        small().export(tmp_path / "net.onnx")


def test_settings_for_the_jvm_name_what_it_can_read(tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="safetensors is an extra")
    small().export(tmp_path / "net.safetensors")
    small().save(tmp_path / "model")
    key = "model.initial_weights"
    for given in ("", str(tmp_path / "model"), str(tmp_path / "model" / "weights.npz"), "nowhere.npz"):
        with exports.for_jvm({key: given}) as settings:
            assert settings == {key: given}
    with exports.for_jvm({key: str(tmp_path / "net.safetensors"), "batch": "3"}) as settings:
        archive = Path(settings[key])
        assert (archive.name, settings["batch"]) == ("net.safetensors.npz", "3")
        assert load_weights(archive).keys() == small()._saved.weights.keys()
    assert not archive.exists()
    with pytest.raises(ConfigurationError, match="names no format"), exports.for_jvm({key: "net.txt"}):
        pass


def test_a_run_starts_from_each_format_and_refuses_what_does_not_fit(spark: SparkSession, tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="safetensors is an extra")
    specification = {
        "name": "own",
        "input_shape": [64],
        "classes": 10,
        "layers": [layer("fc", "linear", initializer="xavier-uniform", out=10, **{"in": 64})],
    }
    (tmp_path / "net.json").write_text(json.dumps(specification), encoding="utf-8")
    model = with_weights(specification)
    model.export(tmp_path / "net.safetensors")
    settings = {"epochs": 0, "seed": 5, "results": str(tmp_path), "data": "digits"}
    net = {"name": "file", "spec": str(tmp_path / "net.json")}
    fitted = Trainer(net, initial_weights=tmp_path / "net.safetensors", **settings).fit(spark)
    np.testing.assert_array_equal(fitted.weights()["fc.weight"], model._saved.weights["fc.weight"])
    with pytest.raises(
        ConfigurationError, match=r"weights in '.*net\.safetensors\.npz' do not fit the model mlp: .*fc1"
    ):
        Trainer("mlp", initial_weights=tmp_path / "net.safetensors", **settings).fit(spark)
    with pytest.raises(ConfigurationError, match="There is no file"):
        Trainer("mlp", initial_weights=tmp_path / "nowhere.onnx", **settings).fit(spark)


def test_the_how_to_does_what_it_says(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its blocks one after the other, in the session of the test process, which stays."""
    for package in ("onnx", "onnxruntime", "safetensors"):
        pytest.importorskip(package, reason=f"{package} is not installed (the extra 'dev')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    found: dict[str, Any] = {}
    page = (Path(__file__).resolve().parents[1] / "docs" / "how-to" / "export.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        exec(compile(block, "export.md", "exec"), found)
    assert found["probabilities"].shape == (5, 10)


@pytest.mark.on_one_line
def test_the_command_exports_a_folder(command_line: CommandLine, tmp_path: Path) -> None:
    small().save(tmp_path / "model")
    done = command_line.run("export", str(tmp_path / "model"), "-o", str(tmp_path / "net.npz"))
    assert (done.returncode, done.stdout) == (0, f"exported  {tmp_path / 'net.npz'}\n"), done.stderr
    done = command_line.run("export", str(tmp_path / "model"), "-o", str(tmp_path / "net.txt"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "names no format" in done.stderr
    assert len(done.stderr.splitlines()) == 1
