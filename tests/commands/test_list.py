from __future__ import annotations

from conftest import CommandLine


def test_every_axis(command_line: CommandLine) -> None:
    done = command_line.run("list")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for word in ("transport", "  block-manager", "  sliced", "  fp32", "  mlp", "  digits", "  sync-sgd", "  libtorch"):
        assert f"{word}" in done.stdout


def test_one_axis_with_its_keys(command_line: CommandLine) -> None:
    done = command_line.run("list", "model")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("mlp ")
    assert "model.hidden" in done.stdout


def test_all_keys(command_line: CommandLine) -> None:
    done = command_line.run("list", "keys")
    assert done.returncode == 0, done.stderr
    assert "workers  Number of ranks" in done.stdout
