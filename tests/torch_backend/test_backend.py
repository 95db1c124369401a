"""The backend "sparkdl" of torch.distributed beside gloo, in Python workers of real executors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip(
    "torch", reason="PyTorch is not installed: `make test-torch` runs these tests in its own environment"
)

import torch
import torch.distributed as dist
from pyspark import cloudpickle

from sparkdl_bench import _jvm, worker
from torch_backend import cases

# pyspark's RDD.collect leaves its socket to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
# Workers get the functions of these files with the task; they have no copy of them.
cloudpickle.register_pickle_by_value(cases)
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SIZE = 2
TIMEOUT_S = 60.0
Body = Callable[[worker.Endpoint], Any]


@pytest.fixture
def on_ranks(
    request: pytest.FixtureRequest, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Body], list[Any]]]:
    """Runs a function on each rank of one barrier stage; what it returns, by rank."""
    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)  # with the packages that tests have
    api = _jvm.Api(_jvm.jvm_of(spark))
    launch = request.node.name

    def run(body: Body) -> list[Any]:
        api.launch_open(launch)

        def task(_: Iterator[int]) -> Iterator[tuple[int, Any]]:
            from pyspark import BarrierTaskContext

            torch.set_num_threads(1)
            rank = BarrierTaskContext.get().partitionId()
            with worker.connect(launch, 0, rank, SIZE, TIMEOUT_S) as endpoint:
                yield rank, body(endpoint)

        found = spark.sparkContext.parallelize(range(SIZE), SIZE).barrier().mapPartitions(task).collect()
        return [result for _, result in sorted(found, key=lambda each: int(each[0]))]

    yield run
    api.launch_close(launch)


def with_sparkdl(endpoint: worker.Endpoint, body: Callable[[], Any], **settings: str) -> Any:
    """What `body` returns while the default group is ours."""
    from sparkdl_bench import torch as sparkdl_torch

    sparkdl_torch.attach(endpoint, settings)
    timeout = timedelta(seconds=TIMEOUT_S)
    dist.init_process_group(
        "sparkdl", store=dist.HashStore(), rank=endpoint.rank, world_size=endpoint.size, timeout=timeout
    )
    try:
        return body()
    finally:
        dist.destroy_process_group()


def with_gloo(endpoint: worker.Endpoint, folder: str, body: Callable[[], Any]) -> Any:
    store = dist.FileStore(f"{folder}/store", endpoint.size)
    dist.init_process_group("gloo", store=store, rank=endpoint.rank, world_size=endpoint.size)
    try:
        return body()
    finally:
        dist.destroy_process_group()


def near(ours: Any, gloo: Any) -> bool:
    if isinstance(ours, list) and isinstance(gloo, list):
        return len(ours) == len(gloo) and all(near(*each) for each in zip(ours, gloo, strict=True))
    return bool(ours == pytest.approx(gloo, rel=1e-5, abs=1e-6)) if isinstance(ours, float) else bool(ours == gloo)


def test_every_operation_as_gloo_has_it(on_ranks: Callable[[Body], list[Any]], tmp_path: Path) -> None:
    folder = str(tmp_path)

    def body(endpoint: worker.Endpoint) -> Any:
        return with_gloo(endpoint, folder, cases.run_all), with_sparkdl(endpoint, cases.run_all)

    for rank, (gloo, ours) in enumerate(on_ranks(body)):
        different = [name for name in cases.CASES if not near(ours[name], gloo[name])]
        assert not different, {name: (ours[name], gloo[name]) for name in different}
        failed = [name for name in cases.CASES if "Error" in str(ours[name])]
        assert not failed, {name: ours[name] for name in failed}
        assert len(ours) == len(cases.CASES), f"rank {rank}"


def losses(rank: int, size: int) -> list[float]:
    """50 steps of an ordinary DDP script."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    ddp = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)
    rows, labels = torch.randn(1280, 784, generator=generator), torch.randint(0, 10, (1280,), generator=generator)
    found = []
    for step in range(50):
        first = step * 128 % 1280 + rank * 128 // size
        share = slice(first, first + 128 // size)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(ddp(rows[share]), labels[share])
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def test_a_ddp_script_has_gloos_losses(on_ranks: Callable[[Body], list[Any]], tmp_path: Path) -> None:
    folder = str(tmp_path)

    def body(endpoint: worker.Endpoint) -> Any:
        def script() -> list[float]:
            return losses(dist.get_rank(), dist.get_world_size())

        gloo = with_gloo(endpoint, folder, script)
        return gloo, with_sparkdl(endpoint, script), with_sparkdl(endpoint, script, host_local="off")

    for gloo, ours, over_sockets in on_ranks(body):
        assert ours == pytest.approx(gloo, abs=1e-5)
        assert over_sockets == ours
        assert ours[-1] < ours[0]


def test_ranks_reduce_buckets_where_they_lie_or_not(on_ranks: Callable[[Body], list[Any]]) -> None:
    """Two buckets of one length, so that they take turns; on one rank of two they are copied."""

    def script() -> Any:
        from sparkdl_bench.torch import homes

        torch.manual_seed(0)
        net = torch.nn.Sequential(*(torch.nn.Linear(200, 200, bias=False) for _ in range(14)))
        for layer in net:
            torch.nn.init.orthogonal_(layer.weight)  # so that all of them learn
        # Older releases give the first bucket a MiB, whatever the others are to have.
        ddp = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=1)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
        moved = 0
        original = homes._can_move

        def counted(*given: Any) -> bool:
            nonlocal moved
            moves = original(*given)
            moved += moves
            return moves

        homes._can_move = counted
        try:
            generator = torch.Generator().manual_seed(dist.get_rank())
            for _ in range(12):
                optimizer.zero_grad()
                ddp(torch.randn(8, 200, generator=generator)).square().mean().backward()
                optimizer.step()
                dist.all_reduce(torch.ones(280_000))  # as long as a bucket, and copied
        finally:
            homes._can_move = original
        return moved, torch.cat([each.detach().flatten() for each in net.parameters()]).tolist()

    def body(endpoint: worker.Endpoint) -> Any:
        import os

        copied = with_sparkdl_set(endpoint, script, {"SPARKDL_COPY_BUCKETS": "1"})
        mixed = with_sparkdl_set(endpoint, script, {"SPARKDL_COPY_BUCKETS": "1"} if endpoint.rank else {})
        over_sockets = with_sparkdl(endpoint, script, host_local="off")
        assert "SPARKDL_COPY_BUCKETS" not in os.environ
        return copied, mixed, over_sockets

    for rank, (copied, mixed, over_sockets) in enumerate(on_ranks(body)):
        assert copied[0] == 0
        assert mixed[0] == (0 if rank else 2)
        assert over_sockets[0] == 2
        assert mixed[1] == copied[1] == over_sockets[1]


