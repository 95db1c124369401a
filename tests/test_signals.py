"""Commands that a signal ends: one line, status 128 + its number, no process left, a summary where a run was."""

from __future__ import annotations

import atexit
import functools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from conftest import CommandLine
from programs import execute
from signalling import ROOT, Ended, interrupt, sparkdl_bench
from sparkdl_bench.results import RunResults
from sparkdl_bench.version import __version__
from standalone import SPARK_HOME
from test_entry_points import ARTIFACT, SCALA, SCALA_VERSIONS, asked_by_block_stream

DIGITS = "conf/runs/digits-mlp.toml"


def check(ended: Ended, number: int, results: Path | None = None) -> None:
    """The law: the stated status, one line, no traceback, nobody left, a summary in every run's folder."""
    assert ended.status == 128 + number, ended
    assert len(ended.lines) == 1, ended.stderr
    assert "Traceback" not in ended.stderr + ended.stdout
    assert "bug" not in ended.stderr
    assert "do not fit" not in ended.stderr
    assert not ended.left, ended.left
    for events in results.rglob("events.jsonl") if results else ():
        assert RunResults(events.parent).summary["status"] == "cancelled", events.parent


@pytest.mark.on_one_line
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("after", [0.0, 0.1, 0.3])
def test_from_the_first_moment_on(number: signal.Signals, after: float) -> None:
    # While modules load, too: nothing is installed for `doctor` yet but the handlers.
    check(interrupt(sparkdl_bench("doctor"), number, after, to_group=True), number)


@pytest.mark.on_one_line
@pytest.mark.parametrize(
    ("number", "after", "to_group"),
    [
        (signal.SIGTERM, 0.0, False),
        (signal.SIGHUP, 0.3, True),
        (signal.SIGINT, 7.0, True),
        (signal.SIGTERM, 7.0, False),
    ],
)
def test_a_bench_ends_as_every_command_does(
    number: signal.Signals, after: float, to_group: bool, tmp_path: Path
) -> None:
    """As `make bench-…` starts it: while modules load, and while a run of it trains in its own processes."""
    command = [sys.executable, "-m", "sparkdl_bench.bench", "soak", "--no-memory", "--results", str(tmp_path)]
    check(interrupt(command, number, after, to_group=to_group), number)


def test_nohup_keeps_a_command_going_when_the_terminal_is_closed() -> None:
    ended = interrupt(["nohup", *sparkdl_bench("list", "codec")], signal.SIGHUP, 0.2)
    assert ended.status == 0
    assert "fp32" in ended.stdout


def test_while_a_session_starts_the_whole_group_is_told(tmp_path: Path) -> None:
    # Endless, or where the signal comes late it would find a run that is over.
    command = sparkdl_bench("run", DIGITS, "--set", f"results={tmp_path}", "--set", "epochs=100000")
    check(interrupt(command, signal.SIGTERM, 6.0, to_group=True), signal.SIGTERM, tmp_path)


def _training(command_line: CommandLine, results: Path, *more: str) -> subprocess.Popen[str]:
    """A run of the digits that makes steps, and would for hours."""
    words = ["--set", f"results={results}", "--set", "epochs=100000", *more]
    process = command_line.start("run", DIGITS, *words)
    assert process.stderr is not None
    seen = ""
    while " epoch " not in seen:
        line = process.stderr.readline()
        seen += line
        assert line, seen
    return process


def test_a_driver_that_is_killed_leaves_a_summary_that_says_so(command_line: CommandLine, tmp_path: Path) -> None:
    process = _training(command_line, tmp_path)
    (driver,) = psutil.Process(process.pid).children()
    executors = driver.children(recursive=True)
    assert executors
    driver.kill()
    _, stderr = process.communicate(timeout=100)
    assert process.returncode == 1
    assert "The driver's JVM was killed by signal 9 (SIGKILL), perhaps for want of memory" in stderr
    assert "Traceback" not in stderr
    (folder,) = tmp_path.iterdir()
    summary = RunResults(folder).summary
    assert summary["status"] == "failed"
    assert "killed by signal 9" in summary["error"]
    assert not psutil.wait_procs(executors, timeout=60)[1]


def test_a_command_that_is_killed_takes_its_jvm_along(command_line: CommandLine, tmp_path: Path) -> None:
    process = _training(command_line, tmp_path, "--set", "master=local[2]")
    (driver,) = psutil.Process(process.pid).children()
    process.kill()
    process.communicate(timeout=100)  # the JVM has its standard error, and ends the run first
    assert not psutil.wait_procs([driver], timeout=40)[1]
    (folder,) = tmp_path.iterdir()
    assert RunResults(folder).summary["status"] == "cancelled"


