"""`make bench-net`: all-reduces of ours beside gloo and OpenMPI. `sparkdl-bench net` measures any others."""

from __future__ import annotations

import statistics
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click
import pyspark

from sparkdl_bench import peers
from sparkdl_bench.bench import collective, congestion, encryption, link
from sparkdl_bench.bench.collective import Way
from sparkdl_bench.bench.net import run_way
from sparkdl_bench.bench.spark_collective import spark_transport_missing
from sparkdl_bench.bench.store import Trial
from sparkdl_bench.bench.suite import Options, only_option, options, rows_named, run_suite
from sparkdl_bench.bench.trials import Comparison
from sparkdl_bench.errors import ConfigurationError, RunFailedError

NAME = "net"
# Whose cost is shown; SASL's 3DES needs a second for what these do in milliseconds.
ENCRYPTIONS = ("crypto", "crypto-gcm", encryption.TLS, encryption.TLS_OPENSSL)
# Transports of ours that have the key `congestion`.
_TOLD_CONGESTION = ("block-stream", "tcp")
_TOPOLOGIES = {"block-stream": "sliced", "tcp": "ring", "ucx": "sliced"}


@dataclass(frozen=True)
class CollectiveContestant:
    """One way of one all-reduce; wrong sums fail the trial.

    Attributes:
        congestion: what the whole machine is put on meanwhile; empty: as it is configured.
    """

    way: Way
    counts: tuple[int, int]
    directory: Path
    congestion: str = ""

    @property
    def name(self) -> str:
        return _name(self.way, self.congestion)

    def prepare(self) -> None:
        obstacle = congestion.missing(self.congestion) if self.congestion else None
        if obstacle:
            raise ConfigurationError(f"{obstacle} Measure without --congestion.")
        if self.way.transport in peers.discover():
            peers.find(self.way.transport).install(self.directory)
            return
        reason = spark_transport_missing(self.way.transport)
        reason = reason or encryption.missing(self.way.encryption or encryption.OFF, pyspark.__version__)
        if reason:
            raise ConfigurationError(reason)

    def measure(self, timeout_s: float) -> Trial:
        with congestion.whole_machine(self.congestion) if self.congestion else nullcontext():
            chosen = congestion.current()
            taken = run_way(self.way, self.counts, timeout_s, self.directory, self._settings)
        if not taken.correct:
            raise RunFailedError(f"{self.name} gave wrong sums.")
        said = {**asdict(self.way), "channel": taken.channel, "congestion": chosen, **taken.facts}
        return Trial(taken.samples_ms, 1, said)

    @property
    def _settings(self) -> dict[str, str]:
        """Ours chooses for each connection, unless it is told."""
        told = self.congestion and self.way.transport in _TOLD_CONGESTION
        return {"congestion": self.congestion} if told else {}


def _name(way: Way, whole_machine: str = "") -> str:
    channel = "-local" if way.host_local else ""
    secured = "" if way.encryption in (None, encryption.OFF) else f"-{way.encryption}"
    on = f"@{whole_machine}" if whole_machine else ""
    return f"{way.transport}{channel}{secured}-{way.workers}x{way.elements}{on}"


def _ours(transport: str, workers: int, elements: int, host_local: bool) -> Way:
    return Way(transport, workers, elements, _TOPOLOGIES[transport], host_local=host_local)


def _against(
    peer: str,
    workers: int,
    elements: int,
    target: float,
    host_local: bool = False,
    transport: str = "block-stream",
) -> Comparison:
    ours = _ours(transport, workers, elements, host_local)
    theirs = Way(peer, workers, elements, host_local=host_local and peer != "gloo")  # which has sockets alone
    where = "host-local" if host_local else "sockets"
    what = "" if transport == "block-stream" else f", {transport}/{ours.topology}"
    return Comparison(f"{elements:,} values, {workers} ranks, {where}{what}", _name(ours), _name(theirs), target)


def _cost_of(name: str, target: float) -> Comparison:
    """Encrypted beside plain: the peer is block-stream itself."""
    plain = Way("block-stream", 2, 814_090, "sliced", host_local=False)
    secured = replace(plain, encryption=name)
    return Comparison(f"814,090 values, 2 ranks, sockets: {name} beside plain", _name(secured), _name(plain), target)


COMPARISONS = [
    _against("gloo", 2, 814_090, 0.6),
    _against("mpi", 2, 814_090, 1.0),
    _against("mpi", 2, 814_090, 0.6, host_local=True),
    _against("gloo", 2, 3_200_000, 0.9),
    _against("mpi", 2, 3_200_000, 0.75),
    _against("mpi", 2, 3_200_000, 0.6, host_local=True),
    _against("gloo", 2, 15_000_000, 0.7),
    _against("gloo", 4, 814_090, 0.8),
    _against("gloo", 2, 1, 1.5),
    _against("gloo", 2, 3_200_000, 0.9, transport="tcp"),
    _against("gloo", 4, 3_200_000, 0.9, transport="tcp"),
    _against("gloo", 2, 3_200_000, 0.8, transport="ucx", host_local=True),
    *(_cost_of(name, 2.2) for name in ENCRYPTIONS),
]


