"""Filled pages of runs, as the JVM writes them: one that finished, one that failed, one that diverged."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = ROOT / "jvm/src/main/resources/sparkdlbench/page.html"
COUNTED = ROOT / "python/sparkdl_bench/report/counted.json"
_VARIANT = {"algorithm": "sync-sgd", "topology": "sliced", "transport": "block-stream", "codec": "fp32"}
_PHASES = {"data": 0.1, "compute": 2.5, "send": 0.4, "wait": 1.25, "reduce": 0.2, "update": 0.05, "scheduler": 0.0}


def finished() -> tuple[dict[str, Any], dict[str, Any]]:
    """`run.json` and `summary.json` of ten epochs."""
    history = [
        {
            "epoch": epoch,
            "seconds": 1.25,
            "seconds_evaluation": 0.2,
            "seconds_checkpoint": 0.05,
            "train_loss": 2.3 * math.exp(-epoch / 6),
            "test_loss": 2.3 * math.exp(-epoch / 7),
            "test_accuracy": 1 - 0.9 * math.exp(-epoch / 4),
        }
        for epoch in range(1, 11)
    ]
    run = {
        "schema": 1,
        "name": "digits",
        "configuration": {"name": "digits", "batch": "128", "model.name": "mlp", "model.hidden": "128", "seed": "0"},
        "host": {"cpu": "A processor", "cores": 2, "memory_bytes": 25276063744},
        "spark": {f"spark.some.key.number.{at}": "x" * at for at in range(1, 80)},
        "reports": [{"rank": 0, "parts": [1, 2]}, {"rank": 1, "parts": [{"a": 1}]}],
        "rank_groups": None,
    }
    summary = {
        "status": "success",
        "error": None,
        "final": {
            "test_accuracy": 0.9731,
            "test_loss": 0.1234,
            "train_loss": 0.1,
            "seconds_total": 16.5,
            "seconds_prepare": 3.0,
            "ms_per_step_median": 4.5,
            "steps": 1234567,
        },
        "phases_ms": _PHASES,
        "ranks": [
            {"rank": rank, "host": "a", "executor": str(rank), "phases_ms": _PHASES, "made_others_wait_s": 0.1}
            for rank in range(2)
        ],
        "bytes": {"block-stream": 7373760},
        "counts": {"dropped": [1234567]},
        "variant": _VARIANT,
        "workers": 2,
        "batch": 128,
        "history": history,
        "spark": {"start": {"cluster_manager_s": 6.25}},
    }
    return run, summary


def failed(status: str, error: str, epochs: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same, ended after so many epochs; a run that failed at once has no numbers at all."""
    run, summary = finished()
    nothing = {"final": {}, "phases_ms": {}, "ranks": [], "bytes": {}, "counts": {}, "spark": {}} if epochs == 0 else {}
    return run, {**summary, **nothing, "status": status, "error": error, "history": summary["history"][:epochs]}


def write(file: Path, run: dict[str, Any], summary: dict[str, Any]) -> Path:
    """The page, as `results/Page.scala` makes it."""
    content = {
        "run": run,
        "summary": summary,
        "history": summary["history"],
        "counted": json.loads(COUNTED.read_text(encoding="utf-8")),
    }
    text = json.dumps(content).replace("<", "\\u003c")
    page = TEMPLATE.read_text(encoding="utf-8").replace("/*RUN_JSON*/null", text)
    file.write_text(page, encoding="utf-8")
    return file
