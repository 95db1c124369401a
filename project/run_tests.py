"""Runs every test of one Spark line, Scala's and then Python's, and ends with one line of totals (`make test`)."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCALA_REPORTS = ROOT / "jvm" / "target" / "test-reports"
PYTHON_REPORTS = ROOT / "target" / "test-reports"

# Two files of tests at once: tests that wait for processes to start leave the cores idle. In the order of
# tests/conftest.py, in which the last ones are short.
AT_ONCE = ("--numprocesses=2", "--dist=loadfile", "--no-loadscope-reorder")
# Of one language's tests, which take about 15 minutes, and on the slowest machine seen 40.
LIMIT_S = 3000.0
# Whether the tests marked as long are run (tests/conftest.py has pytest's option): what sbt does for it.
LONG_TAG = "sparkdlbench.TakesLong"
LONG = {
    "with": "jvm/test",
    "without": f"jvm/testOnly * -- -l {LONG_TAG}",
    "only": f"jvm/testOnly * -- -n {LONG_TAG}",
}
# So many failures may be run again.
AGAIN_AT_MOST = 3
# So many files of each language are named with their time at the end: where to look when the whole takes too long.
SLOWEST = 8


@dataclass(frozen=True)
class Totals:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


@dataclass(frozen=True)
class Outcome:
    """What one run of one language's tests came to.

    Attributes:
        seconds: by file, or suite of Scala.
    """

    status: int
    totals: Totals
    failures: dict[str, str]
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        return self.status == 0 and self.totals.failed == 0 and self.totals.passed > 0


@dataclass(frozen=True)
class Part:
    """The tests of one language: how all of them are run, and how those that failed are run again."""

    name: str
    command: list[str]
    again: Callable[[dict[str, str]], list[str]]
    reports: Path

    def run(self, command: list[str], environment: dict[str, str]) -> Outcome:
        shutil.rmtree(self.reports, ignore_errors=True)
        self.reports.mkdir(parents=True, exist_ok=True)
        status = run(command, environment)
        files = sorted(self.reports.glob("*.xml"))
        return Outcome(
            status,
            sum((read(file) for file in files), Totals()),
            dict(pair for file in files for pair in failures(file)),
            durations(files),
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scala", required=True, help="Scala version, which decides the Spark line")
    parser.add_argument(
        "--long", choices=LONG, default="with", help="whether those marked as long are run (default: with)"
    )
    parser.add_argument("pytest_arguments", nargs="*", help="passed on to pytest")
    arguments = parser.parse_args()
    # A caller that ends this must not leave sbt and pytest behind, which are in sessions of their own.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # Nothing that a test starts listens anywhere but on the loopback device.
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}

    # Most tests start JVMs, which it makes start faster. The test of the archive says why where there is none.
    run([sys.executable, "-m", "sparkdl_bench", "jars", "archive"], environment)

    sbt = [str(ROOT / "project" / "sbt"), f"++{arguments.scala}"]
    pytest = [sys.executable, "-m", "pytest", "-rs", f"--junitxml={PYTHON_REPORTS / 'pytest.xml'}"]
    parts = [
        Part("Scala", [*sbt, LONG[arguments.long]], lambda failed: [*sbt, *alone(failed)], SCALA_REPORTS),
        Part(
            "Python",
            [*pytest, *AT_ONCE, f"--long={arguments.long}", *arguments.pytest_arguments],
            lambda _: [*pytest, "--last-failed", "--last-failed-no-failures=none"],
            PYTHON_REPORTS,
        ),
    ]
    outcomes = [(part.name, *settle(part, environment)) for part in parts]
    if arguments.long == "without":
        print("Tests marked as long were left out: --long only runs them.")
    for name, first, _ in outcomes:
        print(slowest(name, first.seconds))
    return conclude(outcomes, strict=bool(environment.get("CI")))


def settle(part: Part, environment: dict[str, str]) -> tuple[Outcome, Outcome | None]:
    """
    The outcome of all tests, and of those that failed once more by themselves: two processes run tests at once, and a
    machine of two cores may keep a test waiting longer than it allows for. More than a few failures are no accident.
    """
    of_all = part.reports.with_name(f"{part.reports.name}-all")
    shutil.rmtree(of_all, ignore_errors=True)
    first = part.run(part.command, environment)
    if 0 < len(first.failures) <= AGAIN_AT_MOST and len(first.failures) == first.totals.failed:
        part.reports.rename(of_all)  # those that run again write where these lie
        return first, part.run(part.again(first.failures), environment)
    return first, None


def alone(failed: dict[str, str]) -> list[str]:
    """sbt's commands for the suites of those tests, one after the other."""
    return [f"jvm/testOnly {suite}" for suite in sorted({test.partition(": ")[0] for test in failed})]


