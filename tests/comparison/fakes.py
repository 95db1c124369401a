"""Records of cells without any training, for tests of what comes after it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparkdl_bench.comparison import record
from sparkdl_bench.comparison.cells import Cell
from sparkdl_bench.comparison.plan import Plan, load_plan

CONF = """
title = "A test"
base = "base.toml"
trials = 3
target_accuracy = 0.9
warmup_steps = 2
baseline = { variant = "slow" }

[matrix]
batch = [32, 64]

[[variant]]
name = "fast"
set = { transport = "block-stream" }

[[variant]]
name = "slow"
set = { transport = "block-manager" }
"""
BASE = """
name = "base"
workers = 2
batch = 32
epochs = 3

[model]
name = "mlp"
hidden = [64]

[spark]
master = "local-cluster[{workers},1,1024]"
"""
HEAD = {"started": "2026-01-02T03:04:05.000+00:00", "seconds": 5.0, "load": {"busy": 0.0, "average_1min": 0.0}}


def write_conf(folder: Path, conf: str = CONF, base: str = BASE) -> Path:
    (folder / "base.toml").write_text(base, encoding="utf-8")
    path = folder / "test.toml"
    path.write_text(conf, encoding="utf-8")
    return path


def plan_of(folder: Path, conf: str = CONF) -> Plan:
    return load_plan(write_conf(folder, conf))


def success(plan: Plan, cell: Cell, factor: float = 1.0) -> dict[str, Any]:
    """A record whose times are `factor` times those of any other; its accuracy reaches 0.95 in the third epoch."""
    head = record._head(plan, cell, cell.workers, 1, int(cell.run.settings["batch"]))
    steps_ms = [factor * (10.0 if step < 2 else 2.0 + 0.1 * (step % 3)) for step in range(60)]
    history = [
        {
            "epoch": epoch,
            "seconds": factor * epoch,
            "train_loss": 1 / epoch,
            "test_loss": 1 / epoch,
            "accuracy": accuracy,
        }
        for epoch, accuracy in ((1, 0.7), (2, 0.85), (3, 0.95))
    ]
    return {
        **head,
        **HEAD,
        "status": "success",
        "in_band": True,
        "variant": {"transport": cell.run.settings.get("transport", "")},
        "metrics": record.metrics(plan, steps_ms, history, factor * 3.5, head["batch"]),
        "history": history,
        "phases_ms": {"compute": 1.0, "wait": 0.5 * factor, "scheduler": factor - 1 if factor > 1 else 0.0},
        "layers_s": {
            "start": 0.6,
            "cluster manager": 0.4,
            "prepare": 0.3,
            "compute": 1.2 * factor,
            "synchronise": 0.8 * factor,
            "stop": 0.5,
        },
        "bytes": {"block-stream": 1000},
        "steps_ms": steps_ms,
        "facts": {"versions": {"spark": "4.1.4"}},
    }


def failure(plan: Plan, cell: Cell, why: str = "It did not work.") -> Mapping[str, Any]:
    return {**record.of_failure(plan, cell, why), **HEAD}
