"""A process group of `torch.distributed` over a `worker.Group`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NoReturn

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.torch import all_reduce, sparse
from sparkdl_bench.torch import tensors as t
from sparkdl_bench.torch.homes import Homes, is_called_by_reducer
from sparkdl_bench.torch.operations import Begun, Operations, Work
from sparkdl_bench.torch.stages import Stages
from sparkdl_bench.worker import Group
from sparkdl_bench.worker.vectors import Home

_AllReduceOptions: Any = dist.AllreduceOptions
# Older releases let go of a handle's Python object as soon as they have it, and wait in C++ for what nobody ends. They
# wait right after the call, so some of the last handles are enough; each holds the tensors of its operation.
_HELD_WORKS = 16 if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 9) else 0


class SparkDLProcessGroup(dist.ProcessGroup):
    """All that gloo has on the CPU, with the names of old and new releases of PyTorch.

    Tensors on a GPU go through the host's memory, and an operation is done when its results are on the GPU again.
    Results have the same bits on all ranks. An operation returns a handle that raises its error when it is waited for;
    operations that are not asynchronous raise it themselves.
    """

    def __init__(self, group: Group) -> None:
        super().__init__(group.rank, group.size)
        self._group = group
        self._homes, self._stages = Homes(), Stages()
        self._operations = Operations(group.name, all_reduce.patience_s(group))
        self._rank, self._size = group.rank, group.size
        self._recent: deque[Work] = deque(maxlen=_HELD_WORKS)
        self._name = self._description = ""
        self._sequence = 0

    # What PyTorch asks a group and its backend, which are one here.

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    getRank, getSize = rank, size

    def name(self) -> str:
        return "sparkdl"

    getBackendName = _get_backend_name = name

    @property
    def group_name(self) -> str:
        return self._name

    @property
    def group_desc(self) -> str:
        return self._description

    def getGroupName(self) -> str:
        return self._name

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupDesc(self) -> str:
        return self._description

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    _set_group_name, _set_group_desc = setGroupName, setGroupDesc
    supports_coalescing = supports_splitting = False

    def supports_tensor_alloc(self, _: Any) -> bool:
        return False

    def _get_backend(self, _: Any) -> SparkDLProcessGroup:
        return self

    def _set_sequence_number_for_group(self) -> None:
        self._sequence = 0

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    # Each operation inside is done for itself, so there is nothing to begin or end.
    def _start_coalescing(self, _: Any) -> None:
        pass

    def _end_coalescing(self, _: Any) -> Work:
        return self._run(list, asynchronous=False)

    start_coalescing, end_coalescing = _start_coalescing, _end_coalescing

    def shutdown(self) -> None:
        """Leaves the group after what is pending."""
        self._operations.close()
        self._group.close()

    def abort(self) -> None:
        """Leaves the group at once; what is pending fails."""
        self._group.abort()

    # Reductions.

    def allreduce(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        if any(sparse.is_sparse(each) for each in tensors):
            return self._sum_sparse(tensors, opts)
        op, kinds = _reduction(opts), [t.elements(each) for each in tensors]
        is_one = len(kinds) == 1 and tensors[0].is_cpu and tensors[0].layout == torch.strided
        home = self._home_of(tensors[0], is_called_by_reducer()) if is_one else None
        begin = partial(all_reduce.begin, self._group, tensors, kinds[0], op, home) if is_one else None
        return self._run(lambda: self._all_reduce(tensors, kinds, op, home), opts, tensors, begin=begin)

    def _sum_sparse(self, tensors: Sequence[Tensor], opts: Any) -> Work:
        sparse.check(tensors, _reduction(opts))

        def operation() -> list[Tensor]:
            for tensor in tensors:
                sparse.all_reduce(self._group, tensor)
            return list(tensors)

        return self._run(operation, opts)

    def _home_of(self, tensor: Tensor, may_move: bool = False) -> Home | None:
        home = self._homes.of(tensor, may_move)
        if home is not None and home.vector is None:
            for gone in self._homes.gone():
                self._group.leave(gone)
        return home

    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        return self.allreduce(tensors, opts)

    def _all_reduce(self, tensors: Sequence[Tensor], kinds: Sequence[str], op: str, home: Home | None) -> list[Tensor]:
        for tensor, kind in zip(tensors, kinds, strict=True):
            stage = self._stages.of(tensor)
            place = home if stage is None else self._home_of(stage)
            with t.written(tensor, stage) as data:
                self._group.all_reduce(data, op, kind, place)
        return list(tensors)

    def reduce(self, tensors: Sequence[Tensor], opts: Any) -> Work:
        op, root, kinds = _reduction(opts), opts.rootRank, [t.elements(each) for each in tensors]

        def operation() -> list[Tensor]:
            for tensor, kind in zip(tensors, kinds, strict=True):
                # A root's result is nobody else's to see.
                data = t.read(tensor).copy()
                self._group.all_reduce(data, op, kind)
                if self._rank == root:
                    with t.written(tensor) as own:
                        own[:] = data
            return list(tensors)

        return self._run(operation, opts, tensors)

    def reduce_scatter(self, outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]], opts: Any = None) -> Work:
        op = _reduction(opts)
        kinds = [t.elements(each) for each in outputs]

        def operation() -> list[Tensor]:
            for output, parts, kind in zip(outputs, inputs, kinds, strict=True):
                with t.written(output) as data:
                    self._group.reduce_scatter([t.read(each) for each in parts], data, op, kind)
            return list(outputs)

        return self._run(operation, opts, [*outputs, *(each for parts in inputs for each in parts)])

    def reduce_scatter_single(self, output: Tensor, source: Tensor, opts: Any = None) -> Work:
        op, kind = _reduction(opts), t.elements(output)
        self._same_share(source, output, "input", "output")

        def operation() -> list[Tensor]:
            with t.written(output) as data:
                self._group.reduce_scatter(np.split(t.read(source), self._size), data, op, kind)
            return [output]

        return self._run(operation, opts, [output, source])

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        return self._last(
            [self.reduce_scatter_single(*each, opts) for each in zip(outputs, inputs, strict=True)], outputs, opts
        )

    # What changes places.

    def broadcast(self, tensors: Sequence[Tensor], opts: Any) -> Work:
        root = opts.rootRank

        def operation() -> list[Tensor]:
            for tensor in tensors:
                with t.written(tensor) as data:
                    self._group.broadcast(data, root)
            return list(tensors)

        return self._run(operation, opts, tensors)

    def allgather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any = None) -> Work:
        def operation() -> list[Tensor]:
            for parts, source in zip(outputs, inputs, strict=True):
                with t.all_written(parts) as data:
                    self._group.all_gather(t.read(source), data)
            return [each for parts in outputs for each in parts]

        return self._run(operation, opts, [*inputs, *(each for parts in outputs for each in parts)])

    def allgather_coalesced(
        self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """`outputs[r][i]` becomes rank r's `inputs[i]`."""
        lists = [[of_rank[place] for of_rank in outputs] for place in range(len(inputs))]
        return self.allgather(lists, inputs, opts)

    def all_gather_single(self, output: Tensor, source: Tensor, opts: Any = None) -> Work:
        self._same_share(output, source, "output", "input")

        def operation() -> list[Tensor]:
            with t.written(output) as data:
                self._group.all_gather(t.read(source), np.split(data, self._size))
            return [output]

        return self._run(operation, opts, [output, source])

    def all_gather_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        return self._last(
            [self.all_gather_single(*each, opts) for each in zip(outputs, inputs, strict=True)], outputs, opts
        )

    def gather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any) -> Work:
        root = opts.rootRank

        def operation() -> list[Tensor]:
            source = t.read(inputs[0])
            nothing = source[:0]
            outgoing = [source if rank == root else nothing for rank in range(self._size)]
            if self._rank != root:
                self._group.all_to_all(outgoing, [nothing] * self._size)
                return list(inputs)
            with t.all_written(outputs[0]) as data:
                self._group.all_to_all(outgoing, data)
            return list(outputs[0])

        return self._run(operation, opts, [*inputs, *(each for parts in outputs for each in parts)])

    def scatter(self, outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]], opts: Any) -> Work:
        root = opts.rootRank

        def operation() -> list[Tensor]:
            with t.written(outputs[0]) as data:
                nothing = data[:0]
                incoming = [data if rank == root else nothing for rank in range(self._size)]
                parts = [t.read(each) for each in inputs[0]] if self._rank == root else [nothing] * self._size
                self._group.all_to_all(parts, incoming)
            return list(outputs)

        return self._run(operation, opts, [*outputs, *(each for parts in inputs for each in parts)])

    def alltoall(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None) -> Work:
        def operation() -> list[Tensor]:
            with t.all_written(outputs) as data:
                self._group.all_to_all([t.read(each) for each in inputs], data)
            return list(outputs)

        return self._run(operation, opts, [*outputs, *inputs])

    def all_to_all_single(
        self,
        output: Tensor,
        source: Tensor,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        opts: Any = None,
    ) -> Work:
        outgoing_cuts = self._cuts(source, input_split_sizes or [], "input")
        incoming_cuts = self._cuts(output, output_split_sizes or [], "output")

        def operation() -> list[Tensor]:
            with t.written(output) as data:
                self._group.all_to_all(np.split(t.read(source), outgoing_cuts), np.split(data, incoming_cuts))
            return [output]

        return self._run(operation, opts, [output, source])

    def barrier(self, opts: Any = None) -> Work:
        def operation() -> list[Tensor]:
            self._group.barrier()
            return []

        return self._run(operation, opts)

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> NoReturn:
        raise ConfigurationError(
            'The backend "sparkdl" has no monitored_barrier. Its barrier names the rank that is gone or late; use that.'
        )

    # Between two ranks. They hold nothing up, and nothing holds them up.

    def send(self, tensors: Sequence[Tensor], destination: int, tag: int = 0) -> Work:
        t.check(tensors)
        work = Work(devices=t.devices(tensors))
        future = self._group.send(t.read(tensors[0]), destination, tag)
        future.add_done_callback(lambda done: work.finish(list(tensors), done.exception()))
        return self._held(work)

    def recv(self, tensors: Sequence[Tensor], source: int | None, tag: int = 0) -> Work:
        t.check(tensors)
        settled = t.settled(tensors)
        flat = t.flat(tensors[0].detach())
        lies_there = flat.data_ptr() == tensors[0].data_ptr()
        work = Work(devices=t.devices(tensors))

        def finish(done: Future[int]) -> None:
            error = done.exception()
            if error is None and not lies_there:
                try:
                    settled()
                    # In this thread the caller's inference mode does not hold, and its tensors are written in it alone.
                    with torch.inference_mode(tensors[0].is_inference()):
                        tensors[0].detach().copy_(flat)
                except Exception as refused:  # what a callback of a future raises nobody would hear of
                    error = refused
            work.finish(list(tensors), error, -1 if error else done.result())

        self._group.receive(t.read(flat), source, tag).add_done_callback(finish)
        return self._held(work)

    def recv_anysource(self, tensors: Sequence[Tensor], tag: int = 0) -> Work:
        return self.recv(tensors, None, tag)

    # Names of older releases.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    alltoall_base = all_to_all_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _run(
        self,
        operation: Callable[[], list[Tensor]],
        opts: Any = None,
        tensors: Sequence[Tensor] = (),
        asynchronous: bool | None = None,
        begin: Callable[[], Begun | None] | None = None,
    ) -> Work:
        t.check(tensors)
        self._sequence += 1
        # Releases without the option wait for the handle themselves.
        later = getattr(opts, "asyncOp", True) if asynchronous is None else asynchronous
        gpus = t.devices(tensors)
        if not gpus:
            return self._held(self._operations.run(operation, later, begin))
        settled = t.settled(tensors)

        def after() -> list[Tensor]:
            settled()
            return operation()

        return self._held(self._operations.run(after, later, devices=gpus))

    def _held(self, work: Work) -> Work:
        self._recent.append(work)
        return work

    def _last(self, works: Sequence[Work], results: Sequence[Tensor], opts: Any) -> Work:
        """One handle for several operations."""

        def operation() -> list[Tensor]:
            for work in works:
                work.wait()
            return list(results)

        return self._run(operation, opts, results)

    def _same_share(self, whole: Tensor, share: Tensor, name: str, other: str) -> None:
        if whole.numel() != share.numel() * self._size:
            raise ConfigurationError(
                f"The {name} has {whole.numel()} values and the {other} {share.numel()}, in a group of {self._size} "
                f"ranks. The {name} must have {self._size} times as many."
            )

    def _cuts(self, tensor: Tensor, sizes: Sequence[int], name: str) -> list[int]:
        """Where its bytes are cut, by the ranks' shares of its first dimension."""
        rows = tensor.size(0) if tensor.dim() else 0
        if not sizes and rows % self._size:
            raise ConfigurationError(
                f"The {name}'s first dimension has {rows} rows, which {self._size} ranks cannot share equally. Give "
                "the sizes of the parts."
            )
        shares = list(sizes) or [rows // self._size] * self._size
        if len(shares) != self._size or sum(shares) != rows:
            raise ConfigurationError(
                f"The parts of the {name} are {shares}, in a group of {self._size} ranks, and it has {rows} "
                "rows. Give one part per rank; together they are all rows."
            )
        row_bytes = tensor.numel() // rows * tensor.element_size() if rows else 0
        return [int(cut) * row_bytes for cut in np.cumsum(shares[:-1])]


def _reduction(opts: Any) -> str:
    return t.reduction((opts or _AllReduceOptions()).reduceOp)