def on_one(name: str, comparisons: list[Comparison]) -> list[Comparison]:
    """The comparisons over plain sockets once more, the whole machine on one congestion control; for information."""
    return [
        replace(
            each,
            title=f"{each.title}, all on {name}",
            ours=f"{each.ours}@{name}",
            theirs=f"{each.theirs}@{name}",
            target=None,
        )
        for each in comparisons
        if not any("-local" in side or side.startswith("ucx") for side in (each.ours, each.theirs))
        and not each.ours.startswith(tuple(f"block-stream-{secured}" for secured in ENCRYPTIONS))
    ]


@click.command(NAME)
@click.option(
    "--warmup", type=click.IntRange(0), default=0, help="All-reduces before the first sample [default: by size]."
)
@click.option("--iterations", type=click.IntRange(0), default=0, help="Measured all-reduces [default: by size].")
@click.option(
    "--congestion",
    "one",
    default="",
    help="Measure the rows over sockets once more with the whole machine on this congestion control of TCP, such as "
    "reno (needs root).",
)
@click.option("--skip-missing", is_flag=True, help="Leave out rows of which something is not installed here.")
@only_option
@options
def command(shared: Options, warmup: int, iterations: int, one: str, skip_missing: bool, only: str) -> None:
    """All-reduces of block-stream, tcp and ucx beside gloo and OpenMPI."""
    named = rows_named(only, COMPARISONS)
    comparisons = measurable(named, shared.peers_dir) if skip_missing else named
    again = on_one(one, comparisons) if one else []
    groups: dict[tuple[int, int], dict[str, CollectiveContestant]] = {}
    for way in _ways(comparisons):
        by_size = collective.counts(way.elements)
        counts = (warmup or by_size[0], iterations or by_size[1])
        as_configured = CollectiveContestant(way, counts, shared.peers_dir)
        on = replace(as_configured, congestion=one)
        wanted = [on] if any(on.name in (each.ours, each.theirs) for each in again) else []
        for contestant in (as_configured, *wanted):
            groups.setdefault((way.workers, way.elements), {})[contestant.name] = contestant
    link_gbps = [link.measure_link_gbps() for _ in range(3)]
    # By their titles, so that --resume goes on with a file of the same rows.
    left_out = [each.title for each in named if each not in comparisons]
    plan = {"warmup": warmup, "iterations": iterations, "congestion": one, "only": only, "left_out": left_out}
    ordered = [list(group.values()) for group in groups.values()]
    file = run_suite(NAME, plan, ordered, [*comparisons, *again], shared)
    file.set("link_gbps", link_gbps)
    click.echo(f"A plain TCP stream on loopback: {statistics.median(link_gbps):.1f} Gbit/s.")


def measurable(comparisons: list[Comparison], peers_dir: Path) -> list[Comparison]:
    """Those with both sides installed, or installable, here; it says what is left out, and why.

    Raises:
        ConfigurationError: none is.
    """
    obstacles: dict[str, str] = {}
    for way in _ways(comparisons):
        contestant = CollectiveContestant(way, (0, 0), peers_dir)
        try:
            contestant.prepare()
        except ConfigurationError as error:
            obstacles[contestant.name] = str(error)
    found = []
    for each in comparisons:
        reasons = [obstacles[side] for side in (each.ours, each.theirs) if side in obstacles]
        if reasons:
            click.echo(f"Left out: {each.title}. {reasons[0]}", err=True)
        else:
            found.append(each)
    if not found:
        raise ConfigurationError(f"No row can be measured here. {next(iter(obstacles.values()))}")
    return found


def _ways(comparisons: list[Comparison]) -> list[Way]:
    """Every way that one of these names, ours first in each group."""
    sizes = [(2, 814_090), (2, 3_200_000), (2, 15_000_000), (4, 814_090), (4, 3_200_000), (2, 1)]
    wanted = {name for each in comparisons for name in (each.ours, each.theirs)}
    ways = [
        Way(transport, workers, elements, _TOPOLOGIES.get(transport), host_local=host_local)
        for workers, elements in sizes
        for host_local in (False, True)
        for transport in ("block-stream", "tcp", "ucx", "gloo", "mpi")
    ]
    plain = Way("block-stream", 2, 814_090, "sliced", host_local=False)
    at = ways.index(plain) + 1
    ways[at:at] = [replace(plain, encryption=name) for name in ENCRYPTIONS]
    return [way for way in ways if _name(way) in wanted]
