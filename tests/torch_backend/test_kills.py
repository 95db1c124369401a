"""A rank's Python process, or its executor's JVM, is killed at a random moment of a training with DDP.

Either the launch ends with an error that names what was lost, or it goes on with the undisturbed result; and nothing of
it is left. The moments are those of a seed; `make soak` kills twenty of each.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from dataclasses import dataclass
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
from sparkdl_bench.errors import RankFailedError, RunFailedError
from torch_backend import session_processes as processes

# pyspark's RDD.collect leaves its socket to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
# Workers get the functions of this file with the task; they have no copy of it.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SEED, STEPS, TIMEOUT_S = 0, 150, 60.0
# Spark keeps one in each direction, for blocks of its broadcasts. A launch has four of its own while it runs.
SPARKS_OWN_LINKS = 2
# Of the undisturbed training: later a kill may come too late.
LATEST = 0.9


def train(announcements: str, checkpoints: str) -> list[float]:
    """The weights; each step depends on those before. Vectors of both kinds: those that are bound, and short ones."""
    import torch
    import torch.distributed as dist

    from sparkdl_bench import checkpoint

    daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
    told = {"python": os.getpid(), "jvm": int(daemon.rpartition(")")[2].split()[1]), "started": time.time()}
    name = f"{sparkdl_bench.launch_attempt()}-{dist.get_rank()}"
    Path(announcements, f"{name}.partial").write_text(json.dumps(told))
    Path(announcements, f"{name}.partial").rename(Path(announcements, f"{name}.json"))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 300), torch.nn.ReLU(), torch.nn.Linear(300, 3))
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    state = checkpoint.load(checkpoints) or {"step": 0}
    if state["step"]:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    total = torch.zeros(1)
    for step in range(state["step"] + 1, STEPS + 1):
        generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
        optimizer.zero_grad()
        loss = model(torch.randn(8, 64, generator=generator)).square().mean()
        loss.backward()
        optimizer.step()
        total += loss.detach()
        dist.all_reduce(total.clone())
        if step % 10 == 0:
            if dist.get_rank() == 0:
                saved = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
                checkpoint.save(saved, checkpoints)
            dist.barrier()
    return torch.cat([each.detach().reshape(-1) for each in model.parameters()]).tolist()


@dataclass(frozen=True)
class Kill:
    """Which process of which rank, and when: the share of the undisturbed training's time."""

    victim: str
    rank: int
    moment: float

    @staticmethod
    def of(seed: int, number: int, victim: str) -> Kill:
        chance = random.Random(f"{seed}/{victim}/{number}")
        return Kill(victim, chance.randrange(2), LATEST * chance.random())


class Killer(threading.Thread):
    """Kills once both ranks of the first attempt have told who they are, and the moment has come."""

    def __init__(self, kill: Kill, announcements: Path, training_s: float) -> None:
        super().__init__(daemon=True)
        self._kill, self._announcements, self._training_s = kill, announcements, training_s
        self.killed: int | None = None
        self.executor: int | None = None
        self.gave_up = threading.Event()

    def run(self) -> None:
        told = [self._announcements / f"0-{rank}.json" for rank in range(2)]
        while not all(each.exists() for each in told):
            if self.gave_up.wait(0.01):
                return
        if self.gave_up.wait(self._kill.moment * self._training_s):
            return
        said = json.loads(told[self._kill.rank].read_text())
        self.executor = said["jvm"]
        os.kill(said[self._kill.victim], signal.SIGKILL)
        self.killed = said[self._kill.victim]


