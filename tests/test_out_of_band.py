"""Training over UCX, and over an MPI job beside the executors: every algorithm as over `tcp`, to the same bits.

Over one topology each; `test_loss_curves.py` has synchronous SGD over all of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from sparkdl_bench import FitResult, Trainer
from sparkdl_bench.bench.spark_collective import spark_transport_missing
from sparkdl_bench.peers import default_directory
from sparkdl_bench.results import RunResults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.on_one_line

ALGORITHMS: dict[str, dict[str, Any]] = {
    "sync-sgd": {"topology": "ring", "momentum": 0.9},
    "local-sgd": {"local": {"tau": 2}},
    "easgd": {"easgd": {"tau": 3}},
    "gossip": {"gossip": {"tau": 2}},
    "gd": {"gd": {"rows": 200}, "max_steps": 4},
    "lbfgs": {"lbfgs": {"rows": 200}, "max_steps": 4},
    "downpour": {"topology": "ps", "downpour": {"stale": 0}},
}
# What the run's file says of those that carried the bytes.
WITNESSES = {"ucx": "ucx.transports", "ours:mpi": "mpi.library"}


@pytest.fixture(scope="module")
def trained(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], FitResult]:
    """A short training of an algorithm over a transport; each is made once."""
    made: dict[tuple[str, str], FitResult] = {}

    def train(algorithm: str, transport: str) -> FitResult:
        if (algorithm, transport) not in made:
            settings = {"max_steps": 6, "evaluate_every": 0, "batch": 50, **ALGORITHMS[algorithm]}
            trainer = Trainer(
                {"name": "mlp", "hidden": [32]},
                "digits",
                transport=transport,
                algorithm=algorithm,
                results=tmp_path_factory.mktemp("results"),
                **settings,
            )
            made[algorithm, transport] = trainer.fit(spark)
        return made[algorithm, transport]

    return train


@pytest.mark.parametrize("transport", WITNESSES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_it_trains_as_over_tcp(trained: Callable[[str, str], FitResult], algorithm: str, transport: str) -> None:
    reason = spark_transport_missing(transport)
    if reason:
        pytest.skip(reason)
    name = transport.removeprefix("ours:")
    fitted, expected = trained(algorithm, name).weights(), trained(algorithm, "tcp").weights()
    for parameter, array in expected.items():
        # The order in which pushes arrive decides downpour's sums.
        bound = 1e-4 if algorithm == "downpour" else 0.0
        assert np.abs(fitted[parameter] - array).max() <= bound, parameter
    results = RunResults(Path(trained(algorithm, name).results_dir))
    sent = {channel for channel, count in results.summary["bytes"].items() if count}
    assert name in sent
    assert not {"block-stream", "host-local", "tcp"} & sent
    assert any(WITNESSES[transport] in channels for channels in results.run["channels"])


RANK_PROGRAM = Path(__file__).resolve().parents[1] / "jvm/src/main/resources/sparkdlbench/mpi/rank.py"
JOB_SECONDS = 60.0


def started_ranks(tmp_path: Path, secrets: list[str]) -> tuple[subprocess.Popen[str], list[Path]]:
    """An MPI job of the program beside the tasks, a rank a secret, and the ranks' folders; we stand for all tasks."""
    programs = default_directory() / "mpi" / "bin"
    if not (programs / "mpiexec").is_file():
        pytest.skip(f"'{programs}' holds no MPI: install it with `sparkdl-bench peers install mpi`")
    # Field 22 of proc(5), counted behind the name.
    started = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    folders: list[Path] = []
    words: list[str] = []
    for rank, secret in enumerate(secrets):
        folder = tmp_path / f"task-{rank}" / "rank"
        folder.mkdir(parents=True)
        job = {"rank": rank, "size": len(secrets), "secret": secret, "pid": os.getpid(), "started": started}
        (folder / "job.json").write_text(json.dumps(job))
        folders.append(folder)
        words += [":"] if rank else []
        words += ["--host", "localhost", "-n", "1", str(programs / "python"), str(RANK_PROGRAM), str(folder)]
    launch = [str(programs / "mpiexec"), "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", *words]
    process = subprocess.Popen(
        launch,
        env={**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return process, folders


def end_of(job: subprocess.Popen[str]) -> tuple[int, str]:
    try:
        said, _ = job.communicate(timeout=JOB_SECONDS)
    finally:
        job.kill()
    return job.returncode, said


def test_mpi_processes_that_know_one_secret_begin(tmp_path: Path) -> None:
    job, folders = started_ranks(tmp_path, ["5a" * 32, "5a" * 32])
    deadline = time.monotonic() + JOB_SECONDS
    while not all((folder / "ready.json").exists() for folder in folders) and job.poll() is None:
        assert time.monotonic() < deadline, "they are not ready"
        time.sleep(0.05)
    for folder in folders:
        if folder.exists():
            (folder / "stop").touch()
    status, said = end_of(job)
    assert status == 0, said


def test_an_mpi_process_without_the_secret_ends_the_job_before_any_data(tmp_path: Path) -> None:
    job, folders = started_ranks(tmp_path, ["5a" * 32, "5b" + "5a" * 31])
    status, said = end_of(job)
    assert status != 0
    assert "does not know the run's secret" in said
    assert not any((folder / "ready.json").exists() for folder in folders)
