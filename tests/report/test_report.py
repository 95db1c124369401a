"""From records to the page and the other forms. The records are made up; tests/comparison covers how they are made."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import comparisons
import fakes
import pytest
from click.testing import CliRunner

from conftest import COMPARISON_FILES
from sparkdl_bench.commands.report import command
from sparkdl_bench.comparison import store
from sparkdl_bench.comparison.cells import Cell, cells_of
from sparkdl_bench.comparison.plan import Plan, load_plan
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.launching.record import LaunchRecord
from sparkdl_bench.report import findings, formats, html, kept, plots, tables, vega
from sparkdl_bench.report.analysis import (
    ACCURACY,
    LABELS,
    RATE,
    TO_ACCURACY,
    TOTAL,
    WAITED,
    WAITED_TO_ACCURACY,
    Analysis,
    Group,
    analyse,
)
from sparkdl_bench.report.answer import answer, described
from sparkdl_bench.report.decision import decide
from sparkdl_bench.report.load import Comparison, Results, load
from sparkdl_bench.report.numbers import number
from sparkdl_bench.results import RunResults
from sparkdl_bench.statistics import inference

# Trials differ a little, always in the same way.
NOISE = (1.0, 1.02, 0.97, 1.01, 0.99)
# As compare.resources keeps them: a driver and an executor on one host with a GPU.
RESOURCES: dict[str, Any] = {
    "seconds": [0.0, 1.0, 2.0],
    "cpu_cores": [0.5, 1.5, 1.0],
    "resident_bytes": [100_000_000, 700_000_000, 600_000_000],
    "network_sent_bytes_per_s": [1_000_000, 1_000_000, 4_000_000],
    "processes": [
        {
            "process": name,
            "host": "a",
            "resident_bytes_max": resident,
            "heap_bytes_max": resident // 2,
            "direct_bytes_max": resident // 4,
            "gc_ms": 250,
            "network_sent_bytes": {"eth0": 0, "lo": sent},
        }
        for name, resident, sent in (("driver", 300_000_000, 5_000_000), ("0", 400_000_000, 4_000_000))
    ],
    "gpus": [{"host": "a", "gpu": "0", "use_mean": 0.25, "memory_bytes_max": 2_000_000_000}],
}
# One variant on one worker and on two.
CORES = fakes.CONF.replace("batch = [32, 64]", "workers = [1, 2]").replace('baseline = { variant = "slow" }', "")
CORES = CORES.split('[[variant]]\nname = "slow"')[0]
CONF_RUNS = Path(__file__).parents[2] / "conf" / "runs"


def make(folder: Path, conf: str, factor: Mapping[str, float], **changes: Any) -> store.ComparisonFolder:
    """A comparison whose groups take `factor` times as long as one another."""
    plan = fakes.plan_of(folder, conf)
    cells = cells_of(plan)
    made = store.create(folder / "out", plan, cells)
    for cell in cells:
        made.add(cell, _record(plan, cell, factor, changes))
    return made


def _record(plan: Any, cell: Cell, factor: Mapping[str, float], changes: Mapping[str, Any]) -> dict[str, Any]:
    scale = next(value for name, value in factor.items() if name in cell.group)
    record = fakes.success(plan, cell, scale * NOISE[(cell.trial - 1) % len(NOISE)])
    return {**record, **changes}


def make_each(folder: Path, conf: str, change: Callable[[Plan, Cell], Mapping[str, Any]]) -> store.ComparisonFolder:
    """A comparison whose records are changed one by one."""
    plan = fakes.plan_of(folder, conf)
    cells = cells_of(plan)
    made = store.create(folder / "out", plan, cells)
    for cell in cells:
        record = _record(plan, cell, {"": 1.0}, {})
        made.add(cell, {**record, **change(plan, cell)})
    return made


def _timed(times: Mapping[int, Sequence[float]]) -> Callable[[Plan, Cell], Mapping[str, Any]]:
    """Records whose times are those of another as many times, by a cell's workers and its trial."""
    return lambda plan, cell: fakes.success(plan, cell, times[cell.workers][cell.trial - 1])


def group_of(analysis: Analysis, name: str) -> Group:
    return next(group for group in analysis.groups if group.name == name)


@pytest.fixture
def folder(tmp_path: Path) -> store.ComparisonFolder:
    return make(tmp_path, fakes.CONF.replace("trials = 3", "trials = 5"), {"fast": 1.0, "slow": 3.0})


def analysed(folder: store.ComparisonFolder) -> Analysis:
    return analyse(load([folder.path]).comparisons[0])


def on_four_cores(folder: store.ComparisonFolder) -> Analysis:
    """As a host with four cores would have measured it, whatever this one has."""
    comparison = load([folder.path]).comparisons[0]
    machine = {**comparison.content["machine"], "cores": 4}
    return analyse(replace(comparison, content={**comparison.content, "machine": machine}))


class TestAnalysis:
    def test_groups_means_and_contrasts(self, folder: store.ComparisonFolder) -> None:
        analysis = analysed(folder)
        assert [group.name for group in analysis.groups] == [
            "fast, batch 32",
            "fast, batch 64",
            "slow, batch 32",
            "slow, batch 64",
        ]
        assert analysis.metric == TO_ACCURACY
        best = analysis.summaries(TO_ACCURACY)[0]
        assert (best.count, best.centre) == (5, pytest.approx(3.0 * math.prod(NOISE) ** (1 / 5)))
        assert best.interval is not None
        assert best.interval.low < best.centre < best.interval.high
        contrast = analysis.contrasts[best.group.name]
        assert contrast.baseline.name == f"slow, batch {best.group.batch}"  # the other factor held still
        assert contrast.effect.ratio == pytest.approx(3.0)
        assert contrast.differs

    def test_both_factors_stand_in_the_two_way_table(self, folder: store.ComparisonFolder) -> None:
        found = analysed(folder).two_ways(TO_ACCURACY)
        rows = {row.factor: row for row in found["variant", "batch"]}
        assert rows["variant"].p is not None
        assert rows["variant"].p < 1e-6
        assert rows["batch"].p is not None
        assert rows["batch"].p > 0.5

    def test_without_the_target_reached_the_total_counts(self, tmp_path: Path) -> None:
        conf = fakes.CONF.replace("target_accuracy = 0.9", "target_accuracy = 0.99")
        analysis = analysed(make(tmp_path, conf, {"fast": 1.0, "slow": 2.0}))
        assert analysis.metric == TOTAL
        assert any("reached 99.0% in 0 of 3 trials" in line for line in findings.summary(analysis))

    def test_cost_is_the_first_number_of_cores_that_beats_one_thread(self, tmp_path: Path) -> None:
        conf = fakes.CONF.replace("batch = [32, 64]", "workers = [1, 2, 4]").replace('"slow" }', '"slow" }')
        times = {"fast, workers 1": 1.0, "fast, workers 2": 1.2, "fast, workers 4": 0.5, "slow": 3.0}
        analysis = analysed(make(tmp_path, conf, times))
        costs = {cost.variant: cost for cost in analysis.costs}
        assert costs["fast"].cores == 4
        assert costs["slow"].cores is None
        assert costs["fast"].single.name == "fast, workers 1"
        assert [group.cores for group in analysis.scaling["fast"]] == [1, 2, 4]

    def test_cost_is_where_the_difference_is_no_chance(self, tmp_path: Path) -> None:
        # Factors whose logarithms to base 2 are whole, each three with a variance of 1: 2, 3, 4 beside 1, 2, 3 and
        # -1, 0, 1. Welch's test of these by hand: t = d / sqrt(1/3 + 1/3) with 4 degrees of freedom, for which
        # p = 1 - sin a (1 + cos(a)^2 / 2) where tan a = t / 2. For d = 1 (2 cores) p = 0.287864, for d = 3 (4 cores)
        # 0.021312, which Holm doubles, as the smaller of two.
        times = {1: (4.0, 8.0, 16.0), 2: (2.0, 4.0, 8.0), 4: (0.5, 1.0, 2.0)}
        analysis = on_four_cores(make_each(tmp_path, CORES.replace("[1, 2]", "[1, 2, 4]"), _timed(times)))
        (cost,) = analysis.costs
        assert (cost.variant, cost.tried, cost.single.cores) == ("fast", (2, 4), 1)
        assert cost.single.centre(analysis.metric) == pytest.approx(3 * 8.0)
        assert cost.cores == 4
        assert cost.beats is not None
        assert cost.beats.effect.ratio == pytest.approx(8.0)
        assert cost.beats.p == pytest.approx(0.042623, abs=1e-6)
        ((lower, contrast),) = cost.untold
        assert (lower.cores, lower.centre(analysis.metric)) == (2, pytest.approx(3 * 4.0))
        assert contrast is not None
        assert contrast.effect.ratio == pytest.approx(2.0)
        assert contrast.p == pytest.approx(0.287864, abs=1e-6)
        assert (
            "COST of fast: 4 cores; with these it beats the best process of one thread (fast, workers 1, 24 s). "
            "It is faster on 2 cores (p = 0.29) too, which may be chance."
        ) in findings.summary(analysis)

    def test_cost_is_not_known_where_a_lower_mean_may_be_chance(self, tmp_path: Path) -> None:
        times = {1: (4.0, 8.0, 16.0), 2: (2.0, 4.0, 8.0)}
        analysis = on_four_cores(make_each(tmp_path, CORES, _timed(times)))
        assert [cost.cores for cost in analysis.costs] == [None]
        ps = [each.p for cost in analysis.costs for _, each in cost.untold if each is not None]
        assert ps == [pytest.approx(0.287864, abs=1e-6)]  # asked alone, it is not adjusted
        said = (
            "COST of fast is not known: on 2 cores ({}) it is faster than the best process of one thread "
            "(fast, workers 1, {} s), which may be chance."
        )
        assert said.format("p = 0.29", 24) in findings.summary(analysis)
        (tmp_path / "one").mkdir()
        one = make_each(tmp_path / "one", CORES.replace("trials = 3", "trials = 1"), _timed(times))
        assert said.format("too few trials", 12) in findings.summary(on_four_cores(one))

    def test_cost_where_nothing_beats_one_thread(self, tmp_path: Path) -> None:
        times = {1: (1.0, 1.0, 1.0), 2: (1.0, 1.0, 1.0), 4: (2.0, 2.0, 2.0)}
        analysis = on_four_cores(make_each(tmp_path, CORES.replace("[1, 2]", "[1, 2, 4]"), _timed(times)))
        assert [(cost.cores, cost.untold) for cost in analysis.costs] == [(None, ())]
        assert (
            "COST: at no number of cores that was measured do these beat the best process of one thread "
            "(fast, workers 1, 3 s): fast (2, 4 cores)."
        ) in findings.summary(analysis)


