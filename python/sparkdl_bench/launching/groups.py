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
        dist.init_process_group("gloo", store=own, rank=place.rank, world_size=place.size, timeout=timeout)

    return make


def _sparkdl(
    dist: Any, endpoint: Endpoint, place: Place, timeout_s: float, settings: Mapping[str, str]
) -> Callable[[], None]:
    """The backend of this package, which finds its groups over the driver: the store is each process's own."""
    backend: Any = import_module("sparkdl_bench.torch")
    backend.attach(endpoint, settings)

    def make() -> None:
        dist.init_process_group(
            backend.BACKEND,
            store=dist.HashStore(),
            rank=place.rank,
            world_size=place.size,
            timeout=timedelta(seconds=timeout_s),
        )

    return make


@contextmanager
def _joining(dist: Any, place: Place, make: Callable[[], None]) -> Iterator[None]:
    """While it lasts, `init_process_group` of the user's code joins the group, or makes it again after its end."""
    original, original_new_group = dist.init_process_group, dist.new_group
    said: set[str] = set()

    def say(call: str, given: Any, what: str) -> None:
        if call not in said and place.rank == 0:
            said.add(call)
            named = "" if given is None else repr(given)
            sys.stderr.write(f"sparkdl-bench: {call}({named}) {what} (backend {dist.get_backend()}).\n")

    def init_process_group(backend: str | None = None, *rest: Any, **named: Any) -> None:
        given = {**dict(zip(("init_method", "timeout", "world_size", "rank"), rest, strict=False)), **named}
        size, rank = given.get("world_size", -1), given.get("rank", -1)
        if size not in (-1, place.size) or rank not in (-1, place.rank):
            raise ConfigurationError(
                f"init_process_group was called with rank {rank} and world_size {size}, and this is rank {place.rank} "
                f"of {place.size}. Leave both out, or take them from the environment variables RANK and WORLD_SIZE."
            )
        if not dist.is_initialized():
            with _swapped(dist, "init_process_group", original):
                make()
        say("init_process_group", backend, "joins the group of the launch")

    @wraps(original_new_group)
    def new_group(ranks: Any = None, timeout: Any = None, backend: Any = None, *rest: Any, **named: Any) -> Any:
        own = dist.get_backend() if dist.is_initialized() else GLOO
        if own != GLOO and backend is not None and str(backend).lower() != own:
            say("new_group", backend, "makes a group of the launch's own backend")
            backend = None
        return original_new_group(ranks, timeout, backend, *rest, **named)

    with _swapped(dist, "init_process_group", init_process_group), _swapped(dist, "new_group", new_group):
        yield


@contextmanager
def _swapped(dist: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    homes = [dist, dist.distributed_c10d]
    before = [getattr(home, name) for home in homes]
    for home in homes:
        setattr(home, name, function)
    try:
        yield
    finally:
        for home, was in zip(homes, before, strict=True):
            setattr(home, name, was)