@pytest.mark.campaign
@pytest.mark.parametrize("command", ["run", "compare", "shared", "doctor", "report", "net", "spark-submit"])
def test_at_any_moment(command: str, tmp_path: Path) -> None:
    """A hundred signals over all commands; SPARKDL_SIGNALS sets how many to each, SPARKDL_SEED the moments."""
    count = int(os.environ.get("SPARKDL_SIGNALS", "15"))
    chance = random.Random(f"{os.environ.get('SPARKDL_SEED', '1')} {command}")
    faults = []
    hits = 0
    for turn in range(count):
        folder = tmp_path / str(turn)
        folder.mkdir()
        words, longest = _command(command, folder)
        number = chance.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
        after, to_group = chance.uniform(0, longest), chance.random() < 0.5
        started = time.monotonic()
        ended = interrupt(words, number, after, to_group=to_group, handled=command != "spark-submit")
        what = f"{command} {number.name} {'group' if to_group else 'process'} after {after:.2f} s: {ended.status}"
        print(f"{what}, {ended.seconds:.1f} s to end, {time.monotonic() - started:.1f} s in all: {ended.lines}")
        hits += ended.hit
        try:
            if not ended.hit:
                assert ended.status == 0, ended
                assert not ended.left, ended.left
                continue
            if ended.status == 0 and ended.stdout and not ended.left:
                continue  # its work was done when the signal came
            if command == "spark-submit":
                _check_submitted(ended, number, folder)
            else:
                check(ended, number, folder)
        except AssertionError as fault:
            faults.append(f"{what}: {fault}")
        shutil.rmtree(folder)
    print(f"{command}: {hits} of {count} signals came before the command's end")
    assert not faults, "\n".join(faults)
    assert hits >= count // 2, "the command ends sooner than the moments say: lower its `longest`"


def _check_submitted(ended: Ended, number: int, results: Path) -> None:
    """As `check`; before our own program begins, the JVM and the shell around it say nothing, or what Spark logs."""
    assert ended.status in (128 + number, -number), ended
    ours = [line for line in ended.lines if line.startswith("sparkdl-bench: ")]
    assert len(ours) <= 1, ended.stderr
    assert not [line for line in ended.lines if re.match(r"\s+at |Exception in|Traceback", line)], ended.stderr
    assert not ended.left, ended.left
    for events in results.rglob("events.jsonl"):
        assert ours
        assert RunResults(events.parent).summary["status"] == "cancelled"


@functools.cache
def _finished_run() -> Path:
    """A run's folder, for reports."""
    results = Path(tempfile.mkdtemp(prefix="sparkdl-test-signals-"))
    atexit.register(shutil.rmtree, results)
    words = ["--set", f"results={results}", "--set", "epochs=1", "--set", "master=local[2]"]
    done = subprocess.run(sparkdl_bench("run", DIGITS, *words), cwd=ROOT, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
    (folder,) = results.iterdir()
    return folder


@functools.cache
def _assembled() -> Path:
    """The assembled jar, built anew where the sources have changed."""
    execute([str(ROOT / "project" / "sbt"), f"++{SCALA_VERSIONS[SCALA]}", "jvm/assembly"], dict(os.environ))
    return ROOT / "jvm" / "target" / f"scala-{SCALA}" / f"{ARTIFACT}-assembly-{__version__}.jar"


def _command(command: str, folder: Path) -> tuple[list[str], float]:
    """Its words, and how many seconds after its start the last moment is."""
    endless = ["--set", f"results={folder}", "--set", "epochs=100000"]
    if command == "run":
        return sparkdl_bench("run", DIGITS, *endless), 25.0
    if command in ("compare", "shared"):
        plan = folder / "plan.toml"
        fresh = json.dumps(command == "compare")
        base = os.path.relpath(ROOT / DIGITS, folder)
        plan.write_text(
            f'title = "s"\nbase = "{base}"\ntrials = 1\nfresh = {fresh}\n'
            "[set]\nepochs = 100000\n[matrix]\nbatch = [50, 60]\n"
        )
        return sparkdl_bench("compare", str(plan), "--results", str(folder / "compare")), 25.0
    if command == "report":
        return sparkdl_bench("report", str(_finished_run()), "-o", str(folder / "page.html")), 1.5
    if command == "net":
        return sparkdl_bench("net", "--sizes", "10000", "--transports", "tcp,block-stream"), 20.0
    if command == "doctor":
        return sparkdl_bench("doctor"), 15.0
    # As on a cluster: with the assembled jar, which executors get from the driver.
    jar = _assembled()
    asked = {"spark.ui.enabled": "false", **asked_by_block_stream(jar)}
    settings = [word for key, value in asked.items() for word in ("--conf", f"{key}={value}")]
    words = ["--master", "local-cluster[2,1,1024]", *settings, "--class", "sparkdlbench.Main", str(jar)]
    return [str(SPARK_HOME / "bin" / "spark-submit"), *words, "run", DIGITS, *endless], 30.0
