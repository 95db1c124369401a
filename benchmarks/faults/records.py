"""The records of a campaign: a JSON-lines file, one line a fault, appended when the fault is over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from sparkdl_bench import machine
from sparkdl_bench.bench import store
from sparkdl_bench.errors import ConfigurationError, WriteError

SCHEMA = 1
SUITE = "faults"


@dataclass(frozen=True)
class Record:
    """One fault.

    Attributes:
        number: of the fault in its campaign; with the seed it says all that was drawn.
        kind, way: their names.
        moment: when it came, in words.
        outcome: one of `law`'s.
        reason: why it is a violation.
        error: the sentence in which a run named its error.
        seconds: of the whole fault, with the run that went on.
        left: what stayed behind.
    """

    number: int
    kind: str
    way: str
    seed: int
    moment: str
    outcome: str
    reason: str = ""
    error: str = ""
    seconds: float = 0.0
    left: list[str] = field(default_factory=list)


class Records:
    """A campaign's file: a header, the undisturbed weights by way, and the faults."""

    def __init__(self, path: Path, plan: Mapping[str, Any]) -> None:
        self.path, self.plan = path, dict(plan)
        self.faults: list[Record] = []
        self.undisturbed: dict[str, str] = {}

    @property
    def numbers(self) -> set[int]:
        return {each.number for each in self.faults}

    def add(self, fault: Record) -> None:
        self._append({"fault": asdict(fault)})
        self.faults.append(fault)

    def add_undisturbed(self, way: str, weights: str, seconds: float) -> None:
        """Keeps the SHA-256 of an undisturbed run's weights."""
        self._append({"undisturbed": way, "weights": weights, "seconds": round(seconds, 1)})
        self.undisturbed[way] = weights

    def _append(self, line: Mapping[str, Any]) -> None:
        try:
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")
        except OSError as error:
            raise WriteError(
                f"'{self.path}' cannot be written: {error.strerror}. It keeps the campaign's faults; make room, or "
                "name another folder with --results DIR."
            ) from error


def create(folder: Path, plan: Mapping[str, Any]) -> Records:
    """A new file below the folder of this machine.

    Raises:
        ConfigurationError: the checkout has changes, and the folder holds evidence.
    """
    made = store.create(folder, SUITE, plan)
    path = made.path.with_suffix(".jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    records = Records(path, plan)
    content = {key: made.content[key] for key in ("suite", "commit", "dirty", "machine")}
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    records._append({"schema": SCHEMA, "started": started, **content, "plan": dict(plan)})
    return records


def newest(folder: Path, plan: Mapping[str, Any]) -> Records | None:
    """The newest file of this machine, commit and plan; None where there is none to continue."""
    place = folder / machine.slug(machine.facts())
    for path in sorted(place.glob(f"*-{SUITE}.jsonl"), reverse=True):
        header, records = _read(path)
        if header["commit"] == machine.commit() and header["plan"] == json.loads(json.dumps(dict(plan))):
            return records
    return None


def load(path: Path) -> Records:
    """A campaign's file.

    Raises:
        ConfigurationError: it is none.
    """
    return _read(path)[1]


def _read(path: Path) -> tuple[dict[str, Any], Records]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
        parsed = [json.loads(line) for line in lines[:-1]]
        header = parsed[0]
        records = Records(path, header["plan"])
        if header["schema"] != SCHEMA:
            raise ValueError(f"schema {header['schema']}")
        for line in parsed[1:]:
            if "fault" in line:
                records.faults.append(Record(**line["fault"]))
            else:
                records.undisturbed[line["undisturbed"]] = line["weights"]
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise ConfigurationError(
            f"'{path}' is no file of records of a fault campaign of schema {SCHEMA}: {error}. Begin another campaign "
            "without --resume, or remove the file."
        ) from error
    if lines[-1]:  # a campaign that was killed while it wrote: that fault is made again
        path.write_text("\n".join(lines[:-1]) + "\n", encoding="utf-8")
    return header, records
