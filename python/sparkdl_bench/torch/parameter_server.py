"""A parameter server that is spread over the ranks of a process group: each keeps one part of a vector."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

_PUSH, _ANSWER = 1, 2


class ParameterServer:
    """A vector that ranks add to and read, each when it likes. Every rank makes one, and closes it: collective calls.

    A push goes to all ranks' parts, and each answers with its part as it then is. A rank has one push under way at a
    time. A thread of each rank serves its part, and another one pushes, so that computing goes on.

    Bytes per rank and push: (N − 1)/N of the vector to others, and as many from them.

    Args:
        vector: the same on all ranks, one-dimensional.
        group: of `torch.distributed`; None: the default group.
    """

    def __init__(self, vector: Tensor, group: Any = None) -> None:
        members = dist.get_process_group_ranks(group or dist.group.WORLD)
        # Its messages must not be taken for those of the user's own.
        self._group = dist.new_group(members, use_local_synchronization=group is not None)
        self._members, self._rank = members, dist.get_rank(self._group)
        self._length = vector.numel()
        self._sizes = [each.numel() for each in vector.tensor_split(len(members))]
        self._part = vector.split(self._sizes)[self._rank].clone()
        self._turn = threading.Lock()
        self._failure: BaseException | None = None
        self._pushing: Future[Tensor] | None = None
        self._pusher = ThreadPoolExecutor(1, "sparkdl-downpour-push")
        self._server = threading.Thread(target=self._serve, name="sparkdl-downpour-serve", daemon=True)
        self._server.start()

    def push(self, change: Tensor) -> None:
        """Adds `change`, which must not be changed any more, to the vector, and asks for it."""
        self._check()
        self._pushing = self._pusher.submit(self._exchange, change)

    def has_answered(self) -> bool:
        """Whether `answer` would return at once."""
        self._check()
        return self._pushing is not None and self._pushing.done()

    def answer(self) -> Tensor:
        """The vector after the last push; waits for it."""
        if self._pushing is None:
            raise AssertionError("nothing was pushed")
        found = self._pushing.result()
        self._pushing = None
        return found

    def whole(self) -> Tensor:
        """The vector with all ranks' pushes, the same on all ranks; a collective call that no push is under way at."""
        dist.barrier(group=self._group)
        parts = [self._part.new_zeros(max(self._sizes)) for _ in self._members]
        with self._turn:
            own = torch.zeros_like(parts[0])
            own[: self._part.numel()] = self._part
        dist.all_gather(parts, own, group=self._group)
        return torch.cat([part[:size] for part, size in zip(parts, self._sizes, strict=True)])

    def close(self) -> None:
        """Ends the threads of all ranks."""
        self._pusher.submit(self._say_goodbye).result()
        self._pusher.shutdown()
        self._server.join()
        dist.destroy_process_group(self._group)

    def _exchange(self, change: Tensor) -> Tensor:
        """Sends each part of the change to the rank that keeps it."""
        whole = torch.empty(self._length, dtype=change.dtype)
        answers, changes = whole.split(self._sizes), change.split(self._sizes)
        works, held = [], []
        for rank, (answer, part) in enumerate(zip(answers, changes, strict=True)):
            if rank == self._rank:
                self._add(part, answer)
            elif part.numel():
                message = torch.cat([part, part.new_zeros(1)])
                held.append(message)
                works.append(dist.irecv(answer, self._members[rank], group=self._group, tag=_ANSWER))
                works.append(dist.isend(message, self._members[rank], group=self._group, tag=_PUSH))
        for work in works:
            work.wait()
        return whole

    def _add(self, change: Tensor, answer: Tensor) -> None:
        with self._turn:
            self._part += change
            answer.copy_(self._part)

    def _say_goodbye(self) -> None:
        """To each rank's server: its last message of this rank."""
        for rank, size in enumerate(self._sizes):
            if rank != self._rank and size:
                last = torch.zeros(size + 1, dtype=self._part.dtype)
                last[-1] = 1
                dist.send(last, self._members[rank], group=self._group, tag=_PUSH)

    def _serve(self) -> None:
        left = len(self._members) - 1 if self._part.numel() else 0
        message = torch.empty(self._part.numel() + 1, dtype=self._part.dtype)
        try:
            while left:
                source = dist.recv(message, group=self._group, tag=_PUSH)
                if message[-1]:
                    left -= 1
                    continue
                answer = torch.empty_like(self._part)
                self._add(message[:-1], answer)
                dist.send(answer, source, group=self._group, tag=_ANSWER)
        except BaseException as error:
            self._failure = error

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
