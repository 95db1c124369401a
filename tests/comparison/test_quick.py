"""Comparisons for a stated time: their ways, their rounds and their end, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkdl_bench.comparison import loop, quick, store
from sparkdl_bench.comparison.cells import cells_of
from sparkdl_bench.comparison.plan import Plan
from sparkdl_bench.config import RunFile
from sparkdl_bench.errors import ConfigurationError


def plan(trials: int = 4) -> Plan:
    return Plan("quick", "quick", RunFile({}, {"batch": "32"}), quick.ways([1, 2]), {}, trials=trials)


def test_ways_share_the_cores_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    one, two, four = quick.ways([1, 2, 4])
    assert one.name == "one process"
    assert one.settings["spark.master"] == "local[8]"
    assert one.settings["spark.task.cpus"] == "8"
    assert two.settings["spark.master"] == "local-cluster[2,4,2048]"
    assert four.settings["spark.master"] == "local-cluster[4,2,2048]"
    assert quick.ways([1, 2], "spark://there:7077")[1].settings == {
        "workers": "2",
        "spark.master": "spark://there:7077",
    }
    with pytest.raises(ConfigurationError, match="different whole numbers of at least 1"):
        quick.ways([2, 2])


def test_a_local_master_says_how_many_cores_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    for master, cores in (("local", 1), ("local[4]", 4), ("local[4,2]", 4), ("local[*]", 8), (None, 8)):
        assert quick.cores_of(master) == cores
    one, two = quick.ways([1, 2], "local[4]")
    assert (one.settings["spark.master"], one.settings["spark.task.cpus"]) == ("local[4]", "4")
    assert two.settings["spark.master"] == "local-cluster[2,2,2048]"


def test_more_workers_than_cores_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    assert quick.oversubscribed([1, 2], None) == ""
    assert quick.oversubscribed([1, 4, 8], "spark://there:7077") == ""
    said = "4 workers, 8 workers share 2 cores of this host: that is not more cores."
    assert quick.oversubscribed([1, 4, 8], None) == said


@pytest.mark.parametrize(
    ("master", "said"),
    [
        (
            "",
            "The master is empty. Masters look so: local[4], local-cluster[2,1,2048], spark://HOST:7077, yarn, "
            "k8s://https://HOST:6443. Set it with --master.",
        ),
        (
            "locl[2]",
            "'locl[2]' is no Spark master. Masters look so: local[4], local-cluster[2,1,2048], spark://HOST:7077, "
            "yarn, k8s://https://HOST:6443. Set it with --master.",
        ),
        (
            "local-cluster[2,1,1024]",
            "The master is local-cluster[2,1,1024], and a comparison gives each number of workers a local-cluster of "
            "its own, of one executor for each worker. Name local[N] to let all ways share N cores of this host, or a "
            "cluster's master: spark://HOST:7077, yarn.",
        ),
        (
            "local[3]",
            "The master is local[3], and this process may use 2 cores of this host, so 3 would be shared. Name "
            "local[2], or leave the master out.",
        ),
        (
            "local",
            "The master is local, and 2 workers need a core each. Name local[2] or more, or leave the master out for "
            "all cores of this host.",
        ),
    ],
)
def test_masters_that_no_comparison_takes(master: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    with pytest.raises(ConfigurationError) as refused:
        quick.ways([1, 2], master)
    assert str(refused.value) == said


def test_rounds_measure_all_ways_alike_wherever_they_end() -> None:
    cells = quick.in_rounds(plan(), cells_of(plan()))
    assert [cell.trial for cell in cells] == [1, 1, 2, 2, 3, 3, 4, 4]
    for number in range(0, 8, 2):
        assert cells[number].group != cells[number + 1].group


class Instant:
    """Cells that say that they took so long."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.ran = seconds, 0

    def run(self, cell: Any) -> dict[str, Any]:
        self.ran += 1
        metrics = dict.fromkeys(("seconds_total", "ms_per_step", "test_accuracy", "seconds_to_accuracy"), None)
        return {
            "group": cell.group,
            "trial": cell.trial,
            "warmup": False,
            "status": "success",
            "seconds": self.seconds,
            "metrics": {**metrics, "seconds_total": self.seconds},
        }

    def close(self) -> None: ...


@pytest.mark.parametrize(("left_s", "seconds", "ran"), [(-1.0, 1.0, 2), (1000.0, 1.0, 8), (50.0, 60.0, 2)])
def test_no_cell_begins_that_would_end_too_late_and_each_way_is_measured(
    left_s: float, seconds: float, ran: int, tmp_path: Path
) -> None:
    cells = quick.in_rounds(plan(), cells_of(plan()))
    folder = store.create(tmp_path, plan(), cells)
    executor = Instant(seconds)
    told: list[str] = []
    loop.run_cells(
        cells,
        folder,
        executor,
        loop.Display(told.append, None, len(cells)),
        until=loop.time.monotonic() + left_s,
    )
    assert executor.ran == ran
    assert ("The time is over" in " ".join(told)) == (ran < 8)


@pytest.mark.parametrize(("minutes", "trials"), [(0, None), (-1, None), (float("inf"), None), (None, 0)])
def test_efforts_that_are_none(minutes: float | None, trials: int | None) -> None:
    with pytest.raises(ConfigurationError, match="is not valid"):
        quick.Effort(minutes, trials)