class TestWords:
    def test_the_reason_comes_from_the_phases(self, folder: store.ComparisonFolder) -> None:
        said = "\n".join(findings.summary(analysed(folder)))
        assert "fast, batch 32 is 3 times faster than slow, batch 32 (95 % CI 2.9" in said
        assert re.search(
            r"because a step takes 2\.36 ms instead of 7\.08 ms on average, warm-up included: "
            r"0\.\d+ ms in Spark's scheduler instead of 1\.99",
            said,
        )
        assert "of the difference" in said

    def test_of_equal_variants_it_says_that_the_data_cannot_tell(self, tmp_path: Path) -> None:
        analysis = analysed(make(tmp_path, fakes.CONF, {"fast": 1.0, "slow": 1.0}))
        said = "\n".join(findings.summary(analysis))
        assert "fast, batch 32 and slow, batch 32 are about as fast; the data cannot tell: 1 times as fast" in said
        assert "faster than" not in said

    def test_one_trial_is_no_statement(self, tmp_path: Path) -> None:
        conf = fakes.CONF.replace("trials = 3", "trials = 1")
        analysis = analysed(make(tmp_path, conf, {"fast": 1.0, "slow": 2.0}))
        said = "\n".join(findings.summary(analysis))
        assert "fast, batch 32 took 3 s and slow, batch 32 6 s: with 1 trial and 1 trial it is not known" in said
        assert "times faster" not in said
        assert "CI" not in "\n".join(findings.recommendation(analysis))
        assert findings.recommendation(analysis)[0].startswith("Not decided: about 4 more trials per group would tell")
        shown = tables.groups(analysis).rows[0]
        assert [cell.text for cell in shown[3:5]] == ["1 (few)", "3"]

    def test_a_slower_one_says_so(self, tmp_path: Path) -> None:
        analysis = analysed(make(tmp_path, fakes.CONF, {"fast": 2.0, "slow": 1.0}))
        said = "\n".join(findings.summary(analysis))
        assert "fast, batch 32 is 2 times slower than slow, batch 32" in said

    def test_failures_and_a_busy_machine_are_named(self, tmp_path: Path) -> None:
        made = make(tmp_path, fakes.CONF, {"fast": 1.0, "slow": 2.0}, load={"busy": 0.5})
        plan = fakes.plan_of(tmp_path)
        broken = next(cell for cell in cells_of(plan) if cell.group == "slow, batch 64" and cell.trial == 2)
        made.add(broken, fakes.failure(plan, broken))
        said = "\n".join(findings.summary(analysed(made)))
        assert "slow, batch 64: 1 of 3 trials failed. It did not work." in said
        assert "The machine was busy before 11 of 11 trials" in said

    @pytest.mark.parametrize(("busy", "told"), [(0.1, False), (0.11, True), (0.44, True)])
    def test_a_tenth_of_the_cores_is_too_busy(self, tmp_path: Path, busy: float, told: bool) -> None:
        analysis = analysed(make(tmp_path, fakes.CONF, {"fast": 1.0, "slow": 2.0}, load={"busy": busy}))
        assert ("The machine was busy before 12 of 12 trials" in "\n".join(findings.summary(analysis))) == told
        assert ("The machine was busy before 12 trials" in "\n".join(answer(analysis).details)) == told

    @pytest.mark.parametrize(
        ("times", "first"),
        [
            # Two workers much faster than one: use them.
            ({"workers 1": 2.0, "workers 2": 1.0}, "Use fast, workers 2 (2 workers × 1 thread, global batch 32)."),
            # About as fast: the one machine takes fewer cores.
            ({"workers 1": 1.0, "workers 2": 1.0}, "Use one machine: fast, workers 1 (1 process × 1 thread"),
            ({"workers 1": 1.0, "workers 2": 1.5}, "Use one machine: fast, workers 1"),
        ],
    )
    def test_the_recommendation_follows_the_measurement(
        self, tmp_path: Path, times: dict[str, float], first: str
    ) -> None:
        conf = CORES.replace("trials = 3", "trials = 5")
        found = answer(analysed(make(tmp_path, "price_per_core_hour = 0.36\n" + conf, times)))
        assert found.sentences[0].startswith(first)
        if times["workers 1"] == 2.0:
            assert "is 2 times faster than the cheapest, fast, workers 1 (95 % CI 1.9" in found.sentences[1]
            assert found.cost == [
                "fast, workers 2: 2.99 s × 2 cores = 5.99 core-seconds, 0.0006 EUR.",
                "fast, workers 1: 5.99 s × 1 core = 5.99 core-seconds, 0.0006 EUR.",
            ]

    def test_numbers_are_short(self) -> None:
        assert [number(value) for value in (0, 0.012345, 1.2345, 123.45, 12345.6)] == [
            "0",
            "0.0123",
            "1.23",
            "123",
            "12,346",
        ]


def test_the_rank_that_waits_least_is_waited_for(tmp_path: Path) -> None:
    phases = {"data": 0.1, "compute": 2.0, "wait": 1.5, "scheduler": 4.0}
    ranks = [
        {"rank": 0, "host": "a", "executor": "0", "phases_ms": phases, "made_others_wait_s": 0.0},
        {"rank": 1, "host": "b", "executor": "1", "phases_ms": {"data": 0.1, "compute": 3.2, "wait": 0.3}},
    ]
    made = make(tmp_path, fakes.CONF, {"fast": 1.0, "slow": 2.0}, ranks=ranks)
    found = tables.stragglers(analysed(made))
    first, second = [[cell.text for cell in row] for row in found.rows[:2]]
    assert first == ["fast, batch 32", "0", "a / 0", "0.1", "2", "2.1", "1.5", "1.2", "0", "", "1"]
    # The second one's record is an older one, which does not say for how long.
    assert second == ["fast, batch 32", "1", "b / 1", "0.1", "3.2", "3.3", "0.3", "0", "–", "yes", "1"]


def launched(results: Path, function: str, workers: int) -> Path:
    """The folder of a launch whose rank 0 reported twenty steps of 10 ms."""
    conf = SimpleNamespace(getAll=lambda: [("spark.master", "local-cluster[2,1,1024]")])
    context = SimpleNamespace(applicationId="app-1", master="local-cluster[2,1,1024]", getConf=lambda: conf)
    spark = SimpleNamespace(version="4.1.4", sparkContext=context)
    configuration = {"name": function, "workers": str(workers), "timeout": "600", "attempts": "1"}
    made = LaunchRecord.create(results, function, function, "none", configuration, spark)
    for rank in range(workers):
        made.placed(rank, "a", 100 + rank)
    made.reported(0, [{"time_ms": 1e12 + 10.0 * step, "step": step, "loss": 1 / step} for step in range(1, 21)], 0)
    made.close("success", None)
    return made.folder


def test_a_launch_goes_by_what_it_ran_and_has_no_batch(tmp_path: Path) -> None:
    folders = [launched(tmp_path, "train.py", 2), launched(tmp_path, "train.py", 4)]
    (comparison,) = load(folders).comparisons
    analysis = analyse(comparison)
    names = ["train.py by launch, sync none, workers 2", "train.py by launch, sync none, workers 4"]
    assert [group.name for group in analysis.groups] == names
    assert described(analysis.groups[0]) == f"{names[0]} (2 workers × 1 thread)"
    table = tables.groups(analysis)
    shown = dict(zip(table.headings, (cell.text for cell in table.rows[0]), strict=True))
    assert (shown["batch"], shown["rows/s"]) == ("–", "–")
    text = formats.markdown(load(folders))
    assert "batch 0" not in text
    assert "– –" not in text
    assert "fresh = true" not in text


def test_a_launch_whose_script_reported_nothing_has_no_stragglers(tmp_path: Path) -> None:
    ranks = [{"rank": rank, "host": "a", "executor": None, "phases_ms": {}} for rank in (0, 1)]
    made = make(tmp_path, fakes.CONF, {"fast": 1.0, "slow": 2.0}, ranks=ranks, phases_ms={})
    assert tables.stragglers(analysed(made)).rows == []


