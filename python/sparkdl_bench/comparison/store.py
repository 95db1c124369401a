"""What a comparison has measured: a folder with its plan and one file a cell, written when the cell is over.

<results>/<time>-<name>/plan.json      what is compared, on which machine and commit, the order of the cells
                        cells/<id>.json  one finished cell (`record`)
                        runs/<id>/…      what the run itself left
                        lock             held by the process that measures
"""

from __future__ import annotations

import fcntl
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from sparkdl_bench import machine
from sparkdl_bench.comparison.cells import Cell
from sparkdl_bench.comparison.plan import Plan
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.files import Upgrade, load_json, replace_text
from sparkdl_bench.redaction import redacted

SCHEMA = 1
UPGRADES: dict[int, Upgrade] = {}
PLAN_FILE = "plan.json"


class ComparisonFolder:
    """One comparison on disk."""

    def __init__(self, path: Path, content: Mapping[str, Any]) -> None:
        self.path = path
        self.content = content

    @property
    def mark(self) -> str:
        """What every process carries that this comparison has started: by it a later one finds what a kill left."""
        return str(self.content["mark"])

    def runs(self, cell: Cell) -> Path:
        return self.path / "runs" / cell.id

    def has(self, cell: Cell) -> bool:
        return self._file(cell.id).is_file()

    def record(self, cell: Cell) -> dict[str, Any]:
        return load_json(self._file(cell.id), SCHEMA, UPGRADES, "a finished cell of a comparison")

    def add(self, cell: Cell, record: Mapping[str, Any]) -> None:
        """Keeps a finished cell; from now on it is there, whatever happens to this process."""
        replace_text(self._file(cell.id), json.dumps({"schema": SCHEMA, **record}) + "\n")

    def forget(self, cell: Cell) -> None:
        self._file(cell.id).unlink(missing_ok=True)

    def records(self) -> list[dict[str, Any]]:
        """Every finished cell, in the order of their ends."""
        files = sorted((self.path / "cells").glob("*.json"))
        found = [load_json(file, SCHEMA, UPGRADES, "a finished cell of a comparison") for file in files]
        return sorted(found, key=lambda record: str(record.get("started", "")))

    def grow(self, plan: Plan, cells: Sequence[Cell]) -> None:
        """Adds the trials that `plan` has and this folder's plan has not; the cells that were planned stay."""
        order = list(dict.fromkeys([*self.content["order"], *(cell.id for cell in cells)]))
        if order != self.content["order"]:
            self.content = {**self.content, "plan": describe(plan), "order": order}
            replace_text(self.path / PLAN_FILE, json.dumps(self.content, indent=1) + "\n")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else measures into this folder meanwhile; the system lets go of the lock when a process ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigurationError(
                    f"Another process measures the comparison in '{self.path}' now. Wait for it, or end it first."
                ) from None
            yield

    def _file(self, cell_id: str) -> Path:
        return self.path / "cells" / f"{cell_id}.json"


def create(
    results: Path, plan: Plan, cells: Sequence[Cell], skipped: Mapping[str, str] | None = None
) -> ComparisonFolder:
    """A new folder; its name holds the time, so that no comparison replaces another's.

    Args:
        skipped: groups of the plan that are not measured, and why.
    """
    now = datetime.now(timezone.utc)
    content = {
        "schema": SCHEMA,
        "name": plan.name,
        "started": now.isoformat(timespec="seconds"),
        "commit": machine.commit(),
        "machine": machine.facts(),
        "mark": secrets.token_hex(8),
        "plan": describe(plan),
        "order": [cell.id for cell in cells],
        "skipped": dict(skipped or {}),
    }
    path = (results / f"{now:%Y%m%d-%H%M%S-%f}-{plan.name}").resolve()
    replace_text(path / PLAN_FILE, json.dumps(content, indent=1) + "\n")
    return ComparisonFolder(path, content)


def resume(results: Path, plan: Plan) -> ComparisonFolder | None:
    """The newest folder of the same plan and commit; None when there is none to continue.

    The plans may allow a run another time, and this one may have more trials: what came to its end is the same with it.
    """
    described = _resumable(describe(plan))
    for file in sorted(results.glob(f"*-{plan.name}/{PLAN_FILE}"), reverse=True):
        found = open_folder(file.parent)
        theirs = found.content["plan"]
        is_same = found.content["commit"] == machine.commit() and _resumable(theirs) == described
        if is_same and int(theirs["trials"]) <= plan.trials:
            return found
    return None


def open_folder(path: Path) -> ComparisonFolder:
    content = load_json(path / PLAN_FILE, SCHEMA, UPGRADES, "the plan of a comparison")
    return ComparisonFolder(path.resolve(), content)


def describe(plan: Plan) -> dict[str, Any]:
    """The plan as JSON holds it, without secrets. What varies is none: `load_plan` refuses that."""
    described: dict[str, Any] = json.loads(json.dumps({**asdict(plan), "factors": plan.factors}))
    described["base"] = {part: redacted(values) for part, values in described["base"].items()}
    for variant in described["variants"]:
        variant["settings"] = redacted(variant["settings"])
    return described


def _resumable(described: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in described.items() if name not in ("timeout_s", "trials")}
