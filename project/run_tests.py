"""Runs every test of one Spark line, Scala's and then Python's, and ends with one line of totals (`make test`)."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCALA_REPORTS = ROOT / "jvm" / "target" / "test-reports"
PYTHON_REPORT = ROOT / "target" / "pytest.xml"

# Two files of tests at once: tests that wait for processes to start leave the cores idle. In the files' order, in which
# the last ones are short.
AT_ONCE = ("--numprocesses=2", "--dist=loadfile", "--no-loadscope-reorder")


@dataclass(frozen=True)
class Totals:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scala", required=True, help="Scala version, which decides the Spark line")
    parser.add_argument("pytest_arguments", nargs="*", help="passed on to pytest")
    arguments = parser.parse_args()
    # Nothing that a test starts listens anywhere but on the loopback device.
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}

    shutil.rmtree(SCALA_REPORTS, ignore_errors=True)
    PYTHON_REPORT.unlink(missing_ok=True)
    PYTHON_REPORT.parent.mkdir(exist_ok=True)
    scala = run([str(ROOT / "project" / "sbt"), f"++{arguments.scala}", "jvm/test"], environment)
    pytest = [sys.executable, "-m", "pytest", "-rs", f"--junitxml={PYTHON_REPORT}", *AT_ONCE]
    python = run([*pytest, *arguments.pytest_arguments], environment)

    parts = {
        "Scala": (scala, sum((read(path) for path in sorted(SCALA_REPORTS.glob("*.xml"))), Totals())),
        "Python": (python, read(PYTHON_REPORT) if PYTHON_REPORT.is_file() else Totals()),
    }
    for path in [*sorted(SCALA_REPORTS.glob("*.xml")), PYTHON_REPORT]:
        if path.is_file():
            for failure in failures(path):
                print("FAILED", failure)
    for name, (status, totals) in parts.items():
        note = " (no test ran)" if totals == Totals() else f" (exit status {status})" if status else ""
        print(f"{name}: {totals}{note}")
    # Last, for whoever reads only the end.
    print(sum((totals for _, totals in parts.values()), Totals()), flush=True)
    return int(any(status or totals.failed or totals == Totals() for status, totals in parts.values()))


def run(command: list[str], environment: dict[str, str]) -> int:
    print("+", " ".join(command), flush=True)
    return subprocess.run(command, cwd=ROOT, env=environment, check=False, stdin=subprocess.DEVNULL).returncode  # noqa: S603


def read(report: Path) -> Totals:
    """The totals of one JUnit file."""
    totals = Totals()
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):  # noqa: S314 - written by our own test runners
        count = {key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")}
        failed = count["failures"] + count["errors"]
        totals += Totals(count["tests"] - failed - count["skipped"], failed, count["skipped"])
    return totals


def failures(report: Path) -> Iterator[str]:
    """The failed tests of one JUnit file, each with the first line of what it said."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):  # noqa: S314 - as above
        for kind in ("failure", "error"):
            for said in case.findall(kind):
                first = ((said.get("message") or said.text or "").strip().splitlines() or [""])[0]
                yield f"{case.get('classname')}: {case.get('name')}: {first[:500]}"


if __name__ == "__main__":
    sys.exit(main())
