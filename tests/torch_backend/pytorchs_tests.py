"""PyTorch's own tests of torch.distributed for gloo, on the backend "sparkdl": `make test-torch-cases`.

    python tests/torch_backend/pytorchs_tests.py [--sync auto] [--workers 3] [--only NAME ...]

The wheel of PyTorch has them (`torch.testing._internal.distributed.distributed_test`); they want a process per rank,
which here are the ranks of a launch. Each test has a process group of its own. They are told that the backend is gloo,
so that all run that gloo has, and `init_process_group` and `new_group` join ours. The exit status is 1 where a test
fails that is not in `EXPECTED`, or one of those passes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

import sparkdl_bench
from sparkdl_bench.errors import SparkDLError

cloudpickle.register_pickle_by_value(sys.modules[__name__])

PASSED, SKIPPED, FAILED, LOST = "passed", "skipped", "failed", "lost"
# What fails, and why it may.
_BARRIER = "the backend has no monitored_barrier, and says so: its barrier names the rank that is gone or late"
_WORDS = "it looks for gloo's words; ours are 'waited in phase' and 'in vain'"
EXPECTED: dict[str, str] = {
    "test_barrier_timeout_full_group": _WORDS,
    "test_barrier_timeout_global": _WORDS,
    "test_get_backend": "the group's backend is sparkdl, and the test was told gloo",
    "test_monitored_barrier_gloo": _BARRIER,
    "test_monitored_barrier_gloo_rank_0_timeout": _BARRIER,
    "test_monitored_barrier_gloo_subgroup": _BARRIER,
}
# Longer than any test takes that does not hang.
TEST_SECONDS = 150.0
GROUP_SECONDS = 20.0


def run_tests(folder: str, names: list[str] | None) -> list[str]:
    """Runs them as one rank, and writes each outcome as soon as it is there; without names it only lists them."""
    os.environ.update(BACKEND="gloo", TEMP_DIR=f"{folder}/temporary", INIT_METHOD=f"file://{folder}/init")
    import unittest

    import torch
    import torch.distributed as dist
    from torch.testing._internal.common_distributed import TEST_SKIPS
    from torch.testing._internal.common_utils import set_rng_seed
    from torch.testing._internal.distributed import distributed_test

    reasons = {each.exit_code: each.message for each in TEST_SKIPS.values()}

    class Cases(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        pass

    if names is None:
        return sorted(name for name in dir(Cases) if name.startswith("test_"))
    torch.set_num_threads(1)
    rank = dist.get_rank()

    def outcome_of(name: str) -> tuple[str, str]:
        function = getattr(Cases, name)
        if getattr(function, "__unittest_skip__", False):
            return SKIPPED, function.__unittest_skip_why__
        case = Cases(name)
        case.rank, case.file_name = rank, f"{folder}/init"
        set_rng_seed()
        try:
            getattr(case, name)()
        except unittest.SkipTest as skipped:
            return SKIPPED, str(skipped)
        except SystemExit as ended:
            if ended.code in reasons:
                return SKIPPED, reasons[ended.code]
            return (FAILED, f"it ends with status {ended.code}") if ended.code else (PASSED, "")
        except BaseException:
            return FAILED, traceback.format_exc()
        return PASSED, ""

    with open(f"{folder}/{rank}.jsonl", "a", encoding="utf-8") as outcomes:  # noqa: PTH123 (by the rank)
        for name in names:
            _write(outcomes, name, "begun", "")
            watchdog = _watchdog(name)
            _again(dist)
            Path(os.environ["TEMP_DIR"]).mkdir(exist_ok=True)
            distributed_test.Barrier.barrier_id = 0
            outcome = outcome_of(name)
            watchdog.cancel()
            _write(outcomes, name, *outcome)
    return names


def _again(dist: Any) -> None:
    """A new group, whatever the test before has left."""
    if dist.is_initialized():
        try:
            dist.destroy_process_group()
        except Exception as error:
            print(f"the group of the test before: {error}")
    dist.init_process_group()
    if dist.get_rank() == 0:
        for folder in ("barrier", "test_dir", "init_dir"):
            place = Path(os.environ["TEMP_DIR"], folder)
            place.mkdir(parents=True, exist_ok=True)
            for each in place.iterdir():
                each.unlink()
    dist.barrier()


def _watchdog(name: str) -> Any:
    import faulthandler
    import threading

    def end() -> None:
        print(f"{name} has not ended within {TEST_SECONDS:.0f} s")
        faulthandler.dump_traceback(all_threads=True)
        os._exit(1)

    timer = threading.Timer(TEST_SECONDS, end)
    timer.daemon = True
    timer.start()
    return timer


def _write(file: Any, name: str, outcome: str, why: str) -> None:
    file.write(json.dumps([name, outcome, why]) + "\n")
    file.flush()


def outcomes_in(folder: Path, workers: int) -> dict[str, tuple[str, str]]:
    """What became of each test: the worst that a rank says."""
    worst = [PASSED, SKIPPED, FAILED, LOST, "begun"]
    found: dict[str, tuple[str, str]] = {}
    for rank in range(workers):
        file = folder / f"{rank}.jsonl"
        of_rank = {}
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
            name, outcome, why = json.loads(line)
            of_rank[name] = (outcome, why)
        for name, (outcome, why) in of_rank.items():
            if name not in found or worst.index(outcome) > worst.index(found[name][0]):
                found[name] = (outcome, f"rank {rank}: {why}" if outcome == FAILED else why)
    return {name: (LOST, "a rank was lost in it") if each[0] == "begun" else each for name, each in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sync", default="auto")
    parser.add_argument("--workers", type=int, default=3, help="ranks; most tests need three")
    parser.add_argument("--only", nargs="+", help="names of tests")
    parser.add_argument("--verbose", action="store_true", help="show the tracebacks of expected failures too")
    chosen = parser.parse_args()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local-cluster[{chosen.workers},1,1024]").appName("PyTorch's tests")
    spark = sparkdl_bench.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory(prefix="sparkdl-torch-") as name:
        folder = Path(name)

        def launch(names: list[str] | None) -> Any:
            return sparkdl_bench.launch(
                run_tests,
                spark,
                workers=chosen.workers,
                sync=chosen.sync if names is not None else "none",
                args=(name, names),
                timeout=GROUP_SECONDS,
                results=folder / "results",
            )

        left = chosen.only or launch(None)[0]
        while left:
            try:
                launch(left)
            except SparkDLError as error:
                print(f"A launch ended: {str(error).splitlines()[0]}")
            known = outcomes_in(folder, chosen.workers)
            if left[0] not in known:
                raise SystemExit("No test was begun.")
            left = [each for each in left if each not in known]
    spark.stop()
    return tell(known, chosen.verbose)


def tell(outcomes: dict[str, tuple[str, str]], verbose: bool) -> int:
    """Prints what came of them; the exit status."""
    wrong = []
    for name, (outcome, why) in sorted(outcomes.items(), key=lambda each: (each[1][0], each[0])):
        failed = outcome in (FAILED, LOST)
        if failed and name in EXPECTED:
            print(f"expected  {name}: {EXPECTED[name]}")
        elif outcome == SKIPPED:
            print(f"skipped   {name}: {why}")
        elif failed:
            print(f"{outcome.upper():9} {name}")
        if failed and (name not in EXPECTED or verbose):
            print("    " + why.strip().replace("\n", "\n    "))
        if failed != (name in EXPECTED) and outcome != SKIPPED:
            wrong.append(name)
            if not failed:
                print(f"PASSES    {name}, which is expected to fail")
    counts = Counter(outcome for outcome, _ in outcomes.values())
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()), f"of {len(outcomes)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
