"""The experiments: their commands are ones that `compare` takes, and their pages say what the records say."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fakes
import psutil
import pytest
from click.testing import CliRunner

from papers import beside, charts, keeping, measuring, page
from papers.beside import Beside, Estimate
from papers.busy import OtherJobEndedError, busy
from papers.experiment import FULL, SIZES, SMALLEST, Experiment, Part, find
from papers.experiments._groups import training_seconds
from papers.measuring import Measuring
from papers.published import EXPERIMENTS, Value, load_all
from sparkdl_bench import lab, peers
from sparkdl_bench.commands import compare
from sparkdl_bench.comparison import check, store
from sparkdl_bench.comparison.cells import Cell, cells_of, check_without_jvm, in_order, only
from sparkdl_bench.comparison.plan import Plan, load_plan
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.report import vega
from sparkdl_bench.report.load import Comparison
from sparkdl_bench.statistics import Interval
from suites.papers import command

pytestmark = pytest.mark.on_one_line

ROOT = Path(__file__).resolve().parents[2]
FOUND = find()
PAPERS = load_all(ROOT / "docs" / "papers")
PARTS = [(each, part) for each in FOUND.values() for part in each.parts]
IDS = [f"{each.letter}-{part.name}" for each, part in PARTS]
# Sources of data whose rows no run decodes first.
OPENED_AS_THEY_ARE = ("digits", "idx", "synthetic")
# Of a trial's times.
NOISE = (1.0, 1.02, 0.98, 1.01, 0.99, 1.03, 0.97, 1.0, 1.01, 0.99)


def planned(part: Part, size: str) -> tuple[Plan, list[Cell]]:
    """What `sparkdl-bench compare` makes of a part's words."""
    words = part.command(size, "/sets", "/decoded")
    given = compare.command.make_context("compare", words[1:]).params
    conf, base = ROOT / given["conf"], given["base"] and ROOT / given["base"]
    plan = load_plan(conf, given["assignments"], given["trials"], base)
    return plan, only(in_order(plan, cells_of(plan)), given["wanted"])


def record(plan: Plan, cell: Cell) -> dict[str, Any]:
    """A run whose time depends on its factors, so that every group has another."""
    slower = 1 + sum(map(ord, cell.group)) % 7 / 5
    made = fakes.success(plan, cell, slower * NOISE[(cell.trial - 1) % len(NOISE)])
    waits = {"seconds_waited": 5 * slower, "seconds_waited_to_accuracy": 4 * slower, "seconds_before_clock": 1.0}
    threads = int(cell.run.settings.get("engine.threads", "1"))
    return {
        **made,
        "threads": threads,
        "metrics": {**made["metrics"], **waits},
        "facts": {**made["facts"], "train_rows": 60000},
    }


def compared(part: Part, size: str, folder: Path) -> Comparison:
    plan, cells = planned(part, size)
    made = store.create(folder / part.name, plan, cells)
    for cell in cells:
        made.add(cell, record(plan, cell))
    return Comparison(made.content, made.records())


def all_of(experiment: Experiment, size: str, folder: Path) -> dict[str, Comparison]:
    return {part.name: compared(part, size, folder) for part in experiment.parts}


def jobs_of(experiment: Experiment) -> dict[str, list[dict[str, Any]]]:
    return {each.name: [{"seconds": 12.5, "said": ["train: 50000 rows"], "started": "now"}] for each in experiment.jobs}


def test_every_paper_has_its_experiment() -> None:
    assert list(FOUND) == sorted(EXPERIMENTS)
    assert len({each.folder for each in FOUND.values()}) == len(FOUND)
    names = [part.name for each in FOUND.values() for part in (*each.parts, *each.jobs)]
    assert len(set(names)) == len(names) or all(
        len({part.name for part in (*each.parts, *each.jobs)}) == len(each.parts) + len(each.jobs)
        for each in FOUND.values()
    )


def test_labs_have_names_that_labs_may_have() -> None:
    plans = [lab.Plan(part.lab_name) for _, part in PARTS if part.lab]
    assert len({plan.name for plan in plans}) == len(plans) == 3


