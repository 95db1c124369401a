"""What the backends are compared by: each case calls `torch.distributed` and returns what has come of it on this rank.

They run in Python workers, with the default group initialised; `RANK` and `SIZE` are of that group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

CASES: dict[str, Callable[[int, int], Any]] = {}
DDP = nn.parallel.DistributedDataParallel


# What older releases of PyTorch have not on the CPU, with gloo either, as far as they were tried (2.3, 2.6).
SINCE = {"fully_sharded": (2, 9)}
RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])


def case(function: Callable[[int, int], Any]) -> Callable[[int, int], Any]:
    if SINCE.get(function.__name__, RELEASE) <= RELEASE:
        CASES[function.__name__] = function
    return function


def run_all() -> dict[str, Any]:
    """The results of all cases as numbers, or the error's type."""
    found: dict[str, Any] = {}
    for name, function in CASES.items():
        torch.manual_seed(7)
        try:
            found[name] = _plain(function(dist.get_rank(), dist.get_world_size()))
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.double().flatten().tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value


def base(rank: int) -> Tensor:
    return torch.arange(12.0) + 10 * rank


@case
def all_reduce_types(rank: int, size: int) -> Any:
    kinds = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8)
    results = []
    for kind in (*kinds, torch.int32, torch.int64):
        tensor = (torch.arange(5) + rank).to(kind)
        dist.all_reduce(tensor)
        results.append(tensor)
    return results


@case
def all_reduce_operators(rank: int, size: int) -> Any:
    results = []
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX):
        tensor = base(rank) + 1
        dist.all_reduce(tensor, op)
        results.append(tensor)
    for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        tensor = torch.arange(12) + 5 * rank
        dist.all_reduce(tensor, op)
        results.append(tensor)
    return results


@case
def all_reduce_shapes(rank: int, size: int) -> Any:
    square = torch.arange(12.0).view(3, 4) + rank
    number = torch.tensor(3.0 + rank)
    part = torch.arange(20.0)[5:] * (rank + 1)
    empty = torch.empty(0)
    for tensor in (square, number, part, empty):
        dist.all_reduce(tensor)
    return [square, number, part, empty]


