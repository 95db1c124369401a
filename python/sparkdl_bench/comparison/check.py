"""Checks the settings of all cells before the first one runs: a typing error shows now, not after an hour.

`python -m sparkdl_bench.comparison.check CELLS.json` runs in its own process, which starts a JVM without Spark context;
the faults that it finds go to standard output as a JSON list.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sparkdl_bench import frames, helper_process, peers, session, transports
from sparkdl_bench.comparison.cells import Cell
from sparkdl_bench.comparison.peer_case import fit_case
from sparkdl_bench.errors import ConfigurationError, SparkDLError


def missing(cells: Sequence[Cell], peers_directory: Path) -> dict[str, str]:
    """By group why its peer or its transport is not installed, with the command that installs it; no others.

    What a transport needs is looked for where this host runs the executors; those of a cluster tell by themselves.

    Raises:
        ConfigurationError: a peer is none, or none that can train.
    """
    reasons = {cell.group: _missing(cell, peers_directory) for cell in _one_each(cells)}
    return {group: reason for group, reason in reasons.items() if reason}


def unable(cells: Sequence[Cell]) -> dict[str, str]:
    """By group why its peer cannot be brought to this host at all: no Python or Java that it runs on."""
    reasons = {cell.group: peers.find(cell.peer).unable() for cell in _one_each(cells) if cell.peer}
    return {group: reason for group, reason in reasons.items() if reason}


def check_cells(cells: Sequence[Cell], lacking: Mapping[str, str]) -> None:
    """Raises a ConfigurationError that names all that is not installed, or the first cell that could not run.

    Args:
        lacking: what `missing` has found, of these cells and maybe of others.
    """
    one_each = _one_each(cells)
    refused = {cell.group: lacking[cell.group] for cell in one_each if cell.group in lacking}
    if refused:
        raise ConfigurationError(_refusal(refused))
    for cell in one_each:
        if cell.peer:
            _check_peer(cell)
    ours = [cell for cell in one_each if not cell.peer]
    if not ours:
        return
    described = [
        {"group": cell.group, "settings": dict(cell.run.settings), "spark": dict(cell.run.spark)} for cell in ours
    ]
    faults = helper_process.ask(
        "sparkdl_bench.comparison.check", described, "cells", failed="The cells could not be checked: "
    )
    if faults:
        raise ConfigurationError(" ".join(faults))


def _one_each(cells: Iterable[Cell]) -> list[Cell]:
    """A cell of each group."""
    return list({cell.group: cell for cell in cells}.values())


def _missing(cell: Cell, peers_directory: Path) -> str | None:
    if cell.peer:
        return _peer(cell).missing(peers_directory)
    return transports.missing(cell.run) if frames.is_local(cell.run.spark.get("spark.master", "")) else None


def _refusal(lacking: Mapping[str, str]) -> str:
    groups: dict[str, list[str]] = {}
    for group, reason in lacking.items():
        groups.setdefault(reason, []).append(group)
    said = " ".join(f"{', '.join(names)}: {reason}" for reason, names in groups.items())
    return f"{said} Or leave out what is not installed, with --skip-missing."


def _peer(cell: Cell) -> peers.Peer:
    peer = peers.find(cell.peer)
    if "fit" not in peer.kinds:
        able = [name for name, each in peers.discover().items() if "fit" in each.kinds]
        raise ConfigurationError(
            f"The peer '{cell.peer}' cannot train whole epochs. Valid in a comparison: {', '.join(able)}."
        )
    return peer


def _check_peer(cell: Cell) -> None:
    peer = _peer(cell)
    try:
        case = fit_case(cell.run.settings, Path("rows.npz"), cell.run.spark)
        peer.check(replace(case, tuned=cell.tuned))
    except (ConfigurationError, ValueError) as error:
        raise ConfigurationError(f"{cell.group}: {error}") from error


def _faults(cells: Sequence[dict[str, dict[str, str]]]) -> list[str]:
    with tempfile.TemporaryFile() as log:
        api, _ = session.start_jvm({"spark.master": "local"}, log)
        for cell in cells:
            try:
                api.check(cell["settings"])
                api.check_spark(cell["spark"])
            except SparkDLError as error:
                return [f"{cell['group']}: {error}"]
    return []


if __name__ == "__main__":
    try:
        found = _faults(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    except SparkDLError as error:
        found = [str(error)]
    print(json.dumps(found))
