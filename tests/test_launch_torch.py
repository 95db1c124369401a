"""`sparkdl_bench.launch` with PyTorch: the process group is ready, by gloo and in-band, and training is the same."""

from __future__ import annotations

import os
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sparkdl_bench
from sparkdl_bench.errors import RankFailedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

torch = pytest.importorskip("torch", reason="PyTorch is not installed here (make test-torch)")
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")

# As scripts for torchrun have it.
DDP = """
    import os

    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch.nn.parallel import DistributedDataParallel

    import sparkdl_bench


    def train(steps: int) -> list[float]:
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        rank = dist.get_rank()
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
        model = DistributedDataParallel(net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rows = torch.Generator().manual_seed(1 + rank)
        losses = []
        for step in range(1, steps + 1):
            x, y = torch.randn(16, 64, generator=rows), torch.randint(0, 10, (16,), generator=rows)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            sparkdl_bench.report(step=step, loss=loss)
        dist.destroy_process_group()
        return losses


    if __name__ == "__main__":
        print("losses", train(int(os.environ.get("STEPS", "5"))))
"""


def ddp() -> Any:
    space: dict[str, Any] = {"__name__": "ddp"}
    exec(textwrap.dedent(DDP), space)
    return space["train"]


def test_ddp_by_gloo_and_in_band_has_the_same_losses(spark: SparkSession, tmp_path: Path) -> None:
    losses = {
        sync: sparkdl_bench.launch(ddp(), spark, sync=sync, args=(50,), results=tmp_path) for sync in ("gloo", "auto")
    }
    assert losses["gloo"][0] != losses["gloo"][1], "both ranks saw the same rows"
    for gloo, ours in zip(losses["gloo"], losses["auto"], strict=True):
        assert ours == pytest.approx(gloo, abs=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that PyTorch can use")
def test_ddp_on_a_gpu_has_the_same_losses_by_gloo_and_in_band(spark: SparkSession, tmp_path: Path) -> None:
    """Both ranks on one GPU, where NCCL would not do; the script names NCCL all the same."""

    def train() -> list[float]:
        import torch
        import torch.distributed as dist

        dist.init_process_group("nccl")
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)).to("cuda")
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.SyncBatchNorm.convert_sync_batchnorm(net))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rows = torch.Generator().manual_seed(1 + dist.get_rank())
        losses = []
        for _ in range(20):
            x, y = torch.randn(16, 64, generator=rows), torch.randint(0, 10, (16,), generator=rows)
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x.to("cuda")), y.to("cuda"))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    gloo, ours = (sparkdl_bench.launch(train, spark, sync=sync, results=tmp_path) for sync in ("gloo", "auto"))
    for one, other in zip(gloo, ours, strict=True):
        assert other == pytest.approx(one, abs=1e-5)


def test_names_that_were_imported_before_the_launch_join_its_group(spark: SparkSession, tmp_path: Path) -> None:
    """As of modules with `from torch.distributed import …`; in Python workers that are used again, too."""
    space: dict[str, Any] = {"__name__": "by_name"}
    exec(
        textwrap.dedent("""
            import os
            import torch
            from torch.distributed import all_reduce, get_backend, init_process_group, is_initialized, new_group

            def train():
                init_process_group("gloo")
                value = torch.ones(1)
                all_reduce(value, group=new_group(backend="gloo"))
                return os.getpid(), get_backend(), value.item()
        """),
        space,
    )
    assert space["init_process_group"] is torch.distributed.init_process_group
    first, second = (sparkdl_bench.launch(space["train"], spark, results=tmp_path) for _ in range(2))
    assert [each[1:] for each in (*first, *second)] == [("sparkdl", 2.0)] * 4
    assert {each[0] for each in first} & {each[0] for each in second}, "no Python worker was used again"


@pytest.mark.parametrize("backend", ["gloo", "nccl", "cpu:sparkdl,cuda:nccl"])
def test_groups_within_one_in_band_are_in_band(spark: SparkSession, tmp_path: Path, backend: str) -> None:
    """Whatever they name: others would look for each other in a store that is each process's own."""

    def train() -> tuple[str, float]:
        import torch
        import torch.distributed as dist

        group = dist.new_group(backend=backend)
        value = torch.tensor([float(dist.get_rank())])
        dist.all_reduce(value, group=group)
        return dist.get_backend(group), value.item()

    assert sparkdl_bench.launch(train, spark, results=tmp_path) == [("sparkdl", 1.0)] * 2


@pytest.mark.parametrize("sync", ["gloo", "auto"])
def test_the_group_is_ready_and_can_be_made_again(spark: SparkSession, tmp_path: Path, sync: str) -> None:
    def train() -> tuple[str, float, float]:
        import torch
        import torch.distributed as dist

        assert dist.is_initialized()
        name = dist.get_backend()
        first = torch.tensor([float(dist.get_rank())])
        dist.all_reduce(first)
        dist.destroy_process_group()
        dist.init_process_group()
        again = torch.tensor([float(os.environ["RANK"]) + 1])
        dist.all_reduce(again)
        return name, first.item(), again.item()

    backend = "gloo" if sync == "gloo" else "sparkdl"
    for _ in range(2):  # Python workers are used again
        assert sparkdl_bench.launch(train, spark, sync=sync, results=tmp_path) == [(backend, 1.0, 3.0)] * 2


@pytest.mark.parametrize("sync", ["gloo", "auto"])
def test_the_cause_is_told_and_not_that_the_others_lost_a_peer(spark: SparkSession, tmp_path: Path, sync: str) -> None:
    def train() -> None:
        import torch
        import torch.distributed as dist

        for step in range(10**9):
            if step == 20 and dist.get_rank() == 1:
                raise ValueError("no rows")
            dist.all_reduce(torch.zeros(10))

    with pytest.raises(RankFailedError, match=r"Rank 1 of 2 on host 127.0.0.1 failed: ValueError: no rows"):
        sparkdl_bench.launch(train, spark, sync=sync, timeout=120, results=tmp_path)


def test_wrong_ranks_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    def train() -> None:
        import torch.distributed as dist

        dist.init_process_group("gloo", rank=0, world_size=4)

    with pytest.raises(sparkdl_bench.ConfigurationError, match="called with rank 0 and world_size 4"):
        sparkdl_bench.launch(train, spark, sync="gloo", results=tmp_path)


def test_the_tutorial_does_what_it_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its blocks one after the other, in the session of the test process."""
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).resolve().parents[1] / "docs" / "tutorial" / "your-pytorch-script.md"
    found: dict[str, Any] = {"__name__": "tutorial"}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, page.name, "exec"), found)
    assert found["spark"].sparkContext is spark.sparkContext
    losses = found["losses"]
    # The mean of equal shares is the loss of the whole batch: as one process has it.
    assert sum(losses) / 2 == pytest.approx(found["main"](steps=20), abs=1e-5)
    assert f"[rank 1] final loss {round(losses[1], 3)}" in capsys.readouterr().out