def test_labs_have_room_for_an_executor_and_what_is_beside_it() -> None:
    for _, part in PARTS:
        if part.lab:
            words = list(part.lab)
            offered = words[words.index("--memory") + 1] if "--memory" in words else lab.Plan("x").memory
            sessions = [cell.run.spark for cell in planned(part, FULL)[1]]
            needed = max(_on_yarn_mb(each) if "yarn" in words else _heap_mb(each) for each in sessions)
            assert int(offered.removesuffix("g")) * 1024 >= needed, part.name


def _on_yarn_mb(spark: Mapping[str, str]) -> int:
    """Of an executor's container beside the application's own master of 896 MB, by Spark's defaults."""
    heap = _heap_mb(spark)
    return 896 + heap + int(spark.get("spark.executor.memoryOverhead", f"{max(384, heap // 10)}m").removesuffix("m"))


def _heap_mb(spark: Mapping[str, str]) -> int:
    return int(spark.get("spark.executor.memory", "1g").removesuffix("g")) * 1024


def test_hosts_of_a_lab_find_the_sets_and_a_folder_for_decoded_rows() -> None:
    """Their default file system may be HDFS, which has no sets; and a cluster is not known to have one disk."""
    for part in (part for _, part in PARTS if part.lab):
        for cell in planned(part, FULL)[1]:
            settings = cell.run.settings
            assert settings["data.path"].startswith("file:/sets/")
            assert ("data.cache_dir" in settings) == (settings["data.source"] not in OPENED_AS_THEY_ARE)
            assert settings.get("data.cache_dir", "file:/decoded") == "file:/decoded"


def test_the_smallest_size_of_e_is_a_few_runs_of_short_trainings() -> None:
    """A run of ResNet-18 tests 10,000 rows for minutes, so there are two of these, and four of the CNN."""
    for part, count in zip(FOUND["e"].parts, (4, 2), strict=True):
        cells = planned(part, SMALLEST)[1]
        assert len(cells) == count
        assert max(cell.workers for cell in cells) == 2
        assert len(planned(part, FULL)[1]) > 50


def test_every_file_is_of_a_part() -> None:
    files = {path.stem for path in (ROOT / "conf" / "runs" / "papers").glob("*.toml")}
    assert files == {part.file for _, part in PARTS}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("experiment", "part"), PARTS, ids=IDS)
def test_a_part_s_words_make_cells(experiment: Experiment, part: Part, size: str) -> None:
    plan, cells = planned(part, size)
    assert cells
    assert len({cell.id for cell in cells}) == len(cells)
    check_without_jvm([cell for cell in cells if "data.path" not in cell.run.settings])
    made = Comparison({"plan": store.describe(plan)}, [record(plan, cell) for cell in cells if cell.trial == 1])
    analysis = measuring.analyse(made)
    if plan.baseline and size == FULL:
        assert all(analysis.is_baseline(each) or analysis.baseline_of(each) is not None for each in analysis.groups)
    if size == FULL and experiment.letter == "d" and part.name == "workers":
        assert plan.trials == 10


def test_every_cell_of_every_part_is_valid() -> None:
    """As `compare --dry-run` finds it: names, values, and what cannot go together; whatever is installed here."""
    cells = [
        replace(cell, factors={**cell.factors, "part": f"{experiment.letter}-{part.name}-{size}"})
        for experiment, part in PARTS
        for size in SIZES
        for cell in planned(part, size)[1]
    ]
    check.check_cells(cells, {})


@pytest.mark.parametrize("letter", EXPERIMENTS)
def test_a_page_is_made_again_of_what_is_kept(tmp_path: Path, letter: str) -> None:
    experiment, paper = FOUND[letter], PAPERS[letter]
    comparisons = all_of(experiment, FULL, tmp_path / "out")
    measured = measuring.of(comparisons, jobs_of(experiment), {}, FULL)
    keeping.keep(tmp_path / "kept", measured, comparisons)
    first = page.make(experiment, paper, measured)
    again = page.make(experiment, paper, keeping.read(tmp_path / "kept")[0])
    assert first.text == again.text
    assert [plot.spec for plot in first.plots] == [plot.spec for plot in again.plots]
    assert "None" not in first.text
    assert "nan" not in first.text
    assert len({plot.name for plot in first.plots}) == len(first.plots) >= 1
    for plot in first.plots:
        assert f"({plot.name}.png)" in first.text
    for part in experiment.parts:
        assert f"### {part.what}" in first.text
    assert paper.paper.title in first.text
    for line in experiment.scaled:
        assert line in first.text
    assert "No number here is a measurement" not in first.text


