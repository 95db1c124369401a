"""One row of the collective microbenchmark, and its formulas (docs/performance.md derives them)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from sparkdl_bench import statistics

BYTES_A_VALUE = 4


@dataclass(frozen=True)
class Row:
    """All-reduces of `elements` fp32 values over `workers` ranks, by one way.

    Attributes:
        host_local: whether shared memory was asked for; None where that is not a choice.
        encryption: of Spark's connections (`encryption.CHOICES`); None for peers, which have none.
        channel: what really carried the bytes.
        algbw_gbps: size of the vector over the median time, gigabits a second.
        busbw_gbps: the same × 2 (N - 1) / N: what the busiest link carries at least.
        link_gbps: a plain TCP stream, measured in the same run.
        correct: whether exactly summable inputs gave the exact sums, outside the timed region.
        drift: median over the trials of each one's drift (last third of its samples over the first).
        trials: how often it was measured.
    """

    transport: str
    topology: str | None
    codec: str
    host_local: bool | None
    channel: str
    workers: int
    elements: int
    median_ms: float
    p90_ms: float
    p99_ms: float
    algbw_gbps: float
    busbw_gbps: float
    link_gbps: float
    correct: bool
    drift: float
    samples_ms: list[float]
    encryption: str | None = None
    trials: int = 1

    @property
    def link_share(self) -> float:
        return self.busbw_gbps / self.link_gbps if self.link_gbps > 0 else 0.0

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class Way:
    """Which way a row was measured."""

    transport: str
    workers: int
    elements: int
    topology: str | None = None
    codec: str = "fp32"
    host_local: bool | None = None
    encryption: str | None = None


@dataclass(frozen=True)
class Taken:
    """One measurement of one way.

    Attributes:
        samples_ms: milliseconds an all-reduce.
        correct: whether the sums were right.
        channel: what carried the bytes.
        facts: what else a transport of ours says of that, such as which library encrypted them.
    """

    samples_ms: list[float]
    correct: bool
    channel: str
    facts: Mapping[str, str] = field(default_factory=dict)


def row(way: Way, trials: Sequence[Taken], link_gbps: float) -> Row:
    """A row from all samples of its trials (at least one)."""
    samples_ms = [sample for taken in trials for sample in taken.samples_ms]
    median_ms = statistics.median(samples_ms)
    algbw = algbw_gbps(way.elements, median_ms)
    return Row(
        transport=way.transport,
        topology=way.topology,
        codec=way.codec,
        host_local=way.host_local,
        encryption=way.encryption,
        channel=", ".join(sorted({taken.channel for taken in trials})),
        workers=way.workers,
        elements=way.elements,
        median_ms=median_ms,
        p90_ms=statistics.percentile(samples_ms, 90),
        p99_ms=statistics.percentile(samples_ms, 99),
        algbw_gbps=algbw,
        busbw_gbps=busbw_gbps(algbw, way.workers),
        link_gbps=link_gbps,
        correct=all(taken.correct for taken in trials),
        drift=statistics.median([statistics.drift(taken.samples_ms) for taken in trials]),
        trials=len(trials),
        samples_ms=[round(sample, 5) for sample in samples_ms],
    )


def algbw_gbps(elements: int, milliseconds: float) -> float:
    """S / t: bits of the (uncoded) vector over the time, in gigabits a second."""
    return elements * BYTES_A_VALUE * 8 / 1e6 / milliseconds if milliseconds > 0 else 0.0


def busbw_gbps(algbw: float, workers: int) -> float:
    """algbw × 2 (N - 1) / N: each rank must send and receive that share of the vector, whatever the algorithm.

    The bound is Patarasu and Yuan's (2009). For one rank (memcpy) it is algbw itself: the copy moves the vector once.
    """
    return algbw * 2 * (workers - 1) / workers if workers > 1 else algbw


def counts(elements: int) -> tuple[int, int]:
    """(warm-up, measured) all-reduces for a size: thousands where they are short, until JIT compilers have finished."""
    if elements <= 100_000:
        return 5000, 2000
    if elements <= 1_000_000:
        return 3000, 1000
    return (500, 200) if elements <= 5_000_000 else (200, 100)
