"""The process group of `torch.distributed` that a launch makes ready, by its way of synchronising.

The user's code may call `torch.distributed.init_process_group` all the same, as scripts for torchrun do: the call then
joins the group that is there, whatever backend it names. Groups that it makes with `new_group` have that backend, too:
in-band there is no store in which the processes of another one could find each other.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import wraps
from importlib import import_module
from typing import Any, Protocol

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.launching.job import GLOO, NONE
from sparkdl_bench.launching.places import Place

_LOOPBACKS = ("127.0.0.1", "localhost", "::1", "[::1]")


class Endpoint(Protocol):
    """A rank's way to its executor and the driver (`sparkdl_bench.worker`)."""

    def tell(self, kind: str, payload: Mapping[str, Any]) -> None: ...

    def when_lost(self, action: Callable[[], None]) -> None: ...

    def flush(self) -> None: ...

    def meet(self, text: str) -> list[str]: ...

    def close(self) -> None: ...


def prepare(sync: str, place: Place) -> None:
    """Has names that the user's code imports from `torch.distributed` mean what they do in a launch.

    Raises:
        ConfigurationError: PyTorch is missing.
    """
    if sync != NONE:
        _calls_of(_distributed(sync, place))


@contextmanager
def ready(sync: str, endpoint: Endpoint, place: Place, timeout_s: float, settings: Mapping[str, str]) -> Iterator[None]:
    """A group over all ranks while it lasts, destroyed at its end.

    Raises:
        ConfigurationError: PyTorch is missing, or has no such backend.
    """
    if sync == NONE:
        yield
        return
    dist = _distributed(sync, place)
    if sync == GLOO:
        make = _gloo(dist, endpoint, place, timeout_s)
    else:
        make = _sparkdl(dist, endpoint, place, timeout_s, settings)
    make()
    with _joining(dist, place, make):
        try:
            yield
        finally:
            # Python workers are used again: the next launch must not find this one's group. One that is broken is
            # what an exception that is on its way tells better.
            if dist.is_initialized():
                with suppress(Exception):
                    dist.destroy_process_group()


def _distributed(sync: str, place: Place) -> Any:
    try:
        dist: Any = import_module("torch.distributed")
    except ImportError as error:
        raise ConfigurationError(
            f"sync='{sync}' needs PyTorch in the Python of the executors, and {sys.executable} on host {place.host} "
            f"cannot import it ({error}). Install torch there, or use sync='none', which makes no process group."
        ) from error
    if not dist.is_available():
        raise ConfigurationError(
            f"sync='{sync}' needs torch.distributed, and the PyTorch of {sys.executable} on host {place.host} was "
            "built without it. Install another build of torch, or use sync='none'."
        )
    return dist


def _gloo(dist: Any, endpoint: Endpoint, place: Place, timeout_s: float) -> Callable[[], None]:
    """Rank 0 opens a store on a free port of its host, and the ranks' meeting tells the others where."""
    timeout = timedelta(seconds=timeout_s)
    store = None
    here = ""
    if place.rank == 0:
        store = dist.TCPStore(place.host, 0, place.size, True, timeout, wait_for_workers=False)
        here = json.dumps({"host": place.host, "port": store.port})
    there = json.loads(endpoint.meet(here)[0])
    if store is None:
        store = dist.TCPStore(there["host"], there["port"], place.size, False, timeout, wait_for_workers=False)
    # Processes that the user's code starts find the store by these, as under torchrun.
    os.environ.update(MASTER_ADDR=there["host"], MASTER_PORT=str(there["port"]), TORCHELASTIC_USE_AGENT_STORE=str(True))
    if there["host"] in _LOOPBACKS:
        # gloo would resolve the host's name, which need not lead to an address of its own.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    made = 0

    def make() -> None:
        nonlocal made
        made += 1
        own = dist.PrefixStore(f"sparkdl-{made}", store)
        _calls_of(dist).init_process_group("gloo", store=own, rank=place.rank, world_size=place.size, timeout=timeout)

    return make


