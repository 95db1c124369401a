"""Trains one cell, in processes that carry the comparison's mark, and makes its record."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

from sparkdl_bench import peers
from sparkdl_bench.comparison import peer_case, peer_run, record
from sparkdl_bench.comparison.application import MORE_TIME, Application
from sparkdl_bench.comparison.cells import Cell
from sparkdl_bench.comparison.plan import Plan
from sparkdl_bench.comparison.store import ComparisonFolder
from sparkdl_bench.errors import RunFailedError, RunTimedOutError, SparkDLError
from sparkdl_bench.peers._process import left_whole, run_to_end, stop_all

MARK_VARIABLE = "SPARKDL_COMPARISON"
_BEGUN = "begun.json"


class Executor(Protocol):
    """Whatever trains cells."""

    def run(self, cell: Cell) -> Mapping[str, Any]:
        """The cell's record; a run that failed is one, too. It says when it ran where that was not now."""
        ...

    def close(self) -> None: ...


class ProcessExecutor:
    """Trains each cell in a process of its own, or, where the plan is not `fresh`, several in one application."""

    def __init__(self, plan: Plan, folder: ComparisonFolder, peers_directory: Path) -> None:
        self._plan = plan
        self._folder = folder
        self._peers = peers_directory
        self._application: Application | None = None
        # Inherited by all that is started from here on; a later `compare` finds by it what a killed one left.
        os.environ[MARK_VARIABLE] = folder.mark

    def stop_leftovers(self) -> None:
        """Ends what a killed comparison of this folder has left running."""
        stop_all(None, self._folder.mark, MARK_VARIABLE)

    def run(self, cell: Cell) -> Mapping[str, Any]:
        try:
            return self._peer(cell) if cell.peer else self._ours(cell)
        except RunTimedOutError as error:
            # A run and a peer name an option of theirs, which a comparison does not have.
            reason = f"{error.what} {MORE_TIME}"
        except SparkDLError as error:
            reason = str(error)
        except Exception as error:  # whatever became of one cell must not end the comparison
            reason = (
                f"The cell has ended with an error that nothing foresaw, or what it left cannot be read: {error!r}. "
                f"Its files are in the comparison's folder, runs/{cell.id}."
            )
        try:
            self.close()  # what has failed once may not be fit for the next cell
        except SparkDLError as error:
            reason += f" {error}"
        return record.of_failure(self._plan, cell, reason)

    def close(self) -> None:
        application, self._application = self._application, None
        if application:
            application.close()

    def _ours(self, cell: Cell) -> dict[str, Any]:
        place = self._folder.runs(cell)
        done, then = record.finished_run(place), {}
        if done is None:
            # First of all: the start of an application that cells share, and its warm-up, are no part of this cell.
            application = None if self._plan.fresh else self._shared(cell)
            begun = _begin(place)
            settings = {**cell.run.settings, "results": str(place)}
            if folder := settings.get("checkpoint.dir"):  # a run of its own, and of this try
                settings["checkpoint.dir"] = f"{folder.rstrip('/')}/{cell.id}-{begun:.0f}"
            if application is None:
                self._fresh(cell, settings, place)
            else:
                application.train(settings, self._plan.timeout_s)
            ended = time.time()
            done = record.finished_run(place)
        else:
            # A killed comparison had trained it and could not write it down any more.
            begun = _begun(place)
            ended = (done / "summary.json").stat().st_mtime  # the last file that a run writes
            then = _of_then(begun, ended)
        if done is None:
            raise RunFailedError(f"The run of '{cell.group}' ended without an error and left no result in '{place}'.")
        made = record.of_run(self._plan, cell, done, begun, ended, is_fresh=self._plan.fresh)
        return {**made, **then, "folder": str(done.relative_to(self._folder.path))}

    def _fresh(self, cell: Cell, settings: Mapping[str, str], place: Path) -> None:
        conf = place / "run.toml"
        conf.touch(mode=0o600)  # it may hold secrets of the session
        conf.write_text(run_toml(settings, cell.run.spark), encoding="utf-8")
        try:
            run_to_end(cell.group, [sys.executable, "-m", "sparkdl_bench", "run", str(conf)], self._plan.timeout_s)
        finally:
            conf.unlink(missing_ok=True)

    def _shared(self, cell: Cell) -> Application:
        if self._application is None or self._application.key != cell.application:
            self.close()
            self._application = Application(cell.application, cell.run.session, self._plan.name)
            if self._plan.warmup_trials > 0 and not cell.is_warmup:
                self._warm_up(cell, self._application)
        return self._application

    def _warm_up(self, cell: Cell, application: Application) -> None:
        """After a failure or a resume measured trials go on in a new application, whose first run must not count."""
        kept = {key: value for key, value in cell.run.settings.items() if key != "checkpoint.dir"}
        with tempfile.TemporaryDirectory(prefix="sparkdl-bench-warmup-") as place:
            application.train({**kept, "results": place}, self._plan.timeout_s)

    def _peer(self, cell: Cell) -> dict[str, Any]:
        self.close()
        place = self._folder.runs(cell)
        out = place / peer_run.MEASURED
        settings = cell.run.settings
        measured, then = left_whole(cell.peer, out), {}
        if measured is None:
            _begin(place)
            peer = peers.find(cell.peer)
            case = peer_case.prepare(settings, cell.run.spark, self._folder.path / "data", cell.tuned)
            trained = peer_run.train(peer, case, place, self._plan.timeout_s, self._peers)
        else:
            # A killed comparison had trained it and could not write it down any more.
            begun, ended = _begun(place), out.stat().st_mtime
            trained, then = peer_run.Trained(measured, begun, ended, 0.0), _of_then(begun, ended)
        return {**record.of_peer(self._plan, cell, trained, place), **then}


def _begin(place: Path) -> float:
    """Makes a cell's folder anew, and keeps the moment there, for a cell that was trained and not recorded."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    begun = time.time()
    (place / _BEGUN).write_text(json.dumps({"begun": begun}), encoding="utf-8")
    return begun


def _begun(place: Path) -> float:
    return float(json.loads((place / _BEGUN).read_text(encoding="utf-8"))["begun"])


def _of_then(begun: float, ended: float) -> dict[str, Any]:
    """When a cell ran that was found trained; how busy the machine was then, nobody knows any more."""
    started = datetime.fromtimestamp(begun, timezone.utc).isoformat(timespec="milliseconds")
    return {"started": started, "seconds": round(ended - begun, 2), "load": {}}


def run_toml(settings: Mapping[str, str], spark: Mapping[str, str]) -> str:
    """A run file of texts; JSON's texts are TOML's."""
    lines = [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in settings.items() if "." not in key]
    tables: dict[str, list[str]] = {}
    for key, value in settings.items():
        table, dot, name = key.partition(".")
        if dot:
            tables.setdefault(table, []).append(f"{json.dumps(name)} = {json.dumps(value)}")
    for table, entries in tables.items():
        lines += ["", f"[{table}]", *entries]
    lines += ["", "[spark]", *(f"{json.dumps(_spark_name(key))} = {json.dumps(value)}" for key, value in spark.items())]
    return "\n".join(lines) + "\n"


def _spark_name(key: str) -> str:
    return "master" if key == "spark.master" else key
