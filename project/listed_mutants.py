"""Mutants of the measuring code that flatter somebody; a test must die of each (`make soak`, `make mutants`).

Each is one replacement in one file, as somebody in a hurry could write it, and the tests that must notice: without
Spark and in seconds. `tests/test_listed_mutants.py` holds the list to the sources in every run. Exit status 1 where one
lives. `mutants.py` draws others by chance.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from mutants import COPY, LEFT_OUT, LIMIT_S, PACKAGE, ROOT, copy_checkout

# What pytest says where a test failed; any other status is no test that noticed.
FAILED = 1
RULER, BENCH, PEERS = "tests/test_ruler.py", "tests/test_bench.py", "tests/test_peers.py"
PROGRAMS = "peers/programs/measure"
OF_TORCH = "tests/test_peer_programs.py"


@dataclass(frozen=True)
class Listed:
    """A replacement of `old`, which stands in `file` once, by `new`."""

    about: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = (RULER,)


OURS_AS_MINIMUM = "ours as minimum beside the peer's maximum"
HALF = "ours on half the batch"
INTERVAL = "a 50 % interval called 95 %"
BUSY = "busy limit 0.1 to 0.45"
CHANNELS = "swapped channels"
THREADS = "peers' threads pinned to 1"
DOUBLED = "peers' times doubled"
WARM_UP = "warm-up dropped or counted"
DRIFT = "drift limit 0.9 to 0.5"

MUTANTS = (
    Listed(
        OURS_AS_MINIMUM,
        "bench/trials.py",
        "ours_ms, theirs_ms = statistics.median(ours_medians), statistics.median(theirs_medians)",
        "ours_ms, theirs_ms = min(ours_medians), max(theirs_medians)",
    ),
    Listed(
        OURS_AS_MINIMUM,
        "bench/trials.py",
        "[statistics.median(values) for values in side] for side in (ours_blocks, theirs_blocks)",
        "[(min if side is ours_blocks else max)(values) for values in side] for side in (ours_blocks, theirs_blocks)",
    ),
    Listed(
        OURS_AS_MINIMUM,
        "bench/collective.py",
        "median_ms = statistics.median(samples_ms)",
        "median_ms = min(samples_ms)",
        (RULER, BENCH),
    ),
    Listed(
        OURS_AS_MINIMUM,
        "report/analysis.py",
        "return statistics.mean(values) if metric in _COUNTED_METRICS else statistics.geometric_mean(values)",
        "return statistics.mean(values) if metric in _COUNTED_METRICS else "
        "(max(values) if self.first.get('in_band') is False else min(values))",
        ("tests/report/test_report.py",),
    ),
    Listed(
        OURS_AS_MINIMUM,
        "comparison/record.py",
        "ms = statistics.median(measured) if measured else None",
        "ms = min(measured) if measured else None",
        ("tests/comparison/test_record.py",),
    ),
    Listed(
        OURS_AS_MINIMUM,
        "comparison/table.py",
        "centre = statistics.mean(values) if key in _SHARES else statistics.geometric_mean(values)",
        "centre = statistics.mean(values) if key in _SHARES else min(values)",
        ("tests/comparison/test_table.py",),
    ),
    Listed(HALF, "bench/contestant.py", '"batch": case.batch,', '"batch": case.batch // 2,'),
    Listed(
        HALF,
        "bench/contestant.py",
        "measure(self.name, command, self.case, timeout_s)",
        'measure(self.name, command, __import__("dataclasses").replace(self.case, batch=self.case.batch // 2), '
        "timeout_s)",
    ),
    Listed(
        HALF,
        "../../benchmarks/suites/train.py",
        'OursContestant("block-stream-512", large, _SOCKETS)',
        'OursContestant("block-stream-512", replace(large, batch=256), _SOCKETS)',
    ),
    Listed(
        HALF,
        "../../benchmarks/suites/models.py",
        "net.case(workers), settings)",
        "replace(net.case(workers), batch=net.batch // 2), settings)",
    ),
    Listed(
        HALF,
        "comparison/peer_case.py",
        "batch=global_batch(settings),",
        "batch=2 * global_batch(settings),",
        ("tests/comparison/test_plan.py",),
    ),
    Listed(
        HALF,
        f"{PROGRAMS}/_harness.py",
        "rank * batch // workers, (rank + 1) * batch // workers",
        "rank * batch // workers // 2, (rank + 1) * batch // workers",
        (RULER, PEERS),
    ),
    Listed(
        HALF,
        f"{PROGRAMS}/_harness.py",
        "    x = random.random(",
        '    case = {**case, "rows": case["rows"] // 2}\n    x = random.random(',
        (RULER, PEERS),
    ),
    Listed(INTERVAL, "statistics/__init__.py", "CONFIDENCE = 0.95", "CONFIDENCE = 0.5", ("tests/statistics", RULER)),
    Listed(INTERVAL, "statistics/__init__.py", "(1 - CONFIDENCE) / 2 * 100", "(1 - 0.5) / 2 * 100"),
    Listed(INTERVAL, "statistics/__init__.py", "np.interp(CONFIDENCE", "np.interp(0.5", ("tests/statistics",)),
    Listed(INTERVAL, "statistics/__init__.py", "FEWEST_RESAMPLED = 5", "FEWEST_RESAMPLED = 2", ("tests/statistics",)),
    Listed(
        INTERVAL,
        "statistics/inference.py",
        "half = float(stats.t.ppf((1 + CONFIDENCE) / 2",
        "half = float(stats.t.ppf((1 + 0.5) / 2",
        ("tests/statistics",),
    ),
    Listed(
        INTERVAL,
        "statistics/inference.py",
        "interval = found.confidence_interval(CONFIDENCE)\n    return Welch(",
        "interval = found.confidence_interval(0.5)\n    return Welch(",
        ("tests/statistics",),
    ),
    Listed(
        INTERVAL,
        "statistics/inference.py",
        "interval = found.confidence_interval(CONFIDENCE)\n    names",
        "interval = found.confidence_interval(0.5)\n    names",
        ("tests/statistics",),
    ),
    Listed(
        INTERVAL,
        "statistics/sequential.py",
        "ERROR = 0.02",
        "ERROR = 0.25",
        ("tests/statistics", "tests/report/test_decision.py"),
    ),
    Listed(
        INTERVAL,
        "statistics/sequential.py",
        "-special.stdtrit(df, error)",
        "-special.stdtrit(df, 0.25)",
        ("tests/statistics",),
    ),
    Listed(
        INTERVAL,
        "report/break_even.py",
        "(1 + CONFIDENCE) / 2, sum(spreads)",
        "(1 + 0.5) / 2, sum(spreads)",
        ("tests/report/test_break_even.py",),
    ),
    Listed(
        INTERVAL,
        "report/break_even.py",
        "(1 + CONFIDENCE) / 2, len(values) - 1",
        "(1 + 0.5) / 2, len(values) - 1",
        ("tests/report/test_break_even.py",),
    ),
    Listed(BUSY, "machine.py", "BUSY_LIMIT = 0.1", "BUSY_LIMIT = 0.45"),
    Listed(BUSY, "machine.py", "cpu_percent(interval=seconds) / 100", "cpu_percent(interval=seconds) / 450"),
    Listed(
        BUSY,
        "report/findings.py",
        '.get("busy", 0.0) > machine.BUSY_LIMIT',
        '.get("busy", 0.0) > 0.45',
        ("tests/report/test_report.py",),
    ),
    Listed(
        BUSY,
        "report/answer.py",
        '.get("busy", 0.0) > machine.BUSY_LIMIT',
        '.get("busy", 0.0) > 0.45',
        ("tests/report/test_report.py",),
    ),
    Listed(
        BUSY,
        "comparison/loop.py",
        '.get("busy", 0.0) > machine.BUSY_LIMIT',
        '.get("busy", 0.0) > 0.45',
        ("tests/comparison/test_loop.py",),
    ),
    Listed(
        CHANNELS,
        "peers/mpi.py",
        "_SHARED_MEMORY if host_local else _TCP",
        "_TCP if host_local else _SHARED_MEMORY",
    ),
    Listed(CHANNELS, "peers/mpi.py", '"btl", "tcp,self"', '"btl", "sm,tcp,self"'),
    Listed(
        CHANNELS,
        "bench/spark_collective.py",
        '{True: {"host_local": "on"}, False: {"host_local": "off"}}',
        '{True: {"host_local": "off"}, False: {"host_local": "on"}}',
        (RULER, BENCH),
    ),
    Listed(
        CHANNELS,
        "bench/spark_collective.py",
        '"--mca pml ob1 --mca btl sm,self"',
        '"--mca pml ob1 --mca btl tcp,self"',
        (RULER, BENCH),
    ),
    Listed(
        CHANNELS,
        "bench/spark_collective.py",
        '{True: {"ucx.tls": "posix,sysv,cma,self"}, False: {"ucx.tls": "tcp,self"}}',
        '{False: {"ucx.tls": "posix,sysv,cma,self"}, True: {"ucx.tls": "tcp,self"}}',
        (RULER, BENCH),
    ),
    Listed(
        CHANNELS,
        f"{PROGRAMS}/_channel.py",
        '(("tcp", between), ("shared memory", all(segments)))',
        '(("shared memory", between), ("tcp", all(segments)))',
    ),
    Listed(CHANNELS, f"{PROGRAMS}/_channel.py", 'return "none"', 'return "tcp"'),
    Listed(
        THREADS,
        "peers/_base.py",
        "thread_variables(1 if isinstance(launch.case, CollectiveCase) else launch.case.threads)",
        "thread_variables(1)",
    ),
    Listed(THREADS, "peers/_base.py", "{name: str(threads) for name in names}", '{name: "1" for name in names}'),
    Listed(
        THREADS,
        f"{PROGRAMS}/torch_mlp.py",
        'torch.set_num_threads(case["threads"])',
        "torch.set_num_threads(1)",
        (OF_TORCH,),
    ),
    Listed(
        THREADS,
        f"{PROGRAMS}/torch_mlp.py",
        '"threads": torch.get_num_threads()',
        '"threads": case["threads"]',
        (OF_TORCH,),
    ),
    Listed(
        THREADS,
        f"{PROGRAMS}/torch_model.py",
        'torch.set_num_threads(case["threads"])',
        "torch.set_num_threads(1)",
        (OF_TORCH,),
    ),
    Listed(
        THREADS,
        f"{PROGRAMS}/torch_model.py",
        '"threads": torch.get_num_threads()',
        '"threads": case["threads"]',
        (OF_TORCH,),
    ),
    Listed(
        THREADS,
        "../../benchmarks/suites/models.py",
        '"pytorch-2": replace(one, threads=2)',
        '"pytorch-2": replace(one, threads=1)',
    ),
    Listed(
        THREADS,
        "../../benchmarks/suites/train.py",
        'PeerContestant("pytorch-2", "pytorch", replace(one, threads=2), directory)',
        'PeerContestant("pytorch-2", "pytorch", one, directory)',
    ),
    Listed(
        THREADS,
        "comparison/peer_case.py",
        'threads=int(settings.get("engine.threads", "0")) or int(spark.get("spark.task.cpus", "1")),',
        "threads=1,",
        ("tests/comparison/test_plan.py",),
    ),
    Listed(DOUBLED, f"{PROGRAMS}/_harness.py", "- start) / 1e6", "- start) / 5e5"),
    Listed(DOUBLED, f"{PROGRAMS}/_harness.py", '"samples_ms": samples_ms', '"samples_ms": samples_ms * 2'),
    Listed(DOUBLED, "peers/_process.py", "Sample(float(ms),", "Sample(2 * float(ms),"),
    Listed(DOUBLED, f"{PROGRAMS}/bigdl_mlp.py", "/ BLOCK_STEPS * 1e3", "/ BLOCK_STEPS * 2e3"),
    Listed(DOUBLED, f"{PROGRAMS}/mpi_allreduce.py", "(mean_ms / world.size).tolist()", "mean_ms.tolist()"),
    Listed(
        DOUBLED,
        f"{PROGRAMS}/gloo_allreduce.py",
        '(mean_ms / case["workers"]).tolist()',
        "mean_ms.tolist()",
        (OF_TORCH,),
    ),
    Listed(
        DOUBLED, f"{PROGRAMS}/torch_mlp.py", '(mean_ms / case["workers"]).tolist()', "mean_ms.tolist()", (OF_TORCH,)
    ),
    Listed(
        DOUBLED, f"{PROGRAMS}/torch_model.py", '(mean_ms / case["workers"]).tolist()', "mean_ms.tolist()", (OF_TORCH,)
    ),
    Listed(
        DOUBLED, f"{PROGRAMS}/torch_fit.py", '(sums_ms / case["workers"]).tolist()', "sums_ms.tolist()", (OF_TORCH,)
    ),
    Listed(DOUBLED, f"{PROGRAMS}/torch_fit.py", "sum(phases_ns) / 1e6", "sum(phases_ns) / 5e5", (OF_TORCH,)),
    Listed(
        DOUBLED, "bench/contestant.py", "[sample.ms for sample in samples]", "[2 * sample.ms for sample in samples]"
    ),
    Listed(
        DOUBLED,
        "comparison/record.py",
        '        "steps_ms": [round(step, 4) for step in steps_ms],\n        "facts": {\n            **{name',
        '        "steps_ms": [round(2 * step, 4) for step in steps_ms],\n        "facts": {\n            **{name',
        ("tests/comparison/test_record.py",),
    ),
    Listed(
        DOUBLED,
        "comparison/record.py",
        '            plan,\n            steps_ms,\n            history,\n            float(facts["seconds_total"]),',
        "            plan,\n            [2 * ms for ms in steps_ms],\n            history,\n"
        '            float(facts["seconds_total"]),',
        ("tests/comparison/test_record.py",),
    ),
    Listed(WARM_UP, f"{PROGRAMS}/_harness.py", "for index in range(warmup):", "for index in range(0):"),
    Listed(
        WARM_UP,
        f"{PROGRAMS}/_harness.py",
        "for index in range(warmup, warmup + steps):",
        "for index in range(warmup + steps):",
    ),
    Listed(
        WARM_UP,
        f"{PROGRAMS}/bigdl_mlp.py",
        'measured = ended_s[case["warmup_steps"] - 1 if case["warmup_steps"] else 0 :]',
        "measured = ended_s",
    ),
    Listed(WARM_UP, "bench/contestant.py", "Trial(steps_ms[warmup_steps:], 1, facts)", "Trial(steps_ms, 1, facts)"),
    Listed(
        WARM_UP,
        "bench/contestant.py",
        "steps = case.warmup_steps + case.steps",
        "steps = case.steps",
    ),
    Listed(
        WARM_UP,
        "bench/spark_collective.py",
        '"net.warmup": str(case["warmup"])',
        '"net.warmup": "1"',
        (RULER, BENCH),
    ),
    Listed(
        WARM_UP,
        "bench/net.py",
        "CollectiveCase(way.elements, way.workers, bool(way.host_local), warmup, iterations)",
        "CollectiveCase(way.elements, way.workers, bool(way.host_local), 0, iterations)",
    ),
    Listed(
        WARM_UP,
        "comparison/record.py",
        "    measured = steps_ms[first:]\n",
        "    measured = steps_ms\n",
        ("tests/comparison/test_record.py",),
    ),
    Listed(
        WARM_UP,
        "comparison/record.py",
        "[-(-warmup_steps // every) :]",
        "[0:]",
        ("tests/comparison/test_record.py",),
    ),
    Listed(DRIFT, "bench/trials.py", "DRIFT_LIMIT = 0.1", "DRIFT_LIMIT = 0.5"),
    Listed(DRIFT, "bench/trials.py", "round(abs(drift - 1), 9)", "round(drift - 1, 9)"),
    Listed(DRIFT, "report/analysis.py", "STEADY = (0.9, 1.1)", "STEADY = (0.5, 1.1)", (RULER,)),
    Listed(DRIFT, "report/analysis.py", "STEADY = (0.9, 1.1)", "STEADY = (0.9, 1.5)", (RULER,)),
    Listed(
        DRIFT,
        "comparison/table.py",
        "_STEADY = (0.9, 1.1)",
        "_STEADY = (0.5, 1.1)",
        ("tests/comparison/test_table.py",),
    ),
    Listed(
        DRIFT,
        "report/tables.py",
        "STEADY[0] <= value <= STEADY[1] else",
        "0.5 <= value <= STEADY[1] else",
        ("tests/report/test_report.py",),
    ),
    Listed(
        DRIFT,
        "statistics/__init__.py",
        "return median(samples[-third:]) / median(samples[:third])",
        "return median(samples[third:]) / median(samples)",
        (RULER, BENCH),
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="those whose description or file holds this text")
    arguments = parser.parse_args()
    chosen = [each for each in MUTANTS if arguments.only in f"{each.about} {each.file}"]
    copy_checkout()
    # All tests together take longer than those of any mutant.
    limit_s = max(LIMIT_S, sound(sorted({test for each in chosen for test in each.tests})))
    living = [each for each in chosen if not dies(each, limit_s)]
    for each in living:
        print(f"LIVES {each.about}: {each.file}: {each.new}")
    print(f"{len(chosen) - len(living)} of {len(chosen)} listed mutants die")
    return int(bool(living) or not chosen)


def sound(tests: Sequence[str]) -> float:
    """The seconds that the tests take; ends the program where they fail without a mutant."""
    start = time.monotonic()
    status, said = tested(tests, 900.0)
    if status != 0:
        raise SystemExit(f"The tests end with status {status} without a mutant already:\n{said[-3000:]}")
    return time.monotonic() - start


def dies(mutant: Listed, limit_s: float) -> bool:
    path = COPY / PACKAGE / mutant.file
    whole = path.read_text(encoding="utf-8")
    path.write_text(mutated(mutant, whole), encoding="utf-8")
    try:
        status, _ = tested(mutant.tests, limit_s)
    finally:
        path.write_text(whole, encoding="utf-8")
    print(f"{'dies ' if status == FAILED else f'LIVES (status {status})'} {mutant.about}: {mutant.file}", flush=True)
    return status == FAILED


def mutated(mutant: Listed, text: str) -> str:
    """The file's text with the replacement.

    Raises:
        SystemExit: what is to be replaced stands there not once, so the list is older than the sources.
    """
    count = text.count(mutant.old)
    if count != 1:
        raise SystemExit(
            f"{mutant.file} holds {mutant.old!r} {count} times, and a listed mutant ({mutant.about}) replaces it where "
            "it stands once. Bring the list in project/listed_mutants.py up to date."
        )
    return text.replace(mutant.old, mutant.new)


def tested(tests: Sequence[str], limit_s: float) -> tuple[int, str]:
    """The status of pytest over the copy, that of a failed test where it takes too long; and what it said."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", LEFT_OUT, *tests]
    environment = {**os.environ, "PYTHONPATH": str(COPY / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(  # noqa: S603
            command, cwd=COPY, env=environment, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return FAILED, ""
    return done.returncode, done.stdout


def stale() -> list[str]:
    """Mutants whose replacement does not apply to the sources as they are."""
    found = []
    for each in MUTANTS:
        text = (ROOT / PACKAGE / each.file).read_text(encoding="utf-8")
        if text.count(each.old) != 1 or each.old == each.new:
            found.append(f"{each.about}: {each.file}: {each.old}")
    return found


if __name__ == "__main__":
    sys.exit(main())
