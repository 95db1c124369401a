"""Links between two hosts (network namespaces; needs root): cut, cut and restored, narrowed, slow, with losses."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from faults.kind import Kind, Scene
from faults.law import Expectation
from faults.training import EndedEarlyError
from faults.ways import Way
from sparkdl_bench.bench import namespaces
from sparkdl_bench.bench.namespaces import Host
from sparkdl_bench.errors import RunFailedError

_COMMAND_S = 30.0
_LINK = "data0"
_MEGABITS = 1000
_AGAIN_S = 0.3
Hosts = tuple[Host, Host]


def _on(host: Host, *words: str) -> None:
    done = subprocess.run(host.command(*words), capture_output=True, text=True, timeout=_COMMAND_S, check=False)  # noqa: S603
    if done.returncode != 0:
        raise RunFailedError(f"`{' '.join(words)}` failed on a host of the campaign: {done.stderr.strip()}.")


def _cut(hosts: Hosts) -> None:
    _on(hosts[1], "ip", "link", "set", _LINK, "down")


def _restore(hosts: Hosts) -> None:
    _on(hosts[1], "ip", "link", "set", _LINK, "up")


def _shape(hosts: Hosts, *words: str) -> None:
    for host in hosts:
        _on(host, "tc", "qdisc", "replace", "dev", _LINK, "root", *words)


def _narrow(megabits: float) -> tuple[str, ...]:
    return ("tbf", "rate", f"{round(megabits * 1000)}kbit", "burst", "256kb", "latency", "50ms")


class _Link(Kind):
    """Something happens to the link for some seconds; without seconds until the run's end."""

    def __init__(
        self,
        name: str,
        doc: str,
        begin: Callable[[Hosts], None],
        end: Callable[[Hosts], None],
        seconds: tuple[float, float] | None,
        qdisc: str | None = None,
        again: bool = False,
    ) -> None:
        self.name, self.doc, self._begin, self._end, self._seconds = name, doc, begin, end, seconds
        self._qdisc, self._again = qdisc, again
        self._hosts: Hosts | None = None

    def obstacle(self) -> str | None:
        return namespaces.obstacle() or (_lacks(self._qdisc) if self._qdisc else None)

    def suits(self, way: Way) -> bool:
        return way.transport in ("tcp", "block-stream", "block-manager", "shuffle") and not way.decoded

    def expectation(self, weights: str) -> Expectation:
        # A host that is cut off for good is lost, and the run goes on without it.
        return Expectation(weights, changed_workers=True)

    @contextmanager
    def around(self, scene: Scene) -> Iterator[None]:
        folder = scene.folder / "cluster"
        folder.mkdir()
        with (
            namespaces.two_hosts(_MEGABITS) as hosts,
            namespaces.cluster(hosts, folder, "1g", spark=scene.way.secure) as properties,
        ):
            self._hosts = hosts
            if self._seconds is None:
                # An executor that cannot reach its driver ends by itself; by Spark's default after two minutes here.
                scene.spark |= {"spark.executor.heartbeat.maxFailures": "10"}
            of_host = namespaces.environment(hosts[0])
            scene.prefix = tuple(hosts[0].command())
            scene.environment |= {key: value for key, value in of_host.items() if os.environ.get(key) != value}
            address = properties.pop("spark.master")
            scene.spark |= {"master": address, **properties, "spark.executor.memory": "1g"}
            # Of engines that are Python processes; on a cluster nothing tells executors which Python it is.
            scene.settings |= {"engine.python": sys.executable}
            scene.limit_s = max(scene.limit_s, 180.0)
            try:
                yield
            finally:
                self._hosts = None

    def inflict(self, scene: Scene) -> str:
        moment = scene.await_moment()
        hosts = self._hosts
        if hosts is None:
            raise RunFailedError("The hosts of a fault of links are there within `around` alone.")
        if self._seconds is None:
            self._begin(hosts)
            return moment
        seconds = scene.chance.uniform(*self._seconds)
        until = time.monotonic() + seconds
        try:
            while time.monotonic() < until:
                self._begin(hosts)
                pause = time.monotonic() + (_AGAIN_S if self._again else seconds)
                scene.training.wait(lambda pause=pause: time.monotonic() >= min(until, pause))  # type: ignore[misc]
        except EndedEarlyError:
            pass  # the run has ended meanwhile
        finally:
            self._end(hosts)
        return f"{moment}, for {seconds:.1f} s"

    def heal(self, scene: Scene) -> None:  # noqa: ARG002 (an interface's)
        if self._hosts:
            self._end(self._hosts)


def _lacks(qdisc: str) -> str | None:
    """Why the kernel cannot shape a link so; None where it can."""
    with namespaces.two_hosts() as hosts:
        try:
            _on(hosts[0], "tc", "qdisc", "replace", "dev", _LINK, "root", qdisc)
        except RunFailedError as error:
            return f"this kernel has no {qdisc} for tc ({str(error).rstrip('.')})"
    return None


def _flap(hosts: Hosts) -> None:
    """Down for a moment: what is on its way is lost."""
    _cut(hosts)
    time.sleep(0.05)
    _restore(hosts)


def _open(hosts: Hosts) -> None:
    _shape(hosts, *_narrow(_MEGABITS))


KINDS: list[Kind] = [
    _Link("link-cut", "The link is cut for good.", _cut, _restore, None),
    _Link("link-cut-shortly", "The link is cut for less than `timeout`.", _cut, _restore, (0.5, 4.0)),
    _Link("link-cut-and-restored", "The link is cut beyond `timeout`, and comes back.", _cut, _restore, (8.0, 20.0)),
    _Link(
        "link-narrowed",
        "The link carries 2 Mbit/s for a while.",
        lambda hosts: _shape(hosts, *_narrow(2)),
        _open,
        (3.0, 8.0),
    ),
    _Link(
        "link-flapping",
        "The link loses what is on its way, three times a second.",
        _flap,
        _restore,
        (2.0, 6.0),
        again=True,
    ),
    _Link(
        "link-lossy",
        "The link loses 10 % of its packets for a while.",
        lambda hosts: _shape(hosts, "netem", "loss", "10%"),
        _open,
        (3.0, 8.0),
        "netem",
    ),
    _Link(
        "link-delayed",
        "Packets take 50 ms more for a while.",
        lambda hosts: _shape(hosts, "netem", "delay", "50ms"),
        _open,
        (3.0, 8.0),
        "netem",
    ),
]
