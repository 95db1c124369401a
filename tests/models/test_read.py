"""`models.read`: the layout follows from the layers, as in the JVM."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import golden
from sparkdl_bench import models
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.models import ModelSpec, layers

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAMES = sorted(path.stem for path in golden.FOLDER.glob("*.json"))
JVM = Path(__file__).resolve().parents[2] / "jvm" / "src" / "main" / "scala" / "sparkdlbench" / "model"

USERS = """
name = "users"
input_shape = [1, 28, 28]
classes = 10

[[layers]]
name = "conv"
kind = "conv2d"
options = { in = 1, out = 8, kernel = 3, padding = 1, bias_lr_mult = 2, weight_decay_mult = 0.5 }
initializer = "he-normal"

[[layers]]
name = "bn"
kind = "batch-norm"
options = { channels = 8 }
initializer = "one"

[[layers]]
name = "sum"
kind = "add"
inputs = ["conv", "bn"]

[[layers]]
name = "fc"
kind = "linear"
options = { in = 6272, out = 10, bias = true }
initializer = "xavier-uniform"
bias_initializer = "constant-0.1"
"""

# Whatever JSON can say, and the same around what a specification says, so that whatever checks it is reached.
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
WORDS = st.sampled_from(["a", "b", "c", "input"])
NUMBERS = st.integers(0, 4) | st.sampled_from([2**31 - 1, 2**31, 0.5, -1])
OPTIONS = sorted({option for kind in layers.KINDS.values() for option in kind.options} | {"weight_lr_mult"})
LAYER = st.fixed_dictionaries(
    {"name": WORDS | JSON, "kind": st.sampled_from(sorted(layers.KINDS)) | JSON},
    optional={
        "options": st.dictionaries(st.sampled_from(OPTIONS), NUMBERS | JSON) | JSON,
        "inputs": st.lists(WORDS, max_size=2) | JSON,
        "initializer": st.just("he-normal") | JSON,
        "bias_initializer": JSON,
    },
)
TENSOR = st.fixed_dictionaries(
    {"name": WORDS, "shape": st.lists(NUMBERS, max_size=3) | JSON, "offset": NUMBERS | JSON, "initializer": WORDS},
    optional={"lr_mult": NUMBERS | JSON, "decay_mult": JSON},
)
SPECIFICATION = st.fixed_dictionaries(
    {
        "name": WORDS | JSON,
        "input_shape": st.lists(NUMBERS, max_size=3) | JSON,
        "classes": NUMBERS | JSON,
        "layers": st.lists(LAYER, max_size=3) | JSON,
    },
    optional={"parameters": st.lists(TENSOR, max_size=2) | JSON, "statistics": st.lists(TENSOR, max_size=2) | JSON},
)


def written(name: str) -> dict[str, Any]:
    """A specification as the JVM has written it."""
    content: dict[str, Any] = json.loads((golden.FOLDER / f"{name}.json").read_text(encoding="utf-8"))["model"]
    return content


def layers_alone(name: str) -> dict[str, Any]:
    """The same as a user would write it."""
    return {key: value for key, value in written(name).items() if key not in ("parameters", "statistics")}


def as_toml(root: dict[str, Any]) -> str:
    lines = [f"{key} = {json.dumps(root[key])}" for key in ("name", "input_shape", "classes")]
    for layer in root["layers"]:
        lines.append("[[layers]]")
        options = ", ".join(f"{key} = {value}" for key, value in layer["options"].items())
        lines += [f"{key} = {json.dumps(value)}" for key, value in layer.items() if key != "options"]
        lines.append(f"options = {{ {options} }}")
    return "\n".join(lines)


def tensors(spec: ModelSpec) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "shape": list(each.shape),
            "offset": each.offset,
            "initializer": each.initializer,
            **({} if each.rate == 1 else {"lr_mult": each.rate}),
            **({} if each.decay == 1 else {"decay_mult": each.decay}),
        }
        for each in spec.parameters + spec.statistics
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_without_a_layout_has_the_jvms(name: str, tmp_path: Path) -> None:
    expected = written(name)["parameters"] + written(name).get("statistics", [])
    toml, as_json = tmp_path / "net.toml", tmp_path / "net.json"
    toml.write_text(as_toml(layers_alone(name)), encoding="utf-8")
    as_json.write_text(json.dumps(layers_alone(name)), encoding="utf-8")
    spec = models.read(toml)
    assert tensors(spec) == expected
    assert spec == models.read(as_json) == models.read(str(toml)) == models.read(written(name))


def test_a_users_own_file(tmp_path: Path) -> None:
    path = tmp_path / "net.toml"
    path.write_text(USERS, encoding="utf-8")
    spec = models.read(path)
    assert (spec.name, spec.input_shape, spec.classes) == ("users", (1, 28, 28), 10)
    assert [(each.name, each.shape, each.offset) for each in spec.parameters] == [
        ("conv.weight", (8, 1, 3, 3), 0),
        ("conv.bias", (8,), 72),
        ("bn.weight", (8,), 80),
        ("bn.bias", (8,), 88),
        ("fc.weight", (10, 6272), 96),
        ("fc.bias", (10,), 62816),
    ]
    assert [(each.rate, each.decay) for each in spec.parameters[:2]] == [(1, 0.5), (2, 1)]
    assert [(each.name, each.offset, each.initializer) for each in spec.statistics] == [
        ("bn.running_mean", 0, "zero"),
        ("bn.running_var", 8, "one"),
    ]
    assert spec.initial_parameters(1)[62816:].tolist() == pytest.approx([0.1] * 10)
    assert spec.layers[1].inputs == ("conv",)


def test_the_files_of_the_documentation() -> None:
    text = (JVM.parents[5] / "docs" / "reference" / "models.md").read_text(encoding="utf-8")
    example = text.split("```toml\n")[1].split("```")[0]
    assert models.read(tomllib.loads(example)).parameter_count == 62_810
    written_out = text.split("```json\n")[1].split("```")[0]
    assert models.read(written_out).parameter_count == 814_090


def test_the_kinds_are_the_jvms() -> None:
    scala = "".join(path.read_text(encoding="utf-8") for path in JVM.glob("*Kind*.scala"))
    for kind in layers.KINDS:
        assert f'"{kind}"' in scala
    assert len(layers.KINDS) == sum(line.startswith("final class ") and "Kind" in line for line in scala.splitlines())


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('kind = "conv2d"', 'kind = "conv2"', r"Layer 'conv' is of the unknown kind 'conv2'\. Did you mean 'conv2d'"),
        ("out = 8, ", "", r"Layer 'conv' of kind 'conv2d' lacks its option 'out'; it has: bias_lr_mult, in, kernel"),
        ("out = 8", 'out = "8"', r"the option 'out' of layer 'conv' is '8', not a number"),
        ("out = 8", "out = 8.5", r"Layer 'conv' of kind 'conv2d' has out=8\.5, .* a whole number, at least 1"),
        ("padding", "pading", r"Layer 'conv' of kind 'conv2d' has the option 'pading'.* Did you mean 'padding'"),
        ("bias = true", "bias = 2", r"Layer 'fc' of kind 'linear' has bias=2, .* 0 or 1"),
        ("bias = true", "bias = false, bias_lr_mult = 2", r"Layer 'fc' .* has the option 'bias_lr_mult'"),
        ("bias_lr_mult = 2", "bias_lr_mult = -1", r"Layer 'conv' .* bias_lr_mult=-1"),
        ("kernel = 3", "kernel = 3, groups = 3", r"Layer 'conv' of kind 'conv2d' has groups=3"),
        ("options = { channels = 8 }", "channels = 8", r"layer 'bn' has the field 'channels'"),
        ('["conv", "bn"]', '["conv", "nb"]', r"Layer 'sum' reads 'nb', and no layer of that name"),
        ('["conv", "bn"]', '["conv", "conv"]', r"Nothing in model 'users' reads the output of 'bn'"),
        ('name = "bn"', 'name = "conv"', r"two layers called 'conv'"),
        ('kind = "add"\n', "", r"layer 'sum' lacks the field 'kind'"),
        ("[1, 28, 28]", '"28"', r"its input_shape is '28', not a list"),
        ("classes = 10", 'classes = "ten"', r"its number of classes is 'ten'"),
        ("classes = 10", "", r"it lacks the field 'classes'"),
        ("classes = 10", "classes = ", r"not valid TOML"),
    ],
)
def test_a_wrong_file_is_refused_by_layer_and_key(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in USERS
    path = tmp_path / "net.toml"
    path.write_text(USERS.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=words) as caught:
        models.read(path)
    assert str(caught.value).startswith(f"In '{path}': ")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"In '.*none\.toml': The model specification cannot be read"):
        models.read(tmp_path / "none.toml")


def test_a_stated_layout_must_be_the_layers() -> None:
    changed = written("softmax")
    changed["parameters"][1]["offset"] += 1
    with pytest.raises(ConfigurationError, match=r"its parameters are Tensor\(.* but its layers make Tensor\("):
        models.read(changed)
    with pytest.raises(ConfigurationError, match=r"its parameters are 1, not 2"):
        models.read({**changed, "parameters": changed["parameters"][:1]})


def test_a_kind_that_python_does_not_know_needs_its_layout() -> None:
    strange = written("softmax")
    strange["layers"][0]["kind"] = "linear-of-mine"
    assert [each.name for each in models.read(strange).parameters] == ["fc.weight", "fc.bias"]
    del strange["parameters"]
    with pytest.raises(ConfigurationError, match="unknown kind 'linear-of-mine'"):
        models.read(strange)


@given(SPECIFICATION | JSON)
def test_whatever_a_text_says_is_a_model_or_is_refused(content: object) -> None:
    try:
        spec = models.read(json.dumps(content))
    except ConfigurationError:
        return
    assert isinstance(spec, ModelSpec)
    assert spec.parameter_count >= 0


def test_tensors_and_numbers_that_are_too_large_are_refused() -> None:
    def conv(size: int) -> dict[str, Any]:
        options = {"in": size, "out": size, "kernel": size, "bias": 0}
        layer = {"name": "conv", "kind": "conv2d", "options": options, "initializer": "he-normal"}
        return {"name": "large", "input_shape": [1], "classes": 2, "layers": [layer]}

    with pytest.raises(ConfigurationError, match="one flat buffer holds"):
        models.read(conv(2**20))  # 2^80 values, which 64 bits would count as none
    with pytest.raises(ConfigurationError, match="'in' of layer 'conv' is a whole number of 401 digits"):
        models.read(conv(10**400))