@pytest.mark.parametrize(("works", "marked"), [((1.0, 1.0), 0), ((0.982, 1.018), 0), ((0.975, 1.025), 1)])
def test_ranks_that_work_about_equally_long_are_no_stragglers(
    tmp_path: Path, works: tuple[float, float], marked: int
) -> None:
    ranks = [
        {"rank": rank, "host": "a", "executor": "0", "phases_ms": {"data": 0.0, "compute": own, "wait": 4 - own}}
        for rank, own in enumerate(works)
    ]
    made = make(tmp_path, fakes.CONF, {"fast": 1.0, "slow": 2.0}, ranks=ranks)
    found = tables.stragglers(analysed(made))
    at = found.headings.index("waited for")
    assert sum(row[at].text == "yes" for row in found.rows) == marked * 4  # one of each group


class TestForms:
    def test_the_page_holds_everything_and_loads_nothing(self, folder: store.ComparisonFolder) -> None:
        page = html.page(load([folder.path]))
        # The charts' script names places and loads none (test_browser.py looks at its requests).
        own = page.replace(vega.script(), "")
        assert len(page) - len(own) > 500_000
        addresses = set(re.findall(r"https?://[^\"'\s<>]+", own))
        assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
        assert not re.search(r"<script[^>]+src=|<img|<iframe|@import|url\((?!#)", own)
        assert "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:" in own
        for name in ("waiting", "time-to-accuracy", "fixed-and-steady", "phases", "layers", "batch-rate", "batch-time"):
            assert f'<figure id="c1-plot-{name}" class="chart">' in page
        ids = re.findall(r'\bid="([^"]+)"', own)
        assert len(ids) == len(set(ids))
        used = set(re.findall(r'(?:href="|url\()#([^")]+)', own))
        assert used <= set(ids)
        for colour in set(vega.COLOURS.values()) - {"#ffffff"}:  # the pictures take the page's colours
            assert colour not in own.split("</style>")[1]
        # The answer first, then one picture, then the cost and what to do, then all else.
        places = [
            own.index(f'id="c1-{each}"')
            for each in ("answer", "plot-waiting", "cost", "next", "groups", "plots", "summary", "configuration")
        ]
        assert places == sorted(places)

    def test_what_is_named_cannot_break_the_page(self, tmp_path: Path) -> None:
        conf = fakes.CONF.replace('name = "fast"', 'name = "<b>&fast</b>"')
        page = html.page(load([make(tmp_path, conf, {"fast": 1.0, "slow": 2.0}).path]))
        assert "<b>" not in page
        assert "&lt;b&gt;&amp;fast&lt;/b&gt;" in page

    def test_paths_of_the_machine_stay_out_of_the_page(self, tmp_path: Path) -> None:
        plan = load_plan(fakes.write_conf(tmp_path), ["data.path=/home/somebody/secret-project/data/mnist"])
        folder = store.create(tmp_path / "out", plan, [])
        for cell in cells_of(plan):
            folder.add(cell, fakes.success(plan, cell))
        page = html.page(load([folder.path]))
        assert "…/data/mnist" in page
        assert "somebody" not in page

    @pytest.mark.parametrize(
        ("text", "kept_of_it"),
        [
            ("/home/some body/data/mnist/", "…/data/mnist"),
            ("images from file:/home/somebody/data/mnist, whole", "images from file:…/data/mnist, whole"),
            ("file:///home/somebody/data/mnist", "file://…/data/mnist"),
            (
                "-XX:SharedArchiveFile=/home/somebody/a/one.jsa -Xshare:auto",
                "-XX:SharedArchiveFile=…/a/one.jsa -Xshare:auto",
            ),
            ("hdfs://host/a/b/c/d", "hdfs://host/a/b/c/d"),
            ("https://host:80/a/b/c", "https://host:80/a/b/c"),
            ("a/b/c/d and /tmp/x", "a/b/c/d and /tmp/x"),
        ],
    )
    def test_of_paths_within_words_two_parts_are_kept(self, text: str, kept_of_it: str) -> None:
        content = {"plan": {"title": text}, "mark": "m"}
        assert Comparison(content, [{"facts": [text]}]).kept == {
            "content": {"plan": {"title": kept_of_it}},
            "asked": None,
            "records": [{"facts": [kept_of_it]}],
        }

    def test_two_hundred_runs_stay_below_five_megabytes(self, tmp_path: Path) -> None:
        conf = fakes.CONF.replace("trials = 3", "trials = 10")
        conf = conf.replace("batch = [32, 64]", "batch = [8, 16, 32, 64, 128]\nworkers = [1, 2]")
        folder = make(tmp_path, conf, {"fast": 1.0, "slow": 2.0})
        results = load([folder.path])
        assert len(results.comparisons[0].records) == 200
        assert len(html.page(results).encode()) < 5_000_000

    def test_markdown_json_and_csv_say_the_same(self, folder: store.ComparisonFolder) -> None:
        results = load([folder.path])
        text = formats.markdown(results)
        assert text.index("**Use ") < text.index("Sure: ") < text.index("## Cost") < text.index("## What was measured")
        assert "| fast, batch 32 |" in text
        content = json.loads(formats.as_json(results))["comparisons"][0]
        assert content["chosen"] in ("fast, batch 32", "fast, batch 64")
        assert content["summary"][0] in text
        written = formats.comma_separated(results)
        head = written.splitlines()[0].split(",")
        assert len(head) == len(set(head))
        rows = list(csv.DictReader(io.StringIO(written)))
        assert len(rows) == 20
        assert {row["batch"] for row in rows} == {"32", "64"}
        assert float(rows[0]["seconds_to_accuracy"]) > 0
        assert float(rows[0]["compute_ms"]) == 1.0
        assert (rows[0]["cores"], rows[0]["error"], rows[0]["block-stream_bytes"]) == ("2", "", "1000")
        assert (rows[0]["load_busy"], rows[0]["load_average_1min"]) == ("0.0", "0.0")
        assert rows[0]["epochs_to_accuracy"] == "3"

    def test_a_failed_run_s_line_holds_its_error(self, folder: store.ComparisonFolder, tmp_path: Path) -> None:
        plan = fakes.plan_of(tmp_path, fakes.CONF.replace("trials = 3", "trials = 5"))
        folder.add(cells_of(plan)[0], fakes.failure(plan, cells_of(plan)[0]))
        rows = list(csv.DictReader(io.StringIO(formats.comma_separated(load([folder.path])))))
        (failed,) = [row for row in rows if row["status"] == "failed"]
        assert failed["error"] == "It did not work."
        assert failed["seconds_total"] == ""

    def test_pictures_are_written(self, tmp_path: Path) -> None:
        folder = make(tmp_path, fakes.CONF, {"fast": 1.0, "slow": 3.0}, resources=RESOURCES)
        written = formats.pictures(load([folder.path]), tmp_path / "png")
        assert {path.name for path in written} == {
            "waiting.png",
            "time-to-accuracy.png",
            "fixed-and-steady.png",
            "phases.png",
            "layers.png",
            "batch-rate.png",
            "batch-time.png",
            "utilisation.png",
            "memory.png",
            "network.png",
        }
        assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)

    def test_epochs_are_split_where_several_workers_have_several(self, tmp_path: Path) -> None:
        split = [{"epoch": epoch, "compute": 2.0, "communication": epoch, "update": 0.5} for epoch in (1, 2, 3)]
        conf = fakes.CONF.replace("batch = [32, 64]", "workers = [1, 2]")
        made = make(tmp_path, conf, {"fast": 1.0, "slow": 3.0}, epoch_phases=split)
        plot = next(plot for plot in plots.all_plots(analysed(made)) if plot.name == "epochs")
        assert len(plot.series) == 4  # two lines for each group of two workers
        assert all("workers 2" in each.name or "workers=2" in each.name for each in plot.series)
        assert {each.dash for each in plot.series} == {True, False}
        points = plot.spec["datasets"]["points"]
        assert {point["y"] for point in points if point["series"].endswith("compute")} == {2.0}
        assert sorted({point["y"] for point in points if point["series"].endswith("communication")}) == [1, 2, 3]
        (tmp_path / "once").mkdir()
        once = make(tmp_path / "once", conf, {"fast": 1.0, "slow": 3.0}, epoch_phases=split[:1])
        assert "epochs" not in {plot.name for plot in plots.all_plots(analysed(once))}

    def test_bytes_over_time_are_megabytes_a_second(self, tmp_path: Path) -> None:
        made = make(tmp_path, fakes.CONF, {"fast": 1.0, "slow": 3.0}, resources=RESOURCES)
        plot = next(plot for plot in plots.all_plots(analysed(made)) if plot.name == "network")
        assert {point["y"] for point in plot.spec["datasets"]["points"]} == {1.0, 4.0}

    def test_a_folder_to_keep_holds_the_report_its_pictures_and_the_machine(
        self, folder: store.ComparisonFolder, tmp_path: Path
    ) -> None:
        place = tmp_path / "kept"
        written = formats.folder(load([folder.path]), place)
        assert sorted(path.name for path in written) == sorted(path.name for path in place.iterdir())
        assert {path.name for path in written if path.suffix != ".png"} == {"report.md", "machine.json", kept.RECORDS}
        text = (place / "report.md").read_text(encoding="utf-8")
        linked = re.findall(r"!\[([^]]+)\]\(([^)]+)\)", text)
        assert {name for _, name in linked} == {path.name for path in written if path.suffix == ".png"}
        assert all(len(description) > 10 for description, _ in linked)
        described = json.loads((place / "machine.json").read_text(encoding="utf-8"))["comparisons"][0]
        assert described["machine"] == folder.content["machine"]
        assert described["plan"]["trials"] == 5
        assert described["commit"] in text
        assert f"{described['machine']['cores']} cores" in text

    @pytest.mark.parametrize("named", ["", kept.RECORDS])
    def test_every_form_can_be_made_again_of_what_is_kept(
        self, folder: store.ComparisonFolder, tmp_path: Path, named: str
    ) -> None:
        results = load([folder.path, write_net(tmp_path)], 0.9)
        file = tmp_path / "kept" / kept.RECORDS
        formats.records(results, file)
        again = load([tmp_path / "kept" / named])
        for form in (formats.markdown, formats.as_json, formats.circumstances):
            assert form(again) == form(results)
        # Charts of one process are numbered on.
        pages = [re.sub(r"clip\d+", "clip", html.page(each)) for each in (again, results)]
        assert pages[0] == pages[1]
        # Kept once more it is the same file, and nothing of it says where the measuring machine had its files.
        formats.records(again, tmp_path / "again" / kept.RECORDS)
        assert (tmp_path / "again" / kept.RECORDS).read_bytes() == file.read_bytes()
        assert str(tmp_path).encode() not in gzip.decompress(file.read_bytes())
        assert folder.mark.encode() not in gzip.decompress(file.read_bytes())
        # A folder of kept reports is one report.
        (tmp_path / "both").mkdir()
        for name in ("kept", "again"):
            (tmp_path / name).rename(tmp_path / "both" / name)
        assert len(load([tmp_path / "both"]).comparisons) == 2

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"not gzip", "BadGzipFile"),
            (gzip.compress(b'{"schema": 1')[:-4], "EOFError"),
            (gzip.compress(b'{"schema": 1'), "JSONDecodeError"),
            (gzip.compress(b"[]"), "it holds a list"),
            (gzip.compress(b'{"schema": 1, "net": []}'), "comparisons"),
            (gzip.compress(b'{"schema": 1, "net": [], "comparisons": [1]}'), "TypeError"),
            (gzip.compress(b'{"schema": 2}'), "has schema 2, and this sparkdl-bench reads up to 1"),
        ],
        # Not by the content: its header has the time, and the processes that share the tests must name them alike.
        ids=["no gzip", "cut", "no JSON", "a list", "no comparisons", "a number for a comparison", "newer"],
    )
    def test_records_that_are_none_are_refused(self, tmp_path: Path, content: bytes, said: str) -> None:
        (tmp_path / kept.RECORDS).write_bytes(content)
        with pytest.raises(ConfigurationError, match=said):
            load([tmp_path])

    def test_pictures_of_several_comparisons_stand_with_their_own(self, tmp_path: Path) -> None:
        folders = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            folders.append(make(tmp_path / name, fakes.CONF, {"fast": 1.0, "slow": 3.0}))
        formats.folder(load([each.path for each in folders]), tmp_path / "kept")
        text = (tmp_path / "kept" / "report.md").read_text(encoding="utf-8")
        numbers = re.findall(r"\]\((\d)-[a-z-]+\.png\)", text)
        assert numbers == sorted(numbers)
        assert set(numbers) == {"1", "2"}


