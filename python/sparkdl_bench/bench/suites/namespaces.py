"""All-reduces between two hosts with a link of 1 Gbit/s, beside a plain TCP stream (namespaces; needs root)."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from sparkdl_bench.bench import namespaces
from sparkdl_bench.bench.collective import BYTES_A_VALUE, Way
from sparkdl_bench.bench.contestant import Contestant
from sparkdl_bench.bench.spark_collective import Place, run_spark_transport, spark_transport_missing
from sparkdl_bench.bench.store import Trial
from sparkdl_bench.bench.suite import Options, options, run_suite
from sparkdl_bench.bench.trials import Comparison
from sparkdl_bench.errors import ConfigurationError, RunFailedError

NAME = "namespaces"
STREAM = "plain-stream"
ELEMENTS = 3_200_000
WAYS = (
    Way("tcp", 2, ELEMENTS, "ring", host_local=False),
    Way("block-stream", 2, ELEMENTS, "sliced", host_local=False),
)
# Two ranks send each other the vector once: 2 (N - 1) / N = 1. At 90 % of the bandwidth that takes 1/0.9 of the time.
TARGET = 1 / 0.9
COMPARISONS = [
    Comparison(
        f"{ELEMENTS:,} values, 2 hosts, beside a plain TCP stream",
        f"{way.transport}-{way.topology}",
        STREAM,
        TARGET,
    )
    for way in WAYS
]


@dataclass(frozen=True)
class StreamContestant:
    """A plain TCP stream of as many bytes, one way."""

    megabits: int
    name: str = STREAM

    def prepare(self) -> None:
        reason = namespaces.obstacle()
        if reason:
            raise ConfigurationError(f"The hosts of this suite cannot be made: {reason}.")

    def measure(self, timeout_s: float) -> Trial:  # noqa: ARG002 (has bounds of its own)
        with namespaces.two_hosts(self.megabits) as hosts:
            gbps = [namespaces.stream_gbps(*hosts) for _ in range(3)]
        return Trial([ELEMENTS * BYTES_A_VALUE * 8 / 1e6 / each for each in gbps], 1, {"gbps": gbps})


@dataclass(frozen=True)
class NamespacesContestant:
    """One transport and topology, on a standalone cluster across the two hosts; wrong sums fail the trial."""

    way: Way
    megabits: int
    counts: tuple[int, int]

    @property
    def name(self) -> str:
        return f"{self.way.transport}-{self.way.topology}"

    def prepare(self) -> None:
        reason = spark_transport_missing(self.way.transport)
        if reason:
            raise ConfigurationError(reason)

    def measure(self, timeout_s: float) -> Trial:
        with (
            tempfile.TemporaryDirectory(prefix="sparkdl-hosts-") as folder,
            namespaces.two_hosts(self.megabits) as hosts,
            namespaces.cluster(hosts, Path(folder)) as properties,
        ):
            place = Place(tuple(hosts[0].command()), properties, namespaces.environment(hosts[0]))
            taken = run_spark_transport(self.way, *self.counts, timeout_s, place)
        if not taken.correct:
            raise RunFailedError(f"{self.name} gave wrong sums.")
        return Trial(taken.samples_ms, 1, {**asdict(self.way), "channel": taken.channel})


@click.command(NAME)
@click.option("--megabits", type=click.IntRange(1), default=1000, show_default=True, help="Of the link, a second.")
@click.option("--warmup", type=click.IntRange(0), default=40, show_default=True, help="All-reduces before the first.")
@click.option("--iterations", type=click.IntRange(1), default=60, show_default=True, help="Measured all-reduces.")
@options
def command(shared: Options, megabits: int, warmup: int, iterations: int) -> None:
    """All-reduces across a link of 1 Gbit/s between two hosts made of network namespaces, beside a plain TCP stream."""
    ours = [NamespacesContestant(way, megabits, (warmup, iterations)) for way in WAYS]
    group: list[Contestant] = [*ours, StreamContestant(megabits)]
    plan = {"megabits": megabits, "warmup": warmup, "iterations": iterations}
    run_suite(NAME, plan, [group], COMPARISONS, shared)
