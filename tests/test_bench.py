"""The benchmark harness: statistics, result files, trials in turn, the collective microbenchmark, memory."""

from __future__ import annotations

import io
import json
import os
import random
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from sparkdl_bench import machine, statistics
from sparkdl_bench.bench import (
    collective,
    contestant,
    encryption,
    link,
    namespaces,
    net,
    spark_collective,
    store,
    table,
    torch_launch,
    trials,
    unsupported,
)
from sparkdl_bench.bench.collective import Taken, Way
from sparkdl_bench.bench.killable_run import RunHungError, same
from sparkdl_bench.bench.net import Failed, NetPlan, Skipped
from sparkdl_bench.bench.store import ResultFile, Trial
from sparkdl_bench.bench.suite import Options, contestants_of, rows_named
from sparkdl_bench.bench.trials import Comparison
from sparkdl_bench.commands.bench import command as bench_command
from sparkdl_bench.config import load_run_file
from sparkdl_bench.errors import ConfigurationError, RunFailedError
from sparkdl_bench.peers import CollectiveCase, Measurement, Sample, TrainCase
from suites import ladder, memory, models, short, soak, train
from suites import namespaces as namespaces_suite
from suites import net as net_suite
from suites import peers as peers_suite
from suites import revisions as revisions_suite
from suites import torch as torch_suite

ROOT = Path(__file__).resolve().parents[1]


@dataclass
class FakeContestant:
    """Measures nothing; notes in a list that all share who was asked, and when."""

    name: str
    ms: float
    asked: list[str] = field(default_factory=list)
    steps: int = 1

    def prepare(self) -> None:
        self.asked.append(f"prepare {self.name}")

    def measure(self, timeout_s: float) -> Trial:
        self.asked.append(self.name)
        return Trial([self.ms] * 20, self.steps, {"timeout_s": timeout_s})


