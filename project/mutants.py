"""Mutates the measuring code, one place at a time, and sees whether a test dies (`make mutants`).

A sample by seed, in a copy of the checkout, within a time; cosmic-ray makes the mutants. Exit status 1 where fewer are
killed than must be. Survivors that were looked at stand in `LOOKED_AT`, with the reason why each may live.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COPY = ROOT / "target" / "mutants"
PACKAGE = Path("python") / "sparkdl_bench"
MUST_BE_KILLED = 0.85
# Of one mutant's tests; a mutant that waits for ever is a dead one. And at least so many times what they take without a
# mutant, so that on a slow machine none is dead for being slow.
LIMIT_S = 120.0
LIMIT_TIMES = 4
# `|` is a type's in nearly every place, which nothing evaluates; `**` unpacks, and its mutants do not parse.
SENSELESS = ("ReplaceBinaryOperator_BitOr_", "ReplaceBinaryOperator_Pow_", "RemoveDecorator")


@dataclass(frozen=True)
class Part:
    """Modules and the tests that must notice: without Spark and in seconds."""

    name: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]


PARTS = (
    Part(
        "bench",
        (
            *("bench/collective.py", "bench/congestion.py", "bench/contestant.py", "machine.py", "bench/net.py"),
            *("bench/spark_collective.py", "bench/store.py", "bench/suite.py", "bench/table.py", "bench/trials.py"),
        ),
        ("tests/test_bench_numbers.py", "tests/test_ruler.py", "tests/test_bench.py"),
    ),
    Part(
        "yardsticks",
        ("bench/encryption.py", "bench/link.py", "bench/loading.py", "bench/predicting.py", "bench/visits.py"),
        tuple(f"tests/test_{name}.py" for name in ("encryption", "link", "loading", "predicting", "visits")),
    ),
    Part(
        "statistics",
        ("statistics/__init__.py", "statistics/inference.py", "statistics/sequential.py"),
        # The simulations last, which take longest.
        ("tests/statistics/test_sequential.py", "tests/test_ruler.py", "tests/statistics/test_inference.py"),
    ),
    Part(
        "suites",
        tuple(f"../../benchmarks/suites/{name}.py" for name in ("kills", "memory", "soak")),
        ("tests/test_judging.py", "tests/test_bench.py::TestMemory"),
    ),
    Part(
        "peers",
        (
            *("peers/_base.py", "peers/bigdl.py", "peers/mpi.py", "peers/programs/measure/_channel.py"),
            *("peers/programs/measure/_harness.py", "peers/programs/measure/mpi_allreduce.py"),
            *("peers/programs/measure/gloo_allreduce.py", "peers/programs/measure/torch_mlp.py"),
            *("peers/_dl4j.py", "peers/_environment.py"),
        ),
        (
            *("tests/test_peer_making.py", "tests/test_dl4j_peer.py"),
            "tests/test_peer_programs.py",
            "tests/test_ruler.py",
        ),
    ),
    Part(
        "comparison",
        tuple(f"comparison/{name}.py" for name in ("record", "resources", "cells", "plan", "table")),
        tuple(
            f"tests/comparison/test_{name}.py"
            for name in ("record", "resources", "plan", "table", "execute", "loop", "quick")
        ),
    ),
    Part(
        "decision",
        ("report/decision.py", "report/break_even.py"),
        (
            # The simulations last, which take longest.
            *("tests/report/test_decision.py::TestVerdict", "tests/report/test_decision.py::TestProperties"),
            "tests/report/test_decision.py::test_regressions_are_judged_by_their_errors",
            *("tests/report/test_break_even.py", "tests/report/test_decision.py::TestHowOftenItIsWrong"),
        ),
    ),
    Part(
        "charts",
        ("report/lines.py", "report/machines.py", "report/numbers.py", "report/rows.py"),
        (
            *(f"tests/report/test_{name}.py" for name in ("numbers", "lines", "rows")),
            # Not the charts' own tests, which draw them.
            "tests/report/test_machines.py::TestNumbers",
        ),
    ),
    Part(
        "report",
        ("report/analysis.py",),
        (
            "tests/report/test_analysis.py",
            # Without its pages, which take minutes.
            *(
                f"tests/report/test_report.py::Test{name}"
                for name in ("Analysis", "WhatIsNotToBeRecommended", "Why", "Seeds", "WarmUp", "Waiting")
            ),
        ),
    ),
)
# Tests that start Spark, make environments or run a peer: too long, and none of the sample's business.
LEFT_OUT = (
    "not jvm and not installed and not shipped and not browser and not environment and not net_writes "
    # Comparisons that are killed and go on, and the reports' pictures and pages: they take longer than all numbers.
    "and not random_moments and not picture and not folder_to_keep and not two_hundred"
)
_AS_PROGRAM = 'if __name__ == "__main__":'
# Survivors that may live: (file, how the operator's name begins, what the line holds) and the reason.
LOOKED_AT: dict[tuple[str, str, str], str] = {
    ("bench/trials.py", "NumberReplacer", "round("): "seconds, and drift to the 9th place, rounded one place elsewhere",
    ("bench/store.py", "NumberReplacer", "indent="): "how far a file's lines are indented",
    ("bench/store.py", "NumberReplacer", "round("): "samples are kept to 10 ns; 1 ns or 100 ns tell nobody apart",
    ("bench/collective.py", "NumberReplacer", "round("): "the same",
    ("machine.py", "NumberReplacer", "round("): "digits of facts that nothing is computed from",
    ("machine.py", "NumberReplacer", "timeout="): "how long git and java may take to say their version",
    ("bench/suite.py", "NumberReplacer", "show_default"): "an option's default, which its help shows",
    ("bench/suite.py", "NumberReplacer", "/ 60"): "minutes told at the end of a suite",
    ("../../benchmarks/suites/kills.py", "ReplaceTrueWithFalse", "show_default"): "whether help shows a default",
    ("../../benchmarks/suites/memory.py", "ReplaceTrueWithFalse", "show_default"): "the same",
    ("../../benchmarks/suites/soak.py", "ReplaceTrueWithFalse", "show_default"): "the same",
    ("peers/bigdl.py", "NumberReplacer", "disk_gb="): "room that is told before, and that nothing is held to",
    ("peers/mpi.py", "NumberReplacer", "disk_gb="): "the same",
    ("peers/_dl4j.py", "NumberReplacer", "disk_gb="): "the same",
    ("bench/visits.py", "NumberReplacer", "max(2, round("): "there are twenty of them at least",
    ("comparison/plan.py", "ReplaceComparisonOperator_Lt_NotEq", "len(set("): "a set has never more than its list",
    ("comparison/table.py", "ReplaceComparisonOperator_Eq_GtE", "== len(good)"): "these are some of the good ones",
    ("report/analysis.py", "ReplaceComparisonOperator_Gt_NotEq", "group.cores > 1"): "nothing runs on no core",
    ("report/analysis.py", "ReplaceComparisonOperator_NotEq_Lt", "NOT_VARIED"): "its dash comes after all other values",
    (
        "report/analysis.py",
        "ReplaceComparisonOperator_NotEq_",
        "key=lambda each: sum(",
    ): "in order the same comes first",
    ("report/lines.py", "NumberReplacer", '"mark": {'): "how thick or faint something is, or how far off its words",
    ("report/lines.py", "NumberReplacer", "nearest = sorted("): "which of many lines are shown, where two are as near",
    ("report/lines.py", "ReplaceComparisonOperator_Gt_NotEq", "in leaders if steps > 0"): "none leads from below 0 on",
    ("report/machines.py", "NumberReplacer", "labelLimit"): "where a long name is cut off",
    ("report/machines.py", "NumberReplacer", '"mark": {'): "as in lines.py",
    ("report/rows.py", "NumberReplacer", '"mark": {'): "as in lines.py",
    ("report/machines.py", "ReplaceComparisonOperator_Gt_NotEq", "len(on) > 1"): "each has one machine at least",
    ("report/rows.py", "NumberReplacer", ": SERIES["): "which colour, of those that nobody has",
    ("report/decision.py", "ReplaceComparisonOperator_Lt_LtE", "is_cheaper = "): "equal: `other` is not the chosen one",
    ("bench/spark_collective.py", "", "out.write("): "in the process that has Spark, which these quick tests leave out",
}


@dataclass(frozen=True)
class Fate:
    """What became of one mutant; `reason` where it lives and may."""

    file: str
    operator: str
    line: int
    text: str
    killed: bool
    reason: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=30, help="mutants of each part")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--minutes", type=float, default=60.0, help="after which no further mutant is begun")
    parser.add_argument("--parts", default=",".join(part.name for part in PARTS), help="which, separated by commas")
    arguments = parser.parse_args()
    wanted = set(arguments.parts.split(","))
    unknown = wanted - {part.name for part in PARTS}
    if unknown:
        parser.error(f"no part is called {', '.join(sorted(unknown))}; valid: {', '.join(part.name for part in PARTS)}")
    copy_checkout()
    deadline = time.monotonic() + arguments.minutes * 60
    fates: list[Fate] = []
    for part in PARTS:
        if part.name in wanted:
            fates += mutate(part, arguments.sample, arguments.seed, deadline)
    return summarise(fates)


def copy_checkout() -> None:
    """The files that git knows, with their changes, in a folder that mutants may spoil; and the checkout's own jars,
    where the tests find the names of all keys."""
    shutil.rmtree(COPY, ignore_errors=True)
    listing = ["git", "ls-files", "-z"]
    listed = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, timeout=60).stdout  # noqa: S603
    for name in listed.decode().split("\0"):
        source = ROOT / name
        if name and source.is_file():
            (COPY / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, COPY / name)
    for jars in (ROOT / "target").glob("jars-*"):
        (COPY / "target").mkdir(exist_ok=True)
        (COPY / "target" / jars.name).symlink_to(jars)


def mutate(part: Part, sample: int, seed: int, deadline: float) -> Iterator[Fate]:
    """The fates of a part's sample, told as they come."""
    from cosmic_ray.mutating import mutate_and_test

    os.chdir(COPY)
    os.environ["PYTHONPATH"] = str(COPY / "python")
    command = shlex.join(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", LEFT_OUT, *part.tests]
    )
    start = time.monotonic()
    green = subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=600, check=False)  # noqa: S603
    if green.returncode != 0:
        raise SystemExit(f"{part.name}: the tests fail without a mutant already:\n{green.stdout[-3000:]}")
    limit_s = max(LIMIT_S, LIMIT_TIMES * (time.monotonic() - start))
    for work in drawn(part, sample, seed):
        if time.monotonic() > deadline:
            print(f"{part.name}: the time is over", flush=True)
            return
        (mutation,) = work.mutations
        result = mutate_and_test(work.mutations, command, limit_s)
        line = mutation.start_pos[0]
        file = Path(mutation.module_path).relative_to(PACKAGE).as_posix()
        text = (COPY / mutation.module_path).read_text(encoding="utf-8").splitlines()[line - 1].strip()
        operator = mutation.operator_name.partition("/")[2]
        reason = "" if result.is_killed else reason_of(file, operator, text)
        fate = Fate(file, operator, line, text, result.is_killed, reason)
        print(f"{'killed  ' if fate.killed else 'SURVIVED'} {file}:{line} {operator}: {text} {reason}", flush=True)
        yield fate


