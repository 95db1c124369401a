from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import CommandLine
from sparkdl_bench import models

DOCS = Path(__file__).resolve().parents[2] / "docs" / "reference"


def test_every_axis(command_line: CommandLine) -> None:
    done = command_line.run("list")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for word in ("transport", "  block-manager", "  sliced", "  fp32", "  mlp", "  digits", "  sync-sgd", "  libtorch"):
        assert f"{word}" in done.stdout


def test_one_axis_with_its_keys(command_line: CommandLine) -> None:
    done = command_line.run("list", "models")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("alexnet ")
    assert "model.hidden" in done.stdout
    lenet = next(index for index, line in enumerate(lines) if line.startswith("lenet "))
    assert lines[lenet + 1].split(": ", 1)[1].startswith("431,080 parameters, 4.6 MFLOP a sample")
    assert ", 1.72 MB sent a step by each of 2 workers" in lines[lenet + 1]


def test_all_keys_are_told_and_in_the_documentation(command_line: CommandLine) -> None:
    done = command_line.run("list", "keys")
    assert done.returncode == 0, done.stderr
    assert "workers  Number of ranks" in done.stdout
    (algorithm,) = (line for line in done.stdout.splitlines() if line.startswith("algorithm  "))
    assert algorithm.endswith("Valid: downpour, easgd, gd, gossip, lbfgs, local-sgd, sync-sgd.")
    (transport,) = (line for line in done.stdout.splitlines() if line.startswith("transport  "))
    assert "block-stream" in transport
    assert transport.endswith(", auto.")
    lines = [line for name in ("configuration", "data") for line in (DOCS / f"{name}.md").read_text().splitlines()]
    names = [line.split("  ")[0] for line in done.stdout.splitlines()]
    assert len(names) > 100
    assert not [name for name in names if not any(names_key(line, name) for line in lines)]


def names_key(line: str, key: str) -> bool:
    """Whether a line has the key, or its last part behind another of its group: `checkpoint.dir`, `.every`."""
    group, _, last = key.rpartition(".")
    return f"`{key}`" in line or (f"`{group}." in line and f"`.{last}`" in line)


def test_one_variant_by_its_name(command_line: CommandLine) -> None:
    done = command_line.run("list", "model", "lenet")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("lenet  ")
    assert "alexnet" not in done.stdout
    wrong = command_line.run("list", "model", "lent")
    assert wrong.returncode == 2
    assert "no model called 'lent'. Did you mean 'lenet'? Valid: alexnet, " in wrong.stderr


def test_a_model_s_whole_specification_for_python(command_line: CommandLine, tmp_path: Path) -> None:
    usual = command_line.run("list", "model", "lenet", "--json")
    assert usual.returncode == 0, usual.stderr
    spec = models.read(usual.stdout)
    assert spec.parameter_count == 431_080
    assert spec.parameters[1].rate == 2
    rows = ["--shape", "3,32,32", "--classes", "7", "--set", "model.hidden=20"]
    small = models.read(command_line.run("list", "model", "mlp", "--json", *rows).stdout)
    assert [each.shape for each in small.parameters] == [(20, 3072), (20,), (7, 20), (7,)]
    path = tmp_path / "net.json"
    path.write_text(json.dumps({key: json.loads(usual.stdout)[key] for key in USERS_FIELDS}), encoding="utf-8")
    own = command_line.run("list", "model", "file", "--json", "--set", f"model.spec={path}")
    assert own.returncode == 0, own.stderr
    assert models.read(own.stdout) == models.read(path) == spec


def test_a_key_by_another_word_for_it(command_line: CommandLine) -> None:
    done = command_line.run("list", "keys", "lr")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("optimizer.learning_rate  ")


USERS_FIELDS = ("name", "input_shape", "classes", "layers")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["codec", "fp32", "--json"], "write `list model NAME --json`"),
        (["model", "lenet", "--classes", "3"], "say for which model"),
        (["model", "file", "--json"], "model.spec=my-net.toml names a file"),
        (["model", "mlp", "--json", "--shape", "3x32"], "--shape '3x32' is not of the form 3,32,32"),
    ],
)
def test_words_that_make_no_sense(command_line: CommandLine, words: list[str], told: str) -> None:
    done = command_line.run("list", *words)
    assert done.returncode == 2, done.stdout
    assert told in done.stderr
