"""Files that are there whole or not at all, on a disk with room and without."""

from __future__ import annotations

import errno
import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

from sparkdl_bench import cli, files, saved
from sparkdl_bench.errors import WriteError
from sparkdl_bench.results import RunResults


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of its own, with 8 KiB left; needs root."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "none", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a file system can be mounted by root alone")
    try:
        (disk / "before.json").write_text("before", encoding="utf-8")
        (disk / "filler").write_bytes(bytes(48 << 10))
        yield disk
    finally:
        gc.collect()
        subprocess.run(["umount", str(disk)], check=True)


def _plot(folder: Path) -> None:
    from matplotlib.figure import Figure

    with files.replacing(folder / "before.json") as partial:
        Figure(figsize=(20, 20)).savefig(partial, dpi=100, format="svg", metadata={"Description": "x" * 100_000})


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: files.replace_text(folder / "before.json", "after" * 20_000),
        lambda folder: saved.save(folder, {"name": "mlp"}, {"w": np.zeros(50_000, np.float32)}),
        _plot,
    ],
    ids=["text", "model", "plot"],
)
def test_a_full_disk_is_named_and_leaves_what_was_there(full: Path, write: Callable[[Path], None]) -> None:
    held = {file.name for file in full.iterdir()}
    with pytest.raises(WriteError, match=r"cannot be written, because its disk or quota is full .*Make room") as told:
        write(full)
    assert str(full) in str(told.value)
    assert told.value.exit_code == 1
    assert {file.name for file in full.iterdir()} == held
    assert (full / "before.json").read_text(encoding="utf-8") == "before"


def test_a_model_on_a_full_disk_is_one_message(full: Path) -> None:
    # In a process of its own: what Python prints of objects that it collects comes as late as the process's end.
    program = (
        "import sys, numpy as np; from pathlib import Path; from sparkdl_bench import errors, saved\n"
        "try:\n"
        "    weights = {name: np.zeros(2_000, np.float32) for name in 'abcdefgh'}\n"
        "    saved.save(Path(sys.argv[1]), {'name': 'mlp'}, weights)\n"
        "except errors.WriteError as error:\n"
        "    print(error, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(full)], capture_output=True, text=True, check=True, timeout=60
    )
    said = done.stderr.splitlines()
    assert len(said) == 1, done.stderr
    assert said[0].startswith(f"'{full / 'weights.npz'}' cannot be written, because its disk or quota is full")


def _list() -> click.Command:
    """Commands are loaded when they are looked up."""
    command = cli.cli.get_command(click.Context(cli.cli), "list")
    assert command
    return command


def test_a_full_disk_is_no_bug_wherever_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    error = OSError(errno.ENOSPC, "No space left on device", "/data/x")

    def fails() -> None:
        raise error

    monkeypatch.setattr(_list(), "callback", lambda **_: fails())
    outcome = CliRunner().invoke(cli.cli, ["list"])
    assert outcome.exit_code == 1
    assert "refused to read or write '/data/x': No space left on device. Free space there" in outcome.output
    assert "bug" not in outcome.output


def test_a_secret_in_an_error_is_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise RuntimeError("cannot open jdbc:x://h?password=s3cr3t")

    monkeypatch.setattr(_list(), "callback", lambda **_: fails())
    for arguments in (["list"], ["list", "--debug"]):
        output = CliRunner().invoke(cli.cli, arguments).output
        assert "password=(redacted)" in output
        assert "s3cr3t" not in output


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(WriteError, match="Check the folder and your permissions"):
        files.replace_text(tmp_path / "file" / "below.json", "x")


def test_results_are_read_from_whole_files_alone(tmp_path: Path) -> None:
    (tmp_path / ".summary.json.partial").write_text("{", encoding="utf-8")
    with pytest.raises(Exception, match=r"summary\.json"):
        _ = RunResults(tmp_path).summary