@pytest.mark.parametrize("letter", EXPERIMENTS)
def test_an_experiment_of_which_nothing_is_there_says_why(letter: str) -> None:
    experiment = FOUND[letter]
    absent = {each.name: "there was no time" for each in (*experiment.parts, *experiment.jobs)}
    made = page.make(experiment, PAPERS[letter], measuring.of({}, {}, absent, SMALLEST))
    assert made.text.count("because there was no time") == len(absent)
    assert "No number here is a measurement" in made.text
    assert "Nothing yet." in made.text


@pytest.mark.parametrize("letter", EXPERIMENTS)
def test_the_pictures_can_be_drawn(tmp_path: Path, letter: str) -> None:
    experiment = FOUND[letter]
    measured = measuring.of(all_of(experiment, SMALLEST, tmp_path), jobs_of(experiment), {}, SMALLEST)
    made = page.make(experiment, PAPERS[letter], measured)
    keeping.keep(tmp_path / "kept", measured, {})
    for plot in made.plots:
        assert vega.png(plot).startswith(b"\x89PNG")


class TestAgreement:
    """A ratio of the paper beside one of ours."""

    def line(self, theirs: float, ours: Estimate | None, bound: str = "", neutral: float | None = 1.0) -> Beside:
        return Beside("x", Value("x", theirs, "x", bound), ours, neutral=neutral)

    @pytest.mark.parametrize(
        ("theirs", "bound", "ours", "said"),
        [
            (3.5, "at least", Estimate(4.0, Interval(3.9, 4.1), 5), "agrees"),
            (3.5, "at least", Estimate(14.0, Interval(13, 15), 5), "agrees with the bound, 4 times more here"),
            (3.5, "", Estimate(14.0, Interval(13, 15), 5), "the same direction, 4 times more here"),
            (2.7, "at most", Estimate(1.08, Interval(1.05, 1.1), 5), "agrees with the bound, 2.5 times less here"),
            (3.5, "", Estimate(1.1, Interval(0.9, 1.3), 5), "cannot be told here"),
            (3.5, "", Estimate(0.5, Interval(0.4, 0.6), 5), "contradicts"),
            (3.5, "", Estimate(0.5, None, 1), "contradicts"),
            (3.5, "", None, "not measured here"),
        ],
    )
    def test_of_a_ratio(self, theirs: float, bound: str, ours: Estimate | None, said: str) -> None:
        assert self.line(theirs, ours, bound).verdict.startswith(said)

    def test_of_a_size_without_direction(self) -> None:
        assert self.line(100, Estimate(12.0, None, 2), neutral=None).verdict == "8.33 times less here"
        assert self.line(100, Estimate(150.0, None, 2), neutral=None).verdict == "agrees"

    @pytest.mark.parametrize(
        ("ours", "said"),
        [(98.6, "agrees"), (100.0, "agrees"), (97.0, "2.6 points less here"), (55.0, "44.6 points less here")],
    )
    def test_of_accuracies_in_points(self, ours: float, said: str) -> None:
        line = replace(self.line(99.6, Estimate(ours, None, 3), neutral=None), points=beside.ACCURACY_POINTS)
        assert line.verdict == said
        assert line.agrees == (said == "agrees")
        assert beside.summary([line]).endswith("Within a factor of 2 they agree, accuracies within 1 point.")

    @pytest.mark.parametrize(
        ("theirs", "ours", "agrees"), [(1e-16, 0.03, True), (1e-16, 0.3, False), (0.3, 0.3, True), (0.3, 1e-4, False)]
    )
    def test_of_p_values(self, theirs: float, ours: float, agrees: bool) -> None:
        line = replace(self.line(theirs, Estimate(ours, None, 2), neutral=None), is_p=True)
        assert line.agrees is agrees

    def test_the_summary_counts(self) -> None:
        lines = [
            self.line(3.5, Estimate(4.0, None, 5)),
            self.line(3.5, Estimate(20.0, None, 5)),
            self.line(3.5, Estimate(0.5, None, 5)),
            self.line(3.5, None),
            Beside("x", None, Estimate(1.0, None, 5)),
        ]
        said = beside.summary(lines)
        assert said.startswith(
            "Of 3 of the paper's numbers that were measured here: 1 agrees; 1 is of another size; 1 is"
        )
        assert beside.summary([self.line(3.5, None)]) == "Not one of the paper's numbers has been measured here yet."
        assert beside.summary(lines[-1:]).startswith("The paper states no number")


