"""What a run's processes used: sums, rates, peaks and GPUs from numbers that are written down here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparkdl_bench.comparison import resources

MOMENTS = [0.0, 1.0, 3.0]


def process(name: str, host: str = "a", seconds: list[float] | None = None, **changes: Any) -> dict[str, Any]:
    """Three samples of a process that has no interface and no GPU."""
    return {
        "process": name,
        "host": host,
        "seconds": MOMENTS if seconds is None else seconds,
        "cpu_cores": [0.25, 0.5, 1.0],
        "resident_bytes": [100, 300, 200],
        "heap_bytes": [5, 70, 6],
        "direct_bytes": [8, 7, 9],
        "gc_ms": [1, 2, 4],
        "network": {},
        **changes,
    }


def sent(*counts: int) -> dict[str, Any]:
    return {"sent_bytes": list(counts)}


def found(folder: Path, *processes: dict[str, Any]) -> dict[str, Any]:
    (folder / "resources.json").write_text(json.dumps({"processes": processes}))
    told = resources.of_run(folder)
    assert told is not None
    return told


def test_nothing_sampled_is_nothing_told(tmp_path: Path) -> None:
    assert resources.of_run(tmp_path) is None
    for processes in ([], [process("0", seconds=[])]):
        (tmp_path / "resources.json").write_text(json.dumps({"processes": processes}))
        assert resources.of_run(tmp_path) is None
    # One that was never sampled takes no part, and breaks nothing.
    told = found(tmp_path, process("gone", seconds=[]), process("0"))
    assert [each["process"] for each in told["processes"]] == ["0"]


def test_the_grid_ends_with_the_last_sample_and_has_as_many_moments_as_the_longest(tmp_path: Path) -> None:
    told = found(tmp_path, process("0"), process("1", seconds=[0.0, 1.0, 4.125]))
    assert told["seconds"] == [0.0, 2.06, 4.12]
    # At 2.0625 s both are between two samples; at the end the first one is gone.
    assert told["cpu_cores"] == [0.5, 1.436, 1.0]
    assert told["resident_bytes"] == [200, 512, 200]


def test_a_process_that_was_sampled_once_has_two_moments(tmp_path: Path) -> None:
    once = {name: [value] for name, value in (("cpu_cores", 0.5), ("resident_bytes", 7), ("gc_ms", 3))}
    rest = {"heap_bytes": [1], "direct_bytes": [2], "network": {"lo": sent(5)}}
    told = found(tmp_path, process("0", seconds=[2.0], **once, **rest))
    assert (told["seconds"], told["cpu_cores"]) == ([0.0, 2.0], [0.0, 0.5])
    # Sampled at the clock's start alone there is no time in which bytes were sent.
    told = found(tmp_path, process("0", seconds=[0.0], **once, **rest))
    assert told["seconds"] == [0.0, 0.0]
    assert "network_sent_bytes_per_s" not in told


def test_peaks_are_each_process_s_own(tmp_path: Path) -> None:
    told = found(tmp_path, process("0", network={"lo": sent(1, 2, 40)}), process("1", host="b"))
    assert told["processes"] == [
        {
            "process": name,
            "host": host,
            "resident_bytes_max": 300,
            "heap_bytes_max": 70,
            "direct_bytes_max": 9,
            "gc_ms": 4,
            "network_sent_bytes": network,
        }
        for name, host, network in (("0", "a", {"lo": 40}), ("1", "b", {}))
    ]
    assert "gpus" not in told


def test_a_host_s_bytes_are_told_by_the_process_that_was_watched_longest(tmp_path: Path) -> None:
    # Watched for 3 s, for 2 s, and again for 3 s: the first of the longest tells.
    first = process("0", network={"eth0": sent(1000, 1600, 2800)})
    short = process("1", seconds=[1.0, 2.0, 3.0], network={"eth0": sent(0, 9_000, 18_000)})
    again = process("2", network={"eth0": sent(0, 0, 90_000)})
    told = found(tmp_path, short, first, again)
    # Moments are 0, 1.5 and 3 s; the first rate stands for the beginning too.
    assert told["network_sent_bytes_per_s"] == [600, 600, 600]
    late = process("3", seconds=[2.0, 2.5, 3.0], network={"eth0": sent(0, 9_000, 18_000)})
    assert found(tmp_path, late, first)["network_sent_bytes_per_s"] == [600, 600, 600]
    assert found(tmp_path, first, late)["network_sent_bytes_per_s"] == [600, 600, 600]


def test_the_interfaces_of_all_hosts_are_added_up(tmp_path: Path) -> None:
    one = process("0", network={"eth0": sent(0, 1000, 3000), "lo": sent(0, 10, 30)})
    other = process("1", host="b", network={"eth0": sent(0, 2000, 6000)})
    assert found(tmp_path, one, other)["network_sent_bytes_per_s"] == [3010, 3010, 3010]
    # One of nothing but zeros is told; one that is not told (-1) or was seen half the time is left out.
    quiet = process("0", network={"lo": sent(0, 0, 0), "eth0": sent(0, -1, 9), "eth1": sent(7)})
    assert found(tmp_path, quiet)["network_sent_bytes_per_s"] == [0, 0, 0]


def test_an_interface_that_began_anew_sent_nothing_less(tmp_path: Path) -> None:
    anew = process("0", seconds=[0.0, 1.5, 3.0], network={"eth0": sent(9_000, 0, 3_000)})
    assert found(tmp_path, anew)["network_sent_bytes_per_s"] == [0, 0, 2000]


def gpu(use: list[float], memory: list[int]) -> dict[str, Any]:
    return {"use": use, "memory_bytes": memory}


def test_gpus_are_told_once_a_host_without_what_the_driver_does_not_tell(tmp_path: Path) -> None:
    both = {"1": gpu([0.0, 1.0, -1.0], [0, -1, 0]), "0": gpu([-1.0], [-1])}
    told = found(
        tmp_path,
        process("0", host="b", gpus={"0": gpu([0.25, 0.5, 0.2501], [3, 9, 4])}),
        process("1", gpus=both),
        # It sees what the other of its host has told already.
        process("2", gpus={"1": gpu([1.0], [99])}),
        process("3", host="c"),
    )
    assert told["gpus"] == [
        {"host": "a", "gpu": "0", "use_mean": None, "memory_bytes_max": None},
        {"host": "a", "gpu": "1", "use_mean": 0.5, "memory_bytes_max": 0},
        {"host": "b", "gpu": "0", "use_mean": pytest.approx(0.333), "memory_bytes_max": 9},
    ]


def test_at_most_120_moments(tmp_path: Path) -> None:
    for count, moments in ((119, 119), (120, 120), (121, 120), (400, 120)):
        seconds = [float(at) for at in range(count)]
        lists = {name: [1] * count for name in ("cpu_cores", "resident_bytes", "heap_bytes", "direct_bytes", "gc_ms")}
        told = found(tmp_path, process("0", seconds=seconds, **lists))
        assert (len(told["seconds"]), told["seconds"][-1]) == (moments, count - 1)
        assert set(told["resident_bytes"]) == {1}
