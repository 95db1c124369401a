"""Checkpoints of a training function of one's own, through real executors."""

from __future__ import annotations

import os
import signal
import sys
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
from sparkdl_bench import checkpoint
from sparkdl_bench.errors import ConfigurationError

# pyspark's RDD.collect leaves its socket to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
# Workers get the functions of this file with the task; they have no copy of it.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

STEPS, LOST_AT = 12, 7


def train(folder: str, lost_at: int | None) -> tuple[int, list[float]]:
    """Where it began, and the weights; each step depends on those before. Rank 1's executor is killed once."""
    import torch
    import torch.distributed as dist

    from sparkdl_bench import checkpoint

    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(5, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    state = checkpoint.load(folder) or {"step": 0}
    if state["step"]:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for step in range(state["step"] + 1, STEPS + 1):
        generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
        optimizer.zero_grad()
        model(torch.randn(4, 5, generator=generator)).square().mean().backward()
        optimizer.step()
        if step % 3 == 0 and dist.get_rank() == 0:
            checkpoint.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder)
        if step % 3 == 0:
            dist.barrier()
        if step == lost_at and sparkdl_bench.launch_attempt() == 0 and dist.get_rank() == 1:
            daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
            os.kill(int(daemon.rsplit(")", 1)[1].split()[1]), signal.SIGKILL)  # the executor's JVM
    return state["step"], torch.cat([each.detach().reshape(-1) for each in model.parameters()]).tolist()


def test_a_training_goes_on_after_a_lost_executor_with_the_undisturbed_result(
    spark: SparkSession, tmp_path: Path
) -> None:
    undisturbed = sparkdl_bench.launch(
        train, spark, args=[str(tmp_path / "first"), None], results=tmp_path / "results", timeout=60
    )
    assert [began for began, _ in undisturbed] == [0, 0]
    folder = tmp_path / "second"
    disturbed = sparkdl_bench.launch(
        train, spark, args=[folder.as_uri(), LOST_AT], attempts=3, results=tmp_path / "results", timeout=60
    )
    assert [began for began, _ in disturbed] == [6, 6]
    assert [weights for _, weights in disturbed] == [weights for _, weights in undisturbed]
    assert sorted(each.name for each in folder.iterdir()) == ["checkpoint-0000000003", "checkpoint-0000000004"]


def test_elsewhere_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"use torch\.load"):
        checkpoint.load(str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"use torch\.save"):
        checkpoint.save({}, str(tmp_path))


def test_a_file_system_that_refuses_is_named(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    def body() -> list[str]:
        from sparkdl_bench import checkpoint
        from sparkdl_bench.errors import SparkDLError

        texts = []
        for folder in (str(Path(str(at), "file", "below")), "nosuch://host/folder", "checkpoints"):
            for call in (
                lambda folder=folder: checkpoint.save({}, folder),
                lambda folder=folder: checkpoint.load(folder),
            ):
                try:
                    texts.append(str(call()))
                except SparkDLError as error:
                    texts.append(str(error))
        return texts

    at = tmp_path
    (texts,) = sparkdl_bench.launch(body, spark, workers=1, sync="none", results=tmp_path / "results", timeout=60)
    assert "could not be written" in texts[0]
    assert texts[1] == "None" or "could not be" in texts[1]
    assert all("nosuch" in text and "could not be" in text for text in texts[2:4]), texts
    assert all("'checkpoints' for checkpoints would be another one on each executor" in text for text in texts[4:])


def test_a_checkpoint_comes_back_as_it_was_and_old_ones_go(spark: SparkSession, tmp_path: Path) -> None:
    folder = str(tmp_path / "kept")

    def body() -> Any:
        import torch

        from sparkdl_bench import checkpoint

        found: list[Any] = [checkpoint.load(folder)]
        for step in range(1, 5):
            state = {"step": step, "weights": torch.arange(100_000.0) + step, "halves": torch.ones(3).bfloat16()}
            found.append(checkpoint.save(state, folder, keep=3 if step < 4 else 1))
        state = checkpoint.load(folder)
        return [*found, state["step"], bool((state["weights"] == torch.arange(100_000.0) + 4).all())]

    (found,) = sparkdl_bench.launch(body, spark, workers=1, sync="none", results=tmp_path / "results", timeout=60)
    assert found == [None, 1, 2, 3, 4, 4, True]
    assert [each.name for each in (tmp_path / "kept").iterdir()] == ["checkpoint-0000000004"]
