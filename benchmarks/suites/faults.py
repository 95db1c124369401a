"""`make soak`: faults of every kind done to short trainings: same bits as undisturbed, or a named error."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from faults import campaign, records
from faults.kind import Kind, find
from faults.ways import WAYS, Way
from sparkdl_bench.bench.suite import results_option
from sparkdl_bench.errors import ConfigurationError, RunFailedError
from sparkdl_bench.nearest import suggestion

NAME = "faults"


@click.command(NAME)
@click.option(
    "--faults", "count", type=click.IntRange(1), default=200, show_default=True, help="In the whole campaign."
)
@click.option("--kinds", default="", help="Kinds to draw from, by commas [default: all].")
@click.option("--ways", default="", help="Ways to train, by commas [default: all that this machine can].")
@click.option("--seed", type=int, default=0, show_default=True, help="Of all that is drawn.")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), help="No fault begins later; --resume goes on.")
@click.option("--timeout", "limit_s", type=click.FloatRange(1), default=150.0, show_default=True, help="Of a run, s.")
@click.option("--keep", type=click.Path(path_type=Path), help="Folder for the files of violations.")
@click.option("--resume", is_flag=True, help="Continue the newest file of the same plan, commit and machine.")
@click.option("--list", "listed", is_flag=True, help="Say which kinds and ways there are; do nothing.")
@results_option
def command(
    count: int,
    kinds: str,
    ways: str,
    seed: int,
    minutes: float | None,
    limit_s: float,
    keep: Path | None,
    resume: bool,
    listed: bool,
    results: Path,
) -> None:
    """Faults of every kind, done to short trainings: same bits as undisturbed, or a named error, and nothing left."""
    chosen_kinds: dict[str, Kind] = chosen(kinds, find(), "kind")
    chosen_ways: dict[str, Way] = chosen(ways, WAYS, "way")
    kind_reasons = {name: reason for name, kind in chosen_kinds.items() if (reason := kind.obstacle())}
    way_reasons = {name: reason for name, way in chosen_ways.items() if (reason := way.missing())}
    if listed:
        _list(chosen_kinds, kind_reasons, chosen_ways, way_reasons)
        return
    for name, reason in {**kind_reasons, **way_reasons}.items():
        click.echo(f"Left out: {name}, because {reason}")
    usable_kinds = {name: kind for name, kind in chosen_kinds.items() if name not in kind_reasons}
    usable_ways = {name: way for name, way in chosen_ways.items() if name not in way_reasons}
    suited = campaign.suited(usable_kinds, usable_ways)
    drawn = campaign.draw(seed, count, suited)
    plan = {"seed": seed, "kinds": suited}
    file = (records.newest(results, plan) if resume else None) or records.create(results, plan)
    until = time.monotonic() + minutes * 60 if minutes else float("inf")
    campaign.Campaign(usable_kinds, usable_ways, file, seed, keep, limit_s, click.echo).run(drawn, until)
    campaign.show(file.faults)
    if len(file.faults) < count:
        click.echo(f"{len(file.faults)} of {count} faults are done; the same command with --resume goes on.")
    click.echo(f"All faults: {file.path}")
    if fault := campaign.missed(file.faults):
        raise RunFailedError(fault)


def chosen(words: str, all_of_them: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Those that are named, by commas; all where none is.

    Raises:
        ConfigurationError: there is none of that name.
    """
    names = [word.strip() for word in words.split(",") if word.strip()]
    for name in names:
        if name not in all_of_them:
            raise ConfigurationError(
                f"There is no {what} '{name}'; valid are {', '.join(all_of_them)}.{suggestion(name, all_of_them)}"
            )
    return {name: each for name, each in all_of_them.items() if not names or name in names}


def _list(
    kinds: Mapping[str, Any], kind_reasons: Mapping[str, str], ways: Mapping[str, Any], way_reasons: Mapping[str, str]
) -> None:
    for name, kind in kinds.items():
        click.echo(f"{name}: {kind.doc}{_reason(kind_reasons, name)}")
    click.echo(f"Ways: {', '.join(name + _reason(way_reasons, name) for name in ways)}")


def _reason(reasons: Mapping[str, str], name: str) -> str:
    return f" (not here: {reasons[name]})" if name in reasons else ""
