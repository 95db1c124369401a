"""Checks the settings of all cells before the first one runs: a typing error shows now, not after an hour.

`python -m sparkdl_bench.compare.check CELLS.json` in a process of its own, which starts a JVM without a Spark context;
the faults that it finds go to standard output as a JSON list.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sparkdl_bench import apart, peers
from sparkdl_bench.compare import peer_data
from sparkdl_bench.compare.cells import Cell
from sparkdl_bench.compare.execute import fit_case
from sparkdl_bench.errors import ConfigurationError, SparkDLError


def check_cells(cells: Sequence[Cell], peers_directory: Path) -> None:
    """Raises a ConfigurationError that names the first cell which could not run, and why."""
    one_each = {cell.group: cell for cell in cells}
    for cell in one_each.values():
        if cell.peer:
            _check_peer(cell, peers_directory)
    ours = [cell for cell in one_each.values() if not cell.peer]
    if not ours:
        return
    described = [
        {"group": cell.group, "settings": dict(cell.run.settings), "spark": dict(cell.run.spark)} for cell in ours
    ]
    faults = apart.ask("sparkdl_bench.compare.check", described, "cells", failed="The cells could not be checked: ")
    if faults:
        raise ConfigurationError(" ".join(faults))


def _check_peer(cell: Cell, directory: Path) -> None:
    peer = peers.find(cell.peer)
    if "fit" not in peer.kinds:
        able = [name for name, each in peers.discover().items() if "fit" in each.kinds]
        raise ConfigurationError(
            f"The peer '{cell.peer}' cannot train whole epochs. Valid in a comparison: {', '.join(able)}."
        )
    reason = peer.missing(directory)
    if reason:
        raise ConfigurationError(reason)
    try:
        peer_data.check(cell.run.settings)
        peer.check(fit_case(cell.run.settings, Path("rows.npz"), cell.run.spark))
    except (ConfigurationError, ValueError) as error:
        raise ConfigurationError(f"{cell.group}: {error}") from error


def _faults(cells: Sequence[dict[str, dict[str, str]]]) -> list[str]:
    from sparkdl_bench import session

    with tempfile.NamedTemporaryFile(prefix="sparkdl-bench-", suffix=".log") as log:
        api, _ = session.start_jvm({"spark.master": "local"}, log.file)
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