@case
def all_reduce_asynchronous(rank: int, size: int) -> Any:
    tensors = [base(rank) + i for i in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()
    return [*tensors, all(work.is_completed() for work in works)]


def callbacks_of_futures(rank: int) -> Any:
    """A callback that begins another operation, while others wait. With gloo its turn depends on each rank's timing."""
    first, second, third = base(rank), base(rank) + 1, base(rank) + 2

    def then(done: Any) -> Tensor:
        dist.all_reduce(second)
        return done.value()[0] + second

    chained = dist.all_reduce(first, async_op=True).get_future().then(then)
    work = dist.all_reduce(third, async_op=True)
    result = chained.wait()
    work.wait()
    return [result, third]


@case
def sparse_sums(rank: int, size: int) -> Any:
    """Ranks hold other indices, other numbers of them, the same one twice, and none."""
    values = torch.arange(6.0).view(3, 2) + rank
    rows = torch.sparse_coo_tensor([[rank, rank + 1, rank]], values, (size + 1, 2), check_invariants=True)
    cells = (torch.eye(2, 3) * (rank + 1)).to_sparse()
    empty = torch.zeros(4).to_sparse()
    one = torch.ones(4).to_sparse() if rank == 0 else empty
    nothing = empty.clone()
    for tensor in (rows, cells, one, nothing):
        dist.all_reduce(tensor)
    return [each.to_dense() for each in (rows, cells, one, nothing)]


@case
def broadcast_and_reduce(rank: int, size: int) -> Any:
    sent = base(rank)
    dist.broadcast(sent, 1)
    reduced = base(rank)
    dist.reduce(reduced, 0)
    return [sent, reduced if rank == 0 else 0]


@case
def gathers(rank: int, size: int) -> Any:
    parts = [torch.empty(12) for _ in range(size)]
    dist.all_gather(parts, base(rank))
    joined = torch.empty(12 * size)
    dist.all_gather_into_tensor(joined, base(rank))
    collected = [torch.empty(12) for _ in range(size)] if rank == 0 else None
    dist.gather(base(rank), collected, 0)
    return [parts, joined, collected or 0]


@case
def scatters(rank: int, size: int) -> Any:
    one, part = torch.empty(6), torch.empty(12 // size)
    dist.scatter(one, list(torch.arange(6.0 * size).chunk(size)) if rank == 0 else None, 0)
    dist.reduce_scatter_tensor(part, base(rank))
    return [one, part]


@case
def send_and_receive(rank: int, size: int) -> Any:
    other, got = 1 - rank, torch.zeros(12)
    if rank == 0:
        dist.send(base(rank), other, tag=3)
        source = dist.recv(got, other)
    else:
        dist.recv(got, other, tag=3)
        dist.send(got + base(rank), other)
        source = other
    return [got, source]


@case
def receive_from_anybody(rank: int, size: int) -> Any:
    got = torch.zeros(12)
    if rank == 0:
        return [dist.recv(got), got]
    dist.send(base(rank), 0)
    return 0


@case
def receives_that_wait_hold_nothing_up(rank: int, size: int) -> Any:
    got, total, other = torch.zeros(4, 3), base(rank), 1 - rank
    receive = dist.irecv(got, other)
    dist.all_reduce(total)
    dist.isend(base(rank).view(4, 3), other).wait()
    receive.wait()
    return [got, total]


@case
def messages_in_a_batch(rank: int, size: int) -> Any:
    got, other = torch.empty(12), 1 - rank
    operations = [dist.P2POp(dist.isend, base(rank), other), dist.P2POp(dist.irecv, got, other)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return got


@case
def objects(rank: int, size: int) -> Any:
    gathered: list[Any] = [None] * size
    dist.all_gather_object(gathered, {"rank": rank})
    sent = [rank, "x" * rank]
    dist.broadcast_object_list(sent, 1)
    scattered: list[Any] = [None]
    dist.scatter_object_list(scattered, ["a", "b"] if rank == 0 else None, 0)
    collected = [None] * size if rank == 0 else None
    dist.gather_object(rank, collected, 0)
    return [[each["rank"] for each in gathered], sent, scattered, collected or 0]


@case
def barriers(rank: int, size: int) -> Any:
    dist.barrier()
    dist.barrier(async_op=True).wait()
    return 1


def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(20, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 3))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, steps: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 20, generator=generator)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def trained(rank: int, **options: Any) -> Tensor:
    model = DDP(net(), **options)
    return train(model, torch.optim.SGD(model.parameters(), 0.1), rank)


@case
def ddp_small_buckets(rank: int, size: int) -> Any:
    return trained(rank, bucket_cap_mb=0.001)


@case
def ddp_static_graph(rank: int, size: int) -> Any:
    return trained(rank, static_graph=True, gradient_as_bucket_view=True)


@case
def ddp_sparse_gradients(rank: int, size: int) -> Any:
    torch.manual_seed(3)
    model = DDP(nn.Sequential(nn.EmbeddingBag(30, 5, sparse=True), nn.Linear(5, 3)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    generator = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = model(torch.randint(0, 30, (8, 4), generator=generator)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


@case
def ddp_unused_parameters(rank: int, size: int) -> Any:
    class Either(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(20, 3), nn.Linear(20, 3)

        def forward(self, rows: Tensor) -> Tensor:
            return self.first(rows) if rank == 0 else self.second(rows)

    model = DDP(Either(), find_unused_parameters=True)
    return train(model, torch.optim.SGD(model.parameters(), 0.1), rank)


@case
def ddp_bf16_hook(rank: int, size: int) -> Any:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

    model = DDP(net())
    model.register_comm_hook(None, bf16_compress_hook)
    return train(model, torch.optim.SGD(model.parameters(), 0.1), rank)


@case
def ddp_power_sgd_hook(rank: int, size: int) -> Any:
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power

    model = DDP(net())
    model.register_comm_hook(power.PowerSGDState(None, 1, start_powerSGD_iter=2), power.powerSGD_hook)
    return train(model, torch.optim.SGD(model.parameters(), 0.1), rank)


@case
def ddp_uneven_inputs(rank: int, size: int) -> Any:
    model = DDP(nn.Linear(20, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with model.join():
        return train(model, optimizer, rank, 3 + rank)


@case
def zero_redundancy_optimizer(rank: int, size: int) -> Any:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DDP(net())
    return train(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01), rank)


@case
def fully_sharded_1(rank: int, size: int) -> Any:
    from torch.distributed.fsdp import FullyShardedDataParallel

    torch.manual_seed(3)
    model = FullyShardedDataParallel(
        nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 3)), device_id=torch.device("cpu")
    )
    return train(model, torch.optim.SGD(model.parameters(), 0.1), rank)


@case
def compiled_ddp(rank: int, size: int) -> Any:
    """DDP's own passes over the graph; without a compiler for C++."""
    model = torch.compile(DDP(net()), backend="aot_eager")
    return train(model, torch.optim.SGD(model.parameters(), 0.1), rank)


@case
def fully_sharded(rank: int, size: int) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 3))
    mesh = init_device_mesh("cpu", (size,))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    return train(model, torch.optim.SGD(model.parameters(), 0.1), rank)


@case
def distributed_tensors(rank: int, size: int) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    try:
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    except ImportError:  # before 2.5
        from torch.distributed._tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (size,))
    tensor = distribute_tensor(torch.arange(16.0).view(4, 4), mesh, [Shard(0)])
    return (tensor @ tensor.redistribute(mesh, [Replicate()])).full_tensor()


@case
def functional_collectives(rank: int, size: int) -> Any:
    from torch.distributed import _functional_collectives as functional

    reduced = functional.all_reduce(base(rank), "sum", dist.group.WORLD)
    gathered = functional.all_gather_tensor(base(rank), 0, dist.group.WORLD)
    scattered = functional.reduce_scatter_tensor(base(rank), "sum", 0, dist.group.WORLD)
    return [each + 0 for each in (reduced, gathered, scattered)]


@case
def sub_groups(rank: int, size: int) -> Any:
    both, last = dist.new_group([0, 1]), dist.new_group([1])
    tensor, alone = base(rank), torch.ones(3)
    dist.all_reduce(tensor, group=both)
    if rank == 1:
        dist.all_reduce(alone, group=last)
    return [tensor, alone]


@case
def coalescing(rank: int, size: int) -> Any:
    first, second = base(rank), base(rank) + 1
    with dist.distributed_c10d._coalescing_manager(async_ops=True) as works:
        dist.all_reduce(first)
        dist.all_reduce(second)
    works.wait()
    return [first, second]
