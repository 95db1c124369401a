"""Runs the JVM's readers under Jazzer, a coverage-guided fuzzer, each for some seconds (`make fuzz`).

The targets are the objects `…Fuzz` of the tests: a reader returns or throws the error that it documents, soon, and
without much memory. What an hour has found to reach new code stays in target/fuzz/corpus for the
next time. An input that breaks the law ends its target's turn; it is printed as a line for tests/fuzz/TARGET.txt, where
`make test` replays it for ever. Exit status 1 where there is one, or where a target could not be run.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "target" / "fuzz"
# How long a reader may take for one input, seconds, and what its process may take, MB.
LATE_S = 20
MEMORY_MB = 3000
# Jazzer loads its agent itself, which JDK 21 and later warn of; lmdbjava writes good files and reaches into the JDK.
JAVA_OPTIONS = (
    *("-Xmx1g", "-Xss2m", "-XX:+IgnoreUnrecognizedVMOptions", "-XX:+EnableDynamicAgentLoading"),
    *("--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"),
)


@dataclass(frozen=True)
class Outcome:
    """What became of one target.

    Attributes:
        inputs: that it was given.
        finding: the input that broke the law.
        said: the end of what the fuzzer said, where something went wrong.
    """

    target: str
    inputs: int
    status: int
    finding: bytes | None
    said: str

    @property
    def good(self) -> bool:
        return self.status == 0 and self.finding is None and self.inputs > 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=10, help="for each target (10)")
    parser.add_argument("--targets", default="", help="names, separated by commas; all where it is left out")
    parser.add_argument("--scala", default="2.13.16", help="Scala version, which decides the Spark line")
    arguments = parser.parse_args()
    if arguments.seconds < 1:
        parser.error(f"--seconds is {arguments.seconds}; valid is a whole number, at least 1")
    FOLDER.mkdir(parents=True, exist_ok=True)
    subprocess.run([ROOT / "project" / "sbt", f"++{arguments.scala}", "jvm/fuzzClasspath"], check=True)  # noqa: S603
    classpath = (FOLDER / "classpath").read_text()
    targets = found(classpath)
    wanted = [name for name in arguments.targets.split(",") if name] or sorted(targets)
    unknown = [name for name in wanted if name not in targets]
    if unknown:
        parser.error(f"there is no target {', '.join(unknown)}; valid are {', '.join(sorted(targets))}")
    outcomes = []
    for name in wanted:
        outcomes.append(fuzz(name, targets[name], arguments.seconds, classpath))
        print(line(outcomes[-1]), flush=True)
    return conclude(outcomes)


def found(classpath: str) -> dict[str, str]:
    """The targets' classes by name; writes the inputs that they begin with."""
    kept = FOLDER / "kept"
    shutil.rmtree(kept, ignore_errors=True)
    program = ["java", *JAVA_OPTIONS, "-cp", classpath, "sparkdlbench.fuzz.FuzzTargets", str(kept)]
    told = subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout  # noqa: S603
    return dict(each.split() for each in told.splitlines() if len(each.split()) == 2)


def fuzz(name: str, of: str, seconds: int, classpath: str) -> Outcome:
    corpus, findings = FOLDER / "corpus" / name, FOLDER / "findings" / name
    corpus.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(findings, ignore_errors=True)
    findings.mkdir(parents=True)
    command = [
        *("java", *JAVA_OPTIONS, "-cp", f"{(FOLDER / 'jazzer').read_text()}{os.pathsep}{classpath}"),
        *("com.code_intelligence.jazzer.Jazzer", f"--target_class={of}", "--instrumentation_includes=sparkdlbench.**"),
        "--custom_hook_includes=sparkdlbench.**",
        f"--reproducer_path={findings}",
        *(f"-max_total_time={seconds}", f"-rss_limit_mb={MEMORY_MB}", "-print_final_stats=1"),
        # One that is slow, as the first is whose classes are loaded on a busy machine, is no finding before it is late.
        *(f"-timeout={LATE_S}", f"-report_slow_units={LATE_S}"),
        *(f"-artifact_prefix={findings}/", str(corpus), str(FOLDER / "kept" / name)),
    ]
    try:
        ended = subprocess.run(  # noqa: S603
            command, cwd=FOLDER, capture_output=True, timeout=seconds + 10 * LATE_S, check=False
        )
        status, said = ended.returncode, (ended.stdout + ended.stderr).decode("utf-8", "replace")
    except subprocess.TimeoutExpired as late:
        status, said = 124, ((late.stdout or b"") + (late.stderr or b"")).decode("utf-8", "replace")
    inputs = re.findall(r"stat::number_of_executed_units:\s*(\d+)", said) or re.findall(r"#(\d+)\s", said)
    found = [file for file in sorted(findings.iterdir()) if file.suffix != ".java"]
    return Outcome(
        name, int(inputs[-1]) if inputs else 0, status, found[0].read_bytes() if found else None, said[-6000:]
    )


def line(outcome: Outcome) -> str:
    """One target's line, with what broke the law below."""
    told = f"{outcome.target}: {outcome.inputs} inputs"
    if outcome.good:
        return told
    if outcome.finding is None:
        return f"{told}, FAILED with exit status {outcome.status}\n{outcome.said}"
    reasons = re.findall(r"== Java Exception: (.*)|(ERROR: libFuzzer: .*)", outcome.said)
    why = " ".join(word for reason in reasons[:1] for word in reason).strip()
    at = "\n".join(re.findall(r"\n(\s+at sparkdlbench.*|Caused by: .*)", outcome.said)[:8])
    return f"{told}, FAILED: {why}\n{at}\nThe input, for tests/fuzz/{outcome.target}.txt:\n{escaped(outcome.finding)}"


def escaped(content: bytes) -> str:
    """As `FuzzTargets.kept` reads it; lines that begin with # say something."""

    def character(byte: int) -> str:
        if byte == 0x0A:
            return r"\n"
        if byte == 0x5C:
            return r"\\"
        return chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}"

    text = "".join(map(character, content))
    return r"\x23" + text[1:] if text.startswith("#") else text


def conclude(outcomes: list[Outcome]) -> int:
    """Prints the totals; the exit status of `make fuzz`."""
    bad = [outcome.target for outcome in outcomes if not outcome.good]
    total = sum(outcome.inputs for outcome in outcomes)
    print(f"{total} inputs for {len(outcomes)} targets; {', '.join(bad) if bad else 'none'} failed", flush=True)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
