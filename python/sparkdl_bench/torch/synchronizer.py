"""Training without DistributedDataParallel: ranks take steps of their own, and exchange weights now and then.

    with Synchronizer(model, "local-sgd", tau=8) as synchronizer:
        for x, y in batches:
            optimizer.zero_grad()
            loss_of(model(x), y).backward()
            optimizer.step()
            synchronizer.step()
    # here all ranks have the same model

Works over the default group, or another one, of any backend that has collectives and messages between two ranks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Protocol, final

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.torch.parameter_server import ParameterServer

NEIGHBOURS = ("ring", "random")


class _Exchange(Protocol):
    """One way to exchange weights."""

    def step(self, number: int) -> None:
        """After each `tau` steps; `number` counts from 1."""

    def finish(self) -> None:
        """All ranks have the same weights afterwards."""

    def close(self) -> None: ...


@final
class Synchronizer:
    """Keeps the ranks' models together by an algorithm that lets each take steps of its own optimiser.

    Args:
        model: on the CPU, with the same parameters on all ranks; it starts from rank 0's. Its parameters are exchanged,
            and its floating-point buffers (running statistics) averaged at the end.
        algorithm: how ranks exchange:

            - `local-sgd`: after `tau` steps all go on from the mean of their weights (Stich, ICLR 2019);
            - `easgd`: after `tau` steps the ranks' weights and a centre that all share pull each other by `alpha`, and
              the centre is what is left at the end (Zhang, Choromanska and LeCun, NIPS 2015, equations 5 and 6);
            - `gossip`: after `tau` steps a rank takes the mean of its own and its neighbours' weights, and waits for
              those alone; at the end all have the mean (Lian et al., NIPS 2017; with `neighbours="random"` Boyd et
              al., IEEE Trans. Inf. Theory 2006);
            - `downpour`: after `tau` steps, and once it has the answer to the last time, a rank sends what its weights
              have moved to a parameter server that is spread over all ranks, and goes on from that one's weights as
              soon as they are there, without waiting for any other rank (Dean et al., NIPS 2012, section 4.1; moves in
              place of gradients as in Zhang et al., so that any optimiser will do). A move counts 1/N of N ranks.

        tau: steps between two exchanges; None: 8, 10, 1 and 1.
        alpha: of `easgd`, above 0 and at most 1/N of N ranks; None: 0.9/N, as in the paper.
        neighbours: of `gossip`: `ring` (the two ranks beside it), or `random` (pairs, drawn anew each time).
        seed: of the random pairs, the same on all ranks.
        group: of `torch.distributed`; None: the default group.

    Raises:
        ConfigurationError: an argument is not valid, or there is no process group.
    """

    def __init__(
        self,
        model: nn.Module,
        algorithm: str = "local-sgd",
        *,
        tau: int | None = None,
        alpha: float | None = None,
        neighbours: str = "ring",
        seed: int = 1,
        group: Any = None,
    ) -> None:
        if not dist.is_initialized():
            raise ConfigurationError(
                "A Synchronizer needs a process group. Call it in a function that sparkdl_bench.launch runs, or after "
                "torch.distributed.init_process_group."
            )
        size = dist.get_world_size(group)
        _check(algorithm, tau, alpha, neighbours, size)
        self._weights = _Weights(model, group)
        self._tau = tau or _TAUS[algorithm]
        self._steps = self._exchanges = 0
        makers: dict[str, Callable[[], _Exchange]] = {
            "local-sgd": lambda: _LocalSgd(self._weights),
            "easgd": lambda: _Easgd(self._weights, alpha or 0.9 / size),
            "gossip": lambda: _Gossip(self._weights, neighbours, seed),
            "downpour": lambda: _Downpour(self._weights),
        }
        self._exchange = makers[algorithm]()

    def step(self) -> None:
        """To be called after each step of the optimiser; on all ranks as often, but for `downpour`."""
        self._steps += 1
        if self._steps % self._tau == 0:
            self._exchanges += 1
            with torch.no_grad():
                self._exchange.step(self._exchanges)

    def finish(self) -> None:
        """All ranks have the same model afterwards; a collective call. For evaluations, checkpoints and the end.

        Training may go on from there.
        """
        with torch.no_grad():
            self._exchange.finish()
            self._weights.average_buffers()

    def close(self) -> None:
        """Lets go of what `downpour` holds. A collective call after `finish`; no step may follow."""
        self._exchange.close()

    def __enter__(self) -> Synchronizer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:  # else the other ranks may never come to it
            self.finish()
            self.close()


_TAUS = {"local-sgd": 8, "easgd": 10, "gossip": 1, "downpour": 1}


def _check(algorithm: str, tau: int | None, alpha: float | None, neighbours: str, size: int) -> None:
    if algorithm not in _TAUS:
        raise ConfigurationError(f"algorithm is {algorithm!r}. Valid: {', '.join(_TAUS)}.")
    if tau is not None and (isinstance(tau, bool) or not isinstance(tau, int) or tau < 1):
        raise ConfigurationError(f"tau is {tau!r}; it is a number of steps, 1 or more.")
    if alpha is not None and (algorithm != "easgd" or not 0 < alpha * size <= 1):
        raise ConfigurationError(
            f"alpha is {alpha!r} with algorithm {algorithm} and {size} ranks. It is easgd's, above 0 and at most "
            f"{1 / size:g}: beyond that the centre swings."
        )
    if neighbours not in NEIGHBOURS:
        raise ConfigurationError(f"neighbours is {neighbours!r}. Valid: {', '.join(NEIGHBOURS)}.")


class _Weights:
    """A model's parameters as one vector, and the group that exchanges it."""

    def __init__(self, model: nn.Module, group: Any) -> None:
        self.parameters = [each for each in model.parameters() if each.numel()]
        self._buffers = [each for each in model.buffers() if each.is_floating_point() and each.numel()]
        strange = [each for each in self.parameters if not (each.is_cpu and each.is_floating_point())]
        if strange or not self.parameters:
            what = f"a parameter of type {strange[0].dtype} on {strange[0].device}" if strange else "no parameters"
            raise ConfigurationError(
                f"A Synchronizer exchanges floating-point parameters on the CPU, and the model has {what}. Move it "
                "with model.cpu(), and give the part that is trained."
            )
        self.group, self.rank, self.size = group, dist.get_rank(group), dist.get_world_size(group)
        # Of parameters of 16 bits a mean is taken in fp32.
        widest = any(each.dtype == torch.float64 for each in self.parameters)
        self.dtype = torch.float64 if widest else torch.float32
        root = self.global_rank(0)
        for each in (*self.parameters, *model.buffers()):
            dist.broadcast(each.detach(), root, group=group)

    def global_rank(self, rank: int) -> int:
        return rank if self.group is None else int(dist.get_global_rank(self.group, rank))

    def read(self) -> Tensor:
        """A copy."""
        return torch.cat([each.detach().reshape(-1).to(self.dtype) for each in self.parameters])

    def write(self, vector: Tensor) -> None:
        for each, values in zip(self.parameters, self._parts(vector, self.parameters), strict=True):
            each.detach().copy_(values.view_as(each))

    def mean(self, vector: Tensor) -> Tensor:
        """Over all ranks, in place."""
        dist.all_reduce(vector, group=self.group)
        return vector.div_(self.size)

    def average_buffers(self) -> None:
        if self._buffers:
            mean = self.mean(torch.cat([each.reshape(-1).to(self.dtype) for each in self._buffers]))
            for each, values in zip(self._buffers, self._parts(mean, self._buffers), strict=True):
                each.copy_(values.view_as(each))

    @staticmethod
    def _parts(vector: Tensor, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        found: Sequence[Tensor] = vector.split([each.numel() for each in tensors])
        return found


class _LocalSgd:
    def __init__(self, weights: _Weights) -> None:
        self._weights = weights

    def step(self, number: int) -> None:
        self.finish()

    def finish(self) -> None:
        self._weights.write(self._weights.mean(self._weights.read()))

    def close(self) -> None:
        pass


class _Easgd:
    def __init__(self, weights: _Weights, alpha: float) -> None:
        self._weights, self._alpha = weights, alpha
        self._center = weights.read()

    def step(self, number: int) -> None:
        own = self._weights.read()
        pull = (own - self._center).mul_(self._alpha)
        self._weights.write(own.sub_(pull))
        dist.all_reduce(pull, group=self._weights.group)
        self._center.add_(pull)

    def finish(self) -> None:
        self._weights.write(self._center)

    def close(self) -> None:
        pass


class _Gossip:
    def __init__(self, weights: _Weights, neighbours: str, seed: int) -> None:
        self._weights, self._neighbours, self._seed = weights, neighbours, seed

    def step(self, number: int) -> None:
        own = self._weights.read()
        others = self._at(number)
        got = [torch.empty_like(own) for _ in others]
        works = [self._message(dist.irecv, each, other) for each, other in zip(got, others, strict=True)]
        works += [self._message(dist.isend, own, other) for other in others]
        for work in works:
            work.wait()
        if others:
            self._weights.write(torch.stack([own, *got]).mean(0))

    def _message(self, call: Callable[..., Any], vector: Tensor, other: int) -> Any:
        return call(vector, self._weights.global_rank(other), group=self._weights.group)

    def _at(self, number: int) -> list[int]:
        """With whom this rank exchanges; every rank knows it of every rank."""
        rank, size = self._weights.rank, self._weights.size
        if self._neighbours == "ring":
            return sorted({(rank - 1) % size, (rank + 1) % size} - {rank})
        order = random.Random(f"{self._seed}/{number}").sample(range(size), size)  # noqa: S311 (no secret)
        place = order.index(rank) ^ 1
        return [order[place]] if place < size else []

    def finish(self) -> None:
        self._weights.write(self._weights.mean(self._weights.read()))

    def close(self) -> None:
        pass


class _Downpour:
    def __init__(self, weights: _Weights) -> None:
        self._weights = weights
        self._server = ParameterServer(weights.read(), weights.group)
        # The server's weights, as this rank knows them, with all that it has sent since.
        self._known = weights.read()
        self._sent: Tensor | None = None

    def step(self, number: int) -> None:
        if self._sent is not None and not self._server.has_answered():
            return
        self._take()
        self._push()

    def _push(self) -> None:
        own = self._weights.read()
        self._server.push((own - self._known).div_(self._weights.size))
        self._sent = own

    def _take(self) -> None:
        """The server's weights, and what this rank has moved since it sent."""
        if self._sent is not None:
            self._known = self._server.answer()
            self._weights.write(self._weights.read().sub_(self._sent).add_(self._known))
            self._sent = None

    def finish(self) -> None:
        self._take()
        self._push()
        self._take()
        self._known = self._server.whole()
        self._weights.write(self._known)

    def close(self) -> None:
        self._server.close()
