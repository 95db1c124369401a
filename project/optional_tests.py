"""The suites that need more than a checkout brings (UCX, Open MPI, PyTorch, BigDL), of parts that changed.

`make test-optional`. Each part is installed by the project's own command, which leaves alone what is there, and a part
of which no test ran is a failure: skipped tests prove nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from run_tests import PYTHON_REPORTS, SCALA_REPORTS, Totals, read, run

ROOT = Path(__file__).resolve().parents[1]
SBT = str(ROOT / "project" / "sbt")
LIMIT_S = 1800.0
INSTALL_LIMIT_S = 900.0


@dataclass(frozen=True)
class Part:
    """What needs a library of its own.

    Attributes:
        sources: of these files a change makes its tests due; patterns that are looked for in their paths.
        install: words after `python -m sparkdl_bench`, one command each.
        targets: of make, which bring what else they need.
        scala: suites, as `testOnly` takes them.
        python: words of pytest, one run each.
        line: the Spark line.
        environment: the virtual environment that Python's tests run in.
    """

    name: str
    sources: tuple[str, ...]
    install: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    scala: tuple[str, ...] = ()
    python: tuple[tuple[str, ...], ...] = ()
    line: str = "4.1"
    environment: str = ".venv"


# What all of them stand on: a transport's laws, a process group, an engine's contract.
_TRANSPORTS = r"^jvm/src/main/[\w.-]+/.*sparkdlbench/(transport/(push/)?\w+\.|topology/)"
PARTS = (
    Part(
        "ucx",
        (r"[/_]ucx\b", _TRANSPORTS, r"^tests/test_out_of_band"),
        install=("jars fetch --ucx",),
        scala=("sparkdlbench.transport.ucx.*", "sparkdlbench.transport.TopologyClusterLaws"),
        python=(("tests/test_ucx.py", "tests/test_out_of_band.py", "-k", "ucx"),),
    ),
    Part(
        "mpi",
        (r"[/_]mpi\b", _TRANSPORTS, r"^tests/test_out_of_band", r"^python/sparkdl_bench/peers/_"),
        install=("peers install mpi",),
        scala=("sparkdlbench.transport.mpi.*",),
        python=(("tests/test_mpi_relay.py", "tests/test_out_of_band.py", "tests/test_peers.py", "-k", "mpi"),),
    ),
    Part(
        "torch",
        (
            r"torch",
            r"gloo",
            r"^python/sparkdl_bench/(worker|launching|exports)/",
            r"sparkdlbench/worker/",
            r"_same_start",
            r"peers/programs/measure/_fit",
        ),
        install=("peers install pytorch",),
        targets=("test-torch",),
        python=(("tests/test_peers.py", "tests/engines/test_engines.py", "-k", "torch or gloo"),),
    ),
    Part(
        "bigdl",
        (r"bigdl", r"^jvm/src/main/[\w.-]+/.*sparkdlbench/engine/\w+\.scala", r"sparkdlbench/model/\w+\.scala"),
        install=("peers install bigdl",),
        targets=("venv", "jars"),
        scala=("sparkdlbench.engine.bigdl.*", "sparkdlbench.engine.libtorch.BigDlParitySuite"),
        python=(("tests/test_bigdl.py", "tests/test_peers.py", "-k", "bigdl"),),
        line="3.5",
        environment=".venv-3.5",
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="", help="these, separated by commas, whatever has changed")
    parser.add_argument("--since", default="", help="changes since this revision [default: where main was left]")
    arguments = parser.parse_args()
    names = [name for name in arguments.parts.split(",") if name]
    unknown = set(names) - {part.name for part in PARTS}
    if unknown:
        parser.error(f"no part is called {', '.join(sorted(unknown))}; valid: {', '.join(part.name for part in PARTS)}")
    since = arguments.since or base()
    chosen = [part for part in PARTS if part.name in names] if names else due(changed(since))
    if not chosen:
        print(f"No part that needs more than the checkout has changed since {since}.")
    failed = [part.name for part in chosen if not passes(part)]
    for name in failed:
        print(f"FAILED {name}")
    return int(bool(failed))


def base() -> str:
    """Where this branch left the main one; on that itself the commit before, of a merge the first parent."""
    head = _git("rev-parse", "HEAD")
    for name in ("origin/HEAD", "origin/main", "main"):
        found = _git("merge-base", "HEAD", name)
        if found and found != head:
            return found
    return "HEAD^1"


def changed(since: str) -> list[str]:
    """Files that differ from that revision, committed or not."""
    listed = _git("diff", "--name-only", since)
    if listed is None:
        raise SystemExit(f"git knows no revision '{since}'. Name one with --since, or the parts with --parts.")
    return listed.splitlines()


def due(files: Sequence[str]) -> list[Part]:
    """The parts whose sources are among them."""
    return [part for part in PARTS if any(re.search(each, file) for each in part.sources for file in files)]


def passes(part: Part) -> bool:
    """Whether all its tests passed, and some ran."""
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    python = str(ROOT / part.environment / "bin" / "python")
    for target in part.targets:
        if run(["make", target, f"SPARK={part.line}"], environment, LIMIT_S) != 0:
            return False
    for words in part.install:
        if run([python, "-m", "sparkdl_bench", *words.split()], environment, INSTALL_LIMIT_S) != 0:
            return False
    scala = "2.12.18" if part.line == "3.5" else "2.13.16"
    good = True
    if part.scala:
        tests = f"jvm/testOnly {' '.join(part.scala)}"
        good = judged(part.name, [SBT, f"++{scala}", tests], SCALA_REPORTS, environment)
    for words in part.python:
        report = PYTHON_REPORTS / f"optional-{part.name}.xml"
        command = [python, "-m", "pytest", "-rs", f"--junitxml={report}", *words]
        good = judged(part.name, command, PYTHON_REPORTS, environment) and good
    return good


def judged(name: str, command: list[str], reports: Path, environment: dict[str, str]) -> bool:
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True, exist_ok=True)
    status = run(command, environment, LIMIT_S)
    totals = sum((read(file) for file in reports.glob("*.xml")), Totals())
    print(f"{name}: {totals}", flush=True)
    return status == 0 and totals.failed == 0 and totals.passed > 0


def _git(*words: str) -> str | None:
    done = subprocess.run(  # noqa: S603
        ["git", *words],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout.strip() if done.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(main())