def test_every_number_of_b_s_paper_is_on_its_page(tmp_path: Path) -> None:
    experiment, paper = FOUND["b"], PAPERS["b"]
    lines = experiment.story(paper, measuring.of(all_of(experiment, FULL, tmp_path), {}, {}, FULL)).beside
    wanted = [id(value) for each in paper.published for value in each.values]
    assert sorted(id(line.theirs) for line in lines if line.theirs) == sorted(wanted)
    [memory] = (line for line in lines if line.label == "GPU memory of a training: CaffeOnSpark")
    assert (memory.verdict, memory.unit) == ("not measured here", "GB")
    # A percentage says of what.
    ours = {line.unit for line in lines if line.ours and "%" in line.unit}
    assert ours == {"% less time", "% more images/s", "% of the time"}


@pytest.mark.parametrize(
    ("size", "places"),
    [
        (FULL, "2 workers of 1 thread over 1 worker of 2 threads"),
        (SMALLEST, "1 worker of 1 thread over 1 worker of 1 thread"),
    ],
)
def test_a_ratio_of_a_says_which_groups_it_is_of(tmp_path: Path, size: str, places: str) -> None:
    experiment = FOUND["a"]
    lines = experiment.story(PAPERS["a"], measuring.of(all_of(experiment, size, tmp_path), {}, {}, size)).beside
    labels = [line.label for line in lines if line.ours]
    assert f"MNIST: MLlib's seconds an epoch over PyTorch's ({places})" in labels
    both = " over ".join(2 * places.split(" over ")[:1])
    beside_another = "MNIST: seconds an epoch of MLlib, L-BFGS while a second Spark job runs, over those alone"
    assert f"{beside_another} ({both})" in labels


def test_c_says_which_systems_are_peers() -> None:
    told = " ".join(FOUND["c"].scaled)
    assert "dl4j-averaging" in peers.discover()
    assert "CaffeOnSpark are not among the peers. DL4J is" in told
    assert "no other number of workers is measured" in told
    assert {cell.workers for cell in planned(FOUND["c"].parts[0], FULL)[1]} == {2}


def test_more_workers_are_compared_by_the_seconds_of_training(tmp_path: Path) -> None:
    plan = fakes.plan_of(tmp_path)
    made = record(plan, cells_of(plan)[0])
    total = made["metrics"]["seconds_total"]
    peer = {**made, "facts": {**made["facts"], "seconds_prepare": 1.5, "seconds_evaluation": 0.25}}
    [group] = measuring.analyse(Comparison({"plan": store.describe(plan)}, [made])).groups
    assert training_seconds(group) == [pytest.approx(total - made["layers_s"]["prepare"])]
    [group] = measuring.analyse(Comparison({"plan": store.describe(plan)}, [peer])).groups
    assert training_seconds(group) == [pytest.approx(total - 1.75)]


def test_a_page_says_whose_times_hold_their_warm_up(tmp_path: Path) -> None:
    plan = fakes.plan_of(tmp_path)
    cold = {**record(plan, cells_of(plan)[0]), "warmup_left_out": 0, "warmup_note": "all is cold"}
    text = page._groups(measuring.analyse(Comparison({"plan": store.describe(plan)}, [cold])))
    assert "| of them to warm up |" in text
    assert "| 60 | 0 |" in text
    assert text.endswith(f"\n- {cold['group']}: all is cold.")


