"""The barrier stage of a launch, from the driver's side: one Spark job in a thread of its own."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkdl_bench.frames import own_python
from sparkdl_bench.launching.job import Job

_RANK_OF_TASK = re.compile(r"barrier task (?:Shuffle|Result)(?:Map)?Task\(\d+, (\d+)\)")
_PYTHON_GONE = re.compile(
    r"Python worker exited unexpectedly \(crashed\)|Python worker process terminated|EOFException"
    # As the task's own exception: what a rank's Python raises stands in a PythonException.
    r"|finished unsuccessfully\.\s+java\.(?:net\.SocketException|io\.IOException): (?:Connection reset|Broken pipe)"
)
_EXECUTOR_LOST = re.compile(r"ExecutorLostFailure \(executor (\S+) [^)]*\)(?: Reason: ([^\n]*))?")
_OUR_ERROR = re.compile(r"^(?:sparkdl_bench\.errors\.)(\w+): (.*?)(?:\n\s*\n|\n\s+at |\Z)", re.MULTILINE | re.DOTALL)
_HERE = str(Path(__file__).resolve().parents[2])


@dataclass(frozen=True)
class Ended:
    """Why a job ended, as far as Spark says.

    Attributes:
        rank: whose task Spark blames; None where it does not say.
        kind: `python` (its process is gone), `executor` (lost), or `task` (anything else, such as an exception).
        reason: what Spark says of it, one line.
        configuration: whether it is an error that the user can fix, by our own word.
    """

    rank: int | None
    kind: str
    reason: str
    configuration: bool = False


class Stage:
    """One submission of a job: its results are the ranks' answers."""

    def __init__(self, spark: Any, job: Job, description: str) -> None:
        self._context = spark.sparkContext
        self._group = f"sparkdl-launch-{job.launch_id}-{job.attempt}"
        self._job = job
        self._description = description
        self.future: Future[list[Any]] = Future()

    def start(self) -> None:
        """Submits the job, with the properties of the calling thread, such as its scheduler pool."""
        from pyspark import InheritableThread

        thread = InheritableThread(target=self._work)
        thread.daemon = True
        thread.start()

    def cancel(self) -> None:
        self._context.cancelJobGroup(self._group)

    def _work(self) -> None:
        try:
            # Without interrupts of the tasks' threads: Spark would then leave their Python processes alone.
            self._context.setJobGroup(self._group, self._description, False)
            self.future.set_result(self._ranks().collect())
        except BaseException as error:
            self.future.set_exception(error)

    def _ranks(self) -> Any:
        context = self._context
        rows = context.parallelize(range(self._job.size), self._job.size)
        ranks = rows.barrier().mapPartitions(_task(self._job, _HERE))
        with own_python(context):
            ranks.id()  # from here on it is fixed
        return ranks


def _task(job: Job, here: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What travels to the workers by value: it must not need this package to be unpickled."""
    fields = {name: getattr(job, name) for name in job.__dataclass_fields__}

    def task(_: Iterator[Any]) -> Iterator[Any]:
        import socket
        from pathlib import Path

        from pyspark import BarrierTaskContext

        try:
            from sparkdl_bench import version  # noqa: F401
        except ModuleNotFoundError:
            # A checkout that only the driver's import path names; the same folder is there where it is the same host.
            if not Path(here, "sparkdl_bench").is_dir():
                raise RuntimeError(
                    f"The Python of the executor on host {socket.gethostname()} ({sys.executable}) has no package "
                    "sparkdl_bench. Install the same version there as at the driver (pip install sparkdl-bench), or "
                    "send it with --py-files."
                ) from None
            sys.path.append(here)
        from sparkdl_bench.launching import job as jobs
        from sparkdl_bench.launching import rank as ranks
        from sparkdl_bench.worker import connect

        context = BarrierTaskContext.get()
        addresses = [info.address for info in context.getTaskInfos()]
        gpus = context.resources().get("gpu")
        yield ranks.run(
            jobs.Job(**fields), context.partitionId(), addresses, list(gpus.addresses) if gpus else [], connect
        )

    return task


def why(error: BaseException) -> Ended:
    """What Spark says about a job that failed."""
    text = str(error)
    task = _RANK_OF_TASK.search(text)
    rank = int(task.group(1)) if task else None
    lost = _EXECUTOR_LOST.search(text)
    if lost:
        return Ended(rank, "executor", f"executor {lost.group(1)}: {(lost.group(2) or 'lost').strip()}")
    if _PYTHON_GONE.search(text):
        return Ended(rank, "python", "its Python process is gone")
    own = _OUR_ERROR.search(text)
    if own:
        return Ended(rank, "task", " ".join(own.group(2).split()), own.group(1) == "ConfigurationError")
    return Ended(rank, "task", _first_line(text))


def _first_line(text: str) -> str:
    """The line with the reason: of a Python exception its last, else the exception's own."""
    python = re.findall(r"^(\w[\w.]*(?:Error|Exception|Failed)): (.*)$", text, re.MULTILINE)
    if python:
        return f"{python[-1][0]}: {python[-1][1]}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "Exception" in line or "Error" in line), lines[0] if lines else "no reason")
