"""One training by a peer, in a folder as a run of ours leaves it: run.json, events.jsonl, steps.json, summary.json."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from sparkdl_bench import machine, version
from sparkdl_bench.comparison import resources
from sparkdl_bench.files import replace_text
from sparkdl_bench.peers import FitCase, Measurement, Peer
from sparkdl_bench.redaction import redacted
from sparkdl_bench.results import SCHEMA

MEASURED = "peer.jsonl"
# Above so many cores for each that it was given, a peer has not kept to them. Starting and measuring take some, too.
_MOST_OF_ITS_CORES = 1.25


@dataclass(frozen=True)
class Trained:
    """What came out, and when its process began and ended (seconds since 1970)."""

    measured: Measurement
    begun_s: float
    ended_s: float
    # Of the time in between what came after the training's clock had ended.
    stop_s: float

    @property
    def facts(self) -> Mapping[str, Any]:
        """What its program has told, `history` among it."""
        return self.measured.facts

    @property
    def steps_ms(self) -> list[float]:
        return [sample.ms for sample in self.measured.samples for _ in range(sample.steps)]

    @property
    def seconds(self) -> float:
        return self.ended_s - self.begun_s


def train(peer: Peer, case: FitCase, place: Path, timeout_s: float, directory: Path) -> Trained:
    """Runs it; `place` is an empty folder, which gets its line of measurements and resources.json."""
    out = place / MEASURED
    begun, start = time.time(), time.monotonic()
    measured = peer.run(case, timeout_s, directory, out)
    seconds = time.monotonic() - start
    # Its program writes once, when its clock has ended.
    stop_s = min(seconds, max(0.0, time.time() - out.stat().st_mtime))
    return Trained(measured, begun, begun + seconds, stop_s)


def cores_in_use(place: Path, facts: Mapping[str, Any], begun_s: float) -> float | None:
    """Cores that all its processes together used while it trained, the median of what was seen; None: not seen."""
    seen = resources.of_run(place)
    started_s = float(facts.get("clock_started_ms", 0)) / 1e3 - begun_s
    if seen is None or started_s < 0:
        return None
    first, last = started_s + float(facts["seconds_prepare"]), started_s + float(facts["seconds_total"])
    during = [
        cores for at, cores in zip(seen["seconds"], seen["cpu_cores"], strict=True) if first <= at <= last and cores > 0
    ]
    return round(statistics.median(during), 3) if len(during) >= 4 else None


def takes_more_cores(used: float, given: int) -> bool:
    """Whether a peer that used so many cores did not keep to those that it was given."""
    return used > given * _MOST_OF_ITS_CORES


def too_many_cores(case: FitCase, used: float | None) -> str | None:
    """What to say of a peer that did not keep to its workers' threads."""
    given = case.workers * case.threads
    if used is None or not takes_more_cores(used, given):
        return None
    return (
        f"It used {used:.2f} cores while it trained, and {case.workers} workers of {case.threads} threads are {given}: "
        "its times are those of more cores than the others had."
    )


def write(place: Path, peer: Peer, case: FitCase, settings: Mapping[str, str], done: Trained) -> None:
    """The files of a run, so that whatever reads runs reads this one."""
    facts, history, steps_ms = done.facts, list(done.facts["history"]), done.steps_ms
    started_s = float(facts.get("clock_started_ms", done.begun_s * 1e3)) / 1e3
    used = cores_in_use(place, facts, done.begun_s)
    _lines(place / "events.jsonl", _events(case, settings, history, started_s, done))
    _write(place / "steps.json", [round(step, 4) for step in steps_ms])
    own = {name: value for name, value in facts.items() if name not in ("history", "phases_ms")}
    _write(
        place / "run.json",
        {
            "schema": SCHEMA,
            "name": settings.get("name", peer.name),
            "kind": "peer",
            "peer": peer.name,
            "tuned": case.tuned,
            "peer_facts": own,
            "requirements": list(peer.requirements),
            "needs": peer.needs,
            "configuration": redacted(settings),
            "seeds": {"seed": case.seed},
            "commit": machine.commit(),
            "versions": {"version": version.__version__},
            "host": machine.facts(),
            "threads_per_worker": case.threads,
            "data": {"train_rows": own.get("train_rows")},
        },
    )
    _write(place / "summary.json", _summary(peer, case, facts, history, steps_ms, used))