def test_ratios_are_of_geometric_means() -> None:
    found = beside.ratio([8.0, 2.0], [1.0, 4.0])
    assert found is not None
    assert found.value == pytest.approx(2.0)
    assert found.interval is not None
    assert found.interval.low < 2 < found.interval.high
    assert beside.ratio([4.0], [2.0]) == Estimate(2.0, None, 1)
    assert beside.ratio([], [2.0]) is None
    less = beside.less([10.0], [7.0])
    assert less is not None
    assert less.value == pytest.approx(30.0)


def test_seconds_of_an_epoch_are_rows_over_the_rate(tmp_path: Path) -> None:
    plan = fakes.plan_of(tmp_path)
    cell = cells_of(plan)[0]
    made = record(plan, cell)
    rate = made["metrics"]["rows_per_second"]
    comparison = Comparison({"plan": store.describe(plan)}, [made])
    [group] = measuring.analyse(comparison).groups
    assert page.epoch_seconds(group) == [pytest.approx(60000 / rate)]
    # One step of 32 rows takes 2.1 ms on average after the warm-up of two steps.
    mean_ms = sum(made["steps_ms"][2:]) / len(made["steps_ms"][2:])
    assert page.epoch_seconds(group) == [pytest.approx(60000 / cell_batch(cell) * mean_ms / 1e3)]


def cell_batch(cell: Cell) -> int:
    return int(cell.run.settings["batch"])


def test_the_chart_has_only_what_both_have() -> None:
    lines = [
        Beside("both", Value("x", 3.5, "3.5"), Estimate(4.0, Interval(3.0, 5.0), 3)),
        Beside("theirs", Value("y", 3.5, "3.5"), None),
        Beside("ours", None, Estimate(4.0, None, 3)),
        Beside("another unit", Value("z", 3.5, "3.5"), Estimate(4.0, None, 3), "s", None),
    ]
    plot = charts.beside(lines, "times")
    assert plot is not None
    assert {point["row"] for point in plot.spec["datasets"]["points"]} == {"both"}
    assert charts.beside(lines[1:3], "times") is None