def test_shared_tensors_of_the_users_own_are_reduced_where_they_lie(on_ranks: Callable[[Body], list[Any]]) -> None:
    """On both ranks, or on one alone; views of them and plain tensors of the same length in between."""

    def script() -> Any:
        from sparkdl_bench.torch import homes

        rank, values = dist.get_rank(), torch.arange(40_000.0)
        seen: list[bool] = []
        original = homes.Homes.of

        def noted(*given: Any) -> Any:
            home = original(*given)
            seen.append(home is not None)
            return home

        homes.Homes.of = noted
        shared, plain, sums = torch.empty(40_000).share_memory_(), torch.empty(40_000), []
        try:
            for step in range(8):
                for tensor in (shared, shared[1:], shared.view(200, 200).t(), plain):
                    tensor.copy_(values[: tensor.numel()].view(tensor.shape) + rank + step)
                    dist.all_reduce(tensor, async_op=True).wait()
                    sums.append(tensor.double().sum().item())
        finally:
            homes.Homes.of = original
        return seen, sums

    def body(endpoint: worker.Endpoint) -> Any:
        one = with_sparkdl_set(endpoint, script, {"SPARKDL_COPY_BUCKETS": "1"} if endpoint.rank else {})
        return with_sparkdl(endpoint, script), one, with_sparkdl(endpoint, script, host_local="off")

    expected = [
        sum(2.0 * value + 1 + 2 * step for value in range(length))
        for step in range(8)
        for length in (40_000, 39_999, 40_000, 40_000)
    ]
    for rank, answers in enumerate(on_ranks(body)):
        for (seen, sums), is_on in zip(answers, (True, not rank, True), strict=True):
            assert sums == expected
            assert seen == [is_on and step > 0 and kind == 0 for step in range(8) for kind in range(4)]


def with_sparkdl_set(endpoint: worker.Endpoint, body: Callable[[], Any], variables: dict[str, str]) -> Any:
    import os

    os.environ.update(variables)
    try:
        return with_sparkdl(endpoint, body)
    finally:
        for name in variables:
            del os.environ[name]


