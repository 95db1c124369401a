"""Thousands of steps: at their end no more memory, file descriptors or threads than near their beginning."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip(
    "torch", reason="PyTorch is not installed: `make test-torch` runs these tests in its own environment"
)

from pyspark import cloudpickle

import sparkdl_bench

# pyspark's RDD.collect leaves its socket to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
# Workers get the functions of this file with the task; they have no copy of it.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

Held = dict[str, int]
Threads = Counter[str]
# Of memory, beside the share: what allocators keep for themselves.
SHARE, SLACK_BYTES = 0.05, 16 << 20
# Netty and Spark open a few more by themselves (a timer's thread, a second event loop).
MORE_THREADS, MORE_DESCRIPTORS = 3, 4
# How long an executor may take to end the threads of groups that are closed: it waits for the other side's end of a
# connection for at most three seconds, and others have the cores.
PATIENCE_S = 30.0


def held_by(pid: int) -> Held:
    """File descriptors, threads and resident bytes of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return {
        "descriptors": sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()),
        "threads": int(re.findall(r"^Threads:\s+(\d+)", status, re.MULTILINE)[0]),
        "resident": 1024 * int(re.findall(r"^VmRSS:\s+(\d+)", status, re.MULTILINE)[0]),
    }


def threads_of(pid: int) -> Threads:
    """How many threads of each name a process has; names are the kernel's, of at most 15 letters."""
    found: Threads = Counter()
    for each in Path(f"/proc/{pid}/task").iterdir():
        try:
            found[(each / "comm").read_text().strip()] += 1
        except OSError:  # it has just ended
            continue
    return found


def of_groups(pid: int) -> int:
    """Threads of the connections of Python processes, which every group has some of."""
    return sum(count for name, count in threads_of(pid).items() if name.startswith("sparkdl-worker"))


def await_end_of_groups(pid: int, others: int) -> None:
    """Who closes a group does not wait for that. What is left after this long, the test finds."""
    begun, more = time.monotonic(), of_groups(pid) - others
    while of_groups(pid) > others and time.monotonic() < begun + PATIENCE_S:
        time.sleep(0.1)
    print(f"{more} threads of closed groups; after {time.monotonic() - begun:.1f} s {of_groups(pid) - others}")


def held_by_jvm(pid: int) -> Held:
    """And what of its heap is in use, where there is a tool that tells."""
    tool = shutil.which("jcmd")
    heap: Held = {}
    if tool is not None:
        subprocess.run([tool, str(pid), "GC.run"], capture_output=True, check=True)
        said = subprocess.run([tool, str(pid), "GC.heap_info"], capture_output=True, check=True, text=True).stdout
        heap = {
            "heap": 1024 * sum(int(used) for used in re.findall(r"(?:heap|generation)\s+total.*?used (\d+)K", said))
        }
    return {**held_by(pid), **heap}


def train(steps: int, looks: tuple[int, ...]) -> list[tuple[tuple[Held, Threads], tuple[Held, Threads]]]:
    """What this process and its executor's JVM hold after so many steps of each kind of operation."""
    import gc

    import torch
    import torch.distributed as dist

    daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
    jvm = int(daemon.rpartition(")")[2].split()[1])
    torch.set_num_threads(1)
    rank, size = dist.get_rank(), dist.get_world_size()
    net = torch.nn.Sequential(torch.nn.Linear(64, 300), torch.nn.ReLU(), torch.nn.Linear(300, 3))
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rows = torch.randn(8, 64)
    found = []
    dist.barrier()
    others = of_groups(jvm)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()
        for each in every_kind(torch, dist, rank, size, step):
            each()
        if step in looks:
            dist.barrier()
            gc.collect()
            # One JVM after the other: each takes a core while it collects.
            for turn in range(size):
                if turn == rank:
                    await_end_of_groups(jvm, others)
                    mine, its = held_by(os.getpid()), held_by_jvm(jvm)
                    found.append(((mine, threads_of(os.getpid())), (its, threads_of(jvm))))
                dist.barrier()
    return found


def every_kind(torch: Any, dist: Any, rank: int, size: int, step: int) -> list[Callable[[], Any]]:
    """The operations of a step: all at the first ones, later in turns, and a group of its own now and then."""
    small, half = torch.ones(7), torch.ones(5000, dtype=torch.bfloat16)
    parts = [torch.empty(7) for _ in range(size)]

    def messages() -> None:
        got, other = torch.empty(50_000), (rank + 1) % size
        receive = dist.irecv(got, (rank - 1) % size)
        dist.send(torch.ones(50_000), other)
        receive.wait()

    def own_group() -> None:
        group = dist.new_group(list(range(size)))
        dist.all_reduce(torch.ones(20_000), group=group)
        dist.all_reduce(torch.ones(20_000), group=group)
        dist.destroy_process_group(group)

    kinds = [
        lambda: dist.all_reduce(small),
        lambda: dist.all_reduce(half, op=dist.ReduceOp.MAX),
        lambda: dist.all_gather(parts, small),
        lambda: dist.broadcast(small, 0),
        lambda: dist.all_gather_object([None] * size, {"step": step}),
        lambda: dist.all_reduce(small, async_op=True).get_future().then(lambda done: done.value()).wait(),
        messages,
    ]
    if step % 100 == 0:
        return [*kinds, own_group]
    return [kinds[step % len(kinds)]]


@pytest.mark.parametrize(("first", "last"), [(300, 1200), pytest.param(2000, 12_000, marks=pytest.mark.campaign)])
def test_steps_keep_nothing(spark: SparkSession, tmp_path: Path, first: int, last: int) -> None:
    found = sparkdl_bench.launch(train, spark, args=(last, (first, last)), results=tmp_path, timeout=120)
    for rank, looks in enumerate(found):
        for side, (before, threads), (after, later) in zip(("Python", "JVM"), *looks, strict=True):
            new = dict(later - threads)
            where = f"rank {rank}, {side}: {before} after {first} steps, {after} after {last}; threads more: {new}"
            print(where)
            assert after["descriptors"] <= before["descriptors"] + MORE_DESCRIPTORS, where
            assert after["threads"] <= before["threads"] + MORE_THREADS, where
            for memory in before.keys() & {"resident", "heap"}:
                assert after[memory] <= before[memory] * (1 + SHARE) + SLACK_BYTES, where
