"""The ruler itself: mutants of the measuring code that once survived, each with the test that ends it.

Numbers are made anew from raw samples by code of this file, and what really runs is observed: commands, environments
and files.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import random
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import idx
from sparkdl_bench import machine, peers, statistics
from sparkdl_bench.bench import (
    collective,
    congestion,
    contestant,
    net,
    spark_collective,
    store,
    suite,
    table,
    trials,
)
from sparkdl_bench.bench.collective import Taken, Way
from sparkdl_bench.bench.store import ResultFile, Trial
from sparkdl_bench.bench.suite import Options
from sparkdl_bench.bench.trials import Comparison, Outcome
from sparkdl_bench.config import load_run_file
from sparkdl_bench.errors import ConfigurationError, RunFailedError
from sparkdl_bench.peers import CollectiveCase, Measurement, Sample, TrainCase, _base, _process, bigdl
from sparkdl_bench.peers.programs.measure import _channel, _harness
from suites import ladder, models, short, train
from suites import net as net_suite
from suites import peers as peers_suite

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def result_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ResultFile:
    monkeypatch.setattr(machine, "_java_version", lambda: "17")  # which starts a JVM to ask
    return store.create(tmp_path, "short", {"trials": 5, "data": "synthetic"})


@pytest.fixture
def shared(tmp_path: Path) -> Options:
    return Options(resume=False, trials=5, data_path="", peers_dir=tmp_path, results=tmp_path, timeout_s=1)


def fill(file: ResultFile, name: str, samples: Sequence[Sequence[float]], steps: int = 1) -> None:
    for number, each in enumerate(samples, start=1):
        file.add(name, number, Trial(list(each), steps, {}))


def compared(file: ResultFile) -> Outcome:
    return trials.compare(Comparison("x", "ours", "theirs", 1.0), file)


class TestOutcome:
    """Ours as minimum beside the peer's maximum; a 50 % interval called 95 %; doubled times."""

    def samples(self, seed: int, middle: float) -> list[list[float]]:
        chance = random.Random(seed)
        return [[round(middle * chance.uniform(0.5, 2.0), 3) for _ in range(31)] for _ in range(5)]

    def test_each_side_is_the_median_of_its_trials_medians(self, result_file: ResultFile) -> None:
        ours, theirs = self.samples(1, 3.0), self.samples(2, 4.0)
        fill(result_file, "ours", ours)
        fill(result_file, "theirs", theirs)
        outcome = compared(result_file)
        expected = [median(median(trial) for trial in side) for side in (ours, theirs)]
        assert [outcome.ours_ms, outcome.theirs_ms] == pytest.approx(expected, rel=1e-9)
        assert outcome.ratio == pytest.approx(expected[0] / expected[1], rel=1e-9)
        tails = [sorted(value for trial in side for value in trial) for side in (ours, theirs)]
        for found, tail in zip((outcome.ours_p90_ms, outcome.theirs_p90_ms), tails, strict=True):
            assert tail[int(0.9 * len(tail)) - 2] <= found <= tail[int(0.9 * len(tail)) + 1]
        assert (outcome.trials, outcome.target) == (5, 1.0)

    def test_the_interval_is_one_of_95_percent(self, result_file: ResultFile) -> None:
        ours, theirs = self.samples(3, 3.0), self.samples(4, 3.0)
        fill(result_file, "ours", ours)
        fill(result_file, "theirs", theirs)
        outcome = compared(result_file)
        assert outcome.low is not None
        assert outcome.high is not None
        # All resamples of five medians, by their number of equal draws: no random numbers.
        sides = [resampled_medians([median(trial) for trial in side]) for side in (ours, theirs)]
        ratios = [(one / other, p * q) for one, p in sides[0].items() for other, q in sides[1].items()]
        below = sum(p for ratio, p in ratios if ratio < outcome.low - 1e-9)
        above = sum(p for ratio, p in ratios if ratio > outcome.high + 1e-9)
        # One step of the distribution is wider than chance; an interval of 50 % would leave out a quarter a side.
        assert below < 0.03
        assert above < 0.03
        inside = sum(p for ratio, p in ratios if outcome.low + 1e-9 < ratio < outcome.high - 1e-9)
        assert inside < 0.96
        assert statistics.CONFIDENCE == 0.95

    def test_a_single_trial_has_no_interval(self, result_file: ResultFile) -> None:
        fill(result_file, "ours", [[3.0, 3.0, 3.0]])
        fill(result_file, "theirs", [[2.0, 2.0, 2.0]] * 5)
        outcome = compared(result_file)
        assert (outcome.low, outcome.high, outcome.trials) == (None, None, 1)
        assert shown(outcome)[3:6] == ["1.500", "1", "1.00, 1.00"]
        fill(result_file, "ours", [[3.0, 3.0, 3.0]] * 2)
        assert shown(compared(result_file))[3:5] == ["1.500 [1.500, 1.500]", "2"]

    @pytest.mark.parametrize(
        ("last", "steady"), [(1.0, True), (1.1, True), (1.11, False), (0.9, True), (0.89, False), (0.5, False)]
    )
    def test_drift_beyond_a_tenth_either_way_is_not_steady(
        self, result_file: ResultFile, last: float, steady: bool
    ) -> None:
        samples = [[1.0] * 4 + [9.0] + [last] * 4] * 5
        fill(result_file, "ours", samples)
        fill(result_file, "theirs", [[1.0] * 9] * 5)
        ours = compared(result_file)
        assert (ours.ours_drift, ours.theirs_drift) == pytest.approx((last, 1.0))
        assert ours.steady == steady
        assert ("not steady" in " ".join(shown(ours))) != steady
        theirs = trials.compare(Comparison("x", "theirs", "ours", 1.0), result_file)
        assert theirs.steady == steady
        assert f"{last:.2f}" in shown(theirs)[5]

    def test_fewer_than_five_trials_stand_out(self) -> None:
        assert [table.trials_text(count) for count in (1, 4, 5, 6)] == ["[bold]1[/bold]", "[bold]4[/bold]", "5", "6"]

    def test_a_row_of_all_reduces_is_judged_by_each_trial(self) -> None:
        # One trial after the other is slower, and none of them drifts.
        slower = [Taken([float(level)] * 9, True, "tcp") for level in (1, 2, 3)]
        row = collective.row(Way("gloo", 2, 10), slower, 1.0)
        assert (row.drift, row.trials, row.median_ms) == (1.0, 3, 2.0)
        samples = [1.0, 5.0, 2.0, 8.0, 3.0, 1.0, 2.0, 9.0, 4.0, 2.0, 1.0]
        row = collective.row(Way("gloo", 2, 250_000), [Taken(samples, True, "tcp")], 1.0)
        assert row.median_ms == sorted(samples)[5]
        assert row.algbw_gbps == pytest.approx(8e6 / 1e9 / (row.median_ms / 1e3))
        assert row.p90_ms == sorted(samples)[9]

    def test_samples_go_to_the_file_as_they_were_taken(self, result_file: ResultFile) -> None:
        fill(result_file, "ours", [[1.25, 2.5]], steps=10)
        cell = json.loads(result_file.path.read_text())["cells"]["ours/1"]
        assert (cell["samples_ms"], cell["steps"]) == ([1.25, 2.5], 10)