def test_what_gloo_has_not_on_the_cpu(on_ranks: Callable[[Body], list[Any]]) -> None:
    """Average, bool, unequal parts, tensors whose values do not lie in a row, and an order that no timing changes."""

    def operations() -> Any:
        rank, size = dist.get_rank(), dist.get_world_size()
        mean = cases.base(rank)
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        flags = torch.tensor([True, False, rank == 0])
        dist.all_reduce(flags, dist.ReduceOp.MAX)
        ins, outs = ([2, 10], [2, 5]) if rank == 0 else ([5, 7], [10, 7])
        uneven = torch.empty(sum(outs))
        dist.all_to_all_single(uneven, cases.base(rank), outs, ins)
        parts = [torch.empty(6), torch.empty(6)]
        dist.all_to_all(parts, list(cases.base(rank).chunk(2)))
        scattered = torch.empty(6)
        dist.reduce_scatter(scattered, list(cases.base(rank).chunk(size)))
        turned = torch.arange(12.0).view(3, 4).t() + rank
        dist.all_reduce(turned)
        got = torch.zeros(4, 3).t()
        receive = dist.irecv(got, 1 - rank)
        dist.send(turned, 1 - rank)
        receive.wait()
        chained = [cases.callbacks_of_futures(rank) for _ in range(20)]
        return cases._plain([mean, flags, uneven, parts, scattered, turned.t(), got.reshape(4, 3).t(), chained])

    def body(endpoint: worker.Endpoint) -> Any:
        return with_sparkdl(endpoint, operations)

    whole = [(torch.arange(12.0) + 10 * rank).tolist() for rank in range(SIZE)]
    steps = 2 * torch.arange(12.0)
    for rank, (mean, flags, uneven, parts, scattered, turned, got, chained) in enumerate(on_ranks(body)):
        assert chained == [[(2 * steps + 22).tolist(), (steps + 14).tolist()]] * 20
        assert turned == (2 * torch.arange(12.0) + 1).tolist()
        assert got == turned
        assert mean == (torch.arange(12.0) + 5).tolist()
        assert flags == [1, 0, 1]
        assert uneven == (whole[0][:2] + whole[1][:5] if rank == 0 else whole[0][2:] + whole[1][5:])
        assert parts == [each[6 * rank : 6 * rank + 6] for each in whole]
        assert scattered == [a + b for a, b in zip(*(each[6 * rank : 6 * rank + 6] for each in whole), strict=True)]


def test_what_cannot_be_is_refused_clearly(on_ranks: Callable[[Body], list[Any]]) -> None:
    def operations() -> Any:
        from sparkdl_bench.errors import ConfigurationError

        texts = []
        for call in (
            lambda: dist.all_reduce(torch.ones(3, dtype=torch.uint16)),
            lambda: dist.all_reduce(torch.ones(3, dtype=torch.int32), dist.ReduceOp.AVG),
            lambda: dist.broadcast(torch.ones(3).to_sparse(), 0),
            lambda: dist.all_reduce(torch.ones(3).to_sparse(), dist.ReduceOp.MAX),
            lambda: dist.all_reduce(torch.ones(3 + dist.get_rank()).to_sparse()),
            lambda: dist.all_to_all_single(torch.empty(3), torch.ones(3)),
            lambda: dist.distributed_c10d._get_default_group().monitored_barrier(),
            lambda: dist.all_reduce(torch.ones(3, dtype=torch.int32), dist.ReduceOp.AVG, async_op=True).wait(),
        ):
            try:
                call()
            except ConfigurationError as error:
                texts.append(str(error))
        total = torch.ones(1)
        dist.all_reduce(total)
        return [*texts, total.item()]

    def body(endpoint: worker.Endpoint) -> Any:
        return with_sparkdl(endpoint, operations)

    for kind, average, layout, sparse, shapes, rows, monitored, later, total in on_ranks(body):
        assert "uint16" in kind
        assert "average is not defined for int32" in average
        assert "dense tensors" in layout
        assert "no max of sparse" in sparse
        assert "of another shape or type" in shapes
        assert "2 ranks cannot share equally" in rows
        assert "no monitored_barrier" in monitored
        assert later == average
        assert total == 2


def test_a_rank_that_has_left_is_named_by_operations_and_futures(on_ranks: Callable[[Body], list[Any]]) -> None:
    def body(endpoint: worker.Endpoint) -> Any:
        from sparkdl_bench.errors import RunFailedError

        def operations() -> Any:
            dist.barrier()
            if endpoint.rank == 1:
                return []
            texts = []
            receive = dist.irecv(torch.ones(3), 1)
            work = dist.all_reduce(torch.ones(3), async_op=True)
            for wait in (work.wait, work.get_future().wait, receive.wait):
                try:
                    wait()
                except (RunFailedError, RuntimeError) as error:
                    texts.append(str(error))
            return [*texts, work.is_completed()]

        return with_sparkdl(endpoint, operations)

    texts, _ = on_ranks(body)
    assert texts.pop() is True
    assert len(texts) == 3
    assert all("has left the group" in text and "rank 1" in text.lower() for text in texts), texts


def test_outside_a_launch_the_backend_says_so() -> None:
    from sparkdl_bench import torch as sparkdl_torch
    from sparkdl_bench.errors import ConfigurationError

    assert sparkdl_torch.BACKEND == "sparkdl"
    with pytest.raises(ConfigurationError, match=r"sparkdl_bench\.launch"):
        dist.init_process_group("sparkdl", store=dist.HashStore(), rank=0, world_size=1)
