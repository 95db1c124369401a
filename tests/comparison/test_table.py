"""A comparison on the terminal: the same rules as its report's."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from sparkdl_bench.comparison import table


def record(group: str, trial: int, **metrics: float | None) -> dict[str, Any]:
    own = {"seconds_total": 2.0, "ms_per_step": 1.0, "drift": 1.0, "test_accuracy": 0.9, **metrics}
    status = {"warmup": trial < 1, "status": "success", "cores": 2}
    return {"group": group, "trial": trial, **status, "metrics": own}


def printed(records: list[dict[str, Any]]) -> str:
    written = io.StringIO()
    table.show({"plan": {"title": "A table"}}, records, Console(file=written, width=220))
    return written.getvalue()


def shown(records: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """Cells by group and heading."""
    head, *rows = (
        [cell.strip() for cell in line.replace("┃", "│").split("│")[1:-1]]
        for line in printed(records).splitlines()
        if "│" in line or "┃" in line
    )
    return {row[0]: dict(zip(head, row, strict=True)) for row in rows}


@pytest.mark.parametrize(
    ("drift", "cell"),
    [(0.5, "0.50 *"), (0.89, "0.89 *"), (0.9, "0.90"), (1.0, "1.00"), (1.1, "1.10"), (1.11, "1.11 *")],
)
def test_drift_beyond_a_tenth_either_way_is_marked(drift: float, cell: str) -> None:
    found = shown([record("a", 1, drift=drift), record("a", 2, drift=drift)])["a"]
    assert (found["drift"], found["trials"]) == (cell, "2")
    # What lies at the same numbers and is no drift is not marked.
    assert shown([record("a", 1, ms_per_step=drift)])["a"]["ms per step"] == cell.removesuffix(" *")


def test_times_are_geometric_means_and_shares_means_of_the_measured_trials() -> None:
    trials = [
        record("a", 0, ms_per_step=99.0),
        record("a", 1, ms_per_step=1.0, seconds_to_accuracy=2.0, test_accuracy=0.9),
        record("a", 2, ms_per_step=4.0, seconds_to_accuracy=8.0, test_accuracy=0.8),
    ]
    found = shown(trials)["a"]
    assert (found["ms per step"], found["s to target"], found["accuracy"]) == ("2.00", "4.00", "85.00%")
    assert found["core-seconds"] == "8.0"
    trials[2]["metrics"]["seconds_to_accuracy"] = None
    assert shown(trials)["a"]["s to target"] == "–"


def test_failed_trials_are_counted_and_the_fastest_comes_first() -> None:
    failed = {"group": "b", "trial": 2, "warmup": False, "status": "failed", "error": "x"}
    found = shown([record("b", 1, seconds_total=1.0), failed, record("a", 1, seconds_total=3.0)])
    assert list(found) == ["b", "a"]
    assert [found[name]["trials"] for name in found] == ["1 of 2", "1"]


def test_the_caption_says_that_one_speed_is_a_median_and_the_other_a_mean() -> None:
    words = " ".join(printed([record("a", 1)]).split())
    assert "ms per step: a trial's median step after the warm-up; rows/s: by the mean of the same steps" in words
