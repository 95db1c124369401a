"""From records to the page and the other forms. The records are made up; tests/compare is about how they are made."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fakes
import pytest
from click.testing import CliRunner

from sparkdl_bench.commands.report import command
from sparkdl_bench.compare import store
from sparkdl_bench.compare.cells import Cell, cells_of
from sparkdl_bench.compare.plan import load_plan
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.report import formats, html, plots, tables, words
from sparkdl_bench.report.analysis import RATE, TO_ACCURACY, TOTAL, Analysis, analyse
from sparkdl_bench.report.load import Results, load

# Trials differ a little, always in the same way.
NOISE = (1.0, 1.02, 0.97, 1.01, 0.99)


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


@pytest.fixture
def folder(tmp_path: Path) -> store.ComparisonFolder:
    return make(tmp_path, fakes.CONF.replace("trials = 3", "trials = 5"), {"fast": 1.0, "slow": 3.0})


def analysed(folder: store.ComparisonFolder) -> Analysis:
    return analyse(load([folder.path]).comparisons[0])


class TestAnalysis:
    def test_groups_medians_and_contrasts(self, folder: store.ComparisonFolder) -> None:
        analysis = analysed(folder)
        assert [group.name for group in analysis.groups] == [
            "fast, batch 32",
            "fast, batch 64",
            "slow, batch 32",
            "slow, batch 64",
        ]
        assert analysis.metric == TO_ACCURACY
        best = analysis.summaries(TO_ACCURACY)[0]
        assert (best.count, best.median) == (5, pytest.approx(3.0))
        assert best.olympic == pytest.approx(3.0)
        assert best.interval is not None
        contrast = analysis.contrast(best.group)
        assert contrast is not None
        assert contrast.baseline.name == f"slow, batch {best.group.batch}"  # the other factor held still
        assert contrast.effect.ratio == pytest.approx(3.0)
        assert contrast.effect.differs

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
        assert any("reached 99.0% in 0 of 3 trials" in line for line in words.summary(analysis))

    def test_cost_is_the_first_number_of_cores_that_beats_one_thread(self, tmp_path: Path) -> None:
        conf = fakes.CONF.replace("batch = [32, 64]", "workers = [1, 2, 4]").replace('"slow" }', '"slow" }')
        times = {"fast, workers 1": 1.0, "fast, workers 2": 1.2, "fast, workers 4": 0.5, "slow": 3.0}
        analysis = analysed(make(tmp_path, conf, times))
        costs = {cost.variant: cost for cost in analysis.costs}
        assert costs["fast"].cores == 4
        assert costs["slow"].cores is None
        assert costs["fast"].single.name == "fast, workers 1"
        assert [group.cores for group in analysis.scaling["fast"]] == [1, 2, 4]


class TestWords:
    def test_the_reason_comes_from_the_phases(self, folder: store.ComparisonFolder) -> None:
        said = "\n".join(words.summary(analysed(folder)))
        assert "fast, batch 32 is 3 times faster than slow, batch 32 (95 % CI 2.9" in said
        assert re.search(
            r"because a step takes 2\.1 ms instead of 6\.\d+ ms: 0\.\d+ ms in Spark's scheduler instead of 1\.9", said
        )
        assert "of the difference" in said

    def test_equal_variants_cannot_be_told_apart(self, tmp_path: Path) -> None:
        analysis = analysed(make(tmp_path, fakes.CONF, {"fast": 1.0, "slow": 1.0}))
        said = "\n".join(words.summary(analysis))
        assert "fast, batch 32 cannot be told from slow, batch 32" in said
        assert "faster than" not in said

    def test_one_trial_is_no_statement(self, tmp_path: Path) -> None:
        conf = fakes.CONF.replace("trials = 3", "trials = 1")
        analysis = analysed(make(tmp_path, conf, {"fast": 1.0, "slow": 2.0}))
        said = "\n".join(words.summary(analysis))
        assert "fast, batch 32 took 3 s and slow, batch 32 6 s: with 1 trial and 1 trial nothing can be said" in said
        assert "times faster" not in said
        assert any("one trial only" in line for line in words.recommendation(analysis))

    def test_a_slower_one_says_so(self, tmp_path: Path) -> None:
        analysis = analysed(make(tmp_path, fakes.CONF, {"fast": 2.0, "slow": 1.0}))
        said = "\n".join(words.summary(analysis))
        assert "fast, batch 32 is 2 times slower than slow, batch 32" in said

    def test_failures_and_a_busy_machine_are_named(self, tmp_path: Path) -> None:
        made = make(tmp_path, fakes.CONF, {"fast": 1.0, "slow": 2.0}, load={"busy": 0.5})
        plan = fakes.plan_of(tmp_path)
        broken = next(cell for cell in cells_of(plan) if cell.group == "slow, batch 64" and cell.trial == 2)
        made.add(broken, fakes.failure(plan, broken))
        said = "\n".join(words.summary(analysed(made)))
        assert "slow, batch 64: 1 of 3 trials failed. It did not work." in said
        assert "The machine was busy before 11 of 11 trials" in said

    @pytest.mark.parametrize(
        ("times", "first"),
        [
            # Two workers much faster than one: use them.
            ({"workers 1": 2.0, "workers 2": 1.0}, "Use fast, workers 2 (2 workers × 1 thread, global batch 32)."),
            # Not to be told apart: the one machine takes fewer cores.
            ({"workers 1": 1.0, "workers 2": 1.0}, "Use one machine: fast, workers 1 (1 process × 1 thread"),
            ({"workers 1": 1.0, "workers 2": 1.5}, "Use one machine: fast, workers 1"),
        ],
    )
    def test_the_recommendation_follows_the_measurement(
        self, tmp_path: Path, times: dict[str, float], first: str
    ) -> None:
        conf = fakes.CONF.replace("batch = [32, 64]", "workers = [1, 2]").replace('baseline = { variant = "slow" }', "")
        conf = "price_per_core_hour = 0.36\n" + conf.split('[[variant]]\nname = "slow"')[0]
        analysis = analysed(make(tmp_path, conf, times))
        lines = words.recommendation(analysis)
        assert lines[0].startswith(first)
        if times["workers 2"] == 1.0 and times["workers 1"] == 2.0:
            assert "3 s on 2 cores, 6 core-seconds, 0.0006 EUR to 90.0% test accuracy" in lines[1]
            assert any(
                "One machine alone (fast, workers 1) needs 6 s on 1 core, 6 core-seconds" in line for line in lines
            )

    def test_numbers_are_short(self) -> None:
        assert [words.number(value) for value in (0, 0.012345, 1.2345, 123.45, 12345.6)] == [
            "0",
            "0.0123",
            "1.23",
            "123",
            "12,346",
        ]


def test_the_rank_that_waits_least_is_waited_for(tmp_path: Path) -> None:
    ranks = [
        {"rank": 0, "host": "a", "executor": "0", "phases_ms": {"data": 0.1, "compute": 2.0, "wait": 1.5}},
        {"rank": 1, "host": "b", "executor": "1", "phases_ms": {"data": 0.1, "compute": 3.2, "wait": 0.3}},
    ]
    made = make(tmp_path, fakes.CONF, {"fast": 1.0, "slow": 2.0}, ranks=ranks)
    found = tables.stragglers(analysed(made))
    first, second = [[cell.text for cell in row] for row in found.rows[:2]]
    assert first == ["fast, batch 32", "0", "a / 0", "0.1", "2", "1.5", "1.2", ""]
    assert second == ["fast, batch 32", "1", "b / 1", "0.1", "3.2", "0.3", "0", "yes"]


class TestForms:
    def test_the_page_holds_everything_and_loads_nothing(self, folder: store.ComparisonFolder) -> None:
        page = html.page(load([folder.path]))
        addresses = set(re.findall(r"https?://[^\"'\s<>]+", page))
        assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
        assert not re.search(r"<script[^>]+src=|<img|<iframe|@import|url\((?!#)", page)
        for name in ("time-to-accuracy", "trials", "phases", "layers", "batch"):
            assert f'<figure id="c1-plot-{name}">' in page
        ids = re.findall(r'\bid="([^"]+)"', page)
        assert len(ids) == len(set(ids))
        used = set(re.findall(r'(?:xlink:href="|url\()#([^")]+)', page))
        assert used <= set(ids)
        for colour in (plots.INK, *plots.SERIES):  # the pictures take the page's colours
            assert colour not in page.split("</style>")[1]
        assert page.rindex("Recommendation</h2>") > page.rindex("<figure")

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
        assert "## Recommendation" in text
        assert "| fast, batch 32 |" in text
        content = json.loads(formats.as_json(results))["comparisons"][0]
        assert content["chosen"] in ("fast, batch 32", "fast, batch 64")
        assert content["summary"][0] in text
        rows = list(csv.DictReader(io.StringIO(formats.comma_separated(results))))
        assert len(rows) == 20
        assert {row["batch"] for row in rows} == {"32", "64"}
        assert float(rows[0]["seconds_to_accuracy"]) > 0
        assert float(rows[0]["compute_ms"]) == 1.0

    def test_pictures_are_written(self, folder: store.ComparisonFolder, tmp_path: Path) -> None:
        written = formats.pictures(load([folder.path]), tmp_path / "png")
        assert {path.name for path in written} == {
            "time-to-accuracy.png",
            "trials.png",
            "phases.png",
            "layers.png",
            "batch.png",
        }
        assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)

    def test_a_folder_to_keep_holds_the_report_its_pictures_and_the_machine(
        self, folder: store.ComparisonFolder, tmp_path: Path
    ) -> None:
        kept = tmp_path / "kept"
        written = formats.folder(load([folder.path]), kept)
        assert sorted(path.name for path in written) == sorted(path.name for path in kept.iterdir())
        text = (kept / "report.md").read_text(encoding="utf-8")
        linked = re.findall(r"!\[([^]]+)\]\(([^)]+)\)", text)
        assert {name for _, name in linked} == {path.name for path in written if path.suffix == ".png"}
        assert all(len(description) > 10 for description, _ in linked)
        described = json.loads((kept / "machine.json").read_text(encoding="utf-8"))["comparisons"][0]
        assert described["machine"] == folder.content["machine"]
        assert described["plan"]["trials"] == 5
        assert described["commit"] in text
        assert f"{described['machine']['cores']} cores" in text

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
        file = tmp_path / "net.jsonl"
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
            }
            for transport in ("block-stream", "gloo")
            for elements in (1, 10_000, 814_090)
        ]
        file.write_text("\n".join(json.dumps(row) for row in rows))
        results = load([file])
        plot = plots.bus_bandwidth(results.net)
        assert plot is not None
        assert len(plot.figure.axes[0].lines) == 3  # two ways and the link
        page = html.page(results)
        assert '<figure id="net-plot-bandwidth">' in page

    def test_other_things_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "x.jsonl").write_text('{"a": 1}')
        with pytest.raises(ConfigurationError, match="no row of"):
            load([tmp_path / "x.jsonl"])
        (tmp_path / "x.jsonl").write_text("nonsense")
        with pytest.raises(ConfigurationError, match="not JSON"):
            load([tmp_path / "x.jsonl"])
        with pytest.raises(ConfigurationError, match="not there"):
            load([tmp_path / "nothing"])
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


def _write_run(folder: Path, transport: str) -> None:
    folder.mkdir()
    events = [
        {"time_ms": 1000, "key": "run_start", "value": None, "metadata": {}},
        {"time_ms": 3000, "key": "eval_accuracy", "value": 0.9, "metadata": {"epoch_num": 1}},
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
        "history": [{"epoch": 1, "seconds": 1.5, "train_loss": 1.0, "test_loss": 1.0, "test_accuracy": 0.9}],
    }
    (folder / "summary.json").write_text(json.dumps(summary))


def test_the_highest_rate_comes_first(folder: store.ComparisonFolder) -> None:
    rates = [summary.median for summary in analysed(folder).summaries(RATE)]
    assert rates == sorted(rates, reverse=True)


def test_every_table_row_is_as_long_as_its_head(folder: store.ComparisonFolder) -> None:
    for table in tables.all_tables(analysed(folder)):
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.headings)}


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
        lines = words.recommendation(analysed(made))
        assert lines[0].startswith("Use slow")
        assert "Faster ones did not reach 90.0% in all their trials: fast, batch 32." in lines

    def test_where_nobody_learns_it_says_so(self, tmp_path: Path) -> None:
        conf = fakes.CONF.replace("target_accuracy = 0.9", "target_accuracy = 0.99")
        lines = words.recommendation(analysed(make(tmp_path, conf, {"fast": 1.0, "slow": 2.0})))
        assert any("No group reached 99.0% test accuracy in all its trials" in line for line in lines)

    def test_failed_trials_of_the_chosen_one_are_told(self, tmp_path: Path) -> None:
        made = make(tmp_path, fakes.CONF.replace("trials = 3", "trials = 5"), {"fast": 1.0, "slow": 2.0})
        plan = fakes.plan_of(tmp_path, fakes.CONF.replace("trials = 3", "trials = 5"))
        for cell in cells_of(plan):
            if cell.group.startswith("fast") and cell.trial > 3:
                made.add(cell, fakes.failure(plan, cell))
        assert any("2 of its 5 trials failed" in line for line in words.recommendation(analysed(made)))

    def test_ties_on_as_many_cores_are_no_saving(self, tmp_path: Path) -> None:
        lines = words.recommendation(analysed(make(tmp_path, fakes.CONF, {"fast": 1.0, "slow": 1.0})))
        (said,) = [line for line in lines if "cannot be told from the fastest" in line]
        assert "All take as many cores" in said
        assert "fewest" not in said


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
    said = [line for line in words.summary(analysed(made)) if " times faster than " in line]
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
    assert any("It broke." in line for line in words.summary(analysis))
    assert not any("shared one machine" in line for line in words.recommendation(analysis))


@pytest.mark.parametrize("name", ["page", "page.html", "page.htm"])
def test_a_report_without_a_known_ending_is_a_page(folder: store.ComparisonFolder, tmp_path: Path, name: str) -> None:
    done = CliRunner().invoke(command, [str(folder.path), "--output", str(tmp_path / name)])
    assert done.exit_code == 0, done.output
    assert (tmp_path / name).read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_one_file_for_several_pictures_is_refused(folder: store.ComparisonFolder, tmp_path: Path) -> None:
    done = CliRunner().invoke(command, [str(folder.path), "--output", str(tmp_path / "page.png")])
    assert isinstance(done.exception, ConfigurationError)
    assert "--format png" in str(done.exception)