class TestLoad:
    def test_rows_of_net_are_drawn(self, tmp_path: Path) -> None:
        results = load([write_net(tmp_path)])
        plot = plots.bus_bandwidth(results.net)
        assert plot is not None
        assert [each.name for each in plot.series] == ["block-stream sliced, 2 ranks", "gloo sliced, 2 ranks"]
        assert "a plain TCP stream" in json.dumps(plot.spec)
        page = html.page(results)
        assert '<figure id="net-plot-bandwidth" class="chart">' in page

    def test_rows_of_net_are_a_table_of_their_own(self, folder: store.ComparisonFolder, tmp_path: Path) -> None:
        net, written = write_net(tmp_path), tmp_path / "net.csv"
        done = CliRunner().invoke(command, [str(net), "--output", str(written)])
        assert done.exit_code == 0, done.output
        rows = list(csv.DictReader(io.StringIO(written.read_text(encoding="utf-8"))))
        assert len(rows) == 6
        assert (rows[0]["transport"], rows[0]["elements"], rows[0]["busbw_gbps"]) == ("block-stream", "1", "1e-05")
        assert "samples_ms" not in rows[0]
        # Together with runs they would be two tables.
        done = CliRunner().invoke(command, [str(net), str(folder.path), "--output", str(tmp_path / "both.csv")])
        assert isinstance(done.exception, ConfigurationError)
        assert "20 runs and 6 rows" in str(done.exception)
        assert "--format json" in str(done.exception)
        assert not (tmp_path / "both.csv").exists()

    def test_other_things_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "x.jsonl").write_text('{"a": 1}')
        with pytest.raises(ConfigurationError, match="no row of"):
            load([tmp_path / "x.jsonl"])
        (tmp_path / "x.jsonl").write_text("nonsense")
        with pytest.raises(ConfigurationError, match="not JSON"):
            load([tmp_path / "x.jsonl"])
        with pytest.raises(ConfigurationError, match=r"There is no file or folder .*nothing'\. Give the folder that"):
            load([tmp_path / "nothing"])
        (tmp_path / "answer").mkdir()
        with pytest.raises(ConfigurationError, match=r"answr'\. Did you mean 'answer'\? Give the folder that"):
            load([tmp_path / "answr"])
        empty = tmp_path / "empty"
        empty.mkdir()
        with pytest.raises(ConfigurationError, match="neither a comparison nor a run"):
            load([empty])

    def test_a_comparison_without_a_finished_cell_says_so(self, tmp_path: Path) -> None:
        folder = store.create(tmp_path / "out", fakes.plan_of(tmp_path), [])
        with pytest.raises(ConfigurationError, match="no finished cell"):
            load([folder.path])

    def test_single_runs_side_by_side(self, tmp_path: Path) -> None:
        for name, transport in (("one", "block-stream"), ("two", "block-stream"), ("three", "block-manager")):
            _write_run(tmp_path / f"20260102-{name}", transport)
        results = load([tmp_path])
        analysis = analyse(results.comparisons[0])
        assert sorted(len(group.records) for group in analysis.groups) == [1, 2]
        assert "block-manager sliced fp32" in html.page(results)


def write_net(folder: Path) -> Path:
    file = folder / "net.jsonl"
    rows = [
        {
            "transport": transport,
            "topology": "sliced",
            "codec": "fp32",
            "host_local": False,
            "channel": "tcp",
            "workers": 2,
            "elements": elements,
            "median_ms": 1.0,
            "p90_ms": 1.1,
            "algbw_gbps": 1.0,
            "busbw_gbps": elements / 1e5,
            "link_gbps": 20.0,
            "correct": True,
            "samples_ms": [1.0, 1.1],
        }
        for transport in ("block-stream", "gloo")
        for elements in (1, 10_000, 814_090)
    ]
    file.write_text("\n".join(json.dumps(row) for row in rows))
    return file


def _write_run(folder: Path, transport: str, accuracy: float = 0.9) -> None:
    folder.mkdir()
    events = [
        {"time_ms": 1000, "key": "run_start", "value": None, "metadata": {}},
        {"time_ms": 3000, "key": "eval_accuracy", "value": accuracy, "metadata": {"epoch_num": 1}},
        {"time_ms": 3000, "key": "epoch_stop", "value": None, "metadata": {"epoch_num": 1}},
        {"time_ms": 3500, "key": "run_stop", "value": None, "metadata": {}},
    ]
    (folder / "events.jsonl").write_text("\n".join(json.dumps(event) for event in events))
    (folder / "run.json").write_text(json.dumps({"configuration": {"name": "x"}, "threads_per_worker": 1}))
    (folder / "steps.json").write_text("[2.0, 2.0]")
    summary = {
        "status": "success",
        "final": {"seconds_total": 2.5},
        "phases_ms": {"compute": 2.0},
        "bytes": {},
        "variant": {"algorithm": "sync-sgd", "topology": "sliced", "transport": transport, "codec": "fp32"},
        "workers": 2,
        "batch": 32,
        "history": [{"epoch": 1, "seconds": 1.5, "train_loss": 1.0, "test_loss": 1.0, "test_accuracy": accuracy}],
    }
    (folder / "summary.json").write_text(json.dumps(summary))


def test_the_highest_rate_comes_first(folder: store.ComparisonFolder) -> None:
    rates = [summary.centre for summary in analysed(folder).summaries(RATE)]
    assert rates == sorted(rates, reverse=True)


def test_every_table_row_is_as_long_as_its_head(folder: store.ComparisonFolder) -> None:
    for table in tables.all_tables(analysed(folder)):
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.headings)}


def test_tables_say_that_one_speed_is_a_median_and_the_other_a_mean(folder: store.ComparisonFolder) -> None:
    found = analysed(folder)
    median = "ms per step is the median step of a trial after its warm-up"
    assert f"{median}, and rows/s is by the mean of the same steps" in tables.groups(found).note
    assert median in tables.runs(found).note