def resampled_medians(values: Sequence[float]) -> dict[float, float]:
    """Each median of five draws from five values, with its probability."""
    found: dict[float, float] = {}
    for draw in itertools.product(values, repeat=len(values)):
        middle = sorted(draw)[len(values) // 2]
        found[middle] = found.get(middle, 0.0) + len(values) ** -float(len(values))
    return found


def shown(outcome: Outcome) -> list[str]:
    """The cells of the outcome's row on a terminal."""
    written = io.StringIO()
    table.show_outcomes("A table", [outcome], Console(file=written, width=200))
    (row,) = [line for line in written.getvalue().splitlines() if " | " in line and "│" in line]
    return [cell.strip() for cell in row.split("│")[1:-1]]


class TestLikeForLike:
    """Ours on half the batch; BLAS threads pinned to 1; warm-up dropped or counted."""

    def plans(self, shared: Options) -> list[tuple[list[Any], list[Comparison]]]:
        nets = models.NETS
        grouped = [
            (short.ShortPlan().groups(shared), short.COMPARISONS),
            (train.TrainPlan().groups(shared), train.COMPARISONS),
            (ladder.LadderPlan().groups(shared), ladder.COMPARISONS),
            (models.groups(nets, {each.name: "{}" for each in nets}, shared), models.comparisons(nets)),
        ]
        of_peers = peers_suite.PeersPlan().groups(shared)
        grouped.append((of_peers, peers_suite.comparisons(of_peers)))
        return [([each for group in groups for each in group], list(found)) for groups, found in grouped]

    def test_both_sides_of_a_comparison_do_the_same_work(self, shared: Options) -> None:
        seen = 0
        for contestants, comparisons in self.plans(shared):
            cases = {each.name: each.case for each in contestants}
            for each in comparisons:
                ours, theirs = cases[each.ours], cases[each.theirs]
                for name in ("batch", "hidden", "features", "classes", "rows", "learning_rate", "data_path", "model"):
                    assert getattr(ours, name) == getattr(theirs, name), f"{each.title}: {name}"
                seen += 1
        assert seen > 60

    def test_two_workers_are_held_against_as_many_cores(self, shared: Options) -> None:
        def cores(case: TrainCase) -> int:
            return case.workers * case.threads

        fewer = []
        for contestants, comparisons in self.plans(shared):
            cases = {each.name: each.case for each in contestants}
            fewer += [
                (each.title, each.target)
                for each in comparisons
                if cores(cases[each.ours]) != cores(cases[each.theirs])
            ]
        # Fewer cores are shown for information; a comparison of ours with ours asks whether a second worker pays.
        assert [title for title, target in fewer if target is not None and "2 workers beside 1" not in title] == []
        assert "batch 128, 2 × 1 core beside 1 core, sockets" in [title for title, _ in fewer]
        for contestants, comparisons in self.plans(shared):
            names = {each.name: each for each in contestants}
            two = [each for each in comparisons if names[each.ours].case.workers == 2]
            rivals = {(names[each.theirs].case.workers, names[each.theirs].case.threads) for each in two}
            if any("pytorch" in each.theirs for each in two):
                assert {(1, 2), (2, 1)} <= rivals

    def test_ours_runs_the_batch_and_steps_of_its_case(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        seen: list[Any] = []

        def run_to_end(name: str, command: Sequence[str], timeout_s: float, environment: Mapping[str, str]) -> None:
            assert environment == {}, "our own checkout needs no other path"
            conf = Path(command[-1])
            seen.append((list(command), load_run_file(conf, ()).settings, timeout_s))
            folder = conf.parent / "results" / "one"
            folder.mkdir(parents=True)
            finished_run(folder, [9.0] * 30 + [1.0, 2.0, 3.0])

        monkeypatch.setattr(contestant, "run_to_end", run_to_end)
        case = TrainCase(batch=96, workers=2, warmup_steps=30, steps=3, rows=960, learning_rate=0.25, threads=2)
        trial = contestant.OursContestant("ours", case, {"transport": "block-stream"}).measure(7.0)
        ((command, settings, timeout_s),) = seen
        assert command[:4] == [sys.executable, "-m", "sparkdl_bench", "run"]
        assert timeout_s == 7.0
        # 33 steps of 96 rows are 3.3 passes over 960.
        assert settings["epochs"] == "5"
        wanted = {"batch": "96", "workers": "2", "max_steps": "33", "engine.threads": "2", "data.rows": "960"}
        assert {name: settings[name] for name in wanted} == wanted
        assert float(settings["optimizer.learning_rate"]) == 0.25
        assert (trial.samples_ms, trial.steps) == ([1.0, 2.0, 3.0], 1)

    def test_the_engine_trains_on_the_rows_that_the_peers_train_on(
        self, monkeypatch: pytest.MonkeyPatch, shared: Options
    ) -> None:
        seen: list[Any] = []

        def measured(name: str, command: Sequence[str], case: TrainCase, timeout_s: float) -> Measurement:
            folder = Path(command[-1])
            seen.append((np.fromfile(folder / "features.f32", "<f4"), np.fromfile(folder / "labels.i64", "<i8"), case))
            assert command[-2] == contestant.ENGINE_MAIN
            return Measurement(tuple(Sample(2.5) for _ in range(case.steps)), {"threads": str(case.threads)})

        monkeypatch.setattr(contestant, "measure", measured)
        monkeypatch.setattr(contestant, "jvm_class_path", lambda: "jars")
        case = TrainCase(batch=8, features=5, rows=40, steps=3, threads=2)
        trial = contestant.EngineContestant("libtorch-2", case).measure(5.0)
        ((features, labels, given),) = seen
        x, y = _harness.training_rows({"data_path": "", "rows": 40, "features": 5, "classes": 10})
        assert given == case
        assert features.tobytes() == x.tobytes()
        assert labels.tobytes() == y.tobytes()
        assert len(np.unique(features)) > 150
        assert trial.samples_ms == [2.5] * 3

    @pytest.mark.parametrize(
        ("samples", "facts", "said"),
        [
            ([Sample(1.0)] * 39, {}, "measured 39 steps where 40 were asked for"),
            ([Sample(1.0)] * 41, {}, "measured 41 steps"),
            ([Sample(1.0, 10)] * 2, {}, "measured 20 steps"),
            ([Sample(1.0)] * 40, {"threads": 1}, "computed with 1 threads where 2 were asked for"),
            ([Sample(1.0)] * 40, {"threads": "3"}, "computed with 3 threads"),
        ],
    )
    def test_a_peer_that_did_other_work_is_no_contestant(
        self, monkeypatch: pytest.MonkeyPatch, samples: list[Sample], facts: dict[str, object], said: str
    ) -> None:
        case = TrainCase(steps=40, threads=2)
        found = types.SimpleNamespace(run=lambda *_: Measurement(tuple(samples), facts))
        monkeypatch.setattr(peers, "find", lambda _: found)
        with pytest.raises(RunFailedError, match=said):
            contestant.PeerContestant("peer", "pytorch", case).measure(1.0)

    def test_blocks_and_threads_that_fit_are_taken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = types.SimpleNamespace(run=lambda *_: Measurement((Sample(1.0, 10),) * 3, {"threads": "300"}))
        monkeypatch.setattr(peers, "find", lambda _: found)
        trial = contestant.PeerContestant("peer", "bigdl", TrainCase(steps=39, threads=300)).measure(1.0)
        assert (trial.samples_ms, trial.steps) == ([1.0] * 3, 10)

    def test_peers_compute_with_the_threads_of_their_case(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        seen = observed(monkeypatch)
        libraries = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        for name, case in [
            ("pytorch", TrainCase(threads=2)),
            ("pytorch-ddp", TrainCase(workers=2, threads=3)),
            ("bigdl", TrainCase(workers=2, threads=2)),
            ("pytorch-model", TrainCase(threads=4, specification="{}")),
        ]:
            peers.find(name).run(case, 5, tmp_path)
            assert [seen[-1]["environment"][each] for each in libraries] == [str(case.threads)] * 3, name
            assert seen[-1]["case"] == case
        peers.find("gloo").run(CollectiveCase(), 5, tmp_path)
        assert [seen[-1]["environment"][each] for each in libraries] == ["1"] * 3

    def test_the_session_of_the_all_reduces_is_a_users(self) -> None:
        options = spark_collective.session_options(2, {"spark.authenticate": "true"})
        # Neither collector nor threads nor the kind of sockets: those are the session's own.
        own = {"spark.master", "spark.app.name", "spark.executor.memory", "spark.authenticate"}
        assert set(options) == own
        assert options["spark.master"] == "local-cluster[2,1,2048]"

    def test_warm_up_and_measured_all_reduces_reach_the_measuring_process(self) -> None:
        asked: list[Mapping[str, str]] = []

        def run(settings: Mapping[str, str]) -> list[dict[str, Any]]:
            asked.append(settings)
            return [{"samples_ms": [1.0, 2.0], "correct": True}]

        case = {"elements": 7, "warmup": 30, "iterations": 2}
        record = spark_collective._call(types.SimpleNamespace(net=run), {"transport": "tcp"}, case)
        assert asked == [
            {"transport": "tcp", "net.elements": "7", "net.warmup": "30", "net.iterations": "2"},
        ]
        assert record == {"samples_ms": [1.0, 2.0], "steps": 1, "facts": {"correct": True}}

    def test_warm_up_and_measured_all_reduces_reach_peers_and_ours(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        seen: list[Any] = []
        taken = Taken([1.0], True, "tcp")
        monkeypatch.setattr(net, "run_spark_transport", lambda *arguments: seen.append(arguments[1:4]) or taken)
        found = types.SimpleNamespace(run=lambda case, *_: seen.append(case) or _measured(case))
        monkeypatch.setattr(peers, "find", lambda _: found)
        assert net.run_way(Way("tcp", 2, 10), (30, 2), 5.0, tmp_path) == taken
        assert net.run_way(Way("mpi", 2, 10, host_local=True), (30, 2), 5.0, tmp_path).samples_ms == [4.0, 4.0]
        assert seen == [(30, 2, 5.0), CollectiveCase(10, 2, True, 30, 2)]

    def test_every_way_is_measured_as_often_as_planned(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        asked: list[str] = []
        monkeypatch.setattr(net, "run_way", lambda way, *_: asked.append(way.transport) or Taken([1.0], True, "here"))
        plan = net.NetPlan(sizes=(10,), workers=(2,), transports=("a", "b"), trials=3)
        sweep = net.Sweep(((Way("a", 2, 10), Way("b", 2, 10)),), ())
        rows = list(net.measure(plan, sweep, 10.0, tmp_path, lambda _: None))
        assert asked == ["a", "b"] * 3
        assert [getattr(row, "trials", 0) for row in rows] == [3, 3]

    def test_our_engine_has_our_jars_and_sparks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import pyspark

        monkeypatch.setattr(
            contestant, "find_jars", lambda _: types.SimpleNamespace(all=[Path("a.jar"), Path("b.jar")])
        )
        own = Path(pyspark.__file__).parent / "jars" / "*"
        assert contestant.jvm_class_path() == f"a.jar:b.jar:{own}"


def _measured(case: CollectiveCase) -> Measurement:
    return Measurement((Sample(4.0),) * case.iterations, {"correct": True, "channel": "tcp"})


def observed(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Peers start nothing from now on; what each would have started."""
    seen: list[dict[str, Any]] = []

    def measured(name: str, command: Sequence[str], case: Any, timeout_s: float, environment: Any, out: Any) -> Any:
        seen.append({"command": list(command), "case": case, "environment": dict(environment)})
        return Measurement((Sample(1.0),), {})

    monkeypatch.setattr("sparkdl_bench.peers._process.measure", measured)
    monkeypatch.setattr(_base.EnvironmentPeer, "missing", lambda *_: None)
    monkeypatch.setattr("sparkdl_bench.peers._environment.Environment.site_packages", lambda *_: Path("site"))
    return seen


def finished_run(folder: Path, steps_ms: list[float]) -> None:
    (folder / "steps.json").write_text(json.dumps(steps_ms))
    (folder / "run.json").write_text(json.dumps({"versions": {}, "engine": {}}))
    final = {"ms_per_step_median": 5.5, "train_loss": 0.1}
    summary = {"variant": {}, "phases_ms": {}, "final": final, "bytes": {}}
    (folder / "summary.json").write_text(json.dumps(summary))


class TestPrograms:
    """Times doubled, warm-up dropped or counted, in the programs that measure the peers."""

    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        now = [0]
        monkeypatch.setattr(_harness.time, "perf_counter_ns", lambda: now[0])
        return now

    def test_each_sample_is_its_steps_time_after_the_warm_up(self, clock: list[int]) -> None:
        made: list[int] = []

        def step(index: int) -> None:
            made.append(index)
            clock[0] += 1_000_000 * (index + 1)

        assert _harness.time_steps(step, 3, 4) == [4.0, 5.0, 6.0, 7.0]
        assert made == list(range(7))

    def test_samples_are_written_as_they_are_and_read_back(self, tmp_path: Path) -> None:
        out = tmp_path / "out.jsonl"
        _harness.write(out, [1.5, 2.5], {"threads": 2}, steps=10)
        measurement = _process._read("peer", out)
        assert measurement.samples == (Sample(1.5, 10), Sample(2.5, 10))
        assert measurement.facts == {"threads": 2}

    @pytest.mark.parametrize("warmup", [0, 7])
    def test_bigdl_is_measured_from_end_to_end_of_its_iterations(self, warmup: int) -> None:
        program = program_of("bigdl_mlp")
        # The warm-up takes 5 s an iteration, the others 0.1 s more each block of ten.
        intervals = [5.0] * warmup + [0.1] * 10 + [0.2] * 10 + [0.3] * 10
        ended = list(itertools.accumulate(intervals))
        found = program._block_means_ms(ended, {"warmup_steps": warmup})
        expected = [100.0, 200.0, 300.0] if warmup else [110.0, 210.0]
        assert found == pytest.approx(expected)

    @pytest.mark.parametrize("ranks", [1, 3])
    def test_openmpi_writes_the_mean_over_the_ranks(
        self, monkeypatch: pytest.MonkeyPatch, clock: list[int], tmp_path: Path, ranks: int
    ) -> None:
        """A communicator in which every rank does what this one does: sums are as many times as large."""
        timed: list[int] = []

        class World:
            size, rank = ranks, 0

            def Barrier(self) -> None: ...

            def Allreduce(self, _place: object, values: Any, op: object) -> None:
                timed.append(len(values))
                clock[0] += 2_000_000
                values *= ranks

            def allgather(self, value: Any) -> list[Any]:
                return [value] * ranks

            def allreduce(self, value: Any, op: object) -> Any:
                return value

        fake = types.SimpleNamespace(
            COMM_WORLD=World(), IN_PLACE=0, SUM=0, LAND=0, Get_library_version=lambda: "Open MPI v5, rest"
        )
        monkeypatch.setitem(sys.modules, "mpi4py", types.SimpleNamespace(MPI=fake))
        program = program_of("mpi_allreduce")
        case = {"workers": ranks, "elements": 4, "warmup": 3, "iterations": 2, "host_local": True}
        monkeypatch.setattr(program, "read_arguments", lambda: (case, tmp_path / "out.jsonl"))
        program.main()
        measurement = _process._read("mpi", tmp_path / "out.jsonl")
        assert measurement.samples == (Sample(2.0), Sample(2.0))
        # A check, three of warm-up, two measured, a check, and the sum of the two times.
        assert timed == [4] * 7 + [2]
        # Every rank claims the same connections, and none is to another: what a case asks for is no evidence.
        assert measurement.facts["channel"] == ("none" if ranks == 1 else "unknown")
        # These ranks do not add up 0, 1 and 2.
        assert measurement.facts["correct"] is (ranks == 1)

    @pytest.mark.parametrize(("size", "rank"), [(1, 0), (2, 1), (3, 0), (4, 2)])
    @pytest.mark.parametrize("wrong", [None, 0, 2499])
    def test_openmpi_s_sums_are_right_when_each_value_is(
        self, monkeypatch: pytest.MonkeyPatch, size: int, rank: int, wrong: int | None
    ) -> None:
        """Sums that are added up here, one rank after the other; in each place one value may be off."""

        def add_up(_place: object, values: Any, op: object) -> None:
            # What this rank gave, and so what all gave: the place's own number below 1,000, and each rank's.
            assert values.tolist() == [place % 1000 + rank for place in range(2500)]
            values[:] = [sum(place % 1000 + each for each in range(size)) for place in range(2500)]
            if wrong is not None:
                values[wrong] += 1

        fake = types.SimpleNamespace(IN_PLACE=0, SUM=0)
        monkeypatch.setitem(sys.modules, "mpi4py", types.SimpleNamespace(MPI=fake))
        world = types.SimpleNamespace(size=size, rank=rank, Allreduce=add_up)
        assert program_of("mpi_allreduce")._is_correct(world, {"elements": 2500}) == (wrong is None)

    def test_a_program_takes_a_case_and_a_file(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "case.json").write_text('{"workers": 2}')
        words = ["program", str(tmp_path / "case.json"), "out.jsonl"]
        monkeypatch.setattr(sys, "argv", words)
        assert _harness.read_arguments() == ({"workers": 2}, Path("out.jsonl"))
        for wrong in (words[:2], [*words, "more"]):
            monkeypatch.setattr(sys, "argv", wrong)
            with pytest.raises(SystemExit, match=r"usage: program CASE\.json OUT\.jsonl"):
                _harness.read_arguments()

    def test_rows_are_mnist_s_first_ones_as_shares_of_255(self, tmp_path: Path) -> None:
        images = np.arange(3 * 2 * 2, dtype=np.uint8).reshape(3, 2, 2) * 20
        idx.write(tmp_path, idx.TRAIN, idx.Set(images, np.asarray([3, 1, 2], np.uint8)), compressed=True)
        x, y = _harness.training_rows({"data_path": str(tmp_path), "features": 4, "rows": 2})
        np.testing.assert_allclose(x, np.arange(8).reshape(2, 4) * 20 / 255, rtol=1e-6)
        assert (x.dtype, y.dtype, y.tolist()) == (np.float32, np.int64, [3, 1])
        made, labels = _harness.training_rows({"data_path": "", "features": 4, "rows": 500, "classes": 3})
        assert (made.shape, made.dtype, labels.dtype) == ((500, 4), np.float32, np.int64)
        assert set(labels.tolist()) == {0, 1, 2}
        assert 0 <= made.min() < 0.01 < 0.99 < made.max() <= 1

    @pytest.mark.parametrize(("rows", "workers"), [(40, 1), (40, 3), (47, 2), (8, 2), (7, 2)])
    def test_every_full_batch_is_shared_out_to_the_last_row(self, rows: int, workers: int) -> None:
        shares = [_harness.batches({"batch": 8}, rows, rank, workers) for rank in range(workers)]
        taken = [sorted(row for share in shares for row in range(rows)[share[at]]) for at in range(len(shares[0]))]
        assert taken == [list(range(8 * at, 8 * at + 8)) for at in range(rows // 8)]
        assert _harness.batches({"batch": 8}, rows) == [slice(at, at + 8) for at in range(0, rows - 7, 8)]

    def test_bigdl_s_blocks_are_as_long_as_its_peer_says(self) -> None:
        assert peers.find("bigdl").name == "bigdl"
        assert bigdl.SAMPLE_STEPS == program_of("bigdl_mlp").BLOCK_STEPS == 10
        bigdl.PEER.check(TrainCase(steps=20))
        with pytest.raises(ConfigurationError, match=r"takes one sample every 10 steps; 19 .* Ask for at least 20"):
            bigdl.PEER.check(TrainCase(steps=19))

    def test_our_engine_of_its_name_computes_with_bigdl_s_jars(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        with pytest.raises(ConfigurationError, match=r"engine\.name=bigdl computes with the jars of BigDL\. "):
            bigdl.PEER.engine_jars(tmp_path)
        observed(monkeypatch)
        monkeypatch.setattr("sparkdl_bench.peers._environment.Environment.site_packages", lambda *_: tmp_path)
        for name in ("dllib/lib/b.jar", "core/lib/a.jar", "core/other/c.jar", "core/lib/d.txt"):
            file = tmp_path / "bigdl" / "share" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        assert [each.name for each in bigdl.PEER.engine_jars(tmp_path)] == ["a.jar", "b.jar"]

    def test_connections_are_read_from_the_kernel(self) -> None:
        import socket

        with socket.create_server(("127.0.0.1", 0)) as server:
            ours = f":{server.getsockname()[1]:04X}"
            with socket.create_connection(server.getsockname()) as client:
                accepted, _ = server.accept()
                with accepted:
                    # Of this test alone: other threads of this process may have connections of their own.
                    new = {pair for pair in _channel.own_connections() if any(end.endswith(ours) for end in pair)}
                    port = f"{client.getsockname()[1]:04X}"
        assert len(new) == 2
        assert sorted(own.endswith(port) for own, _ in new) == [False, True]
        assert {own for own, _ in new} == {other for _, other in new}

    def test_a_channel_is_what_the_ranks_show(self) -> None:
        alone: list[list[tuple[str, str]]] = [[("a:1", "x:9")], [("a:2", "x:9")]]
        joined = [[("a:1", "a:2")], [("a:2", "a:1")]]
        assert _channel.told(joined, [False, False]) == "tcp"
        assert _channel.told(alone, [True, True]) == "shared memory"
        assert _channel.told(joined, [True, True]) == "tcp + shared memory"
        assert _channel.told(alone, [True, False]) == "unknown"
        assert _channel.told([[("a:1", "a:1")], []], [False, False]) == "unknown"


def program_of(name: str) -> Any:
    """A measuring program, imported anew."""
    import importlib

    full = f"sparkdl_bench.peers.programs.measure.{name}"
    sys.modules.pop(full, None)
    return importlib.import_module(full)


class TestOpenMpi:
    """Swapped channels; a binding that is not OpenMPI's own."""

    def command(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, workers: int, host_local: bool) -> list[str]:
        seen = observed(monkeypatch)
        monkeypatch.setattr("psutil.cpu_count", lambda logical: 8 if logical else 4)
        peers.find("mpi").run(CollectiveCase(workers=workers, host_local=host_local), 5, tmp_path)
        return list(seen[-1]["command"])

    def test_each_channel_is_the_one_that_was_asked_for(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        for host_local, layers in ((True, "sm,self"), (False, "tcp,self")):
            words = self.command(monkeypatch, tmp_path, 2, host_local)
            assert words[words.index("pml") + 1] == "ob1"
            assert words[words.index("btl") + 1] == layers
            assert ("btl_tcp_if_include" in words) != host_local

    def test_our_transports_take_the_channel_that_was_asked_for(self) -> None:
        def settings(transport: str, host_local: bool) -> dict[str, str]:
            return spark_collective.run_settings(Way(transport, 2, 10, host_local=host_local))

        assert [settings("block-stream", each)["host_local"] for each in (True, False)] == ["on", "off"]
        layers = [set(settings("ucx", each)["ucx.tls"].split(",")) for each in (True, False)]
        assert ["tcp" in each for each in layers] == [False, True]
        assert layers[1] == {"tcp", "self"}
        words = [settings("mpi", each)["mpi.options"].split() for each in (True, False)]
        assert [each[each.index("btl") + 1] for each in words] == ["sm,self", "tcp,self"]
        assert [each[each.index("pml") + 1] for each in words] == ["ob1", "ob1"]
        # The transport of ours, where a peer has the same name.
        assert settings("ours:mpi", True)["mpi.options"] == settings("mpi", True)["mpi.options"]
        assert spark_collective.host_local_choices("tcp") == (False,)
        assert spark_collective.host_local_choices("ours:mpi") == (False, True)

    def test_ranks_are_bound_as_openmpi_does_it(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        few = self.command(monkeypatch, tmp_path, 4, False)
        many = self.command(monkeypatch, tmp_path, 5, False)
        assert "--bind-to" not in few + many
        assert ("--oversubscribe" in few, "--oversubscribe" in many) == (False, True)
        assert few[few.index("-n") + 1] == "4"


class TestIdle:
    """The busy limit 0.1 → 0.45."""

    def test_a_load_is_a_share_of_all_cores(self, monkeypatch: pytest.MonkeyPatch) -> None:
        watched: list[float] = []
        monkeypatch.setattr(machine.psutil, "cpu_percent", lambda interval: watched.append(interval) or 12.34)
        monkeypatch.setattr(machine.os, "getloadavg", lambda: (1.234, 5.0, 9.0))
        assert machine.load(0.5) == machine.Load(0.123, 1.23)
        assert watched == [0.5]

    @pytest.mark.parametrize(("busy", "idle"), [(0.0, True), (0.1, True), (0.11, False), (0.44, False)])
    def test_a_tenth_of_the_cores_is_too_much(
        self, result_file: ResultFile, monkeypatch: pytest.MonkeyPatch, busy: float, idle: bool
    ) -> None:
        assert machine.Load(busy, 9.0).is_idle == idle
        result_file.add("a", 1, Trial([1.0], 1, {}, load={"busy": busy}))
        assert trials.busy_trials(result_file, ["a"]) == ([] if idle else ["a 1"])
        told: list[str] = []
        monkeypatch.setattr(machine, "load", lambda: machine.Load(busy, 0.0))
        each = types.SimpleNamespace(name="b", prepare=lambda: None, measure=lambda _: Trial([1.0], 1, {}))
        trials.run_trials([[each]], 1, result_file, 1.0, told.append)
        assert ("busy before" in told[-1]) != idle
        kept = result_file.trial("b", 1)
        assert kept is not None
        assert kept.load["busy"] == busy


class TestSuite:
    def test_a_suite_runs_compares_keeps_and_tells(
        self, monkeypatch: pytest.MonkeyPatch, shared: Options, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(machine, "load", lambda: machine.Load(0.0, 0.0))
        monkeypatch.setattr(machine, "_java_version", lambda: "17")
        clock = iter([100.0, 100.0 + 90.0])
        monkeypatch.setattr(suite, "time", types.SimpleNamespace(monotonic=lambda: next(clock)))
        prepared: list[str] = []

        def made(name: str, samples: list[float]) -> Any:
            def prepare() -> None:
                prepared.append(name)

            return types.SimpleNamespace(name=name, prepare=prepare, measure=lambda _: Trial(samples, 1, {}))

        group = [made("ours", [1.0, 1.0, 1.0]), made("theirs", [2.0, 2.0, 4.0])]
        file = suite.run_suite("short", {"steps": 3}, [group], [Comparison("x", "ours", "theirs", 0.4)], shared)
        kept = json.loads(file.path.read_text())
        (outcome,) = kept["outcomes"]
        assert (outcome["ratio"], outcome["met"], outcome["theirs_drift"]) == (0.5, False, 2.0)
        assert kept["plan"] == {"trials": 5, "data": "synthetic", "steps": 3}
        assert len(kept["cells"]) == 10
        said = capsys.readouterr().out
        assert "Not steady: ours | theirs. The samples of a side drifted by more than 10%" in said
        assert "1.5 minutes." in said
        assert prepared == ["ours", "theirs"]
        # Gone on with: nothing is measured, and it says so.
        again = iter([0.0, 0.0])
        monkeypatch.setattr(suite, "time", types.SimpleNamespace(monotonic=lambda: next(again)))
        comparisons = [Comparison("x", "ours", "theirs", 0.4)]
        resumed = suite.run_suite("short", {"steps": 3}, [group], comparisons, dataclasses.replace(shared, resume=True))
        assert resumed.path == file.path
        assert prepared == ["ours", "theirs"]
        assert "10 of 10 trials are there already." in capsys.readouterr().out

    def test_trials_that_are_there_are_counted(self, result_file: ResultFile) -> None:
        fill(result_file, "a", [[1.0]])
        told: list[str] = []
        each = types.SimpleNamespace(name="a", prepare=lambda: None, measure=lambda _: Trial([1.0], 1, {}))
        trials.run_trials([[each]], 4, result_file, 1.0, told.append)
        assert told[0] == "1 of 4 trials are there already."
        assert told[2].startswith("[1/3] a, trial 2: median 1.000 ms per step")
        told.clear()
        each.name = "b"
        trials.run_trials([[each]], 1, result_file, 1.0, told.append)
        assert told[0] == "preparing b …"

    def test_the_machine_says_its_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(machine, "_java_version", lambda: "17")
        monkeypatch.setattr(machine.psutil, "virtual_memory", lambda: types.SimpleNamespace(total=25_232_932_864))
        assert machine.facts()["memory_gib"] == 23.5
        assert machine.slug({"cpu": "AMD EPYC", "cores": 2, "memory_gib": 23.5}) == "amd-epyc-2c-24g"


class TestNumbers:
    def test_hedges_correction_is_exact_for_odd_degrees_of_freedom_too(self) -> None:
        from math import gamma, sqrt

        from sparkdl_bench.statistics import inference

        for first, second in (
            ([1.0, 2.0, 4.0], [2.0, 5.0, 9.0]),
            ([1.0, 2.0, 4.0, 4.5], [2.0, 5.0, 9.0]),
            ([1.0, 3.0], [1.0, 1.0]),
        ):
            df = len(first) + len(second) - 2
            squares = sum(np.sum((np.asarray(each) - np.mean(each)) ** 2) for each in (first, second))
            exact = gamma(df / 2) / gamma((df - 1) / 2) / sqrt(df / 2)
            expected = (np.mean(first) - np.mean(second)) / sqrt(squares / df) * exact
            assert inference.hedges_g(first, second) == pytest.approx(expected)
        assert inference.hedges_g([1.0], [1.0, 2.0]) is None

    def test_series_without_spread_have_their_degrees_of_freedom(self) -> None:
        from sparkdl_bench.statistics import inference

        found = inference.welch([2.0, 2.0, 2.0], [1.0, 1.0])
        assert found is not None
        assert (found.df, found.p, found.difference) == (3, 0.0, 1.0)
        for first, second in (([2.0] * 4, [2.0] * 3), ([1.0] * 5, [1.0] * 2)):
            found = inference.welch(first, second)
            assert found is not None
            assert (found.df, found.t, found.p, found.interval.low) == (5, 0.0, 1.0, 0.0)

    def test_what_rounding_makes_of_equal_numbers_is_no_spread(self) -> None:
        from sparkdl_bench.statistics import inference

        # A thousandth of a billionth of the largest, or of 1.
        assert inference.shapiro([1e9, 1e9 + 1e-6, 1e9]) is None
        assert inference.shapiro([1e9, 1e9 + 1e-2, 1e9 + 3e-2]) is not None
        assert inference.shapiro([1e-3, 1e-3 + 1e-13, 1e-3]) is None
        assert inference.shapiro([1e-3, 1e-3 + 1e-11, 1e-3]) is not None

    def test_a_transport_without_jars_is_missing_with_the_reason(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def find_jars(_: str) -> Any:
            raise ConfigurationError("No jars. Run make jars.")

        monkeypatch.setattr(spark_collective, "find_jars", find_jars)
        assert spark_collective.spark_transport_missing("tcp") == "No jars. Run make jars."


class TestEvidence:
    """No evidence from a tree that no commit holds."""

    def test_an_uncommitted_tree_writes_no_evidence(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(machine, "commit", lambda: "0123456789ab+changes")
        kept = tmp_path / "benchmarks" / "results"
        with pytest.raises(ConfigurationError, match=r"differs from its commit 0123456789ab,.*--results DIR"):
            store.create(kept, "short", {"trials": 1})
        elsewhere = store.create(tmp_path / "elsewhere", "short", {"trials": 1})
        assert elsewhere.content["dirty"] is True
        monkeypatch.setattr(machine, "commit", lambda: "0123456789ab")
        assert store.create(kept, "short", {"trials": 1}).content["dirty"] is False

    def test_kept_files_are_of_a_commit(self) -> None:
        dirty = []
        for path in sorted((ROOT / "benchmarks" / "results").glob("*/*.json")):
            content = json.loads(path.read_text(encoding="utf-8"))
            if content.get("dirty") or str(content["commit"]).endswith("+changes"):
                dirty.append(path.name)
        assert set(dirty) <= BEFORE_THE_RULE

    def test_every_suite_writes_among_the_kept_results_by_itself(self) -> None:
        from sparkdl_bench.bench.suite import RESULTS

        assert store._is_kept(ROOT / RESULTS)
        assert not store._is_kept(ROOT / "results")


# Measured before the store refused to.
BEFORE_THE_RULE = {
    "20261121-130551-memory.json",
    "20261121-131211-memory.json",
    "20261123-103940-models.json",
    "20261123-105624-memory.json",
    "20261123-105915-memory.json",
    "20261123-110505-memory.json",
    "20261123-150203-soak.json",
    "20261123-151542-memory.json",
    "20261123-151928-memory.json",
    "20261123-152035-memory.json",
    "20261122-121622-soak.json",
}


class TestCongestion:
    @pytest.fixture
    def system(self, tmp_path: Path) -> Path:
        (tmp_path / "tcp_congestion_control").write_text("bbr\n")
        (tmp_path / "tcp_available_congestion_control").write_text("reno bbr cubic\n")
        return tmp_path

    def test_the_machine_is_on_one_and_goes_back(self, system: Path) -> None:
        def broken() -> None:
            with congestion.whole_machine("reno", system):
                assert congestion.current(system) == "reno"
                raise RunFailedError("It broke.")

        with pytest.raises(RunFailedError):
            broken()
        assert congestion.current(system) == "bbr"

    def test_what_the_system_has_not_is_refused(self, system: Path) -> None:
        with pytest.raises(ConfigurationError, match=r"no congestion control 'vegas'\. Valid here: reno, bbr, cubic"):
            congestion.whole_machine("vegas", system).__enter__()
        assert congestion.missing("reno", system) is None
        assert "does not say" in str(congestion.missing("reno", system / "nowhere"))

    def test_rows_over_sockets_have_one_beside_as_configured(self) -> None:
        again = net_suite.on_one("reno", net_suite.COMPARISONS)
        measured = {name.removesuffix("@reno") for each in again for name in (each.ours, each.theirs)}
        assert {"block-stream-2x814090", "gloo-2x814090", "mpi-2x814090", "tcp-4x3200000"} <= measured
        assert not any("-local" in name or "tls" in name or "crypto" in name for name in measured)
        assert all(name.endswith("@reno") for each in again for name in (each.ours, each.theirs))
        assert {each.target for each in again} == {None}
        assert measured <= {net_suite._name(way) for way in net_suite._ways(net_suite.COMPARISONS)}

    def test_a_trial_names_what_encrypted_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        said = {"block-stream.cipher": "AES-GCM by OpenSSL 3.0.19"}
        monkeypatch.setattr(net_suite, "run_way", lambda *_: Taken([1.0], True, "block-stream", said))
        way = Way("block-stream", 2, 10, "sliced", host_local=False, encryption="crypto-gcm")
        trial = net_suite.CollectiveContestant(way, (0, 1), Path()).measure(1.0)
        assert trial.facts.items() >= {**said, "encryption": "crypto-gcm", "channel": "block-stream"}.items()

    def test_ours_is_told_too_and_the_trial_says_what_there_was(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[Any] = []
        monkeypatch.setattr(congestion, "whole_machine", lambda name: _Noted(asked, name))
        monkeypatch.setattr(congestion, "current", lambda: "reno" if asked else "bbr")
        monkeypatch.setattr(
            net_suite, "run_way", lambda *arguments: asked.append(arguments[-1]) or Taken([1.0], True, "tcp")
        )
        way = Way("block-stream", 2, 10, "sliced", host_local=False)
        each = net_suite.CollectiveContestant(way, (0, 1), Path(), "reno")
        assert each.measure(1.0).facts["congestion"] == "reno"
        assert asked == ["on reno", {"congestion": "reno"}, "off"]
        asked.clear()
        as_configured = net_suite.CollectiveContestant(way, (0, 1), Path())
        assert as_configured.measure(1.0).facts["congestion"] == "bbr"
        assert asked == [{}]


class _Noted:
    def __init__(self, asked: list[Any], name: str) -> None:
        self.asked, self.name = asked, name

    def __enter__(self) -> None:
        self.asked.append(f"on {self.name}")

    def __exit__(self, *_: object) -> None:
        self.asked.append("off")


@pytest.mark.parametrize(
    ("drift", "steady"),
    [(0.5, False), (0.89, False), (0.9, True), (1.0, True), (1.1, True), (1.11, False), (2.0, False)],
)
def test_drift_of_reports_is_limited_where_the_rules_say(drift: float, steady: bool) -> None:
    """The drift limit 0.9 → 0.5, in the reports of comparisons."""
    from sparkdl_bench.report import analysis

    group = types.SimpleNamespace(centre={analysis.DRIFT: drift}.get)
    is_steady: Callable[..., bool] = analysis.Analysis.is_steady
    assert is_steady(None, group) == steady