class Campaign:
    """Launches one after the other in one session, each with one kill."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder = spark, folder
        self.lost_executors: set[int] = set()
        self.outcomes: list[str] = []
        self._launch("warm")  # processes start, PyTorch is imported
        begun = time.time()
        self.undisturbed = self._launch("undisturbed")
        told = [json.loads(each.read_text())["started"] for each in (folder / "undisturbed").glob("0-*.json")]
        self._training_s = time.time() - max(told)
        assert max(told) > begun

    def _launch(self, name: str, attempts: int = 1) -> list[Any]:
        announcements = self._folder / name
        announcements.mkdir()
        args = (str(announcements), (self._folder / f"{name}-checkpoints").as_uri())
        results = self._folder / "results"
        return sparkdl_bench.launch(
            train, self._spark, args=args, attempts=attempts, timeout=TIMEOUT_S, results=results
        )

    def kill(self, number: int, kill: Kill) -> None:
        name = f"{kill.victim}-{number}"
        killer = Killer(kill, self._folder / name.replace("/", "-"), self._training_s)
        killer.start()
        said = ""
        try:
            values = self._launch(name, attempts=3)
        except RankFailedError as error:
            said = str(error)
            if killer.killed is None or error.rank is None:
                raise
        except RunFailedError as error:
            raise AssertionError(f"{kill}: the error names no rank: {error}") from error
        else:
            assert values == self.undisturbed, f"{kill}: another result than that of an undisturbed training"
        finally:
            killer.gave_up.set()
            killer.join()
        if killer.killed is not None and kill.victim == "jvm" and killer.executor is not None:
            self.lost_executors.add(killer.executor)
        self.outcomes.append("too late" if killer.killed is None else said.splitlines()[0] if said else "went on")
        self._nothing_is_left(name, kill)

    def _nothing_is_left(self, name: str, kill: Kill) -> None:
        told = [json.loads(each.read_text()) for each in (self._folder / name).glob("*.json")]
        known = {each["jvm"] for each in told}
        assert processes.awaited(lambda: all(processes.is_gone(jvm) for jvm in self.lost_executors)), kill
        running = {each.pid for each in processes.executors(self._spark)}
        orphans = [each["python"] for each in told if each["jvm"] not in running]
        assert processes.awaited(lambda: all(processes.is_gone(pid) for pid in orphans)), f"{kill}: {orphans}, {known}"
        assert processes.awaited(lambda: not processes.endpoint_connections(self._spark)), (
            kill,
            processes.endpoint_connections(self._spark),
        )
        assert processes.awaited(lambda: processes.links(self._spark) <= SPARKS_OWN_LINKS), (
            f"{kill}: {processes.links(self._spark)} connections between executors"
        )

        def no_worker_has_memory() -> bool:
            executors = processes.executors(self._spark)
            return not any(processes.shared_memory(each) for jvm in executors for each in processes.workers(jvm))

        assert processes.awaited(no_worker_has_memory), f"{kill}: memory of a process group in a Python worker"
        folder = self._folder / f"{name}-checkpoints"
        if folder.exists() and self.outcomes[-1] == "went on":
            unfinished = [each.name for each in folder.iterdir() if not each.name.startswith("checkpoint-")]
            assert not unfinished, f"{kill}: {unfinished}"

    def end(self) -> None:
        """A launch that is not disturbed: it is as the first was, and tidies up what killed executors have left."""
        assert self._launch("after") == self.undisturbed
        assert not processes.left_folders(self.lost_executors)

        def no_executor_has_memory() -> bool:
            running = processes.executors(self._spark)
            return not any(processes.shared_memory(each) for each in running if processes.collect_garbage(each))

        assert processes.awaited(no_executor_has_memory), "memory of a process group is mapped by an executor"


@pytest.mark.parametrize("victim", ["python", "jvm"])
@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.campaign)])
def test_killed_processes_are_named_or_the_training_goes_on(
    spark: SparkSession, tmp_path: Path, victim: str, kills: int
) -> None:
    campaign = Campaign(spark, tmp_path)
    for number in range(kills):
        campaign.kill(number, Kill.of(SEED, number, victim))
    campaign.end()
    # Kills that come too late show nothing.
    assert campaign.outcomes.count("too late") <= kills // 4, campaign.outcomes
    print(*campaign.outcomes, sep="\n")