def test_nothing_to_read_is_no_report() -> None:
    assert html.page(Results()).count("<section") == 0


class TestWhatIsNotToBeRecommended:
    def test_the_fast_one_that_does_not_learn(self, tmp_path: Path) -> None:
        conf = fakes.CONF.replace("batch = [32, 64]", "batch = [32]")
        made = make(tmp_path, conf, {"fast": 1.0, "slow": 3.0})
        for cell in cells_of(fakes.plan_of(tmp_path, conf)):
            if cell.group.startswith("fast"):
                record = _record(fakes.plan_of(tmp_path, conf), cell, {"fast": 1.0}, {})
                record["metrics"][TO_ACCURACY] = None
                made.add(cell, record)
        lines = findings.recommendation(analysed(made))
        assert lines[0].startswith("Use slow")
        assert "nothing else reached the target" in lines[1]
        assert "Left aside, since they did not reach 90.0% in all their trials: fast, batch 32." in lines

    def test_where_nobody_learns_it_says_so(self, tmp_path: Path) -> None:
        conf = fakes.CONF.replace("target_accuracy = 0.9", "target_accuracy = 0.99")
        lines = findings.recommendation(analysed(make(tmp_path, conf, {"fast": 1.0, "slow": 2.0})))
        assert any("No group reached 99.0% test accuracy in all its trials" in line for line in lines)

    def test_failed_trials_of_the_chosen_one_are_told(self, tmp_path: Path) -> None:
        made = make(tmp_path, fakes.CONF.replace("trials = 3", "trials = 5"), {"fast": 1.0, "slow": 2.0})
        plan = fakes.plan_of(tmp_path, fakes.CONF.replace("trials = 3", "trials = 5"))
        for cell in cells_of(plan):
            if cell.group.startswith("fast") and cell.trial > 3:
                made.add(cell, fakes.failure(plan, cell))
        said = "\n".join(findings.recommendation(analysed(made)))
        assert "2 of the 5 trials of fast, batch 32 failed: find out why first." in said

    def test_single_runs_that_did_not_learn_alike(self, tmp_path: Path) -> None:
        _write_run(tmp_path / "one", "block-stream", 0.4)
        _write_run(tmp_path / "two", "block-manager", 0.97)
        written = tmp_path / "report.json"
        runs = [str(tmp_path / "one"), str(tmp_path / "two")]

        def told(*options: str) -> dict[str, Any]:
            done = CliRunner().invoke(command, [*runs, "--output", str(written), *options])
            assert done.exit_code == 0, done.output
            comparison: dict[str, Any] = json.loads(written.read_text(encoding="utf-8"))["comparisons"][0]
            return comparison

        without = told()
        assert without["chosen"] is None
        assert without["recommendation"][0].startswith("Nothing is recommended")
        assert "there is no target accuracy" in without["recommendation"][1]
        assert "57 percentage points apart: block-stream" in without["recommendation"][1]
        assert any("--target-accuracy" in line for line in without["recommendation"])
        assert any("no answer to which is better" in line for line in without["summary"])
        asked = told("--target-accuracy", "0.95")
        assert asked["target_accuracy"] == 0.95
        assert asked["chosen"].startswith("block-manager")
        assert any(line.endswith("at the end is 97.0%.") for line in asked["recommendation"])
        assert not any("no answer to which is better" in line for line in asked["summary"])

    def test_a_target_that_is_no_share_is_refused(self, folder: store.ComparisonFolder) -> None:
        done = CliRunner().invoke(command, [str(folder.path), "--target-accuracy", "97"])
        assert isinstance(done.exception, ConfigurationError)
        assert "For 97 % give 0.97" in str(done.exception)

    def test_another_target_is_read_off_the_histories(self, folder: store.ComparisonFolder, tmp_path: Path) -> None:
        plan = fakes.plan_of(tmp_path, fakes.CONF.replace("trials = 3", "trials = 5"))
        folder.add(cells_of(plan)[0], fakes.failure(plan, cells_of(plan)[0]))
        analysis = analyse(load([folder.path], 0.8).comparisons[0])
        fast = group_of(analysis, "fast, batch 64")
        assert fast.values(TO_ACCURACY) == pytest.approx([2 * noise for noise in NOISE])  # 0.85 in the second epoch
        assert fast.centre("epochs_to_accuracy") == 2
        assert "80.0 % test accuracy" in findings.summary(analysis)[0]
        # The page says what was asked, and still what was planned.
        configuration = analysis.comparison.configuration
        assert configuration["report"] == {"target_accuracy": 0.8}
        assert configuration["plan"]["target_accuracy"] == 0.9

    @pytest.mark.parametrize(
        ("accuracies", "chosen"),
        [
            ((0.95, 0.941), True),
            ((0.95, 0.939), False),
            ((0.95, None), False),  # nobody knows
            ((None, None), True),  # there is nothing to tell them apart by
        ],
    )
    def test_without_a_target_only_those_that_learnt_alike_are_compared(
        self, tmp_path: Path, accuracies: Sequence[float | None], chosen: bool
    ) -> None:
        def changed(plan: Plan, cell: Cell) -> Mapping[str, Any]:
            record = fakes.success(plan, cell, NOISE[cell.trial - 1] * cell.workers)
            return {**record, "metrics": {**record["metrics"], ACCURACY: accuracies[cell.workers - 1]}}

        analysis = analysed(make_each(tmp_path, CORES.replace("target_accuracy = 0.9\n", ""), changed))
        assert (decide(analysis).chosen is not None) is chosen
        lines = findings.recommendation(analysis)
        if chosen and accuracies[0]:
            assert "The test accuracy of fast, workers 1 at the end is 95.0% (mean of 3 trials)." in lines
        elif chosen:
            assert any("is known for all trials of fast, workers 1: whether it learns" in line for line in lines)
        elif accuracies[1]:
            assert "1.1 percentage points apart" in lines[1]
        else:
            assert "These have no test accuracy in all their trials: fast, workers 2." in lines[1]

    def test_a_noisy_cheap_one_leaves_it_open(self, tmp_path: Path) -> None:
        """No difference can be shown here, and it may be four times slower all the same."""
        times = {1: (1.1, 2.5, 1.05), 2: (1.0, 1.02, 0.98)}

        def change(plan: Plan, cell: Cell) -> Mapping[str, Any]:
            return fakes.success(plan, cell, times[cell.workers][cell.trial - 1])

        analysis = analysed(make_each(tmp_path, CORES, change))
        found = decide(analysis)
        assert (found.verdict, found.chosen) == ("not-decided", group_of(analysis, "fast, workers 1"))
        (rival,) = found.open
        assert rival.group.workers == 2
        assert rival.interval.high > 4
        assert any("it could be up to" in line for line in findings.summary(analysis))


def _stepped(plan: Plan, cell: Cell, steps: list[float], phases: Mapping[str, float], total: float) -> dict[str, Any]:
    """A record of these steps; `total` seconds, more or less, for all of the training."""
    record = fakes.success(plan, cell)
    total *= NOISE[cell.trial - 1]
    metrics = fakes.record.metrics(plan, steps, record["history"], total, record["batch"])
    return {**record, "steps_ms": steps, "phases_ms": phases, "metrics": metrics}


