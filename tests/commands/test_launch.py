"""`sparkdl-bench launch`: a script as a user runs it, in a process of its own."""

from __future__ import annotations

import os
import signal
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from conftest import CommandLine
from sparkdl_bench.cli import cli
from sparkdl_bench.results import RunResults

SCRIPT = """
    import argparse
    import json
    import os
    import time
    from pathlib import Path

    import sparkdl_bench
    from beside import double

    if __name__ == "__main__":
        parser = argparse.ArgumentParser()
        parser.add_argument("--steps", type=int)
        parser.add_argument("--wait", type=Path)
        parser.add_argument("--note", type=Path)
        options = parser.parse_args()
        rank = int(os.environ["RANK"])
        print("rank", rank, "of", os.environ["WORLD_SIZE"], double(21))
        for step in range(1, options.steps + 1):
            sparkdl_bench.report(step=step, loss=1 / step)
        if options.note:
            words = Path(os.environ["SPARK_LOCAL_DIRS"].split(",")[0], "sparkdl-worker.json").read_text()
            Path(options.note, f"{rank}.socket").write_text(json.loads(words)["socket"])
        if options.wait:
            Path(options.wait, f"{rank}.partial").write_text(str(os.getpid()))
            Path(options.wait, f"{rank}.partial").rename(Path(options.wait, f"{rank}.pid"))
            time.sleep(600)
"""


def awaited(condition: Callable[[], bool]) -> bool:
    """For what executors do at their end, which may come after the driver's."""
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "beside.py").write_text("def double(value): return 2 * value\n")
    (folder / "train.py").write_text(textwrap.dedent(SCRIPT))
    return folder / "train.py"


def words(script: Path, results: Path, *arguments: str) -> list[str]:
    return ["launch", str(script), "--sync", "none", "--results", str(results), "--", *arguments]


def test_a_script_runs_in_every_rank(command_line: CommandLine, script: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    done = command_line.run(*words(script, results, "--steps", "3", "--note", str(tmp_path)))
    assert done.returncode == 0, done.stderr
    assert {"[rank 0] rank 0 of 2 42", "[rank 1] rank 1 of 2 42"} == set(done.stdout.splitlines())
    (folder,) = results.iterdir()
    assert folder.name.endswith("-train")
    assert f"results  {folder}" in done.stderr
    assert "step 3  loss 0.3333" in done.stderr
    assert "Traceback" not in done.stderr
    found = RunResults(folder)
    assert (found.summary["status"], found.summary["final"]["steps"]) == ("success", 3)
    assert found.run["function"] == "train.py"
    assert found.run["spark"]["spark.master"] == "local-cluster[2,1,1024]"
    for rank in (0, 1):
        folder = Path((tmp_path / f"{rank}.socket").read_text()).parent
        assert awaited(lambda folder=folder: not folder.exists()), f"{folder} was left"


def test_ctrl_c_ends_all_ranks(command_line: CommandLine, script: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    process = command_line.start(*words(script, results, "--steps", "1", "--wait", str(tmp_path)))
    pids = [tmp_path / "0.pid", tmp_path / "1.pid"]
    end = time.monotonic() + 300
    while not all(pid.exists() for pid in pids) and process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130, said
    assert "The launch was cancelled." in said
    (folder,) = results.iterdir()
    assert RunResults(folder).summary["status"] == "cancelled"
    for pid in pids:
        assert awaited(lambda pid=pid: not Path(f"/proc/{pid.read_text()}").exists())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none.py"], "The script 'none.py' is not there."),
        (["SCRIPT", "--sync", "glo"], "sync is 'glo'. Did you mean 'gloo'?"),
        (["SCRIPT", "--sync", "shuffle"], "one or two Spark jobs per step"),
        (["SCRIPT", "--workers", "3", "--master", "local-cluster[2,1,1024]"], "has 2 task slots. Set --workers 2"),
        (["SCRIPT", "--workers", "0"], "0 is not in the range x>=1"),
        (["SCRIPT", "--master", "somewhere"], "'somewhere' is no Spark master"),
    ],
)
def test_what_cannot_run_is_refused_before_a_jvm(
    script: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    def started(*_: object) -> None:
        raise AssertionError("a JVM was started")

    monkeypatch.setattr("sparkdl_bench.session.start_jvm", started)
    done = CliRunner().invoke(cli, ["launch", *(str(script) if each == "SCRIPT" else each for each in arguments)])
    assert done.exit_code == 2, done.output
    assert says in done.stderr