def drawn(part: Part, sample: int, seed: int) -> Sequence[Any]:
    """So many of the part's mutants, the same for the same seed and sources."""
    from cosmic_ray.commands import init
    from cosmic_ray.work_db import WorkDB, use_db

    with use_db(str(COPY / f"{part.name}.sqlite"), WorkDB.Mode.create) as database:
        init([PACKAGE / module for module in part.modules], database, {})
        works = [
            work
            for work in database.work_items
            if not any(each in work.mutations[0].operator_name for each in SENSELESS)
        ]
    # Job ids are random; places are not.
    works.sort(key=lambda work: (str(work.mutations[0].module_path), work.mutations[0].start_pos, *_operator(work)))
    return random.Random(f"{seed}/{part.name}").sample(works, min(sample, len(works)))  # noqa: S311 (no secrets)


def _operator(work: Any) -> tuple[str, int]:
    return work.mutations[0].operator_name, work.mutations[0].occurrence


def reason_of(file: str, operator: str, text: str) -> str:
    if text == _AS_PROGRAM:
        return "a test imports it, and runs its `main`"
    found = (
        why
        for (where, how, held), why in LOOKED_AT.items()
        if where == file and operator.startswith(how) and held in text
    )
    return next(found, "")


def summarise(fates: Sequence[Fate]) -> int:
    """A line a file and one for all; the exit status. A survivor with a reason counts neither way."""
    judged = [fate for fate in fates if not fate.reason]
    for file in sorted({fate.file for fate in fates}):
        own = [fate for fate in judged if fate.file == file]
        allowed = sum(bool(fate.reason) for fate in fates if fate.file == file)
        print(f"{file}: {sum(fate.killed for fate in own)} of {len(own)} killed, {allowed} may live")
    killed = sum(fate.killed for fate in judged)
    share = killed / len(judged) if judged else 0.0
    print(f"{killed} of {len(judged)} killed: {share:.0%}, at least {MUST_BE_KILLED:.0%} must be")
    return int(share < MUST_BE_KILLED)


if __name__ == "__main__":
    sys.exit(main())