class TestWhy:
    CONF = fakes.CONF.replace("target_accuracy = 0.9\n", "")

    @pytest.mark.parametrize(
        ("steady_ms", "later"),
        [
            (2.0, " (after it 2 ms and 2 ms)"),
            # After its long warm-up the slow one has the shorter steps.
            (4.0, " (after it 4 ms and 2 ms)"),
        ],
    )
    def test_a_long_warm_up_is_in_the_steps_as_it_is_in_the_phases(
        self, tmp_path: Path, steady_ms: float, later: str
    ) -> None:
        def change(plan: Plan, cell: Cell) -> Mapping[str, Any]:
            if cell.group.startswith("fast"):
                return _stepped(plan, cell, [steady_ms] * 60, {"compute": steady_ms}, 1.0)
            return _stepped(plan, cell, [200.0] * 2 + [2.0] * 58, {"compute": 2.0, "wait": 6.6}, 1.4)

        said = "\n".join(findings.summary(analysed(make_each(tmp_path, self.CONF, change))))
        assert (
            f"because a step takes {steady_ms:g} ms instead of 8.6 ms on average, warm-up included{later}: "
            "0 ms waiting for other ranks instead of 6.6 ms"
        ) in said
        assert "getting ready" not in said

    def test_phases_that_say_the_contrary_are_not_named(self, tmp_path: Path) -> None:
        def change(plan: Plan, cell: Cell) -> Mapping[str, Any]:
            is_fast = cell.group.startswith("fast")
            step, phase = (2.0, 1.5) if is_fast else (3.0, 1.4)
            return _stepped(plan, cell, [step] * 60, {"compute": phase}, 1.0 if is_fast else 1.5)

        said = "\n".join(findings.summary(analysed(make_each(tmp_path, self.CONF, change))))
        assert "because a step takes 2 ms instead of 3 ms on average, warm-up included." in said

    def test_steps_of_different_batches_say_how_many_rows(self) -> None:
        records = [
            comparisons.trial(name, number, seconds + number / 100, 2, batch=batch, steps_ms=[ms] * 10, phases_ms={})
            for name, seconds, batch, ms in (("rows", 10.0, 32, 5.0), ("passes", 30.0, 60000, 2000.0))
            for number in (1, 2, 3)
        ]
        said = "\n".join(findings.summary(comparisons.comparison(records, baseline={"variant": "rows"})))
        assert "because a step of 60,000 rows takes 2,000 ms instead of 5 ms of 32 rows on average" in said

    def test_what_nothing_recorded_explains_gets_no_reason(self, tmp_path: Path) -> None:
        def change(plan: Plan, cell: Cell) -> Mapping[str, Any]:
            return _stepped(plan, cell, [2.0] * 60, {"compute": 2.0}, 1.0 if cell.group.startswith("fast") else 1.5)

        said = "\n".join(findings.summary(analysed(make_each(tmp_path, self.CONF, change))))
        assert "fast, batch 32 is 1.5 times faster than slow, batch 32" in said
        assert "because" not in said

    def test_the_end_counts_for_whole_trainings(self, tmp_path: Path) -> None:
        def change(plan: Plan, cell: Cell) -> Mapping[str, Any]:
            is_fast = cell.group.startswith("fast")
            record = _stepped(plan, cell, [2.0] * 60, {"compute": 2.0}, 1.0 if is_fast else 1.5)
            return {**record, "layers_s": {"prepare": 0.2, "finish": 0.1 if is_fast else 0.6}}

        said = "\n".join(findings.summary(analysed(make_each(tmp_path, self.CONF, change))))
        assert "because it spends 0.1 s instead of 0.6 s at its end (weights to the driver, files)" in said

    def test_only_what_came_before_the_target_counts_for_it(self, tmp_path: Path) -> None:
        history = [
            {"epoch": epoch, "seconds": float(epoch), "train_loss": 1.0, "test_loss": 1.0, "accuracy": accuracy}
            for epoch, accuracy in ((1, 0.7), (2, 0.95), (3, 0.96), (4, 0.97))
        ]

        def change(plan: Plan, cell: Cell) -> Mapping[str, Any]:
            steps = [5.0] * 20 + [1.0] * 20
            metrics = fakes.record.metrics(plan, steps, history, 4.5, 32)
            layers = {"prepare": 0.5, "evaluation": 2.0, "checkpoint": 0.4, "idle": 0.2, "finish": 0.1}
            return {"history": history, "steps_ms": steps, "metrics": metrics, "layers_s": layers}

        group = analysed(make_each(tmp_path, fakes.CONF, change)).groups[0]
        assert group.steps(TO_ACCURACY) == 20
        assert group.steps(TOTAL) == 40
        assert group.mean_step_ms == 3.0
        assert group.clock(TO_ACCURACY) == pytest.approx(
            {"steps": 0.1, "prepare": 0.5, "evaluation": 1.0, "checkpoint": 0.2, "idle": 0.1, "finish": 0.0}
        )
        assert group.clock(TOTAL) == pytest.approx(
            {"steps": 0.12, "prepare": 0.5, "evaluation": 2.0, "checkpoint": 0.4, "idle": 0.2, "finish": 0.1}
        )


def test_p_of_all_comparisons_is_adjusted(folder: store.ComparisonFolder) -> None:
    analysis = analysed(folder)
    found = list(analysis.contrasts.values())
    assert [each.group.name for each in found] == ["fast, batch 32", "fast, batch 64"]
    assert [each.p for each in found] == pytest.approx(inference.holm([each.effect.p for each in found]))
    assert found[0].p > found[0].effect.p
    assert "adjusted by Holm for 2 comparisons" in findings.summary(analysis)[0]


def test_a_group_that_differs_in_more_than_the_baseline_s_factors_has_none(tmp_path: Path) -> None:
    conf = fakes.CONF.replace("batch = [32, 64]", "workers = [1, 2]").replace(
        'baseline = { variant = "slow" }', 'baseline = { workers = 1 }\nskip = [{ variant = "slow", workers = 1 }]'
    )
    analysis = analysed(make(tmp_path, conf, {"workers 1": 2.0, "workers 2": 1.0}))
    assert list(analysis.contrasts) == ["fast, workers 2"]
    found = tables.groups(analysis)
    at = found.headings.index("× faster than baseline [95 %]")
    shown = {row[0].text: row[at].text for row in found.rows}
    assert shown["slow, workers 2"] == "none fits"
    assert shown["fast, workers 1"] == "baseline"
    assert shown["fast, workers 2"].startswith("2 [1.8")
    said = findings.summary(analysis)
    assert "Nothing was measured that differs in workers alone, so these have no baseline: slow, workers 2." in said
    assert not any("slow, workers 2" in line and "fast, workers 1" in line for line in said if " times " in line)


@pytest.mark.parametrize("path", COMPARISON_FILES, ids=lambda path: path.stem)
def test_in_our_own_comparisons_every_group_has_a_baseline(tmp_path: Path, path: Path) -> None:
    plan = load_plan(path, trials=1)
    cells = cells_of(plan)
    made = store.create(tmp_path, plan, cells)
    for cell in cells:
        made.add(cell, fakes.success(plan, cell))
    analysis = analysed(made)
    assert all(analysis.is_baseline(group) or analysis.baseline_of(group) is not None for group in analysis.groups)
    assert findings.summary(analysis)


class TestSeeds:
    def _change(self, seeds: bool) -> Callable[[Plan, Cell], Mapping[str, Any]]:
        """The slow one needs an epoch more."""

        def change(plan: Plan, cell: Cell) -> Mapping[str, Any]:
            record = fakes.success(plan, cell, NOISE[cell.trial - 1])
            accuracies = (0.7, 0.85, 0.95) if cell.group.startswith("fast") else (0.7, 0.8, 0.85, 0.95)
            history = [
                {**record["history"][0], "epoch": epoch, "seconds": NOISE[cell.trial - 1] * epoch, "accuracy": accuracy}
                for epoch, accuracy in enumerate(accuracies, start=1)
            ]
            metrics = fakes.record.metrics(plan, record["steps_ms"], history, 5.0, record["batch"])
            settings = {**record["settings"], "seed": str(cell.trial if seeds else 1)}
            return {"history": history, "metrics": metrics, "settings": settings}

        return change

    @pytest.mark.parametrize("seeds", [False, True])
    def test_one_seed_may_be_the_reason_for_a_number_of_epochs(self, tmp_path: Path, seeds: bool) -> None:
        said = findings.summary(analysed(make_each(tmp_path, fakes.CONF, self._change(seeds))))
        lines = [line for line in said if "seed_per_trial" in line]
        assert len(lines) == (0 if seeds else 1)
        assert seeds or "the epochs to 90.0% differ between groups (3 to 4)" in lines[0]

    def test_with_as_many_epochs_it_matters_to_nobody(self, folder: store.ComparisonFolder) -> None:
        assert not any("seed" in line for line in findings.summary(analysed(folder)))

    def test_batches_are_compared_with_several_seeds(self) -> None:
        assert load_plan(CONF_RUNS / "batch.toml").seed_per_trial


class TestWarmUp:
    @pytest.mark.parametrize(
        ("steps", "said"),
        [
            ([2.0] * 102, []),
            ([2.0] * 60, ["Fewer than 100 steps were measured after the 2 of the warm-up", "fast, batch 32 (58)"]),
            ([5.0] * 52 + [2.0] * 100, ["the warm-up was too short", "fast, batch 32 (drift 0.40)", "now 2"]),
        ],
    )
    def test_one_that_is_too_short_is_told(self, tmp_path: Path, steps: list[float], said: list[str]) -> None:
        made = make_each(tmp_path, fakes.CONF, lambda plan, cell: _stepped(plan, cell, steps, {"compute": 2.0}, 3.5))
        analysis = analysed(made)
        text = "\n".join(findings.summary(analysis))
        assert all(part in text for part in said)
        assert ("Fewer than" in text, "too short" in text) == (len(steps) == 60, len(steps) == 152)
        found = tables.groups(analysis)
        shown = dict(zip(found.headings, [cell.text for cell in found.rows[0]], strict=True))
        assert shown["measured steps"] == str(len(steps) - 2)
        assert shown["drift"] == ("0.4 (not steady)" if len(steps) == 152 else "1")

    @pytest.mark.parametrize(
        ("drift", "phases", "said"),
        [
            (1.05, {"update": 1.08}, ""),
            (0.95, {"update": 0.5}, ""),
            (1.2, {}, "steps became slower while they were measured: fast, batch 32 (drift 1.20), fast, batch 64"),
            (1.2, {"update": 2.37}, "fast, batch 32 (drift 1.20; update 2.37 times), fast, batch 64"),
            (
                1.0,
                {"update": 2.37},
                "These phases grew during the run, though steps as a whole are steady: fast, batch 32",
            ),
        ],
    )
    def test_what_grows_during_a_run_is_told(
        self, tmp_path: Path, drift: float, phases: Mapping[str, float], said: str
    ) -> None:
        def change(plan: Plan, cell: Cell) -> Mapping[str, Any]:
            record = fakes.success(plan, cell)
            if not cell.group.startswith("fast"):
                return record
            return {**record, "metrics": {**record["metrics"], "drift": drift}, "phase_drift": phases}

        analysis = analysed(make_each(tmp_path, fakes.CONF, change))
        text = "\n".join(findings.summary(analysis))
        assert said in text
        assert ("steady" in text) == bool(said)
        found = {table.name: table for table in tables.all_tables(analysis)}
        for name in ("groups", "fixed-and-steady", "phases", "runs"):
            at = found[name].headings.index("drift")
            shown = {row[0].text: row[at].text for row in found[name].rows}["fast, batch 32"]
            assert shown == (f"{drift:g} (not steady)" if drift == 1.2 else f"{drift:g}")
        grown = [row[-1].text for row in found["phases"].rows if row[0].text == "fast, batch 32"]
        assert grown == ["update 2.37 times" if phases.get("update") == 2.37 else ""]


