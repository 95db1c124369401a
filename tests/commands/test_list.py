from __future__ import annotations

from conftest import CommandLine


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


def test_all_keys(command_line: CommandLine) -> None:
    done = command_line.run("list", "keys")
    assert done.returncode == 0, done.stderr
    assert "workers  Number of ranks" in done.stdout