def _events(
    case: FitCase, settings: Mapping[str, str], history: list[Any], started_s: float, done: Trained
) -> list[dict[str, Any]]:
    def event(at_s: float, key: str, value: Any = None, **metadata: Any) -> dict[str, Any]:
        return {"schema": SCHEMA, "time_ms": round(at_s * 1e3), "key": key, "value": value, "metadata": metadata}

    name = settings.get("name", "peer")
    clocks = {"clock_started_ms": round(started_s * 1e3), "command_ms": round(done.begun_s * 1e3)}
    events = [
        event(started_s, "run_start", name=name, **clocks),
        event(started_s, "global_batch_size", case.batch),
        event(started_s, "seed", case.seed),
    ]
    for each in history:
        at = started_s + each["seconds"]
        events.append(event(at, "eval_accuracy", each["accuracy"], epoch_num=each["epoch"], loss=each["test_loss"]))
        events.append(event(at, "epoch_stop", epoch_num=each["epoch"], train_loss=each["train_loss"]))
    events.append(event(started_s + float(done.facts["seconds_total"]), "run_stop", status="success"))
    return events


def _summary(
    peer: Peer,
    case: FitCase,
    facts: Mapping[str, Any],
    history: list[Any],
    steps_ms: list[float],
    used: float | None,
) -> dict[str, Any]:
    ends = [float(facts["seconds_prepare"]), *(float(each["seconds"]) for each in history)]
    spans = [later - earlier for earlier, later in pairwise(ends)]
    numbers = [0, *(int(each["epoch"]) for each in history)]
    per_epoch = [
        span / max(1, later - earlier) for span, (earlier, later) in zip(spans, pairwise(numbers), strict=True)
    ]
    evaluation_s = float(facts["seconds_evaluation"]) / max(1, len(history))
    warning = too_many_cores(case, used)
    return {
        "schema": SCHEMA,
        "status": "success",
        "error": None,
        "final": {
            "test_accuracy": history[-1]["accuracy"] if history else None,
            "test_loss": history[-1]["test_loss"] if history else None,
            "train_loss": history[-1]["train_loss"] if history else None,
            "seconds_total": float(facts["seconds_total"]),
            "seconds_prepare": float(facts["seconds_prepare"]),
            "seconds_per_epoch_median": statistics.median(per_epoch) if per_epoch else None,
            "ms_per_step_median": statistics.median(steps_ms),
            "steps": len(steps_ms),
            "cores_in_use": used,
        },
        "phases_ms": facts.get("phases_ms", {}),
        "ranks": [],
        "bytes": {},
        "counts": {},
        "variant": {"peer": peer.name},
        "workers": case.workers,
        "servers": 0,
        "batch": int(facts.get("batch", case.batch)),
        "notices": [warning] if warning else [],
        "history": [
            {
                "epoch": each["epoch"],
                "seconds": round(span, 4),
                "seconds_evaluation": round(evaluation_s, 4),
                "seconds_checkpoint": 0.0,
                "train_loss": each["train_loss"],
                "test_loss": each["test_loss"],
                "test_accuracy": each["accuracy"],
            }
            for each, span in zip(history, spans, strict=True)
        ],
    }


def _lines(file: Path, events: list[dict[str, Any]]) -> None:
    replace_text(file, "".join(json.dumps(each) + "\n" for each in events))


def _write(file: Path, content: Any) -> None:
    replace_text(file, json.dumps(content, indent=1) + "\n")