@pytest.mark.parametrize(
    ("drift", "shown"),
    [(0.5, "0.5 (not steady)"), (0.89, "0.89 (not steady)"), (0.9, "0.9"), (1.1, "1.1"), (1.11, "1.11 (not steady)")],
)
def test_a_table_marks_drift_beyond_a_tenth_either_way(drift: float, shown: str) -> None:
    assert tables._drift(drift).text == shown


class TestWaiting:
    def _change(self, plan: Plan, cell: Cell) -> Mapping[str, Any]:
        """By the run's own clock the fast one is faster; who waits for it waits longer."""
        record = fakes.success(plan, cell, NOISE[cell.trial - 1] * (1.0 if cell.group.startswith("fast") else 2.0))
        before_s = 20.0 if cell.group.startswith("fast") else 1.0
        whole_s = before_s + record["metrics"][TOTAL] + 0.5
        rows = [plan, record["steps_ms"], record["history"], record["metrics"][TOTAL], 32]
        return {**record, "metrics": fakes.record.metrics(*rows, fakes.record.Waits(before_s, whole_s))}

    def test_the_answer_counts_from_the_command(self, tmp_path: Path) -> None:
        conf = fakes.CONF.replace("trials = 3", "trials = 5")
        made = make_each(tmp_path, conf, self._change)
        analysis = analysed(made)
        assert (analysis.metric, analysis.is_to_target) == (WAITED_TO_ACCURACY, True)
        assert group_of(analysis, "slow, batch 32").values(WAITED_TO_ACCURACY) == pytest.approx(
            [1.0 + 6.0 * noise for noise in NOISE]
        )
        found = answer(analysis)
        assert found.sentences[0].startswith("Use slow, batch 32")
        assert "It takes 6.99 s from the command to 90.0 % test accuracy" in found.sentences[1]
        assert not any("own clocks" in line for line in found.next_steps)
        # Another target counts from the command as well.
        asked = analyse(load([made.path], 0.8).comparisons[0])
        assert asked.metric == WAITED_TO_ACCURACY
        assert group_of(asked, "slow, batch 32").values(WAITED_TO_ACCURACY) == pytest.approx(
            [1.0 + 4.0 * noise for noise in NOISE]
        )
        (tmp_path / "whole").mkdir()
        whole = analysed(make_each(tmp_path / "whole", conf.replace("target_accuracy = 0.9\n", ""), self._change))
        assert whole.metric == WAITED

    def test_of_older_records_it_says_which_clock_they_have(self, folder: store.ComparisonFolder) -> None:
        analysis = analysed(folder)
        assert (analysis.metric, analysis.is_from_command) == (TO_ACCURACY, False)
        found = answer(analysis)
        assert "to 90.0 % test accuracy, by the runs' own clocks" in found.sentences[1]
        assert any("Compare again, with fresh = true" in line for line in found.next_steps)
        assert LABELS[TO_ACCURACY] in tables.groups(analysis).note


class TestResources:
    def test_what_was_used_is_a_table(self, tmp_path: Path) -> None:
        found = tables.resources(analysed(make(tmp_path, fakes.CONF, {"fast": 1.0, "slow": 3.0}, resources=RESOURCES)))
        assert [cell.text for cell in found.rows[0]] == [
            "fast, batch 32",
            "1",
            "700.00 MB",
            "400.00 MB",
            "200.00 MB",
            "100.00 MB",
            "0.5",
            "lo 5.00 MB",  # both processes of the host have seen the same bytes
            "a/0 25%",
            "a/0 2.00 GB",
        ]
        assert len(found.headings) == 10

    def test_what_a_system_does_not_tell_is_no_number(self, tmp_path: Path) -> None:
        processes = [{**RESOURCES["processes"][0], "resident_bytes_max": -1, "network_sent_bytes": {}}]
        told = {**RESOURCES, "resident_bytes": [-1, -1, -1], "processes": processes, "gpus": []}
        found = tables.resources(analysed(make(tmp_path, fakes.CONF, {"fast": 1.0, "slow": 3.0}, resources=told)))
        shown = dict(zip(found.headings, [cell.text for cell in found.rows[0]], strict=True))
        for heading in ("resident memory, peak", "resident, peak of a process", "sent by interface"):
            assert shown[heading] == "–"
        assert shown["heap, peak of a process"] == "150.00 MB"
        assert "GPU use, mean" not in shown

    def test_without_samples_there_is_none(self, folder: store.ComparisonFolder) -> None:
        assert "resources" not in {table.name for table in tables.all_tables(analysed(folder))}


class TestCounts:
    COUNTED: tuple[dict[str, list[int]], ...] = (
        {"staleness": [30, 60, 0, 10], "dropped": [4], "share_rows": [40, 24]},
        {"staleness": [50, 50], "dropped": [2], "share_rows": [44, 20], "lag": []},
        {"staleness": [40, 0, 0, 0, 0, 0, 0, 0, 0, 60], "dropped": [0], "share_rows": [42, 22], "something": [7]},
    )

    def _change(self, _: Plan, cell: Cell) -> Mapping[str, Any]:
        return {"counts": self.COUNTED[cell.trial - 1]} if cell.group == "fast, batch 32" else {}

    def test_what_an_algorithm_counted_is_a_table(self, tmp_path: Path) -> None:
        made = make_each(tmp_path, fakes.CONF, self._change)
        found = tables.counts(analysed(made))
        assert found.title == "What the algorithms counted"
        assert {row[0].text for row in found.rows} == {"fast, batch 32"}
        shown = {row[1].text: [cell.text for cell in row[2:]] for row in found.rows}
        assert shown == {
            "pushes of a shard, by the updates that their weights lacked": [
                "100",
                "2.27",
                "9",
                "0: 40.0%, 1: 36.7%, 3: 3.3%, 8 and more: 20.0%",
            ],
            "gradients of a shard that came too late, and were dropped": ["2", "–", "–", ""],
            "rows of a step that each worker got in the end": ["64", "32", "42", "42, 22"],
            "something": ["2.33", "–", "–", ""],
        }

    def test_it_stands_on_the_page_and_in_markdown(self, tmp_path: Path) -> None:
        results = load([make_each(tmp_path, fakes.CONF, self._change).path])
        assert 'id="c1-counts">What the algorithms counted<' in html.page(results)
        text = formats.markdown(results)
        assert "## What the algorithms counted" in text
        assert "| fast, batch 32 | rows of a step that each worker got in the end | 64 | 32 | 42 | 42, 22 |" in text

    def test_without_counts_there_is_none(self, folder: store.ComparisonFolder) -> None:
        assert "counts" not in {table.name for table in tables.all_tables(analysed(folder))}
        assert "What the algorithms counted" not in html.page(load([folder.path]))


def test_a_longer_step_is_no_reason_for_being_faster(tmp_path: Path) -> None:
    conf = fakes.CONF.replace("target_accuracy = 0.9\n", "")
    plan = fakes.plan_of(tmp_path, conf)
    made = store.create(tmp_path / "out", plan, cells_of(plan))
    for cell in cells_of(plan):
        record = _record(plan, cell, {"": 1.0}, {})
        if cell.group.startswith("fast"):  # a third of the steps, each twice as long
            steps = [2 * each for each in record["steps_ms"][:20]]
            metrics = fakes.record.metrics(plan, steps, record["history"], record["metrics"][TOTAL] / 2, 32)
            record = {**record, "steps_ms": steps, "metrics": metrics}
        made.add(cell, record)
    said = [line for line in findings.summary(analysed(made)) if " times faster than " in line]
    assert said
    assert all("because it needs 20 steps instead of 60" in line for line in said)
    assert not any("a step takes" in line for line in said)


def test_what_is_to_be_read_in_a_picture_is_not_rounded(tmp_path: Path) -> None:
    conf = fakes.CONF.replace('name = "fast"', 'name = "rate 0.00125 a\\\\d"').replace(
        "batch = [32, 64]", "batch = [32]"
    )
    page = html.page(load([make(tmp_path, conf, {"rate": 1.0, "slow": 2.0}).path]))
    pictures = re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)
    assert any("rate 0.00125 a\\d" in re.sub(r"<[^>]*>", "", picture) for picture in pictures)