def _sparkdl(
    dist: Any, endpoint: Endpoint, place: Place, timeout_s: float, settings: Mapping[str, str]
) -> Callable[[], None]:
    """The backend of this package, which finds its groups over the driver: the store is each process's own."""
    backend: Any = import_module("sparkdl_bench.torch")
    backend.attach(endpoint, settings)

    def make() -> None:
        _calls_of(dist).init_process_group(
            backend.BACKEND,
            store=dist.HashStore(),
            rank=place.rank,
            world_size=place.size,
            timeout=timedelta(seconds=timeout_s),
        )

    return make


class _Joined:
    """What the calls of the user's code find while a launch lasts."""

    def __init__(self, dist: Any, place: Place, make: Callable[[], None]) -> None:
        self._dist, self._place, self._make = dist, place, make
        self._said: set[str] = set()

    def init_process_group(self, backend: str | None = None, *rest: Any, **named: Any) -> None:
        """Joins the group, or makes it again after its end."""
        place = self._place
        given = {**dict(zip(("init_method", "timeout", "world_size", "rank"), rest, strict=False)), **named}
        size, rank = given.get("world_size", -1), given.get("rank", -1)
        if size not in (-1, place.size) or rank not in (-1, place.rank):
            raise ConfigurationError(
                f"init_process_group was called with rank {rank} and world_size {size}, and this is rank {place.rank} "
                f"of {place.size}. Leave both out, or take them from the environment variables RANK and WORLD_SIZE."
            )
        if not self._dist.is_initialized():
            self._make()
        self._say("init_process_group", backend, "joins the group of the launch")

    def backend_of_new(self, backend: Any) -> Any:
        """The backend of a group that the user's code makes."""
        own = self._dist.get_backend() if self._dist.is_initialized() else GLOO
        if own == GLOO or backend is None or str(backend).lower() == own:
            return backend
        self._say("new_group", backend, "makes a group of the launch's own backend")
        return None

    def _say(self, call: str, given: Any, what: str) -> None:
        if call not in self._said and self._place.rank == 0:
            self._said.add(call)
            named = "" if given is None else repr(given)
            sys.stderr.write(f"sparkdl-bench: {call}({named}) {what} (backend {self._dist.get_backend()}).\n")


class _Calls:
    """PyTorch's `init_process_group` and `new_group`, and in their places ours, for the rest of the process.

    A name that was imported (`from torch.distributed import init_process_group`) keeps what it meant at that time, so
    ours are there before the user's code is loaded, and stay: outside a launch they do what PyTorch's do.
    """

    def __init__(self, dist: Any) -> None:
        self.joined: _Joined | None = None
        self.init_process_group, self.new_group = init, new = dist.init_process_group, dist.new_group

        @wraps(init)
        def init_process_group(*given: Any, **named: Any) -> Any:
            return (init if self.joined is None else self.joined.init_process_group)(*given, **named)

        @wraps(new)
        def new_group(ranks: Any = None, timeout: Any = None, backend: Any = None, *rest: Any, **named: Any) -> Any:
            if self.joined is not None:
                backend = self.joined.backend_of_new(backend)
            return new(ranks, timeout, backend, *rest, **named)

        for home in (dist, dist.distributed_c10d):
            home.init_process_group, home.new_group = init_process_group, new_group


_calls: _Calls | None = None


def _calls_of(dist: Any) -> _Calls:
    global _calls
    if _calls is None:
        _calls = _Calls(dist)
    return _calls


@contextmanager
def _joining(dist: Any, place: Place, make: Callable[[], None]) -> Iterator[None]:
    """While it lasts, `init_process_group` of the user's code joins the group, or makes it again after its end."""
    calls = _calls_of(dist)
    calls.joined = _Joined(dist, place, make)
    try:
        yield
    finally:
        calls.joined = None
