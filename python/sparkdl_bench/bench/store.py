"""The result files: `benchmarks/results/<machine>/<date>-<suite>.json`, written anew after every trial."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from sparkdl_bench import machine
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.files import Upgrade, load_json, replace_text

SCHEMA = 1
# Where results are that documentation cites.
KEPT = ("benchmarks", "results")
# How a file of schema n becomes one of schema n + 1.
UPGRADES: dict[int, Upgrade] = {}


@dataclass(frozen=True)
class Trial:
    """One trial of one contestant, with every sample.

    Attributes:
        samples_ms: milliseconds per step, in the order they were taken.
        steps: steps that each sample is the mean over.
        facts: what really ran: versions, BLAS, threads.
        seconds: length of the trial with start and warm-up.
        load: `machine.Load` before it.
        started: time in UTC, ISO 8601.
    """

    samples_ms: list[float]
    steps: int
    facts: Mapping[str, Any]
    seconds: float = 0.0
    load: Mapping[str, float] = field(default_factory=dict)
    started: str = ""


class ResultFile:
    """The cells (contestant × trial) of one run of a suite. A cell that is there need not be measured again."""

    def __init__(self, path: Path, content: dict[str, Any]) -> None:
        self.path = path
        self._content = content

    @property
    def content(self) -> Mapping[str, Any]:
        return self._content

    def trial(self, contestant: str, number: int) -> Trial | None:
        cell = self._content["cells"].get(_key(contestant, number))
        return Trial(**cell) if cell else None

    def trials(self, contestant: str) -> list[Trial]:
        found = (self.trial(contestant, number) for number in range(1, self._content["plan"]["trials"] + 1))
        return [trial for trial in found if trial]

    def add(self, contestant: str, number: int, trial: Trial) -> None:
        cell = asdict(trial)
        cell["samples_ms"] = [round(sample, 5) for sample in trial.samples_ms]
        self._content["cells"][_key(contestant, number)] = cell
        self.save()

    def set(self, name: str, value: object) -> None:
        """Keep a derived part, such as the comparisons' outcome."""
        self._content[name] = value
        self.save()

    def save(self) -> None:
        replace_text(self.path, _one_line_a_cell(self._content))


def create(folder: Path, suite: str, plan: Mapping[str, Any]) -> ResultFile:
    """A new file; its name holds the time, so that no run replaces another's.

    Raises:
        ConfigurationError: it would lie among the results that are kept, and the checkout has changes that no commit
            holds: nobody could measure the same again.
    """
    commit = machine.commit()
    if commit.endswith(machine.CHANGED) and _is_kept(folder):
        raise ConfigurationError(
            f"The checkout differs from its commit {commit.removesuffix(machine.CHANGED)}, and '{folder}' holds "
            "evidence: results that a commit explains. Commit the changes first, or write elsewhere with --results DIR."
        )
    facts = machine.facts()
    now = datetime.now(timezone.utc)
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "suite": suite,
        "started": now.isoformat(timespec="seconds"),
        "commit": commit,
        "dirty": commit.endswith(machine.CHANGED),
        "machine": facts,
        "plan": dict(plan),
        "cells": {},
    }
    return ResultFile(folder / machine.slug(facts) / f"{now:%Y%m%d-%H%M%S}-{suite}.json", content)


def resume(folder: Path, suite: str, plan: Mapping[str, Any]) -> ResultFile | None:
    """The newest file of this suite, machine, commit and plan; None when there is none to continue."""
    place = folder / machine.slug(machine.facts())
    for path in sorted(place.glob(f"*-{suite}.json"), reverse=True):
        content = load(path)
        if content["commit"] == machine.commit() and content["plan"] == json.loads(json.dumps(dict(plan))):
            return ResultFile(path, content)
    return None


def load(path: Path) -> dict[str, Any]:
    """A result file's content, brought to this version's schema."""
    return load_json(path, SCHEMA, UPGRADES, "a result file of a benchmark")


def _is_kept(folder: Path) -> bool:
    return folder.resolve().parts[-2:] == KEPT


def _key(contestant: str, number: int) -> str:
    return f"{contestant}/{number}"


def _one_line_a_cell(content: Mapping[str, Any]) -> str:
    """Readable, and small: thousands of samples on one line, not on a line each."""
    parts = [f'  "{name}": {json.dumps(value, indent=2)}' for name, value in content.items() if name != "cells"]
    cells = ",\n".join(f"    {json.dumps(key)}: {json.dumps(cell)}" for key, cell in content["cells"].items())
    parts.append(f'  "cells": {{\n{cells}\n  }}')
    return "{\n" + ",\n".join(parts) + "\n}\n"