class TestMeasuring:
    """With commands that are only written down."""

    @pytest.fixture
    def said(self, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
        words: list[list[str]] = []

        def ours(given: Sequence[str]) -> int:
            words.append(list(given))
            return 0

        monkeypatch.setattr(measuring, "_ours", ours)
        return words

    def of(self, tmp_path: Path, letter: str, seconds: float = float("inf")) -> Measuring:
        for name in ("mnist", "cifar-10"):
            (tmp_path / "sets" / name).mkdir(parents=True, exist_ok=True)
        until = time.monotonic() + seconds
        return Measuring(FOUND[letter], SMALLEST, tmp_path / "out", tmp_path / "sets", until, lambda _: None)

    def test_a_part_is_one_command(self, tmp_path: Path, said: list[list[str]]) -> None:
        assert self.of(tmp_path, "c", 120).run(goes_on=True) == []
        [words] = said
        assert words[:2] == ["compare", "conf/runs/papers/c-four-ways.toml"]
        assert f"data.path={tmp_path}/sets/mnist" in words
        assert words[words.index("--results") + 1] == str(tmp_path / "out" / "mnist")
        assert 1.9 < float(words[words.index("--minutes") + 1]) <= 2
        assert "--resume" in words

    def test_what_is_not_begun_in_time_is_told(self, tmp_path: Path, said: list[list[str]]) -> None:
        assert self.of(tmp_path, "e", -1).run(goes_on=True) == []
        assert said == []
        found, _ = measuring.measured(FOUND["e"], SMALLEST, tmp_path / "out")
        assert found.absent == dict.fromkeys(("cnn", "resnet-18"), "no `--minutes` were left for it")

    def test_a_set_that_is_not_there_is_told(self, tmp_path: Path, said: list[list[str]]) -> None:
        made = self.of(tmp_path, "e")
        (tmp_path / "sets" / "mnist").rmdir()
        made.run(["cnn"], goes_on=False)
        assert said == []
        assert "'mnist' is not in" in measuring.read_absent(tmp_path / "out")["cnn"]

    def test_a_lab_is_taken_away_even_after_an_error(
        self, tmp_path: Path, said: list[list[str]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(measuring.hosts, "obstacle", lambda: None)

        def ours(given: Sequence[str]) -> int:
            said.append(list(given))
            if given[0] == "compare":
                raise KeyboardInterrupt
            return 0

        monkeypatch.setattr(measuring, "_ours", ours)
        with pytest.raises(KeyboardInterrupt):
            self.of(tmp_path, "b").run(["layers-yarn"], goes_on=False)
        assert [words[:2] for words in said] == [
            ["lab", "up"],
            ["compare", "conf/runs/papers/b-layers.toml"],
            ["lab", "down"],
        ]
        assert "lab:layers-yarn" in said[1]

    def test_without_root_a_lab_s_parts_are_left_out(
        self, tmp_path: Path, said: list[list[str]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(measuring.hosts, "obstacle", lambda: "that needs root")
        self.of(tmp_path, "b").run(["layers-yarn"], goes_on=False)
        assert said == []
        assert "that needs root" in measuring.read_absent(tmp_path / "out")["layers-yarn"]

    def test_a_lab_that_cannot_be_made_fails_its_part_alone(
        self, tmp_path: Path, said: list[list[str]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(measuring.hosts, "obstacle", lambda: None)

        def ours(given: Sequence[str]) -> int:
            said.append(list(given))
            return 1 if given[0] == "lab" else 0

        monkeypatch.setattr(measuring, "_ours", ours)
        assert self.of(tmp_path, "b").run(["layers-yarn", "layers-local"], goes_on=False) == ["layers-yarn"]
        assert [words[0] for words in said] == ["lab", "compare"]

    def test_a_command_that_fails_at_once_is_told(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(measuring, "_ours", lambda _: 2)
        assert self.of(tmp_path, "c").run(goes_on=False) == ["mnist"]
        assert "before the first run" in measuring.read_absent(tmp_path / "out")["mnist"]

    def test_a_job_that_does_not_end_gives_its_reason_and_others_go_on(
        self, tmp_path: Path, said: list[list[str]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(measuring, "_JOB_S", 0.2)
        monkeypatch.setattr(measuring.sys, "executable", script(tmp_path, "sleep 60 & sleep 60"))
        begun = time.monotonic()
        assert self.of(tmp_path, "a").run(["pixels"], goes_on=False) == ["pixels"]
        assert time.monotonic() - begun < 20
        assert measuring.read_absent(tmp_path / "out")["pixels"] == "it did not end within 0.2 s"

    def test_numbers_beside_a_job_that_died_are_not_those_of_a_busy_machine(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        part = next(each for each in FOUND["a"].parts if each.busy)
        resumed: list[bool] = []

        def ours(given: Sequence[str]) -> int:
            resumed.append("--resume" in given)
            compared(part, SMALLEST, tmp_path / "out")
            return 0

        monkeypatch.setattr(measuring, "_ours", ours)
        monkeypatch.setattr("papers.busy.sys.executable", script(tmp_path, "echo computing; exit 3"))
        for _ in range(2):  # the second begins anew
            assert self.of(tmp_path, "a").run([part.name], goes_on=True) == [part.name]
        assert resumed == [True, False]
        found, comparisons = measuring.measured(FOUND["a"], SMALLEST, tmp_path / "out")
        assert comparisons == {}
        assert "so the machine was not busy all the time" in found.absent[part.name]

    def test_the_fullest_comparison_counts_and_of_several_the_newest(self, tmp_path: Path) -> None:
        plan, cells = planned(FOUND["c"].parts[0], SMALLEST)
        made = [store.create(tmp_path, plan, cells) for _ in range(3)]
        for folder, count in zip(made, (2, 2, 1), strict=True):
            for cell in cells[:count]:
                folder.add(cell, record(plan, cell))
        assert measuring.fullest(tmp_path) == made[1].path
        assert measuring.fullest(tmp_path / "nowhere") is None


def test_what_was_measured_elsewhere_is_kept(tmp_path: Path) -> None:
    experiment = FOUND["a"]
    all_parts = all_of(experiment, SMALLEST, tmp_path / "out")
    first, second = ({name: all_parts[name]} for name in ("mnist", "cifar-10"))
    keeping.keep(tmp_path, measuring.of(first, jobs_of(experiment), {"cifar-10": "no time"}, SMALLEST), first)
    keeping.keep(tmp_path, measuring.of(second, {}, {"mnist": "no set", "mnist-busy": "no time"}, SMALLEST), second)
    found, comparisons = keeping.read(tmp_path)
    assert set(comparisons) == {"mnist", "cifar-10"}
    assert set(found.jobs) == {"pixels"}
    assert found.absent == {"mnist-busy": "no time"}
    # Of another size nothing stays.
    keeping.keep(tmp_path, measuring.of(second, {}, {}, FULL), second)
    assert set(keeping.read(tmp_path)[1]) == {"cifar-10"}


def script(folder: Path, lines: str) -> str:
    """A program in place of Python."""
    file = folder / "program"
    file.write_text(f"#!/bin/sh\n{lines}\n")
    file.chmod(0o755)
    return str(file)


def test_a_second_job_that_ends_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("papers.busy.sys.executable", script(tmp_path, "echo computing; exit 3"))
    with pytest.raises(OtherJobEndedError, match="ended with status 3 while others ran"), busy(1):
        time.sleep(0.5)


class TestCommand:
    def run(self, *words: str) -> Any:
        return CliRunner().invoke(command, list(words), standalone_mode=False)

    def test_it_lists_what_there_is(self) -> None:
        done = self.run("--list", "--only", "c")
        assert done.exception is None
        assert "Zhe Dong" in done.output
        assert "  mnist: LeNet on MNIST, batch 64" in done.output
        assert "a: " not in done.output

    @pytest.mark.parametrize(
        ("words", "reason"),
        [
            (("--only", "z"), "no experiment 'z'. Valid: a, b, c, d, e"),
            (("--only", "a", "--parts", "mnits"), "no part 'mnits' in what was chosen. Did you mean 'mnist'?"),
        ],
    )
    def test_what_is_not_there_is_refused(self, words: Sequence[str], reason: str) -> None:
        done = self.run(*words)
        assert isinstance(done.exception, ConfigurationError)
        assert reason in str(done.exception)

    def test_a_page_of_what_is_there(self, tmp_path: Path) -> None:
        place = tmp_path / "out" / SMALLEST / "c"
        all_of(FOUND["c"], SMALLEST, place)
        done = self.run("--only", "c", "--size", SMALLEST, "--page-only", "--results", str(tmp_path / "out"))
        assert done.exception is None, done.output
        folder = tmp_path / "out" / SMALLEST / "pages" / FOUND["c"].folder
        text = (folder / "page.md").read_text(encoding="utf-8")
        assert "Accuracy at the end: Downpour (Arimo)" in text
        assert "9.42 times in the paper" in text  # 21003 s for 10,000 iterations beside 2229 s
        assert sorted(path.name for path in folder.glob("*.png")) == sorted(
            f"{name}.png" for name in ("accuracy-seconds", "accuracy-iterations", "beside-percent", "beside-times")
        )
        assert json.loads((folder / "page.json").read_text())["size"] == SMALLEST

    def test_without_anything_there_is_no_page(self, tmp_path: Path) -> None:
        done = self.run("--only", "e", "--page-only", "--results", str(tmp_path))
        assert "nothing is measured yet" in done.output
        assert not list(tmp_path.rglob("page.md"))


def test_the_second_job_computes_and_ends() -> None:
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    with busy(1):
        there = [each for each in psutil.Process().children(recursive=True) if each.pid not in before]
        started = sum(each.cpu_times().user for each in there)
        ends = time.monotonic() + 30
        while time.monotonic() < ends and sum(each.cpu_times().user for each in there) < started + 0.5:
            time.sleep(0.1)
        assert sum(each.cpu_times().user for each in there) >= started + 0.5
    assert not psutil.wait_procs(there, timeout=10)[1]


def kept_pages() -> Mapping[str, Path]:
    return {path.parent.name: path.parent for path in (ROOT / "docs" / "results").glob(f"*/{keeping.PAGE}")}


def test_the_pages_in_the_documentation_are_what_their_records_make() -> None:
    by_folder = {each.folder: each for each in FOUND.values()}
    for name, folder in kept_pages().items():
        experiment = by_folder[name]
        measured, _ = keeping.read(folder)
        assert measured.size == FULL
        assert page.make(experiment, PAPERS[experiment.letter], measured).text == (folder / keeping.PAGE).read_text()