@pytest.fixture(autouse=True)
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests do not wait to see whether the machine is idle."""
    monkeypatch.setattr(machine, "load", lambda: machine.Load(0.0, 0.0))


@pytest.fixture
def result_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ResultFile:
    monkeypatch.setattr(machine, "_java_version", lambda: "17")  # which starts a JVM to ask
    return store.create(tmp_path, "short", {"trials": 2})


class TestStatistics:
    def test_blocks_are_means_and_a_rest_is_left_out(self) -> None:
        assert statistics.blocks([1, 3, 5, 7, 100], 2) == [2, 6]
        assert statistics.blocks([1], 2) == []

    def test_the_interval_of_constant_trials_is_a_point(self) -> None:
        for few in (statistics.ratio_interval([2, 2, 2], [4, 4]), statistics.ratio_interval([2] * 5, [4] * 6)):
            assert few is not None
            assert (few.low, few.high) == (0.5, 0.5)

    def test_few_trials_that_differ_are_no_point(self) -> None:
        interval = statistics.ratio_interval([2.0, 2.1], [4.0, 4.0])
        assert interval is not None
        assert interval.low < 0.4
        assert interval.high > 0.6

    def test_the_interval_holds_the_ratio_and_widens_with_the_spread(self) -> None:
        narrow = statistics.ratio_interval([9, 10, 11], [20, 20, 20])
        wide = statistics.ratio_interval([5, 10, 15], [20, 20, 20])
        assert narrow is not None
        assert wide is not None
        assert narrow.low <= 0.5 <= narrow.high
        assert wide.high - wide.low > narrow.high - narrow.low

    def test_drift_below_one_shows_a_warm_up_that_was_too_short(self) -> None:
        assert statistics.drift([4, 4, 3, 3, 2, 2]) == 0.5
        assert statistics.drift([1]) == 1.0


class TestStore:
    def test_every_sample_comes_back(self, result_file: ResultFile) -> None:
        trial = Trial([1.5, 2.25], 10, {"torch": "2"}, 3.0, {"busy": 0.0}, "2026-01-02T03:04:05+00:00")
        result_file.add("bigdl", 1, trial)
        content = store.load(result_file.path)
        assert content["schema"] == store.SCHEMA
        assert ResultFile(result_file.path, content).trial("bigdl", 1) == trial

    def test_a_file_names_machine_and_commit_but_no_host(self, result_file: ResultFile) -> None:
        result_file.save()
        content = store.load(result_file.path)
        assert content["machine"]["cores"] >= 1
        assert content["commit"]
        assert result_file.path.parent.name == machine.slug(content["machine"])

    def test_resume_takes_the_newest_of_the_same_plan_and_commit(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plan = {"trials": 2, "sizes": (1, 2)}
        store.create(tmp_path, "short", plan).save()
        assert store.resume(tmp_path, "short", plan) is not None
        assert store.resume(tmp_path, "short", {**plan, "trials": 3}) is None
        assert store.resume(tmp_path, "memory", plan) is None
        monkeypatch.setattr(machine, "commit", lambda: "another")
        assert store.resume(tmp_path, "short", plan) is None

    @pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema": "new"}'])
    def test_another_file_is_refused(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "x.json").write_text(content)
        with pytest.raises(ConfigurationError, match=r"x\.json"):
            store.load(tmp_path / "x.json")

    def test_a_newer_schema_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "x.json").write_text(json.dumps({"schema": store.SCHEMA + 1}))
        with pytest.raises(ConfigurationError, match="newer"):
            store.load(tmp_path / "x.json")


class TestTrials:
    def test_contestants_take_turns_within_their_group(self, result_file: ResultFile) -> None:
        asked: list[str] = []
        groups = [[FakeContestant("a", 1, asked), FakeContestant("b", 2, asked)], [FakeContestant("c", 3, asked)]]
        trials.run_trials(groups, 2, result_file, 10, lambda _: None)
        assert asked == ["prepare a", "prepare b", "prepare c", "a", "b", "a", "b", "c", "c"]

    def test_cells_that_are_there_are_kept(self, result_file: ResultFile) -> None:
        asked: list[str] = []
        first, second = FakeContestant("a", 1, asked), FakeContestant("b", 2, asked)
        result_file.add("a", 1, Trial([7.0], 1, {}))
        trials.run_trials([[first, second]], 2, result_file, 10, lambda _: None)
        assert asked == ["prepare b", "prepare a", "b", "a", "b"]
        assert [trial.samples_ms[0] for trial in result_file.trials("a")] == [7.0, 1.0]

    def test_both_sides_are_compared_on_blocks_of_one_size(self, result_file: ResultFile) -> None:
        # Every tenth step of ours is slow: single steps would say 1 ms, a mean over ten says 10.
        spiky = ([1.0] * 9 + [91.0]) * 2
        for number in (1, 2):
            result_file.add("ours", number, Trial(spiky, 1, {}))
            result_file.add("theirs", number, Trial([20.0, 20.0], 10, {}))
        outcome = trials.compare(Comparison("x", "ours", "theirs", 0.5), result_file)
        assert (outcome.ours_ms, outcome.theirs_ms, outcome.ratio) == (10.0, 20.0, 0.5)
        assert outcome.met
        assert outcome.trials == 2

    def test_few_trials_have_an_interval_by_their_spread_and_one_has_none(self, result_file: ResultFile) -> None:
        outcomes = []
        for number, ms in enumerate((9.0, 10.0), start=1):
            result_file.add("ours", number, Trial([ms], 1, {}))
            result_file.add("theirs", number, Trial([2 * ms], 1, {}))
            outcomes.append(trials.compare(Comparison("x", "ours", "theirs", None), result_file))
        one, two = outcomes
        assert (one.low, one.high) == (None, None)
        # A bootstrap would end at 9 / 20 and 10 / 18. By hand: the two means of logarithms have a standard error of
        # ln(10 / 9) / 2 each, their difference one of 0.0745; t of 2 degrees of freedom is 4.3027.
        assert (two.low, two.high) == pytest.approx((0.5 * 0.7257, 0.5 * 1.3779), rel=1e-3)

    def test_a_target_that_is_missed_says_so(self, result_file: ResultFile) -> None:
        result_file.add("ours", 1, Trial([3.0], 1, {}))
        result_file.add("theirs", 1, Trial([2.0], 1, {}))
        assert not trials.compare(Comparison("x", "ours", "theirs", 1.05), result_file).met

    def test_without_a_target_a_comparison_is_shown_and_not_judged(self, result_file: ResultFile) -> None:
        result_file.add("ours", 1, Trial([3.0], 1, {}))
        result_file.add("theirs", 1, Trial([2.0], 1, {}))
        outcome = trials.compare(Comparison("x", "ours", "theirs", None), result_file)
        assert (outcome.ratio, outcome.met) == (1.5, None)
        written = io.StringIO()
        table.show_outcomes("A table", [outcome], Console(file=written, width=160))
        (row,) = [line for line in written.getvalue().splitlines() if "ours | theirs" in line]
        assert [cell.strip() for cell in row.split("│")][-3:-1] == ["–", "–"]

    def test_trials_of_a_busy_machine_are_named(self, result_file: ResultFile) -> None:
        result_file.add("a", 1, Trial([1.0], 1, {}, load={"busy": 0.5}))
        result_file.add("a", 2, Trial([1.0], 1, {}, load={"busy": 0.01}))
        assert trials.busy_trials(result_file, ["a"]) == ["a 1"]


class TestContestants:
    def test_the_run_file_is_one_that_the_command_line_reads(self, tmp_path: Path) -> None:
        case = TrainCase(workers=2, warmup_steps=100, steps=300, rows=12_800)
        (tmp_path / "run.toml").write_text(
            contestant.run_file(case, str(tmp_path), {"transport": "block-manager", "spark.ui.enabled": "false"})
        )
        run = load_run_file(tmp_path / "run.toml", ())
        assert run.settings["max_steps"] == "400"
        assert int(run.settings["epochs"]) * 100 > 400
        assert run.settings["model.hidden"] == "1024"
        assert run.settings["transport"] == "block-manager"
        assert run.spark["spark.master"] == "local-cluster[2,1,2048]"
        assert run.spark["spark.ui.enabled"] == "false"

    def test_the_warm_up_of_a_run_is_left_out(self, tmp_path: Path) -> None:
        (tmp_path / "steps.json").write_text("[9.0, 9.0, 1.0, 2.0]")
        (tmp_path / "run.json").write_text(json.dumps({"versions": {"spark": "4.1"}, "engine": {"blas": "mkl"}}))
        final = {"ms_per_step_median": 5.5, "train_loss": 0.1}
        summary = {"variant": {}, "phases_ms": {}, "final": final, "bytes": {}}
        (tmp_path / "summary.json").write_text(json.dumps(summary))
        trial = contestant.read_run(tmp_path, 2)
        assert trial.samples_ms == [1.0, 2.0]
        assert trial.facts["engine"] == {"blas": "mkl"}
        assert "sampler_share" not in trial.facts
        took = {"processes": [{"sampler_cpu_seconds": 0.01, "sampler_seconds": 4.0}]}
        (tmp_path / "resources.json").write_text(json.dumps(took))
        assert contestant.read_run(tmp_path, 2).facts["sampler_share"] == 0.0025

    def test_what_the_sampler_took_is_told_of_the_trials_that_say_it(self, result_file: ResultFile) -> None:
        result_file.add("block-stream", 1, Trial([1.0], 1, {}))
        assert train.sampler_line(result_file) is None
        result_file.add("block-stream", 2, Trial([1.0], 1, {"sampler_share": 0.0012}))
        line = train.sampler_line(result_file)
        assert line is not None
        assert "at most 0.120% of a core in any process of 1 trials" in line

    def test_every_executor_fits_its_worker(self, tmp_path: Path) -> None:
        shared = Options(resume=False, trials=5, data_path="", peers_dir=tmp_path, results=tmp_path, timeout_s=1)
        plans = (short.ShortPlan(), train.TrainPlan(), ladder.LadderPlan(), peers_suite.PeersPlan())
        groups = [group for plan in plans for group in plan.groups(shared)]
        groups += models.groups(models.NETS, {net.name: "{}" for net in models.NETS}, shared)
        ours = [each for group in groups for each in group if isinstance(each, contestant.OursContestant)]
        assert {each.settings.get("spark.executor.memory", "2g") for each in ours} == {"2g", "3g", "4g"}
        for each in ours:
            (tmp_path / "run.toml").write_text(contestant.run_file(each.case, str(tmp_path), each.settings))
            spark = load_run_file(tmp_path / "run.toml").spark
            master = re.fullmatch(r"local-cluster\[(\d+),1,(\d+)\]", spark["spark.master"])
            assert master is not None
            assert int(master[1]) == each.case.workers
            assert contestant.mebibytes(spark["spark.executor.memory"]) <= int(master[2]), each.name

    def test_a_size_of_memory_that_no_master_counts_is_refused(self) -> None:
        assert (contestant.mebibytes("1536m"), contestant.mebibytes("3G")) == (1536, 3072)
        with pytest.raises(ConfigurationError, match=r"'1\.5g'.*1536m"):
            contestant.mebibytes("1.5g")

    def test_the_models_suite_compares_what_it_measures(self, tmp_path: Path) -> None:
        shared = Options(resume=False, trials=5, data_path="", peers_dir=tmp_path, results=tmp_path, timeout_s=1)
        groups = models.groups(models.NETS, {net.name: "{}" for net in models.NETS}, shared)
        measured = {each.name for group in groups for each in group}
        compared = {name for each in models.comparisons(models.NETS) for name in (each.ours, each.theirs)}
        assert compared <= measured
        assert measured - compared == {f"{net.name}-openblas-2" for net in models.NETS}

    def test_a_part_of_the_train_suite_measures_what_its_rows_name(self, tmp_path: Path) -> None:
        shared = Options(resume=False, trials=5, data_path="", peers_dir=tmp_path, results=tmp_path, timeout_s=1)
        rows = rows_named("512.*host-local$", train.COMPARISONS)
        assert [each.title for each in rows] == ["batch 512, 2 × 1 core, host-local"]
        groups = contestants_of(rows, train.TrainPlan().groups(shared))
        assert [[each.name for each in group] for group in groups] == [["block-stream-local-512", "pytorch-2-512"]]
        assert rows_named("", train.COMPARISONS) == list(train.COMPARISONS)
        with pytest.raises(ConfigurationError, match=r"No row has 'batch 513' in its title.*batch 512, 2 × 1 core"):
            rows_named("batch 513", train.COMPARISONS)

    def test_the_models_suite_can_do_with_one_matrix_library(self, tmp_path: Path) -> None:
        shared = Options(resume=False, trials=5, data_path="", peers_dir=tmp_path, results=tmp_path, timeout_s=1)
        nets = models.chosen("lenet,mlp")
        groups = models.groups(nets, {net.name: "{}" for net in nets}, shared, ["mkl"])
        assert [each.name for each in groups[0]] == [
            *("lenet-mkl-1", "lenet-mkl-2", "lenet-pytorch", "lenet-pytorch-2", "lenet-pytorch-ddp")
        ]
        left_out = set(models.comparisons(nets)) - set(models.comparisons(nets, ["mkl"]))
        assert {(each.ours, each.theirs) for each in left_out} == {
            (f"{net.name}-mkl-1", f"{net.name}-openblas-1") for net in nets
        }
        slower = models.comparisons(nets, ["openblas"])
        assert {each.ours for each in slower} == {"lenet-openblas-1", "lenet-openblas-2", "mlp-openblas-2"}
        assert not any("mkl" in each.theirs for each in slower)

    def test_the_perceptrons_are_those_of_the_comparisons(self, tmp_path: Path) -> None:
        found = {}
        for name in ("mlp", "mlp-small", "mlp-cifar"):
            net = models.net_of(name)
            (tmp_path / "run.toml").write_text(contestant.run_file(net.case(2), str(tmp_path), net.settings))
            settings = load_run_file(tmp_path / "run.toml").settings
            kept = ("model.name", "data.shape", "model.hidden", "model.output_activation")
            found[name] = [settings[key] for key in kept]
        assert found == {
            "mlp": ["mlp", "1,28,28", "1024", "none"],
            "mlp-small": ["mlp", "1,28,28", "100,50", "tanh"],
            "mlp-cifar": ["mlp", "3,32,32", "1024", "none"],
        }

    def test_a_net_that_there_is_none_of_is_refused_with_the_nearest(self) -> None:
        with pytest.raises(ConfigurationError, match="Did you mean 'resnet-18'"):
            models.chosen("lenet,resnet18")
        assert [net.name for net in models.chosen(" lenet, cnn")] == ["lenet", "cnn"]
        assert models.chosen("") == list(models.NETS)

    @pytest.mark.parametrize(("suite", "plan"), [(short, short.ShortPlan()), (train, train.TrainPlan())])
    def test_a_suite_compares_what_it_measures(self, suite: Any, plan: Any, tmp_path: Path) -> None:
        shared = Options(resume=False, trials=5, data_path="", peers_dir=tmp_path, results=tmp_path, timeout_s=1)
        measured = {each.name for group in plan.groups(shared) for each in group}
        assert {name for each in suite.COMPARISONS for name in (each.ours, each.theirs)} == measured

    def test_every_peer_that_trains_this_net_is_measured_beside_ours(self, tmp_path: Path) -> None:
        shared = Options(resume=False, trials=5, data_path="", peers_dir=tmp_path, results=tmp_path, timeout_s=1)
        groups = peers_suite.PeersPlan().groups(shared)
        names = [{each.name for each in group} for group in groups]
        two = {"ours-2", "bigdl-2", "pytorch-ddp-2", "pytorch-threads-2"}
        assert names == [{"ours-1", "bigdl-1", "pytorch-1"}, two]
        compared = peers_suite.comparisons(groups)
        assert {name for each in compared for name in (each.ours, each.theirs)} == names[0] | names[1]

    def test_the_ladder_has_every_in_band_transport(self, tmp_path: Path) -> None:
        shared = Options(resume=False, trials=5, data_path="", peers_dir=tmp_path, results=tmp_path, timeout_s=1)
        rungs, empty = ladder.LadderPlan().groups(shared)
        assert {each.settings["transport"] for each in rungs} == {"block-manager", "shuffle", "block-stream"}
        assert {name for each in ladder.COMPARISONS for name in (each.ours, each.theirs)} == {e.name for e in rungs}
        assert [each.name for each in empty] == ["empty-block-stream", "empty-block-stream-local"]

    def test_the_ladder_shows_each_phase(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = store.create(tmp_path, "ladder", {"trials": 2})
        file.add("a", 1, Trial([1.0, 2.0, 3.0], 1, {"phases_ms": {"compute": 1.5, "wait": 0.25}}))
        file.add("a", 2, Trial([4.0, 4.0, 4.0], 1, {"phases_ms": {"compute": 2.5, "wait": 0.75}}))
        ladder.show_phases(file, ["a"])
        (row,) = [line for line in capsys.readouterr().out.splitlines() if "│ a " in line]
        assert row.split("│")[2:5] == [" 3.00 ", "    2.00 ", " 0.50 "]

    def test_the_net_suite_measures_what_it_compares(self) -> None:
        for comparisons in (net_suite.COMPARISONS, rows_named("host-local", net_suite.COMPARISONS)):
            measured = {net_suite._name(way) for way in net_suite._ways(comparisons)}
            assert {name for each in comparisons for name in (each.ours, each.theirs)} == measured

    def test_the_net_suite_leaves_out_what_is_not_here_when_told(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def prepare(contestant: net_suite.CollectiveContestant) -> None:
            if contestant.way.transport in lacking:
                raise ConfigurationError(f"No {contestant.way.transport} here.")

        monkeypatch.setattr(net_suite.CollectiveContestant, "prepare", prepare)
        lacking = ["ucx"]
        left = net_suite.measurable(net_suite.COMPARISONS, tmp_path)
        assert [each for each in net_suite.COMPARISONS if each not in left] == [
            each for each in net_suite.COMPARISONS if each.ours.startswith("ucx")
        ]
        assert "ucx/sliced. No ucx here." in capsys.readouterr().err
        lacking = ["block-stream", "tcp", "ucx"]
        with pytest.raises(ConfigurationError, match=r"No row can be measured here\. No block-stream here\."):
            net_suite.measurable(net_suite.COMPARISONS, tmp_path)

    def test_the_net_suite_measures_the_rows_that_are_named(self) -> None:
        chosen = rows_named("host-local", net_suite.COMPARISONS)
        assert len(chosen) >= 3
        assert all("host-local" in each.title for each in chosen)
        assert rows_named("", net_suite.COMPARISONS) == net_suite.COMPARISONS
        assert len(rows_named("host-local$", net_suite.COMPARISONS)) == 2
        with pytest.raises(ConfigurationError, match=r"'nosuch'.*3,200,000 values"):
            rows_named("nosuch", net_suite.COMPARISONS)
        with pytest.raises(ConfigurationError, match="no regular expression"):
            rows_named("(", net_suite.COMPARISONS)

    @pytest.mark.parametrize("rows", [("long", "short", "mlp", "resnet-18"), ("mlp",)])
    def test_the_torch_suite_compares_what_it_measures(self, tmp_path: Path, rows: tuple[str, ...]) -> None:
        shared = Options(resume=False, trials=5, data_path="", peers_dir=tmp_path, results=tmp_path, timeout_s=1)
        plan = torch_suite.TorchPlan(rows)
        groups = plan.groups("the specification", shared)
        measured = [each.name for group in groups for each in group]
        assert len(set(measured)) == len(measured)
        pairs = plan.comparisons()
        assert {name for each in pairs for name in (each.ours, each.theirs)} == set(measured)
        for each in pairs:
            assert any({each.ours, each.theirs} <= {one.name for one in group} for group in groups), each

    def test_the_torch_suite_trains_the_net_by_its_specification(self, tmp_path: Path) -> None:
        shared = Options(resume=False, trials=5, data_path="", peers_dir=tmp_path, results=tmp_path, timeout_s=1)
        ((ours, gloo),) = torch_suite.TorchPlan(("resnet-18",)).groups("the specification", shared)
        assert isinstance(ours, torch_launch.LaunchContestant)
        assert isinstance(gloo, torch_launch.LaunchContestant)
        assert ours.case == gloo.case
        assert (getattr(ours.case, "specification", ""), ours.case.workers) == ("the specification", 2)
        assert (ours.sync, gloo.sync) == ("block-stream", "gloo")

    @pytest.mark.parametrize(
        ("ours_ms", "above", "verdict"), [(1.25, "+0.25 ms", "met."), (1.35, "+0.35 ms", "missed.")]
    )
    def test_the_torch_suite_tells_what_python_adds(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], ours_ms: float, above: str, verdict: str
    ) -> None:
        file = store.create(tmp_path, "torch", {"trials": 1})
        names = {"block-stream-2x814090": 1.0, "torch-block-stream-2x814090": ours_ms}
        for name, ms in {**names, "torch-block-stream-2x814090-shared": 1.125}.items():
            file.add(name, 1, Trial([ms] * 3, 1, {}))
        torch_suite.show_above(file)
        line, shared = capsys.readouterr().out.splitlines()
        assert above in line
        assert line.endswith(verdict)
        assert file.content["above_jvm_ms"] == pytest.approx(ours_ms - 1)
        assert "-shared: +0.12 ms" in shared
        assert shared.endswith("met.")
        assert file.content["above_jvm_ms_shared"] == pytest.approx(0.125)

    def test_the_torch_suite_refuses_a_row_that_it_has_not(self) -> None:
        with pytest.raises(ConfigurationError, match=r"no row called 'tall'. Valid: long, short, mlp, resnet-18"):
            CliRunner().invoke(torch_suite.command, ["--rows", "long,tall"], catch_exceptions=False)

    def test_without_pytorch_the_torch_suite_says_how_to_have_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
        one = torch_launch.LaunchContestant("gloo", CollectiveCase(1))
        with pytest.raises(ConfigurationError, match="make bench-torch"):
            one.prepare()

    def test_the_namespaces_suite_compares_what_it_measures(self) -> None:
        ways = [*namespaces_suite.WAYS, *namespaces_suite.LIBRARIES]
        measured = [namespaces_suite.NamespacesContestant(way, 1000, (0, 1)).name for way in ways]
        assert measured == ["tcp-ring", "block-stream-sliced", "mpi-sliced", "ucx-sliced"]
        compared = {each.ours: each.target for each in namespaces_suite.comparisons(ways)}
        assert [compared[name] for name in measured] == [namespaces_suite.TARGET] * 2 + [None] * 2
        assert not any(way.host_local for way in ways)

    def test_the_revisions_suite_measures_other_nets_too(self, tmp_path: Path) -> None:
        plan = revisions_suite.RevisionsPlan("abc", (), (models.net_of("lenet"),))
        shared = Options(False, 5, "", tmp_path, tmp_path, 60.0)
        groups = plan.groups(tmp_path, shared)
        names = [[each.name for each in group] for group in groups]
        assert names == [["lenet-mkl-1", "lenet-mkl-1-base"], ["lenet-mkl-2", "lenet-mkl-2-base"]]
        assert [(each.ours, each.theirs) for each in plan.comparisons(shared)] == [tuple(each) for each in names]
        for group in groups:
            one, other = (each for each in group if isinstance(each, contestant.OursContestant))
            assert (one.checkout, other.checkout) == (None, tmp_path)
            assert (one.case, one.settings) == (other.case, other.settings)

    def test_the_revisions_suite_compares_each_way_with_the_other_checkouts_in_turns(self, tmp_path: Path) -> None:
        shared = Options(False, 5, "", tmp_path, tmp_path, 60.0)
        groups = revisions_suite.RevisionsPlan("abc").groups(tmp_path, shared)
        assert [[each.name for each in group] for group in groups] == [
            [name, f"{name}-base"]
            for name in ("engine", "block-stream", "block-stream-local", "tcp", *revisions_suite._JOBS)
        ]
        assert all(ours.case == base.case and ours.settings == base.settings for ours, base in groups)
        assert {(ours.checkout, base.checkout) for ours, base in groups} == {(None, tmp_path)}

    def test_another_checkouts_package_trains_where_it_is_asked_for(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        seen: list[Any] = []
        monkeypatch.setattr(contestant, "run_to_end", lambda *words: seen.append(words[3]))
        monkeypatch.setattr(contestant, "only_run", lambda folder: folder)
        monkeypatch.setattr(contestant, "read_run", lambda folder, warmup: Trial([1.0], 1, {}))
        case = TrainCase(workers=2)
        contestant.OursContestant("ours", case, {}).measure(60.0)
        contestant.OursContestant("base", case, {}, tmp_path).measure(60.0)
        assert seen == [{}, {"PYTHONPATH": str(tmp_path / "python")}]

    def test_a_folder_that_is_no_built_checkout_is_no_base(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="holds no built checkout"):
            CliRunner().invoke(revisions_suite.command, ["--base", str(tmp_path)], catch_exceptions=False)

    def test_the_libraries_of_others_keep_to_the_link(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: dict[str, dict[str, str]] = {}

        def measured(name: str, command: list[str], case: Any, timeout_s: float, variables: dict[str, str]) -> Any:
            asked[name] = json.loads(variables[spark_collective._SETTINGS])
            return Measurement((Sample(1.0),), {"bytes": {name: 1}, "correct": True})

        @contextmanager
        def cluster(*_: Any) -> Iterator[dict[str, str]]:
            yield {"spark.master": "spark://10.77.1.1:7077"}

        @contextmanager
        def two_hosts(_: int) -> Iterator[tuple[namespaces.Host, ...]]:
            yield namespaces.Host("a", 1), namespaces.Host("b", 2)

        monkeypatch.setattr(spark_collective, "measure", measured)
        monkeypatch.setattr(namespaces, "cluster", cluster)
        monkeypatch.setattr(namespaces, "two_hosts", two_hosts)
        for way in (*namespaces_suite.WAYS, *namespaces_suite.LIBRARIES):
            trial = namespaces_suite.NamespacesContestant(way, 1000, (0, 1)).measure(10.0)
            assert trial.samples_ms == [1.0]
        assert asked["ucx"]["ucx.devices"] == "data0"
        assert asked["ucx"]["ucx.tls"] == "tcp,self"
        assert asked["mpi"]["mpi.options"].count("data0") == 2
        assert " lo" not in asked["mpi"]["mpi.options"]
        assert {asked[name]["topology"] for name in ("mpi", "ucx")} == {"sliced"}
        assert "tcp.interface" not in asked["tcp"]  # it finds the interface by itself

    def test_a_library_that_is_not_installed_is_skipped_with_the_command(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ran: list[Any] = []
        reasons = {"ucx": "Bring it with `sparkdl-bench jars fetch --ucx`."}
        monkeypatch.setattr(namespaces_suite, "spark_transport_missing", reasons.get)
        monkeypatch.setattr(namespaces_suite, "run_suite", lambda *arguments: ran.append(arguments))
        done = CliRunner().invoke(bench_command, ["namespaces", "--results", str(tmp_path)])
        assert done.exit_code == 0, done.output
        assert "Skipped: ucx-sliced. Bring it with `sparkdl-bench jars fetch --ucx`." in done.output
        ((_, plan, (group,), comparisons, _),) = ran
        names = ["tcp-ring", "block-stream-sliced", "mpi-sliced"]
        assert plan["ways"] == names
        assert [each.name for each in group] == [*names, namespaces_suite.STREAM]
        assert [each.ours for each in comparisons] == names


class TestCollective:
    def test_bandwidths_follow_their_formulas(self) -> None:
        row = collective.row(Way("gloo", 4, 1_000_000), [Taken([2.0, 2.0, 2.0], True, "tcp")], link_gbps=48.0)
        assert row.algbw_gbps == pytest.approx(16.0)  # 32 Mbit in 2 ms
        assert row.busbw_gbps == pytest.approx(24.0)  # × 2 · 3 / 4
        assert row.link_share == pytest.approx(0.5)

    def test_one_wrong_trial_makes_a_row_wrong(self) -> None:
        taken = [Taken([1.0], True, "tcp"), Taken([3.0], False, "tcp")]
        row = collective.row(Way("gloo", 2, 10), taken, link_gbps=1.0)
        assert not row.correct
        assert row.samples_ms == [1.0, 3.0]

    def test_a_row_says_all_that_the_command_promises(self) -> None:
        row = collective.row(Way("mpi", 2, 10, host_local=True), [Taken([1.0], True, "tcp")], link_gbps=1.0).to_dict()
        promised = (
            "transport topology codec host_local workers elements median_ms p99_ms algbw_gbps busbw_gbps link_gbps"
        )
        assert {*promised.split(), "correct", "samples_ms"} <= set(row)

    def test_each_peer_gets_a_row_for_each_channel_that_it_has(self) -> None:
        plan = NetPlan(sizes=(10,), workers=(2,), transports=("tcp",), topologies=("ring", "sliced"))
        ours = {name: len(net.ways_of(plan, name, 2, 10)) for name in ("block-stream", "ucx", "tcp", "ours:mpi")}
        assert ours == {"block-stream": 4, "ucx": 4, "tcp": 2, "ours:mpi": 4}
        peers = {name: len(net.ways_of(plan, name, 2, 10)) for name in ("mpi", "gloo", "memcpy")}
        assert peers == {"mpi": 2, "gloo": 1, "memcpy": 1}
        sockets = NetPlan(sizes=(10,), workers=(2,), transports=("tcp",), host_local="off")
        assert [way.host_local for way in net.ways_of(sockets, "mpi", 2, 10)] == [False]

    def test_an_encryption_is_a_row_of_its_own_over_sockets(self) -> None:
        plan = NetPlan(sizes=(10,), workers=(2,), transports=("block-stream", "gloo"), encryptions=("off", "crypto"))
        ours = [(way.encryption, way.host_local) for way in net.ways_of(plan, "block-stream", 2, 10)]
        assert ours == [("off", False), ("crypto", False), ("off", True)]
        assert [way.encryption for way in net.ways_of(plan, "gloo", 2, 10)] == [None]
        way = Way("block-stream", 2, 10, host_local=False, encryption="crypto")
        assert collective.row(way, [Taken([1.0], True, "tcp")], link_gbps=1.0).to_dict()["encryption"] == "crypto"

    def test_secrets_are_new_each_time(self, tmp_path: Path) -> None:
        (tmp_path / "again").mkdir()
        first, second = (encryption.properties("tls", each) for each in (tmp_path, tmp_path / "again"))
        differ = {name for name in first if first[name] != second[name]}
        passwords = {f"spark.ssl.rpc.{kind}Password" for kind in ("key", "keyStore", "trustStore")}
        stores = {"spark.ssl.rpc.keyStore", "spark.ssl.rpc.trustStore"}
        assert differ == {"spark.authenticate.secret", *passwords, *stores}
        assert (tmp_path / "keys.p12").stat().st_mode & 0o077 == 0
        assert encryption.properties("off", tmp_path) == {}

    def test_boringssl_needs_key_and_certificate_as_pem(self, tmp_path: Path) -> None:
        if reason := encryption.missing("tls-openssl", "4.1.4"):
            pytest.skip(reason)
        found = encryption.properties("tls-openssl", tmp_path)
        assert found["spark.ssl.rpc.openSslEnabled"] == "true"
        for name, kind in (("privateKey", "PRIVATE KEY"), ("certChain", "CERTIFICATE")):
            file = Path(found[f"spark.ssl.rpc.{name}"])
            assert f"-----BEGIN {kind}-----" in file.read_text()
            assert file.stat().st_mode & 0o077 == 0
        assert Path(found["spark.ssl.rpc.privateKey"]).read_text().startswith("-----BEGIN PRIVATE KEY-----")

    def test_what_came_with_spark_4_is_told_on_spark_3(self) -> None:
        assert "Spark 4.0" in str(encryption.missing("tls", "3.5.9"))
        assert encryption.missing("crypto", "3.5.9") is None

    @pytest.mark.parametrize(
        "wrong",
        [
            {"host_local": "maybe"},
            {"encryptions": ("rot13",)},
            {"sizes": ()},
            {"sizes": (-1,)},
            {"workers": (0,)},
            {"transports": ()},
        ],
    )
    def test_a_senseless_plan_is_refused(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError):
            NetPlan(**{"sizes": (1,), "workers": (2,), "transports": ("mpi",), **wrong})

    def test_what_is_not_installed_is_skipped_with_the_command(self, tmp_path: Path) -> None:
        plan = NetPlan(sizes=(100,), workers=(2,), transports=("mpi", "memcpy"), warmup=1, iterations=4, trials=2)
        sweep = net.arrange(plan, tmp_path)
        (skipped,) = sweep.skipped
        assert skipped.name == "mpi"
        assert "peers install mpi" in skipped.reason
        (row,) = net.measure(plan, sweep, 120.0, tmp_path, lambda _: None)
        assert isinstance(row, collective.Row)
        assert row.correct
        assert len(row.samples_ms) == 8

    def test_a_refused_combination_is_left_out_and_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[dict[str, str]] = []

        def reasons(settings: list[dict[str, str]]) -> list[str]:
            asked.extend(settings)
            refused = [each["transport"] == "shuffle" or (each["topology"], each["codec"]) == bad for each in settings]
            return ["It cannot." if each else "" for each in refused]

        bad = ("ring", "threshold")
        monkeypatch.setattr(net, "spark_transport_missing", lambda _: None)
        monkeypatch.setattr(unsupported, "reasons", reasons)
        names = {"topologies": ("sliced", "ring"), "codecs": ("fp32", "threshold")}
        plan = NetPlan(sizes=(10, 20), workers=(2,), transports=("tcp", "shuffle", "memcpy"), **names)
        sweep = net.arrange(plan, tmp_path)
        assert len(asked) == 8
        assert Skipped("tcp, ring, threshold, 2 workers", "It cannot.") in sweep.skipped
        assert {each.name.split(",")[0] for each in sweep.skipped} == {"tcp", "shuffle"}
        assert len(sweep.skipped) == 5
        for group, elements in zip(sweep.groups, (10, 20), strict=True):
            ways = [(way.transport, way.topology, way.codec, way.elements) for way in group]
            assert ways == [
                ("tcp", "sliced", "fp32", elements),
                ("tcp", "sliced", "threshold", elements),
                ("tcp", "ring", "fp32", elements),
                ("memcpy", None, "fp32", elements),
            ]

    def test_an_encryption_that_is_missing_leaves_the_others(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(net, "spark_transport_missing", lambda _: None)
        monkeypatch.setattr(unsupported, "reasons", lambda settings: [""] * len(settings))
        monkeypatch.setattr(encryption, "missing", lambda each, _: "Too old." if each == "tls" else None)
        plan = NetPlan(sizes=(10,), workers=(2,), transports=("tcp",), encryptions=("off", "tls"))
        sweep = net.arrange(plan, tmp_path)
        assert sweep.skipped == (Skipped("tls", "Too old."),)
        assert [[way.encryption for way in group] for group in sweep.groups] == [["off"]]

    def test_a_way_that_fails_does_not_end_the_others(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[str] = []

        def run_way(way: Way, *_: Any) -> Taken:
            asked.append(way.transport)
            if way.transport == "tcp":
                raise RunFailedError("It broke.")
            return Taken([1.0], True, "here")

        monkeypatch.setattr(net, "spark_transport_missing", lambda _: None)
        monkeypatch.setattr(unsupported, "reasons", lambda settings: [""] * len(settings))
        monkeypatch.setattr(net, "run_way", run_way)
        plan = NetPlan(sizes=(10,), workers=(2,), transports=("tcp", "mpi-like", "memcpy"), trials=2)
        rows = net.measure(plan, net.arrange(plan, tmp_path), 10.0, tmp_path, lambda _: None)
        assert next(rows) == Failed("tcp, sliced, fp32, 2 workers, 10 values", "It broke.")
        first = next(rows)
        assert isinstance(first, collective.Row)
        assert first.samples_ms == [1.0, 1.0]
        # A row is given as soon as it is whole, and what failed is not tried again.
        assert asked == ["tcp", "mpi-like", "memcpy", "mpi-like"]
        (last,) = rows
        assert isinstance(last, collective.Row)
        assert last.transport == "memcpy"

    def test_the_jvm_tells_what_has_nothing_to_measure(self) -> None:
        settings = [
            {"transport": "tcp", "topology": "ring", "codec": "fp32", "workers": "2"},
            {"transport": "tcp", "topology": "ring", "codec": "threshold", "workers": "3"},
            {"transport": "shuffle", "topology": "sliced", "codec": "fp32", "workers": "2"},
        ]
        fine, partial, jobs = unsupported.reasons(settings)
        assert fine == ""
        assert "partial sums" in partial
        assert "trains by Spark jobs" in jobs
        with pytest.raises(ConfigurationError, match=r"no codec called 'fp3'.*Did you mean 'fp32'"):
            unsupported.reasons([{**settings[0], "codec": "fp3"}])

    def test_a_plain_stream_on_loopback_has_a_bandwidth(self) -> None:
        assert link.measure_link_gbps(0.2) > 0


class TestMemory:
    def test_growth_is_between_the_windows_of_two_steps(self) -> None:
        reached_s = [float(step) for step in range(1001)]
        held = memory.Resident(reached_s, {"driver": [100 if moment < 500 else 104 for moment in reached_s]})
        found = memory.growth("driver", held, reached_s, (100, 900))
        assert (found.first_bytes, found.last_bytes) == (100, 104)
        assert found.share == pytest.approx(0.04)
        assert found.met

    def test_a_process_that_was_not_there_is_an_error(self) -> None:
        held = memory.Resident([1.0, 2.0], {"executor 0": [None, None]})
        with pytest.raises(RunFailedError, match="executor 0"):
            memory.growth("executor 0", held, [1.0, 2.0], (0, 1))

    def test_steps_are_placed_from_the_start_of_their_epoch(self, tmp_path: Path) -> None:
        events = [{"key": "epoch_start", "time_ms": 10_000}, {"key": "other", "time_ms": 1}]
        events.append({"key": "epoch_start", "time_ms": 20_000})
        (tmp_path / "events.jsonl").write_text("\n".join(json.dumps(event) for event in events))
        (tmp_path / "steps.json").write_text("[1000, 2000, 500]")
        (tmp_path / "run.json").write_text(json.dumps({"data": {"train_rows": 3}, "configuration": {"batch": "2"}}))
        assert memory.step_times(tmp_path) == [11.0, 13.0, 20.5]

    def test_a_net_of_the_models_suite_brings_its_rows_and_its_memory(self, tmp_path: Path) -> None:
        plan = memory.plan_of("resnet-18", "block-stream", (200, 2000), data_path="/mnist")
        assert (plan.data, plan.batch) == ("mnist", 4)
        case = memory.case_of(plan, "/mnist")
        assert (case.model, case.shape, case.steps, case.data_path) == ("resnet-18", (1, 28, 28), 2100, "/mnist")
        settings = models.net_of(plan.model).settings
        (tmp_path / "run.toml").write_text(contestant.run_file(case, str(tmp_path), settings))
        assert load_run_file(tmp_path / "run.toml").spark["spark.master"] == "local-cluster[2,1,3072]"
        # MNIST's rows fit no other shape.
        assert memory.plan_of("vgg-16", "block-stream", (1, 2), data_path="/mnist").data == "synthetic"
        assert memory.plan_of("mlp", "block-manager", (500, 5000)) == memory.MemoryPlan()

    def test_growth_is_from_an_earlier_step_to_a_later_one(self) -> None:
        with pytest.raises(ConfigurationError, match="--last-step"):
            memory.plan_of("mlp", "block-stream", (500, 500))

    @pytest.mark.parametrize(("last_bytes", "status"), [(104.0, 0), (106.0, 1)])
    def test_growth_above_the_limit_is_the_exit_status(
        self,
        cli: Callable[..., Any],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        last_bytes: float,
        status: int,
    ) -> None:
        growths = [memory.Growth("driver", 100.0, 90.0), memory.Growth("executor 0", 100.0, last_bytes)]
        monkeypatch.setattr(memory, "measure", lambda *_: growths)
        result = cli("bench", "memory", "--results", str(tmp_path))
        assert result.exit_code == status
        assert ("executor 0 by 6.0%; less than 5% is allowed" in result.output) == (status == 1)

    def test_a_run_that_fails_is_an_error_with_its_reason(self, tmp_path: Path) -> None:
        with pytest.raises(RunFailedError, match=r"no-such\.toml"):
            memory.watch_run(tmp_path / "no-such.toml", 120)


class FakeRun:
    """A run of 1,000 steps that ends with `weights`; notes what was done to it."""

    def __init__(self, weights: Any, executors: int = 100) -> None:
        self.weights, self.executors = weights, executors
        self.done: list[Any] = []

    def wait_for_executors(self, count: int) -> None:
        self.done.append(f"{count} executors")

    def wait_for_step(self, step: int) -> None:
        self.done.append(step)

    def kill_executor(self, which: int) -> bool:
        self.done.append("kill")
        self.executors -= 1
        return self.executors >= 0

    def finish(self) -> Any:
        return self.weights

    def stop(self) -> None:
        self.done.append("stop")

    def summary(self) -> Any:
        return {"final": {"steps": 1000, "ms_per_step_median": 1e-3}}


class TestSoak:
    expected = {"w": np.arange(3, dtype=np.float32)}  # noqa: RUF012

    def killed(self, run: Any, steps: list[int]) -> soak.KilledRun:
        return soak.killed_run(run, steps, 1e-6, random.Random(1), self.expected)

    def test_each_kill_waits_for_its_step(self) -> None:
        run = FakeRun(self.expected)
        outcome = self.killed(run, [20, 720])
        assert run.done == ["2 executors", 0, "kill", 500, "kill", "stop"]
        assert (outcome.kills, outcome.identical, outcome.held) == (2, True, True)

    def test_a_run_that_was_over_before_its_kill_proves_nothing(self) -> None:
        outcome = self.killed(FakeRun(self.expected, executors=0), [720])
        assert (outcome.kills, outcome.identical, outcome.held) == (0, True, False)

    def test_other_weights_and_failures_are_seen(self) -> None:
        assert not self.killed(FakeRun({"w": np.ones(3, np.float32)}), [20]).held
        run = FakeRun(self.expected)
        run.finish = Mock(side_effect=RunFailedError("its words"))  # type: ignore[method-assign]
        outcome = self.killed(run, [20])
        assert (outcome.held, outcome.error) == (False, "its words")
        assert run.done[-1] == "stop"

    def test_weights_are_the_same_bit_for_bit(self) -> None:
        zeros = np.zeros(2, np.float32)
        assert same({"w": zeros}, {"w": zeros.copy()})
        assert not same({"w": zeros}, {"w": -zeros})
        assert not same({"w": zeros}, {"v": zeros})

    def campaign(self, monkeypatch: pytest.MonkeyPatch, file: ResultFile, *runs: Any) -> list[Any]:
        """Runs the campaign over these runs, the undisturbed one before them; returns those that were not begun."""
        waiting = [FakeRun(self.expected), *runs]
        monkeypatch.setattr(soak, "KillableRun", lambda *_: waiting.pop(0))
        soak.campaign(soak.SoakPlan(runs=len(runs), kills=0), file)
        return waiting

    def test_one_wrong_sum_ends_the_campaign(self, monkeypatch: pytest.MonkeyPatch, result_file: ResultFile) -> None:
        fine, wrong = FakeRun(self.expected), FakeRun({"w": np.ones(3, np.float32)})
        unbegun = FakeRun(self.expected)
        with pytest.raises(RunFailedError, match="other weights than the undisturbed run"):
            self.campaign(monkeypatch, result_file, fine, wrong, unbegun)
        assert unbegun.done == []
        assert [each["identical"] for each in result_file.content["outcomes"]] == [True, False]

    def test_what_the_file_holds_is_not_made_again(
        self, monkeypatch: pytest.MonkeyPatch, result_file: ResultFile
    ) -> None:
        first = soak.KilledRun([20], 1, True, "", 1.0)
        result_file.set("outcomes", [asdict(first)])
        second, unbegun = FakeRun(self.expected), FakeRun(self.expected)
        assert self.campaign(monkeypatch, result_file, second, unbegun) == [unbegun]
        assert [each["identical"] for each in result_file.content["outcomes"]] == [True, True]
        assert result_file.content["outcomes"][0] == asdict(first)
        # Nothing is left, not even the undisturbed run; and a wrong sum stays one.
        assert soak.campaign(soak.SoakPlan(runs=2, kills=0), result_file)[0] == first
        result_file.set("outcomes", [asdict(soak.KilledRun([20], 1, False, "", 1.0))])
        with pytest.raises(RunFailedError, match="other weights than the undisturbed run"):
            soak.campaign(soak.SoakPlan(runs=2, kills=0), result_file)

    def test_one_run_that_hangs_ends_the_campaign(
        self, monkeypatch: pytest.MonkeyPatch, result_file: ResultFile
    ) -> None:
        hung = FakeRun(self.expected)
        hung.finish = Mock(side_effect=RunHungError("It has not ended after 300 s."))  # type: ignore[method-assign]
        with pytest.raises(RunFailedError, match=r"hung\. It has not ended after 300 s\."):
            self.campaign(monkeypatch, result_file, hung)
        assert hung.done[-1] == "stop"

    def test_one_clean_failure_of_twenty_is_allowed(
        self, monkeypatch: pytest.MonkeyPatch, result_file: ResultFile
    ) -> None:
        failed = FakeRun(self.expected)
        failed.finish = Mock(side_effect=RunFailedError("its words"))  # type: ignore[method-assign]
        assert self.campaign(monkeypatch, result_file, failed, FakeRun(self.expected)) == []
        held = soak.KilledRun([1], 1, True, "", 1.0)
        miss = soak.KilledRun([1], 1, False, "its words", 1.0)
        assert soak.missed([*[held] * 19, miss]) == ""
        assert soak.missed([]) == ""
        assert "18 of 20" in soak.missed([*[held] * 18, miss, miss])
        assert "its words" in soak.missed([*[held] * 18, miss, miss])

    def test_memory_is_part_of_it(
        self, cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        watched: list[Any] = []

        def measure(plan: memory.MemoryPlan, *_: Any) -> list[memory.Growth]:
            watched.append((plan.model, plan.transport, plan.first_step, plan.last_step))
            return [memory.Growth("driver", 100.0, 106.0 if plan.transport == "block-manager" else 101.0)]

        monkeypatch.setattr(soak, "campaign", lambda *_: [])
        monkeypatch.setattr(memory, "measure", measure)
        result = cli("bench", "soak", "--results", str(tmp_path))
        assert watched == [
            ("mlp", "block-manager", 500, 5000),
            ("mlp", "block-stream", 1000, 10000),
            ("resnet-18", "block-stream", 200, 2000),
        ]
        assert result.exit_code == 1
        assert "mlp over block-manager, steps 500 and 5,000" in result.output


class TestCommand:
    def test_algorithms_are_skipped_without_mnist(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("SPARKDL_DATA", raising=False)
        done = CliRunner().invoke(bench_command, ["algorithms"])
        assert done.exit_code == 0
        assert "Skipped: the algorithms are compared on MNIST alone" in done.output

    def test_suites_are_found_by_scanning(self) -> None:
        result = CliRunner().invoke(bench_command, ["--help"])
        assert result.exit_code == 0
        assert "short" in result.output
        assert "memory" in result.output

    @pytest.mark.parametrize(
        "suite", ["short", "net", "train", "ladder", "algorithms", "models", "data", "peers", "namespaces", "soak"]
    )
    def test_every_suite_of_make_resumes(self, suite: str) -> None:
        assert "--resume" in CliRunner().invoke(bench_command, [suite, "--help"]).output

    def test_make_hands_options_on(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
        said = subprocess.run(
            ["make", "-n", "bench", "bench-train", "bench-models", "soak", "ARGS=--resume"],
            cwd=ROOT,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
        ).stdout
        suites = re.findall(r"sparkdl_bench\.bench (\S+) --resume$", said, re.MULTILINE)
        assert suites == ["short", "train", "ladder", "algorithms", "models", "faults", "soak"]

    def test_wrong_sizes_are_refused(self, cli: Callable[..., Any]) -> None:
        result = cli("net", "--sizes", "1,x")
        assert result.exit_code == 2
        assert "1,x" in result.output

    def test_net_writes_a_line_a_row(self, cli: Callable[..., Any], tmp_path: Path) -> None:
        out = tmp_path / "rows.jsonl"
        result = cli(
            *("net", "--sizes", "5,50", "--transports", "memcpy", "--iterations", "3", "--warmup", "1"),
            *("--json", str(out)),
        )
        assert result.exit_code == 0, result.output
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        assert [row["elements"] for row in rows] == [5, 50]
        assert all(row["correct"] for row in rows)

    def test_net_shows_the_rows_there_are_when_one_fails(
        self, cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def run_way(way: Way, *_: Any) -> Taken:
            if way.elements == 50:
                raise RunFailedError("It broke.")
            return Taken([1.0], way.elements != 7, "here")

        monkeypatch.setattr(net, "run_way", run_way)
        monkeypatch.setattr(link, "measure_link_gbps", lambda: 1.0)
        out = tmp_path / "rows.jsonl"
        result = cli("net", "--sizes", "5,50,7", "--transports", "memcpy", "--json", str(out))
        assert result.exit_code == 1
        assert [json.loads(line)["elements"] for line in out.read_text().splitlines()] == [5, 7]
        assert "memcpy, 1 workers, 50 values: FAILED. It broke." in result.output
        assert "memcpy (1 workers, 7 values) gave wrong sums." in result.output
        assert "All-reduce of fp32 values" in result.output

    def test_net_refuses_a_name_that_is_none_before_anything_runs(
        self, cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(net, "spark_transport_missing", lambda _: None)
        monkeypatch.setattr(
            unsupported, "reasons", Mock(side_effect=ConfigurationError("There is no transport called 'glooo'."))
        )
        monkeypatch.setattr(link, "measure_link_gbps", Mock(side_effect=AssertionError("it runs")))
        kept = tmp_path / "rows.jsonl"
        kept.write_text("an earlier row")
        result = cli("net", "--sizes", "5", "--transports", "glooo", "--json", str(kept))
        assert result.exit_code == 2
        assert "no transport called 'glooo'. Peers that all-reduce: gloo, memcpy, mpi." in result.output
        assert kept.read_text() == "an earlier row"


@pytest.fixture
def cli() -> Callable[..., Any]:
    """The whole command line, in this process; standard error is part of `output`."""
    from sparkdl_bench.cli import cli as whole

    return lambda *arguments: CliRunner().invoke(whole, list(arguments))
