"""What a run's processes used together, over time, from its resources.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

_MOST_POINTS = 120


def of_run(folder: Path) -> dict[str, Any] | None:
    """Sums over driver and executors on one grid of at most 120 moments; None where nothing was sampled.

    Returns:
        `seconds` since the run began, `cpu_cores` in use, `resident_bytes`, `network_sent_bytes_per_s` where the hosts
        tell of their interfaces, each process's own peaks, and where there were GPUs `gpus`: host, index, mean use (0
        to 1) and most memory of each.
    """
    file = folder / "resources.json"
    if not file.is_file():
        return None
    processes = [each for each in json.loads(file.read_text(encoding="utf-8"))["processes"] if each["seconds"]]
    if not processes:
        return None
    end = max(each["seconds"][-1] for each in processes)
    longest = max(len(each["seconds"]) for each in processes)
    grid = np.linspace(0.0, end, max(2, min(_MOST_POINTS, longest)))
    return {
        "seconds": [round(float(moment), 2) for moment in grid],
        "cpu_cores": [round(float(value), 3) for value in _summed(processes, "cpu_cores", grid)],
        "resident_bytes": [int(value) for value in _summed(processes, "resident_bytes", grid)],
        "processes": [
            {
                "process": each["process"],
                "host": each["host"],
                "resident_bytes_max": max(each["resident_bytes"]),
                "heap_bytes_max": max(each["heap_bytes"]),
                "direct_bytes_max": max(each["direct_bytes"]),
                "gc_ms": each["gc_ms"][-1],
                "network_sent_bytes": {name: counts["sent_bytes"][-1] for name, counts in each["network"].items()},
            }
            for each in processes
        ],
        **_sent(processes, grid),
        **_gpus(processes),
    }


def _sent(processes: Sequence[Mapping[str, Any]], grid: np.ndarray) -> dict[str, Any]:
    """Bytes a second that all hosts' interfaces sent, loopback among them. Every process of a host sees the same
    counters: the one that was watched longest tells."""
    hosts: dict[str, Mapping[str, Any]] = {}
    for each in processes:
        kept = hosts.get(each["host"])
        if kept is None or each["seconds"][-1] - each["seconds"][0] > kept["seconds"][-1] - kept["seconds"][0]:
            hosts[each["host"]] = each
    counters = [
        (each["seconds"], counts["sent_bytes"])
        for each in hosts.values()
        for counts in each["network"].values()
        if len(counts["sent_bytes"]) == len(each["seconds"]) and min(counts["sent_bytes"]) >= 0
    ]
    if not counters or grid[-1] <= grid[0]:
        return {}
    total = np.sum([np.interp(grid, seconds, sent) for seconds, sent in counters], axis=0)
    # An interface that went and came again begins anew.
    rates = np.maximum(np.diff(total) / np.diff(grid), 0)
    return {"network_sent_bytes_per_s": [int(rate) for rate in (rates[0], *rates)]}


def _gpus(processes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Each host's GPUs once: every process of a host sees all of them. What the driver does not tell (-1) is None."""
    seen: dict[tuple[str, str], dict[str, Any]] = {}
    for each in processes:
        for index, lists in each.get("gpus", {}).items():
            use = [value for value in lists["use"] if value >= 0]
            memory = [value for value in lists["memory_bytes"] if value >= 0]
            seen.setdefault(
                (each["host"], index),
                {
                    "host": each["host"],
                    "gpu": index,
                    "use_mean": round(float(np.mean(use)), 3) if use else None,
                    "memory_bytes_max": max(memory) if memory else None,
                },
            )
    return {"gpus": [seen[key] for key in sorted(seen)]} if seen else {}


def _summed(processes: Sequence[Mapping[str, Any]], name: str, grid: np.ndarray) -> np.ndarray:
    """A process counts between its first sample and its last."""
    total = np.zeros(len(grid))
    for each in processes:
        total += np.interp(grid, each["seconds"], each[name], left=0.0, right=0.0)
    return total
