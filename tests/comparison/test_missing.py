"""Peers and transports that are not installed: refused with what brings them, or left out where that is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fakes
import pyspark
import pytest
from click.testing import CliRunner, Result

from sparkdl_bench import helper_process, jarfiles, peers, transports, ucx
from sparkdl_bench.commands.compare import command
from sparkdl_bench.comparison import check, store
from sparkdl_bench.comparison.cells import cells_of
from sparkdl_bench.config import RunFile
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.report import findings
from sparkdl_bench.report.analysis import analyse
from sparkdl_bench.report.load import load

LINE = jarfiles.spark_line(pyspark.__version__)
THIN = f"sparkdl-bench-spark-{LINE}_{jarfiles.SCALA_OF_LINE[LINE]}-0.1.0.jar"
OTHERS = """
[[variant]]
name = "rdma"
set = { transport = "ucx" }

[[variant]]
name = "job"
set = { transport = "mpi" }

[[variant]]
name = "ddp"
peer = "pytorch-ddp"
"""
CONF = fakes.CONF.replace("batch = [32, 64]", "batch = [32]") + OTHERS
COMMANDS = {
    "rdma, batch 32": "`sparkdl-bench jars fetch --ucx`",
    "job, batch 32": "`sparkdl-bench peers install mpi`",
    "ddp, batch 32": "`sparkdl-bench peers install pytorch-ddp",
}


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_jars: Any) -> Path:
    """A host with our jars and nothing that is installed apart; the folder of its jars."""
    folder: Path = make_jars({THIN: [], "pytorch-1.jar": []})
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(helper_process, "ask", lambda *_, **__: [])  # the JVM finds nothing wrong
    return folder


def missing(folder: Path, conf: str = CONF) -> dict[str, str]:
    return check.missing(cells_of(fakes.plan_of(folder, conf)), folder / "peers")


def compare(folder: Path, *options: str) -> Result:
    conf = fakes.write_conf(folder, CONF)
    return CliRunner().invoke(command, [str(conf), "--peers-dir", str(folder / "peers"), "--dry-run", *options])


def test_each_group_is_told_with_the_command_that_installs_it(tmp_path: Path) -> None:
    found = missing(tmp_path)
    assert set(found) == set(COMMANDS)
    assert all(each in found[group] for group, each in COMMANDS.items())


def test_the_refusal_names_all_of_them_in_one_paragraph(tmp_path: Path) -> None:
    error = compare(tmp_path).exception
    assert isinstance(error, ConfigurationError)
    said = str(error)
    assert "\n" not in said
    assert all(f"{group}: " in said and each in said for group, each in COMMANDS.items())
    assert "--skip-missing" in said


def test_they_are_left_out_where_that_is_asked_for(tmp_path: Path) -> None:
    done = compare(tmp_path, "--skip-missing")
    assert done.exit_code == 0, done.output
    assert all(f"Skipped: {group}. " in done.output for group in COMMANDS)
    listed = {line.rpartition(", trial")[0] for line in done.output.splitlines() if ", trial " in line}
    assert listed == {"fast, batch 32", "slow, batch 32"}


@pytest.mark.parametrize("options", [[], ["--skip-missing"]])
def test_each_is_looked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]) -> None:
    asked: list[str] = []

    def missing(run: RunFile) -> None:
        asked.append(run.settings["transport"])

    monkeypatch.setattr(transports, "missing", missing)
    compare(tmp_path, *options)
    assert sorted(asked) == ["block-manager", "block-stream", "mpi", "ucx"]


def test_where_nothing_would_be_left_it_is_refused(tmp_path: Path) -> None:
    alone = 'base = "base.toml"\n[[variant]]\nname = "rdma"\nset = { transport = "ucx" }\n'
    conf = fakes.write_conf(tmp_path, alone)
    error = CliRunner().invoke(command, [str(conf), "--dry-run", "--skip-missing"]).exception
    assert isinstance(error, ConfigurationError)
    assert "jars fetch --ucx" in str(error)


def test_what_is_there_is_not_missing(tmp_path: Path, bare: Path) -> None:
    for name in (ucx.JUCX.file_name, ucx.LIBRARIES_JAR):
        (bare / name).write_bytes(b"")
    programs = peers.default_directory() / "mpi" / "bin"
    programs.mkdir(parents=True)
    program(programs / "python")
    program(programs / "mpiexec", "echo 'mpiexec (Open MPI) 5.0.11'")
    assert set(missing(tmp_path)) == {"ddp, batch 32"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('transport = "ucx"', f'transport = "ucx", "spark.jars" = "/a/{ucx.JUCX.file_name},/a/{ucx.LIBRARIES_JAR}"'),
        ('transport = "ucx"', f'transport = "ucx", "ucx.libraries" = "/a", "spark.jars" = "/a/{ucx.JUCX.file_name}"'),
        ('transport = "ucx"', 'transport = "ucx", master = "spark://elsewhere:7077"'),
        ('transport = "mpi"', 'transport = "mpi", "mpi.python" = "/usr/bin/python3"'),
    ],
)
def test_what_a_run_names_itself_is_left_to_its_ranks(tmp_path: Path, old: str, new: str) -> None:
    group = "rdma, batch 32" if "ucx" in old else "job, batch 32"
    assert group not in missing(tmp_path, CONF.replace(old, new))


def test_a_system_s_mpi_does_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "python3", 'test "$*" = "-c import mpi4py"')
    program(tmp_path / "mpiexec", "echo 'mpiexec (Open MPI) 5.0.7'")
    assert "job, batch 32" not in missing(tmp_path)
    monkeypatch.setenv("PATH", "")
    assert "job, batch 32" in missing(tmp_path)


@pytest.mark.parametrize(
    ("launcher", "python", "told"),
    [
        ("echo 'mpiexec (OpenRTE) 4.1.4'; echo 'Open MPI'", "true", "mpiexec' is not Open MPI 5 or later"),
        ("echo 'HYDRA build details: Version: 4.0'", "true", "mpiexec' is not Open MPI 5 or later"),
        ("exit 1", "true", "mpiexec' is not Open MPI 5 or later"),
        ("echo 'mpiexec (Open MPI) 5.0.7'", "exit 1", "python3' cannot import mpi4py"),
    ],
)
def test_one_that_cannot_do_it_does_not(tmp_path: Path, launcher: str, python: str, told: str) -> None:
    program(tmp_path / "mpiexec", launcher)
    program(tmp_path / "python3", python)
    found = missing(tmp_path)["job, batch 32"]
    assert told in found
    assert "`sparkdl-bench peers install mpi`" in found


def program(path: Path, line: str = "true") -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def test_the_report_says_what_was_left_out(tmp_path: Path) -> None:
    plan = fakes.plan_of(tmp_path, CONF)
    cells = [cell for cell in cells_of(plan) if cell.group not in COMMANDS]
    made = store.create(tmp_path / "out", plan, cells, {**COMMANDS, cells[0].group: "It was installed later."})
    for cell in cells:
        made.add(cell, fakes.success(plan, cell))
    said = findings.summary(analyse(load([made.path]).comparisons[0]))
    assert f"Left out, since it was not installed there: {', '.join(COMMANDS)}." in said
