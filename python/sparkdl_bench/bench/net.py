"""The collective microbenchmark: every way of adding up a vector, on this machine, in one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyspark

from sparkdl_bench import peers
from sparkdl_bench.bench import collective, encryption
from sparkdl_bench.bench.collective import Row, Taken, Way
from sparkdl_bench.bench.spark_collective import host_local_choices, run_spark_transport, spark_transport_missing
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.peers import CollectiveCase

HOST_LOCAL = ("both", "on", "off")
FLOOR = "memcpy"


@dataclass(frozen=True)
class NetPlan:
    """What `sparkdl-bench net` measures: every combination of sizes, workers, and ways.

    Attributes:
        sizes: numbers of fp32 values.
        workers: numbers of ranks.
        transports: Spark transports of ours, and peers that can all-reduce.
        topologies, codecs: of our transports.
        encryptions: of our transports, where they use sockets (`encryption.CHOICES`); mapped memory is never encrypted.
        host_local: `on`: shared memory where there is some; `off`: sockets alone; `both`: one row each.
        warmup, iterations: all-reduces; 0: by size (`collective.counts`).
        trials: how often each row is measured, in turn with the others; all samples go into the row.
    """

    sizes: tuple[int, ...]
    workers: tuple[int, ...]
    transports: tuple[str, ...]
    topologies: tuple[str, ...] = ("sliced",)
    codecs: tuple[str, ...] = ("fp32",)
    encryptions: tuple[str, ...] = (encryption.OFF,)
    host_local: str = "both"
    warmup: int = 0
    iterations: int = 0
    trials: int = 1
    timeout_s: float = 600.0

    def __post_init__(self) -> None:
        if self.host_local not in HOST_LOCAL:
            raise ConfigurationError(f"host-local is '{self.host_local}'; valid: {', '.join(HOST_LOCAL)}.")
        lists = (self.sizes, self.workers, self.transports, self.topologies, self.codecs, self.encryptions)
        if not all(lists):
            raise ConfigurationError(
                "sizes, workers, transports, topologies, codecs and encryption need at least one value each."
            )
        for each in self.encryptions:
            encryption.missing(each, pyspark.__version__)
        if min(self.sizes) < 0 or min(self.workers) < 1:
            raise ConfigurationError("A size is a number of values, 0 or more; a number of workers is 1 or more.")

    def counts(self, elements: int) -> tuple[int, int]:
        warmup, iterations = collective.counts(elements)
        return self.warmup or warmup, self.iterations or iterations

    @property
    def host_local_choices(self) -> tuple[bool, ...]:
        return {"both": (False, True), "on": (True,), "off": (False,)}[self.host_local]


@dataclass(frozen=True)
class Skipped:
    """A transport or an encryption that cannot be measured here, and why."""

    name: str
    reason: str


def measure(plan: NetPlan, link_gbps: float, directory: Path, tell: Callable[[str], None]) -> Iterator[Row | Skipped]:
    """Rows in the order of sizes and workers; what cannot be measured here gives one `Skipped` at the start."""
    available = []
    for transport in plan.transports:
        peer = peers.discover().get(transport)
        reason = peer.missing(directory) if peer else spark_transport_missing(transport)
        if reason:
            yield Skipped(transport, reason)
        else:
            available.append(transport)
    for each in plan.encryptions:
        reason = encryption.missing(each, pyspark.__version__)
        if reason:
            yield Skipped(each, reason)
            plan = replace(plan, encryptions=tuple(other for other in plan.encryptions if other != each))
    for workers in plan.workers:
        for elements in plan.sizes:
            ways = [way for transport in available for way in ways_of(plan, transport, workers, elements)]
            yield from _rows(plan, ways, link_gbps, directory, tell)


def ways_of(plan: NetPlan, transport: str, workers: int, elements: int) -> list[Way]:
    """The rows of one transport at one size and number of ranks."""
    peer = peers.discover().get(transport)
    if peer is None:
        return [
            Way(transport, workers, elements, topology, codec, host_local, each)
            for topology in plan.topologies
            for codec in plan.codecs
            for host_local in plan.host_local_choices
            if host_local in host_local_choices(transport)
            for each in plan.encryptions
            if each == encryption.OFF or not host_local
        ]
    if transport == FLOOR:
        return [Way(transport, 1, elements)]
    if workers == 1:
        return []
    return [
        Way(transport, workers, elements, host_local=host_local)
        for host_local in plan.host_local_choices
        if host_local in peer.host_local_choices
    ]


def run_way(way: Way, counts: tuple[int, int], timeout_s: float, directory: Path) -> Taken:
    """One way in processes of its own, after `counts[0]` all-reduces `counts[1]` measured ones."""
    warmup, iterations = counts
    if way.transport not in peers.discover():
        return run_spark_transport(way, warmup, iterations, timeout_s)
    case = CollectiveCase(way.elements, way.workers, bool(way.host_local), warmup, iterations)
    measurement = peers.find(way.transport).run(case, timeout_s, directory)
    samples_ms = [sample.ms for sample in measurement.samples]
    return Taken(samples_ms, bool(measurement.facts["correct"]), str(measurement.facts["channel"]))


def _rows(
    plan: NetPlan, ways: Sequence[Way], link_gbps: float, directory: Path, tell: Callable[[str], None]
) -> Iterator[Row]:
    taken: dict[Way, list[Taken]] = {way: [] for way in ways}
    for trial in range(1, plan.trials + 1):
        for way in ways:
            what = f"{way.transport}{_encrypted(way)}, {way.workers} workers, {way.elements} values"
            tell(f"{what}, trial {trial} of {plan.trials} …")
            taken[way].append(run_way(way, plan.counts(way.elements), plan.timeout_s, directory))
    for way, trials in taken.items():
        yield collective.row(way, trials, link_gbps)


def _encrypted(way: Way) -> str:
    return "" if way.encryption in (None, encryption.OFF) else f" ({way.encryption})"
