"""The collective microbenchmark: every way of adding up a vector, on this machine, in one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark

from sparkdl_bench import peers
from sparkdl_bench.bench import collective, encryption, unsupported
from sparkdl_bench.bench.collective import Row, Taken, Way
from sparkdl_bench.bench.spark_collective import (
    Place,
    host_local_choices,
    run_settings,
    run_spark_transport,
    spark_transport_missing,
)
from sparkdl_bench.errors import ConfigurationError, SparkDLError
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
    """A transport, an encryption or a combination that cannot be measured here, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Failed:
    """A way whose measurement failed, and its words."""

    name: str
    reason: str


@dataclass(frozen=True)
class Sweep:
    """What a plan measures here.

    Attributes:
        groups: ways of one size and number of workers, which take turns; in the order of workers and sizes.
        skipped: what is left out.
    """

    groups: tuple[tuple[Way, ...], ...]
    skipped: tuple[Skipped, ...]


def arrange(plan: NetPlan, directory: Path) -> Sweep:
    """Checks every combination before the first one runs.

    Args:
        directory: of the peers' environments.

    Raises:
        ConfigurationError: a name is none.
    """
    reasons = {each: _missing(each, directory) for each in plan.transports}
    reasons |= {each: encryption.missing(each, pyspark.__version__) for each in plan.encryptions}
    available = [each for each in plan.transports if not reasons[each]]
    refused = _refused(plan, available)
    groups = [
        tuple(
            way
            for transport in available
            for way in ways_of(plan, transport, workers, elements)
            if not refused.get(_combination(way)) and not reasons.get(way.encryption or encryption.OFF)
        )
        for workers in plan.workers
        for elements in plan.sizes
    ]
    left_out = [Skipped(name, reason) for name, reason in {**reasons, **refused}.items() if reason]
    return Sweep(tuple(groups), tuple(left_out))


def _missing(transport: str, directory: Path) -> str | None:
    peer = peers.discover().get(transport)
    return peer.missing(directory) if peer else spark_transport_missing(transport)


def _refused(plan: NetPlan, available: Sequence[str]) -> dict[str, str]:
    """By combination of ours why it has nothing to measure; empty where it has. Sizes and channels do not matter."""
    ways = [
        Way(transport, workers, plan.sizes[0], topology, codec)
        for workers in plan.workers
        for transport in available
        if transport not in peers.discover()
        for topology in plan.topologies
        for codec in plan.codecs
    ]
    combinations = {_combination(way): run_settings(way) for way in ways}
    try:
        found = unsupported.reasons(list(combinations.values()))
    except ConfigurationError as error:
        if "no transport called" not in str(error):
            raise
        able = [name for name, peer in peers.discover().items() if "allreduce" in peer.kinds]
        raise ConfigurationError(f"{error} Peers that all-reduce: {', '.join(able)}.") from error
    return dict(zip(combinations, found, strict=True))


def measure(
    plan: NetPlan, sweep: Sweep, link_gbps: float, directory: Path, tell: Callable[[str], None]
) -> Iterator[Row | Failed]:
    """Each row as soon as its last trial is there; a way that fails once is not measured again, and the others are."""
    for ways in sweep.groups:
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


def run_way(
    way: Way,
    counts: tuple[int, int],
    timeout_s: float,
    directory: Path,
    settings: Mapping[str, str] | None = None,
) -> Taken:
    """One way in processes of its own, after `counts[0]` all-reduces `counts[1]` measured ones.

    Args:
        settings: further keys of the run, where the way is one of ours.
    """
    warmup, iterations = counts
    if way.transport not in peers.discover():
        return run_spark_transport(way, warmup, iterations, timeout_s, Place(settings=settings or {}))
    case = CollectiveCase(way.elements, way.workers, bool(way.host_local), warmup, iterations)
    measurement = peers.find(way.transport).run(case, timeout_s, directory)
    samples_ms = [sample.ms for sample in measurement.samples]
    return Taken(samples_ms, bool(measurement.facts["correct"]), str(measurement.facts["channel"]))


def _rows(
    plan: NetPlan, ways: Sequence[Way], link_gbps: float, directory: Path, tell: Callable[[str], None]
) -> Iterator[Row | Failed]:
    taken: dict[Way, list[Taken]] = {way: [] for way in ways}
    for trial in range(1, plan.trials + 1):
        for way in list(taken):
            tell(f"{describe(way)}, trial {trial} of {plan.trials} …")
            try:
                taken[way].append(run_way(way, plan.counts(way.elements), plan.timeout_s, directory))
            except SparkDLError as problem:
                del taken[way]
                yield Failed(describe(way), str(problem))
                continue
            if trial == plan.trials:
                yield collective.row(way, taken[way], link_gbps)


def describe(way: Way) -> str:
    """`tcp, ring, fp32, 2 workers, 10000 values`, with what else tells it from others."""
    channel = ["host-local"] if way.host_local else []
    secured = [] if way.encryption in (None, encryption.OFF) else [str(way.encryption)]
    return ", ".join([_combination(way), *channel, *secured, f"{way.elements} values"])


def _combination(way: Way) -> str:
    own = [] if way.topology is None else [way.topology, way.codec]
    return ", ".join([way.transport, *own, f"{way.workers} workers"])
