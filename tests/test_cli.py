from __future__ import annotations

import errno
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner, Result

from sparkdl_bench.cli import cli
from sparkdl_bench.errors import ConfigurationError, RunFailedError
from sparkdl_bench.version import __version__


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


def test_commands_are_found_by_scanning() -> None:
    context = click.Context(cli)
    names = cli.list_commands(context)
    assert {"run", "list", "jars", "try", "init"} <= set(names)
    for name in names:
        command = cli.get_command(context, name)
        assert command, f"there is no {name}"
        assert command.help, f"{name} has no help"


def test_every_command_takes_debug() -> None:
    def without(group: click.Group, context: click.Context, path: str) -> list[str]:
        found = []
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if isinstance(command, click.Group):
                found += without(command, context, f"{path} {name}")
            elif command and not any("--debug" in param.opts for param in command.params):
                found.append(f"{path} {name}".strip())
        return found

    assert without(cli, click.Context(cli), "") == []


def test_what_a_lab_runs_keeps_its_own_options() -> None:
    group = cli.get_command(click.Context(cli), "lab")
    assert isinstance(group, click.Group)
    for name in ("exec", "hdfs"):
        command = group.get_command(click.Context(group), name)
        assert command
        with command.make_context(name, ["--debug", "lab1", "ls", "-l", "--debug", "--help"]) as context:
            assert context.params == {"name": "lab1", "words": ("ls", "-l", "--debug", "--help")}


@pytest.mark.parametrize("words", [(), ("jars",), ("bench",), ("peers",), ("data",)])
def test_every_command_is_listed_with_a_whole_sentence(words: tuple[str, ...]) -> None:
    listed = run(*words, "--help").stdout
    assert "..." not in listed.partition("Commands:")[2]
    # The group alone shows the same, and is no error of ours.
    alone = run(*words)
    assert alone.exit_code in (0, 2)  # 2 from click 8.2 on
    assert alone.output.strip() == listed.strip()


def test_the_first_help_says_where_to_begin() -> None:
    said = " ".join(run("--help").stdout.split())
    assert said.endswith("Begin with `sparkdl-bench run digits-mlp`, or `sparkdl-bench try DATA` for data of your own.")


def test_help_and_version() -> None:
    assert run("--help").exit_code == 0
    assert __version__ in run("--version").output


@pytest.mark.parametrize(
    "words", [("runn",), ("run",), ("run", "a.toml", "--sett", "x=1"), ("jars", "fetch", "--platform", "vax")]
)
def test_wrong_usage_is_2_and_one_paragraph(words: tuple[str, ...]) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1
    assert "--help` shows the usage" in result.stderr


def test_a_run_file_that_is_not_there_is_2() -> None:
    result = run("run", "no/such.toml")
    assert result.exit_code == 2
    assert "'no/such.toml' cannot be read" in result.stderr


def test_a_bad_assignment_is_2_before_anything_starts(tmp_path: object) -> None:
    result = run("run", "conf/runs/digits-mlp.toml", "--set", "batch")
    assert result.exit_code == 2


def test_an_axis_that_is_not_there() -> None:
    result = run("list", "transprot")
    assert result.exit_code == 2
    assert "Valid: algorithm, topology, transport" in result.stderr


@pytest.fixture
def failing() -> Iterator[dict[str, BaseException]]:
    """A command that raises what the test puts into the dictionary."""
    raised: dict[str, BaseException] = {}

    @click.command("fail")
    @click.option("--debug", is_flag=True, expose_value=False)
    def fail() -> None:
        raise raised["error"]

    cli.add_command(fail)
    yield raised
    del cli.commands["fail"]


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (ConfigurationError("Batch 1 is less than 2 workers."), 2, "Batch 1 is less than 2 workers."),
        (RunFailedError("Rank 1 did not answer."), 1, "Rank 1 did not answer."),
        (KeyboardInterrupt(), 130, "Interrupted."),
        (ZeroDivisionError("division by zero"), 1, "Internal error: ZeroDivisionError: division by zero."),
    ],
)
def test_an_error_is_a_paragraph_and_a_status(
    failing: dict[str, BaseException], error: BaseException, status: int, words: str
) -> None:
    failing["error"] = error
    result = run("fail")
    assert result.exit_code == status
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_debug_adds_the_stack_trace(failing: dict[str, BaseException]) -> None:
    failing["error"] = RunFailedError("Rank 1 did not answer.")
    assert "Traceback" in run("fail", "--debug").stderr


def test_a_full_disk_is_a_paragraph_and_no_bug(failing: dict[str, BaseException]) -> None:
    failing["error"] = OSError(errno.ENOSPC, "No space left on device", "results/run/spark.log")
    result = run("fail")
    assert result.exit_code == 1
    assert result.stderr == (
        "The system refused to read or write 'results/run/spark.log': No space left on device. Free space there, or "
        "name another folder (--set results=DIR for a run, -o for a report).\n"
    )
    failing["error"] = PermissionError(errno.EACCES, "Permission denied", "/root/x")
    assert "Name a file or folder that this user may read and write" in run("fail").stderr
