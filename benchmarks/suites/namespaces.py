"""All-reduces between two hosts with a link of 1 Gbit/s, beside a plain TCP stream (namespaces; needs root)."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
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
# Libraries of others over the same link: measured where they are installed, and held against no target.
LIBRARIES = (
    Way("mpi", 2, ELEMENTS, "sliced", host_local=False),
    Way("ucx", 2, ELEMENTS, "sliced", host_local=False),
)
# Two ranks send each other the vector once: 2 (N - 1) / N = 1. At 90 % of the bandwidth that takes 1/0.9 of the time.
TARGET = 1 / 0.9
_LINK = "data0"
# Left to themselves they would take the unlimited interface, too; ours keep to one.
_MPI = f"--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include {_LINK} --prtemca prte_if_include {_LINK}"
_OVER_THE_LINK = {"mpi": {"mpi.options": _MPI}, "ucx": {"ucx.devices": _LINK}}


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
        return name_of(self.way)

    def prepare(self) -> None:
        reason = spark_transport_missing(self.way.transport)
        if reason:
            raise ConfigurationError(reason)

    def measure(self, timeout_s: float) -> Trial:
        settings = _OVER_THE_LINK.get(self.way.transport, {})
        with (
            tempfile.TemporaryDirectory(prefix="sparkdl-hosts-") as folder,
            namespaces.two_hosts(self.megabits) as hosts,
            namespaces.cluster(hosts, Path(folder)) as properties,
        ):
            place = Place(tuple(hosts[0].command()), properties, namespaces.environment(hosts[0]), settings)
            taken = run_spark_transport(self.way, *self.counts, timeout_s, place)
        if not taken.correct:
            raise RunFailedError(f"{self.name} gave wrong sums.")
        return Trial(taken.samples_ms, 1, {**asdict(self.way), "channel": taken.channel})


def name_of(way: Way) -> str:
    """As result files name it."""
    return f"{way.transport}-{way.topology}"


def comparisons(ways: Sequence[Way]) -> list[Comparison]:
    """Each beside the plain stream."""
    title = f"{ELEMENTS:,} values, 2 hosts, beside a plain TCP stream"
    return [Comparison(title, name_of(way), STREAM, TARGET if way in WAYS else None) for way in ways]


@click.command(NAME)
@click.option("--megabits", type=click.IntRange(1), default=1000, show_default=True, help="Of the link, a second.")
@click.option("--warmup", type=click.IntRange(0), default=40, show_default=True, help="All-reduces before the first.")
@click.option("--iterations", type=click.IntRange(1), default=60, show_default=True, help="Measured all-reduces.")
@options
def command(shared: Options, megabits: int, warmup: int, iterations: int) -> None:
    """All-reduces across a link of 1 Gbit/s between two hosts made of network namespaces, beside a plain TCP stream."""
    ways = [*WAYS, *_installed()]
    ours = [NamespacesContestant(way, megabits, (warmup, iterations)) for way in ways]
    group: list[Contestant] = [*ours, StreamContestant(megabits)]
    # With other libraries installed it is another plan: a file is not gone on with in which they were skipped.
    plan = {"megabits": megabits, "warmup": warmup, "iterations": iterations, "ways": [each.name for each in ours]}
    run_suite(NAME, plan, [group], comparisons(ways), shared)


def _installed() -> list[Way]:
    """The libraries that are here; others are named, with the command that brings them."""
    reasons = {way: spark_transport_missing(way.transport) for way in LIBRARIES}
    for way, reason in reasons.items():
        if reason:
            click.echo(f"Skipped: {name_of(way)}. {reason}")
    return [way for way, reason in reasons.items() if not reason]
