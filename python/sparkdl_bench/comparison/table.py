"""A finished comparison on the terminal: geometric means as in reports, with nothing but NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from sparkdl_bench import statistics
from sparkdl_bench.console import default_console

# The seconds to the target times the cores that the run had, by the run's own clock.
_CORE_SECONDS = "core_seconds_to_accuracy"
# Shares and counts: their mean.
_SHARES = ("test_accuracy", "epochs_to_accuracy", "test_rmse")
# As report.analysis.STEADY, which needs SciPy.
_STEADY = (0.9, 1.1)
_COLUMNS = (
    ("s to target", "seconds_to_accuracy", "{:.2f}"),
    ("epochs", "epochs_to_accuracy", "{:g}"),
    ("core-seconds", _CORE_SECONDS, "{:.1f}"),
    ("s total", "seconds_total", "{:.2f}"),
    ("s waited", "seconds_waited", "{:.2f}"),
    ("ms per step", "ms_per_step", "{:.2f}"),
    ("drift", "drift", "{:.2f}"),
    ("rows/s", "rows_per_second", "{:,.0f}"),
    ("accuracy", "test_accuracy", "{:.2%}"),
)
# Of regressions, in place of the accuracy.
_ERROR = ("RMSE", "test_rmse", "{:.4g}")


def show(content: Mapping[str, Any], records: Sequence[Mapping[str, Any]], console: Console | None = None) -> None:
    """Geometric means over the measured trials of each group, fastest first where they have one number to go by."""
    measured = [record for record in records if not record["warmup"]]
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for record in measured:
        groups.setdefault(str(record["group"]), []).append(record)
    table = Table(
        title=str(content["plan"]["title"]),
        caption="geometric means over the measured trials that succeeded; epochs and core-seconds: to the target; "
        "waited: from the command to its end; ms per step: a trial's median step after the warm-up; rows/s: by the "
        "mean of the same steps; * not steady: steps changed by more than a tenth while measured",
    )
    table.add_column("group")
    is_regression = any("test_rmse" in record.get("metrics", {}) for record in measured)
    columns = (*_COLUMNS[:-1], _ERROR) if is_regression else _COLUMNS
    for heading in ("trials", *(column[0] for column in columns)):
        table.add_column(heading, justify="right")
    for name, members in sorted(groups.items(), key=lambda item: _rank(item[1])):
        good = [member for member in members if member["status"] == "success"]
        count = str(len(good)) if len(good) == len(members) else f"{len(good)} of {len(members)}"
        table.add_row(name, count, *(_centre(good, key, pattern) for _, key, pattern in columns))
    (console or default_console()).print(table)


def _values(members: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    return [value for member in members if (value := _value(member, key)) is not None]


def _value(member: Mapping[str, Any], key: str) -> float | None:
    if key == _CORE_SECONDS:
        seconds = _value(member, "seconds_to_accuracy")
        return None if seconds is None else seconds * float(member["cores"])
    found = member["metrics"].get(key)  # records of older versions lack some
    return None if found is None else float(found)


def _centre(members: Sequence[Mapping[str, Any]], key: str, pattern: str) -> str:
    values = _values(members, key)
    if not values or len(values) != len(members):
        return "–"
    centre = statistics.mean(values) if key in _SHARES else statistics.geometric_mean(values)
    is_steady = key != "drift" or _STEADY[0] <= centre <= _STEADY[1]
    return pattern.format(centre) + ("" if is_steady else " *")


def _rank(members: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    good = [member for member in members if member["status"] == "success"]
    to_target, total = _values(good, "seconds_to_accuracy"), _values(good, "seconds_total")
    first = statistics.geometric_mean(to_target) if to_target and len(to_target) == len(good) else float("inf")
    return first, statistics.geometric_mean(total) if total else float("inf")
