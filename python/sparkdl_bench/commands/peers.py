"""`sparkdl-bench peers`: list, install and run the other ways that ours are measured beside."""

from __future__ import annotations

import json
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from sparkdl_bench import peers
from sparkdl_bench.lazy import SuggestingGroup
from sparkdl_bench.peers import Case, CollectiveCase, Measurement, TrainCase

_directory = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=peers.default_directory,
    help="Where the peers' virtual environments are kept (default ~/.cache/sparkdl-bench/peers).",
)


@click.group(name="peers", cls=SuggestingGroup, short_help="Install and run the trainers that ours is compared with.")
def command() -> None:
    """List, install and run the peers: other trainers and collectives, measured on the same machine."""


@command.command(name="list")
@_directory
def list_peers(directory: Path) -> None:
    """All peers: what they are, what they can run, and whether their environment is there."""
    table = Table(title="Peers")
    for heading in ("peer", "runs", "installed", "what it is", "pinned packages"):
        table.add_column(heading)
    for peer in peers.discover().values():
        installed = "no" if peer.missing(directory) else "yes"
        table.add_row(
            peer.name, ", ".join(sorted(peer.kinds)), installed, peer.doc, ", ".join(peer.requirements) or "none"
        )
    Console().print(table)


@command.command()
@click.argument("name")
@_directory
def install(name: str, directory: Path) -> None:
    """Make the virtual environment of the peer NAME; does nothing when it is there."""
    peer = peers.find(name)
    if peer.missing(directory) is None:
        click.echo(f"{name}: nothing to do.")
        return
    click.echo(f"{name}: installing {', '.join(peer.requirements)} under {directory} …")
    peer.install(directory)
    click.echo(f"{name}: ready.")


@command.command()
@click.argument("name")
@_directory
@click.option(
    "--workers", type=click.IntRange(1), help="Processes or Spark tasks (default: 1 to train in one process, else 2)."
)
@click.option(
    "--threads", type=click.IntRange(1), default=1, show_default=True, help="Compute threads a worker (training)."
)
@click.option(
    "--batch", type=click.IntRange(1), default=128, show_default=True, help="Global batch, rows per step (training)."
)
@click.option("--steps", type=click.IntRange(1), default=400, show_default=True, help="Measured steps or all-reduces.")
@click.option("--warmup", type=click.IntRange(0), default=200, show_default=True, help="Steps before the first sample.")
@click.option(
    "--elements", type=click.IntRange(0), default=814_090, show_default=True, help="fp32 values (all-reduce)."
)
@click.option(
    "--host-local/--sockets", default=False, show_default=True, help="Shared memory or TCP, where the peer has both."
)
@click.option(
    "--data", "data_path", default="", help="Folder of MNIST's IDX files; synthetic rows without it (training)."
)
@click.option("--timeout", "timeout_s", type=click.FloatRange(1), default=900.0, show_default=True, help="Seconds.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append all samples here, one JSON line.",
)
def run(
    name: str,
    directory: Path,
    workers: int | None,
    threads: int,
    batch: int,
    steps: int,
    warmup: int,
    elements: int,
    host_local: bool,
    data_path: str,
    timeout_s: float,
    json_file: Path | None,
) -> None:
    """Measure the peer NAME once and print its milliseconds per step."""
    peer = peers.find(name)
    case: Case
    if "train" in peer.kinds:
        case = TrainCase(
            batch=batch,
            workers=workers or peer.workers,
            threads=threads,
            warmup_steps=warmup,
            steps=steps,
            data_path=data_path and str(Path(data_path).resolve()),
        )
    else:
        case = CollectiveCase(
            elements=elements, workers=workers or peer.workers, host_local=host_local, warmup=warmup, iterations=steps
        )
    measurement = peer.run(case, timeout_s, directory)
    _print(name, case, measurement)
    if json_file:
        record = {
            "peer": name,
            "case": peers.case_to_dict(case),
            "facts": dict(measurement.facts),
            "samples": [[sample.ms, sample.steps] for sample in measurement.samples],
        }
        with json_file.open("a") as lines:
            lines.write(json.dumps(record) + "\n")


def _print(name: str, case: Case, measurement: Measurement) -> None:
    ms = np.asarray([sample.ms for sample in measurement.samples])
    click.echo(
        f"{name} ({case.kind}, {case.workers} worker{'s' if case.workers > 1 else ''}): median {np.median(ms):.3f} ms, "
        f"p90 {np.percentile(ms, 90):.3f} ms, minimum {ms.min():.3f} ms over {len(ms)} samples"
    )
    for key, value in measurement.facts.items():
        click.echo(f"  {key}: {value}")
