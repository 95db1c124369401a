"""`sparkdl-bench peers`: list, install and run the other ways that ours are measured beside."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import click
import numpy as np
from rich.table import Table

from sparkdl_bench import peers, signals
from sparkdl_bench.comparison import peer_case, peer_run
from sparkdl_bench.config import RunFile, load_run_file
from sparkdl_bench.console import default_console
from sparkdl_bench.errors import ConfigurationError, SparkDLError
from sparkdl_bench.lazy import SuggestingGroup
from sparkdl_bench.peers import Case, CollectiveCase, Measurement, Peer, TrainCase
from sparkdl_bench.results import RunResults, measures

_directory = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=peers.default_directory,
    help="Where the peers' virtual environments are kept (default ~/.cache/sparkdl-bench/peers).",
)
_debug = click.option("--debug", is_flag=True, expose_value=False, help="Show stack traces.")


@click.group(name="peers", cls=SuggestingGroup, short_help="Install and run the trainers that ours is compared with.")
def command() -> None:
    """List, install and run the peers: other trainers and collectives, measured on the same machine."""


@command.command(name="list")
@_directory
@_debug
def list_peers(directory: Path) -> None:
    """All peers: what they are, what they can run, and whether their environment is there."""
    table = Table(title="Peers")
    for heading in ("peer", "runs", "installed", "needs", "what it is", "pinned packages"):
        # A name that is cut is none that `install` takes.
        table.add_column(heading, no_wrap=heading == "peer")
    for peer in peers.discover().values():
        unable = peer.unable()
        installed = "cannot be" if unable else "no" if peer.missing(directory) else "yes"
        kinds, packages = ", ".join(sorted(peer.kinds)), ", ".join(peer.requirements) or "none"
        table.add_row(peer.name, kinds, installed, peer.needs or "nothing", peer.doc, packages)
    default_console().print(table)
    for peer in peers.discover().values():
        if reason := peer.unable():
            click.echo(reason)


@command.command()
@click.argument("name")
@_directory
@_debug
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
@_debug
def remove(name: str, directory: Path) -> None:
    """Take the environment of the peer NAME away, which others may share."""
    peer = peers.find(name)
    sharing = [
        each.name for each in peers.discover().values() if each.requirements and each.requirements == peer.requirements
    ]
    if peer.remove(directory):
        click.echo(f"{name}: removed{', for ' + ', '.join(sharing) if len(sharing) > 1 else ''}.")
    else:
        click.echo(f"{name}: nothing was there.")


@command.command()
@click.argument("name")
@click.argument("conf", type=click.Path(path_type=Path), required=False)
@_directory
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="With CONF: set a key of the run.")
@click.option("--tuned", is_flag=True, help="With CONF: as the peer's own guide recommends, beyond its defaults.")
@click.option(
    "--results", type=click.Path(path_type=Path), default=Path("results"), show_default=True, help="With CONF: folder."
)
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
@_debug
def run(
    name: str,
    conf: Path | None,
    directory: Path,
    assignments: tuple[str, ...],
    tuned: bool,
    results: Path,
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
    """Train as the run file CONF says with the peer NAME, into a folder as `sparkdl-bench run` makes it. Without CONF:
    measure its steps, or its all-reduces, once."""
    peer = peers.find(name)
    if conf is not None:
        _train(peer, load_run_file(conf, assignments), tuned, results, timeout_s, directory)
        return
    if assignments or tuned:
        raise ConfigurationError("--set and --tuned are for a training: name the run file after the peer.")
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


def _train(peer: Peer, run: RunFile, tuned: bool, results: Path, timeout_s: float, directory: Path) -> None:
    if "fit" not in peer.kinds:
        able = [name for name, each in peers.discover().items() if "fit" in each.kinds]
        raise ConfigurationError(f"The peer '{peer.name}' trains no run files. These do: {', '.join(able)}.")
    if reason := peer.missing(directory):
        raise ConfigurationError(reason)
    now = datetime.now(timezone.utc)
    place = (results / f"{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03d}-{peer.name}").resolve()
    with tempfile.TemporaryDirectory(prefix="sparkdl-bench-peer-") as folder:
        peer.check(replace(peer_case.fit_case(run.settings, Path(folder, "rows.npz"), run.spark), tuned=tuned))
        case = peer_case.prepare(run.settings, run.spark, Path(folder), tuned)
        place.mkdir(parents=True)
        signals.at_last(lambda: RunResults(place).close("cancelled", "the user cancelled the run"))
        try:
            trained = peer_run.train(peer, case, place, timeout_s, directory)
        except SparkDLError as error:
            if signals.number() is None:
                RunResults(place).close("failed", str(error))
            raise
        signals.at_last(None)
    peer_run.write(place, peer, case, run.settings, trained)
    summary = RunResults(place).summary
    final = summary["final"]
    click.echo(f"{peer.name} ({case.workers} worker{'s' if case.workers > 1 else ''} of {case.threads} threads)")
    rows = [
        *measures(final),
        ("seconds from the command to the end", f"{trained.seconds:.1f}"),
        ("seconds of the training's own clock", f"{final['seconds_total']:.1f}"),
        ("seconds per epoch", f"{final['seconds_per_epoch_median']:.2f} (median)"),
        ("ms per step", f"{final['ms_per_step_median']:.2f} (median)"),
        ("cores in use", "not seen" if final["cores_in_use"] is None else f"{final['cores_in_use']:.2f} (median)"),
        ("results", str(place)),
    ]
    for what, value in rows:
        click.echo(f"  {what}: {value}")
    for notice in summary["notices"]:
        click.echo(notice, err=True)


def _print(name: str, case: Case, measurement: Measurement) -> None:
    ms = np.asarray([sample.ms for sample in measurement.samples])
    click.echo(
        f"{name} ({case.kind}, {case.workers} worker{'s' if case.workers > 1 else ''}): median {np.median(ms):.3f} ms, "
        f"p90 {np.percentile(ms, 90):.3f} ms, minimum {ms.min():.3f} ms over {len(ms)} samples"
    )
    for key, value in measurement.facts.items():
        click.echo(f"  {key}: {value}")