def slowest(name: str, seconds: dict[str, float]) -> str:
    """A line with the files that took longest, of the sum over all (two run at once)."""
    longest = sorted(seconds.items(), key=lambda each: -each[1])[:SLOWEST]
    named = ", ".join(f"{file} {taken:.0f}" for file, taken in longest)
    return f"{name}, slowest of {sum(seconds.values()):.0f} s: {named or 'none'}"


def conclude(outcomes: list[tuple[str, Outcome, Outcome | None]], strict: bool = False) -> int:
    """Prints what failed and the totals; the exit status of `make test`.

    Args:
        strict: a test that passes only when it runs again is a failure too: as in CI, where nobody reads UNSTABLE.
    """
    total, unstable, bad = Totals(), 0, False
    lines = []
    for name, first, again in outcomes:
        passed_alone = again is not None and again.good
        for test, said in first.failures.items():
            print("UNSTABLE (failed beside other tests, passed alone)" if passed_alone else "FAILED", f"{test}: {said}")
        totals, note = first.totals, ""
        if passed_alone:
            unstable += totals.failed
            totals = Totals(totals.passed + totals.failed, 0, totals.skipped)
        elif not first.good:
            bad = True
            note = " (no test ran)" if totals == Totals() else f" (exit status {first.status})"
        lines.append(f"{name}: {totals}{note}")
        total += totals
    # Last, as many read the end alone.
    print("\n".join(lines))
    print(total, f"{unstable} of them passed only alone" if unstable else "", sep=", " if unstable else "", flush=True)
    return int(bad or (strict and unstable > 0))


def run(command: list[str], environment: dict[str, str], limit_s: float = LIMIT_S) -> int:
    """Its exit status. What takes too long is ended with all that it started: sbt waits for ever for a crashed JVM."""
    print("+", " ".join(command), flush=True)
    process = subprocess.Popen(  # noqa: S603
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        print(f"FAILED {command[0]} has not ended after {limit_s:.0f} s: look at the last test it names.", flush=True)
        return 124
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def read(report: Path) -> Totals:
    """The totals of one JUnit file."""
    totals = Totals()
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):  # noqa: S314 - written by our own test runners
        count = {key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")}
        failed = count["failures"] + count["errors"]
        totals += Totals(count["tests"] - failed - count["skipped"], failed, count["skipped"])
    return totals


def durations(reports: Iterable[Path]) -> dict[str, float]:
    """Seconds by file of Python's tests, by suite of Scala's, as JUnit files say."""
    seconds: dict[str, float] = {}
    for report in reports:
        for case in ElementTree.parse(report).getroot().iter("testcase"):  # noqa: S314 - as below
            # pytest puts the class behind the module.
            words = (case.get("classname") or "").split(".")
            name = ".".join(word for word in words if not word.startswith("Test"))
            seconds[name] = seconds.get(name, 0.0) + float(case.get("time") or 0)
    return seconds


def failures(report: Path) -> Iterator[tuple[str, str]]:
    """The failed tests of one JUnit file, each with the first line of what it said."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):  # noqa: S314 - as above
        for kind in ("failure", "error"):
            for said in case.findall(kind):
                first = ((said.get("message") or said.text or "").strip().splitlines() or [""])[0]
                yield f"{case.get('classname')}: {case.get('name')}", first[:500]


if __name__ == "__main__":
    sys.exit(main())