def test_runs_that_differ_in_a_key_are_no_trials_of_one_group(tmp_path: Path) -> None:
    for name, rate in (("one", "0.1"), ("two", "0.1"), ("three", "0.2")):
        folder = tmp_path / f"20260102-{name}"
        _write_run(folder, "block-stream")
        configured = {"name": name, "seed": len(name), "optimizer.learning_rate": rate}
        (folder / "run.json").write_text(json.dumps({"configuration": configured, "threads_per_worker": 1}))
    failed = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps({**failed, "status": "failed", "error": "It broke."}))
    analysis = analyse(load([tmp_path]).comparisons[0])
    assert sorted((len(group.records), len(group.failures)) for group in analysis.groups) == [(0, 1), (2, 0)]
    assert any("It broke." in line for line in findings.summary(analysis))
    assert not any("shared one machine" in line for line in findings.recommendation(analysis))


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ({"host": {"cpu": "B", "cores": 64}}, "several machines"),
        ({"commit": "b" * 40}, "commit several"),
        ({"versions": {"spark": "3.5.9"}}, "A, 2 cores"),
    ],
)
def test_runs_of_other_machines_commits_and_sparks_are_no_trials_of_one_group(
    tmp_path: Path, where: dict[str, Any], told: str
) -> None:
    first = {"host": {"cpu": "A", "cores": 2}, "commit": "a" * 40, "versions": {"spark": "4.1.4"}}
    for name, more in (("one", {}), ("two", {}), ("other", where)):
        folder = tmp_path / f"20260102-{name}"
        _write_run(folder, "block-stream")
        run = {"configuration": {"name": "x"}, "threads_per_worker": 1, **first, **more}
        (folder / "run.json").write_text(json.dumps(run))
    analysis = analyse(load([tmp_path]).comparisons[0])
    assert sorted(len(group.records) for group in analysis.groups) == [1, 2]
    assert told in " · ".join(findings.circumstances(analysis.comparison.content))


def test_what_a_run_does_not_say_of_itself_makes_no_group(tmp_path: Path) -> None:
    for name, more in (("one", {"host": {"cpu": "A", "cores": 2}, "commit": "a" * 40}), ("two", {})):
        folder = tmp_path / f"20260102-{name}"
        _write_run(folder, "block-stream")
        (folder / "run.json").write_text(json.dumps({"configuration": {"name": "x"}, "threads_per_worker": 1, **more}))
    assert len(analyse(load([tmp_path]).comparisons[0]).groups[0].records) == 2


def test_a_peer_as_it_is_and_tuned_are_two_groups(tmp_path: Path) -> None:
    for name, tuned in (("one", False), ("two", True)):
        folder = tmp_path / f"20260102-{name}"
        _write_run(folder, "block-stream")
        run = {"configuration": {"name": "x"}, "kind": "peer", "peer": "pytorch", "tuned": tuned}
        (folder / "run.json").write_text(json.dumps({**run, "commit": name}))
    analysis = analyse(load([tmp_path]).comparisons[0])
    assert sorted(group.factors["variant"] for group in analysis.groups) == ["pytorch", "pytorch, tuned"]


def test_a_launch_stands_beside_runs_of_several_batches(tmp_path: Path) -> None:
    for name, batch in (("launch", 32), ("one", 32), ("two", 64)):
        folder = tmp_path / f"20260102-{name}"
        _write_run(folder, "block-stream")
        summary = json.loads((folder / "summary.json").read_text())
        (folder / "summary.json").write_text(json.dumps({**summary, "batch": batch}))
        if name == "launch":
            run = {"configuration": {"name": "x"}, "kind": "launch", "function": "train.py"}
            (folder / "run.json").write_text(json.dumps(run))
    results = load([tmp_path])
    analysis = analyse(results.comparisons[0])
    assert len(analysis.groups) == 3
    assert analysis.two_ways("seconds_total") == {}
    assert "train.py by launch" in html.page(results)


@pytest.mark.parametrize("written", [True, False])
def test_a_cancelled_run_is_cancelled_in_the_report(written: bool, tmp_path: Path) -> None:
    """Args: written: whether the JVM could still write the summary, with variant and workers."""
    folder = tmp_path / "20260102-one"
    _write_run(folder, "block-stream")
    axes = {"algorithm": "sync-sgd", "transport": "block-stream", "topology": "sliced", "codec": "fp32"}
    configured = {"name": "x", "workers": "2", "batch": "32", **axes}
    (folder / "run.json").write_text(json.dumps({"configuration": configured, "threads_per_worker": 1}))
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").unlink()
    if written:
        ended = {**summary, "status": "cancelled", "error": "the user cancelled the run"}
        (folder / "summary.json").write_text(json.dumps(ended))
    else:
        RunResults(folder).close("cancelled", "the user cancelled the run")
    analysis = analyse(load([folder]).comparisons[0])
    (group,) = analysis.groups
    assert group.name == "block-stream sliced fp32, workers 2, batch 32, engine.threads 1"
    assert (group.workers, len(group.cancelled), len(group.failed)) == (2, 1, 0)
    assert tables.trials_cell(group).text == "0 (1 cancelled)"
    assert [row[2].text for row in tables.runs(analysis).rows] == ["cancelled"]
    said = " ".join([str(answer(analysis)), *findings.summary(analysis), html.page(load([folder]))])
    assert f"{group.name}: the only trial was cancelled, and does not count." in said
    assert "failed" not in " ".join(findings.summary(analysis)) + str(answer(analysis))
    # Beside one that succeeded it is another trial of the same group.
    _write_run(tmp_path / "20260103-two", "block-stream")
    (tmp_path / "20260103-two" / "run.json").write_text((folder / "run.json").read_text())
    both = analyse(load([tmp_path]).comparisons[0])
    assert tables.trials_cell(both.groups[0]).text == "1 (1 cancelled, few)"
    assert any("1 of 2 trials was cancelled" in line for line in findings.summary(both))


@pytest.mark.parametrize("name", ["page.pdf", "page.PDF", "page.htlm", "report.docx"])
def test_an_ending_that_no_report_has_is_refused(folder: store.ComparisonFolder, tmp_path: Path, name: str) -> None:
    done = CliRunner().invoke(command, [str(folder.path), "--output", str(tmp_path / name)])
    assert isinstance(done.exception, ConfigurationError)
    assert str(done.exception) == (
        f"No report is written as {Path(name).suffix} ('{tmp_path / name}'). Valid endings: .html or .htm (one page), "
        ".md, .csv, .json. A PDF: open the page in a browser and print it. Or name the form with --format."
    )
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize(("name", "begins"), [("page.MD", "# "), ("page.Csv", "comparison,"), ("page.JSON", "{")])
def test_the_case_of_an_ending_does_not_matter(
    folder: store.ComparisonFolder, tmp_path: Path, name: str, begins: str
) -> None:
    done = CliRunner().invoke(command, [str(folder.path), "--output", str(tmp_path / name)])
    assert done.exit_code == 0, done.output
    assert (tmp_path / name).read_text(encoding="utf-8").startswith(begins)


@pytest.mark.parametrize("name", ["page", "page.html", "page.htm"])
def test_a_report_without_a_known_ending_is_a_page(folder: store.ComparisonFolder, tmp_path: Path, name: str) -> None:
    done = CliRunner().invoke(command, [str(folder.path), "--output", str(tmp_path / name)])
    assert done.exit_code == 0, done.output
    assert (tmp_path / name).read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_one_file_for_several_pictures_is_refused(folder: store.ComparisonFolder, tmp_path: Path) -> None:
    done = CliRunner().invoke(command, [str(folder.path), "--output", str(tmp_path / "page.png")])
    assert isinstance(done.exception, ConfigurationError)
    assert "--format png" in str(done.exception)


def test_what_no_process_of_a_peer_told_is_unknown_and_not_0() -> None:
    silent = {"heap_bytes_max": -1, "direct_bytes_max": -1, "gc_ms": -1}  # as the sampler of peers writes them
    peer = {**RESOURCES, "processes": [{**each, **silent} for each in RESOURCES["processes"]]}
    ours = {**RESOURCES, "processes": [RESOURCES["processes"][0], {**RESOURCES["processes"][1], **silent}]}
    shown = {"MLlib": peer, "ours": ours, "idle": {**ours, "processes": [{**ours["processes"][0], "gc_ms": 0}]}}
    trials = [comparisons.trial(name, 1, 3.0, 2, resources=used) for name, used in shown.items()]
    table = tables.resources(comparisons.comparison(trials))
    told = {row[0].text: dict(zip(table.headings, (cell.text for cell in row), strict=True)) for row in table.rows}
    assert {name: row["GC seconds"] for name, row in told.items()} == {"MLlib": "–", "ours": "0.25", "idle": "0"}
    assert told["MLlib"]["heap, peak of a process"] == told["MLlib"]["direct buffers, peak of a process"] == "–"
    assert told["MLlib"]["resident memory, peak"] != "–"
    assert "Of a peer all processes are sampled" in table.note
    assert "not sampled" not in table.note


def test_names_of_factors_are_parts_of_file_names_and_ids() -> None:
    strange = 'x"><img src=x onerror=alert(1)> /../y'
    trials = [
        comparisons.trial(f"{variant} {level}", number, 10.0 + number, 1, factors={"variant": variant, strange: level})
        for variant in ("a", "b")
        for level in ("1", "2")
        for number in range(1, 4)
    ]
    analysis = comparisons.comparison(trials)
    assert any("two-way" in table.name for table in tables.all_tables(analysis))
    assert all(re.fullmatch(r"[\w.-]+", table.name) for table in tables.all_tables(analysis))
    assert all(re.fullmatch(r"[\w.-]+", plot.name) for plot in plots.all_plots(analysis))
