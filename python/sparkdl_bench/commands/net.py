"""`sparkdl-bench net`: the collective microbenchmark."""

from __future__ import annotations

import json
from pathlib import Path

import click

from sparkdl_bench.errors import ConfigurationError, RunFailedError
from sparkdl_bench.peers import default_directory


@click.command("net", short_help="Measure all-reduces: ours, gloo, MPI, a plain copy.")
@click.option(
    "--sizes", default="1,10000,814090", show_default=True, help="Numbers of fp32 values, separated by commas."
)
@click.option("--workers", default="2", show_default=True, help="Numbers of ranks, separated by commas.")
@click.option(
    "--transports",
    default="block-stream,tcp,ucx,ours:mpi,gloo,mpi",
    show_default=True,
    help="Ours (ours:NAME where a peer has that name too) and peers that all-reduce.",
)
@click.option("--topologies", default="sliced", show_default=True, help="Of our transports.")
@click.option("--codecs", default="fp32", show_default=True, help="Of our transports.")
@click.option(
    "--encryption",
    "encryptions",
    default="off",
    show_default=True,
    help="Of our transports over sockets: off, crypto, crypto-gcm, sasl, tls, tls-openssl.",
)
@click.option(
    "--host-local",
    type=click.Choice(["both", "on", "off"]),
    default="both",
    show_default=True,
    help="Shared memory where there is some (on), sockets alone (off), or a row for each.",
)
@click.option("--trials", type=click.IntRange(1), default=1, show_default=True, help="Times that each row is measured.")
@click.option(
    "--warmup", type=click.IntRange(0), default=0, help="All-reduces before the first sample [default: by size]."
)
@click.option("--iterations", type=click.IntRange(0), default=0, help="Measured all-reduces [default: by size].")
@click.option("--timeout", "timeout_s", type=click.FloatRange(1), default=600.0, show_default=True, help="Of a row, s.")
@click.option("--peers-dir", type=click.Path(path_type=Path), default=default_directory, help="Peers' environments.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write JSON lines here.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show stack traces.")
def command(
    sizes: str,
    workers: str,
    transports: str,
    topologies: str,
    codecs: str,
    encryptions: str,
    host_local: str,
    trials: int,
    warmup: int,
    iterations: int,
    timeout_s: float,
    peers_dir: Path,
    json_file: Path | None,
) -> None:
    """All-reduce by ours, gloo, MPI and the floor (memcpy), with the share of the link that each reaches."""
    from sparkdl_bench.bench import link, table
    from sparkdl_bench.bench.collective import Row
    from sparkdl_bench.bench.net import FLOOR, Failed, NetPlan, arrange, measure

    plan = NetPlan(
        sizes=_numbers("--sizes", sizes),
        workers=_numbers("--workers", workers),
        transports=tuple(dict.fromkeys([*_names(transports), FLOOR])),
        topologies=_names(topologies),
        codecs=_names(codecs),
        encryptions=_names(encryptions),
        host_local=host_local,
        warmup=warmup,
        iterations=iterations,
        trials=trials,
        timeout_s=timeout_s,
    )
    sweep = arrange(plan, peers_dir)
    for left_out in sweep.skipped:
        click.echo(f"{left_out.name}: skipped. {left_out.reason}", err=True)
    if json_file:
        json_file.write_text("", encoding="utf-8")
    link_gbps = link.measure_link_gbps()
    rows: list[Row] = []
    faults: list[str] = []
    try:
        for found in measure(plan, sweep, link_gbps, peers_dir, lambda line: click.echo(line, err=True)):
            if isinstance(found, Failed):
                click.echo(f"{found.name}: FAILED. {found.reason}", err=True)
                faults.append(f"{found.name} failed: {found.reason}")
                continue
            rows.append(found)
            if not found.correct:
                faults.append(f"{found.transport} ({found.workers} workers, {found.elements} values) gave wrong sums.")
            if json_file:
                with json_file.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(found.to_dict()) + "\n")
    finally:
        # Also what an interrupted sweep has.
        table.show_rows(rows, link_gbps)
    if faults:
        raise RunFailedError(" ".join(faults))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in _names(text))
    except ValueError:
        raise ConfigurationError(
            f"{option} is '{text}'; it must be whole numbers separated by commas, such as 1,10000,814090."
        ) from None
