"""The numbers of groups and of comparisons, from records that stand here; no report is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import comparisons
import pytest

from sparkdl_bench.report.analysis import (
    ACCURACY,
    MARGIN,
    RATE,
    STEP,
    TO_ACCURACY,
    TOTAL,
    WAITED,
    WAITED_TO_ACCURACY,
    Analysis,
    Group,
)
from sparkdl_bench.report.decision import decide


def group(*records: Mapping[str, Any], failures: Sequence[Mapping[str, Any]] = ()) -> Group:
    return Group("one", {"variant": "one"}, records, failures)


def trial(number: int = 1, **changes: Any) -> dict[str, Any]:
    metrics = changes.pop("metrics", {})
    made = comparisons.trial("one", number, 1.0, changes.pop("workers", 1), **changes)
    return {**made, "metrics": {**made["metrics"], **metrics}}


class TestGroup:
    def test_shares_and_counts_have_means_times_and_rates_geometric_ones(self) -> None:
        metrics = ("test_accuracy", "best_accuracy", "epochs_to_accuracy", "test_rmse", "seconds_total", RATE, STEP)
        found = group(trial(metrics=dict.fromkeys(metrics, 1.0)), trial(metrics=dict.fromkeys(metrics, 4.0)))
        assert [found.centre(name) for name in metrics] == pytest.approx([2.5] * 4 + [2.0] * 3)
        # Where a trial lacks it there is none, not the mean of the others.
        assert group(trial(metrics={RATE: 2.0}), trial()).values(RATE) == []
        assert group(trial(metrics={RATE: 2.0}), trial()).centre(RATE) is None

    def test_tables_of_numbers_are_means_and_a_part_that_a_trial_lacks_is_none_there(self) -> None:
        found = group(trial(phases_ms={"wait": 3.0}), trial(phases_ms={"wait": 1.0, "send": 5.0}))
        assert found.mean_of("phases_ms") == {"wait": 2.0, "send": 2.5}
        assert found.mean_of("layers_s") == {}
        counted = group(trial(counts={"dropped": [1, 2], "none": []}), trial(counts={"dropped": [3]}), trial())
        assert counted.counts == {"dropped": [pytest.approx(4 / 3), pytest.approx(2 / 3)]}

    def test_the_typical_trial_is_the_one_in_the_middle(self) -> None:
        def typical(*seconds: float) -> float:
            found = group(*(trial(metrics={TOTAL: value}) for value in seconds)).typical
            return float(found["metrics"][TOTAL])

        assert typical(9.0, 1.0, 5.0) == 5.0
        assert typical(1.0, 9.0) == 9.0
        assert typical(4.0) == 4.0

    def test_steps_grow_as_phases_do(self) -> None:
        found = group(
            trial(phase_drift={"wait": 4.0, "send": 1.09}),
            trial(phase_drift={"wait": 1.0}),
            trial(phase_drift={}),
            trial(),
        )
        assert found.phase_drift == {"wait": pytest.approx(2.0), "send": pytest.approx(1.09)}
        assert list(found.grown_phases) == ["wait"]
        assert list(group(trial(phase_drift={"a": 1.11, "b": 1.099})).grown_phases) == ["a"]

    def test_the_mean_step_counts_each_trial_alike(self) -> None:
        found = group(trial(steps_ms=[1.0, 3.0, 8.0]), trial(steps_ms=[2.0]), trial())
        assert found.mean_step_ms == 3.0
        assert group(trial()).mean_step_ms is None

    def test_seeds(self) -> None:
        assert group(trial(settings={"seed": "1"}), trial(settings={"seed": "1"})).has_one_seed
        assert not group(trial(settings={"seed": "1"}), trial(settings={"seed": "2"})).has_one_seed
        assert group(trial(), trial()).has_one_seed

    def test_a_group_of_failures_is_what_they_are(self) -> None:
        failed = group(failures=[trial(workers=3, threads=2, cores=6, batch=7)])
        assert (failed.workers, failed.threads, failed.cores, failed.batch) == (3, 2, 6, 7)
        assert (failed.is_one_machine, group(trial()).is_one_machine) == (False, True)
        assert (failed.clock(TOTAL), failed.variant) == ({}, "one")


LEARNT = [{"epoch": at, "seconds": 2.0 * at, "accuracy": 0.3 * at} for at in (1, 2, 3, 4)]
LAYERS = {
    "start": 1.0,
    "cluster manager": 2.0,
    "prepare": 4.0,
    "evaluation": 8.0,
    "checkpoint": 16.0,
    "idle": 32.0,
    "finish": 64.0,
    "stop": 128.0,
}


class TestClock:
    RECORD = trial(history=LEARNT, layers_s=LAYERS, steps_ms=[10.0] * 8, metrics={TO_ACCURACY: 6.0})

    @pytest.mark.parametrize(
        ("metric", "more"),
        [
            (TOTAL, {"steps": 0.08, "finish": 64.0}),
            (WAITED, {"start": 3.0, "steps": 0.08, "finish": 64.0, "stop": 128.0}),
            (TO_ACCURACY, {"steps": 0.06, "evaluation": 6.0, "checkpoint": 12.0, "idle": 24.0, "finish": 0.0}),
            (
                WAITED_TO_ACCURACY,
                {"start": 3.0, "steps": 0.06, "evaluation": 6.0, "checkpoint": 12.0, "idle": 24.0, "finish": 0.0},
            ),
        ],
    )
    def test_parts_are_of_what_the_metric_measures(self, metric: str, more: dict[str, float]) -> None:
        """The target was reached after three of four epochs."""
        whole = {"prepare": 4.0, "evaluation": 8.0, "checkpoint": 16.0, "idle": 32.0}
        assert group(self.RECORD).clock(metric) == pytest.approx({**whole, **more})
        assert group(self.RECORD).steps(metric) == (6 if "accuracy" in metric else 8)

    def test_what_never_got_there_counts_whole(self) -> None:
        never = {**self.RECORD, "metrics": {**self.RECORD["metrics"], TO_ACCURACY: None}}
        assert group(never).steps(TO_ACCURACY) == 8
        assert group(self.RECORD, never).steps(TO_ACCURACY) == 7
        assert group(self.RECORD, never).clock(TO_ACCURACY)["steps"] == pytest.approx(0.07)
        # Without epochs all steps are of it.
        bare = trial(steps_ms=[5.0] * 4)
        assert (group(bare).steps(TOTAL), group(bare).clock(TOTAL)["steps"]) == (4, pytest.approx(0.02))
        assert group(bare).clock(WAITED)["start"] == 0.0


def analysis(*records: Mapping[str, Any], host_cores: int = 64, **plan: Any) -> Analysis:
    return comparisons.comparison(records, host_cores, **plan)


def way(name: str, seconds: float, workers: int = 1, number: int = 1, **changes: Any) -> dict[str, Any]:
    metrics = changes.pop("metrics", {})
    made = comparisons.trial(name, number, seconds, workers, **changes)
    return {**made, "metrics": {**made["metrics"], **metrics}}


def reached(name: str, seconds: float | None, waited: float | None = None) -> dict[str, Any]:
    return way(name, 9.0, metrics={TO_ACCURACY: seconds, WAITED_TO_ACCURACY: waited})


def test_what_costs_more_has_to_be_faster_by_a_tenth() -> None:
    still = (1.0, 1.0001, 0.9999, 1.0, 1.0001)
    assert MARGIN == 1.1
    for factor, chosen in ((1.09, "one"), (1.11, "two")):
        times = {"one": (1, [10.0 * factor * each for each in still]), "two": (2, [10.0 * each for each in still])}
        found = decide(comparisons.of_times(times))
        assert found.chosen is not None
        assert (found.verdict, found.chosen.name) == ("recommended", chosen)


class TestMetric:
    @pytest.mark.parametrize(
        ("records", "metric"),
        [
            ([reached("a", 1, 2), reached("b", 1, 2), reached("c", None)], WAITED_TO_ACCURACY),
            ([reached("a", 1, 2), reached("b", 1), reached("c", None)], TO_ACCURACY),
            # One of several says nothing of the others; one that is alone is all there is.
            ([reached("a", 1, 2), reached("b", None)], WAITED),
            ([reached("a", 1, 2)], WAITED_TO_ACCURACY),
            ([way("a", 9.0), way("b", 9.0)], WAITED),
            ([way("a", 9.0), way("b", 9.0, metrics={WAITED: None})], TOTAL),
            ([way("a", 9.0, status="failed")], TOTAL),
        ],
    )
    def test_it_is_what_the_groups_have(self, records: list[dict[str, Any]], metric: str) -> None:
        found = analysis(*records)
        assert found.metric == metric
        assert found.is_to_target == ("accuracy" in metric)
        assert found.is_from_command == ("waited" in metric)

    def test_waits_are_known_where_each_finished_trial_tells_its(self) -> None:
        told, untold = way("a", 9.0), way("b", 9.0, metrics={WAITED: None})
        assert analysis(told, way("c", 9.0, status="failed")).knows_waits
        assert not analysis(told, untold).knows_waits

    def test_summaries_are_fastest_first_and_of_rates_the_highest(self) -> None:
        found = analysis(
            way("a", 9.0, metrics={RATE: 5.0}), way("b", 4.0, metrics={RATE: 9.0}), way("c", 1.0, status="failed")
        )
        assert [(each.group.name, each.count) for each in found.summaries(TOTAL)] == [("b", 1), ("a", 1)]
        assert [each.group.name for each in found.summaries(RATE)] == ["b", "a"]
        assert [each.group.name for each in found.summaries(STEP)] == ["a", "b"]

    def test_warm_up_trials_are_none(self) -> None:
        found = analysis(way("a", 9.0, warmup=True), way("a", 4.0))
        assert found.groups[0].values(TOTAL) == [4.0]


class TestCores:
    def test_a_host_that_all_shared_is_known_by_its_master(self) -> None:
        local = {"spark": {"spark.master": "local[4]"}}
        assert analysis(way("a", 1.0, **local), host_cores=2).host_cores == 2
        assert analysis(way("a", 1.0, **local), host_cores=0).host_cores is None
        for far in ({"spark": {"spark.master": "spark://far:7077"}}, {"facts": {"master": "yarn"}}):
            assert analysis(way("a", 1.0, **local), way("b", 1.0, **far)).host_cores is None
            assert analysis(way("a", 1.0), way("b", 1.0, status="failed", **far)).host_cores is None
        # The record says it better than what was asked for; a peer's says nothing.
        assert analysis(way("a", 1.0, facts={"master": "local"}, spark={"spark.master": "yarn"})).host_cores == 64
        assert analysis(way("a", 1.0, spark={})).host_cores is None
        assert analysis(way("a", 1.0, spark={}), way("b", 1.0)).host_cores == 64

    def test_core_seconds_and_their_price(self) -> None:
        found = analysis(way("a", 90.0, workers=4), host_cores=2, price_per_core_hour=0.5)
        (four,) = found.groups
        assert (found.cores_used(four), found.is_oversubscribed(four)) == (2, True)
        assert found.core_seconds(four) == pytest.approx(180.0)
        assert found.money(four) == pytest.approx(180 / 3600 * 0.5)
        free = analysis(way("a", 90.0, workers=2), host_cores=2)
        assert (free.money(free.groups[0]), free.is_oversubscribed(free.groups[0])) == (None, False)
        failed = analysis(way("a", 9.0, status="failed"), price_per_core_hour=0.5)
        assert (failed.core_seconds(failed.groups[0]), failed.money(failed.groups[0])) == (None, None)

    def test_the_best_process_of_one_thread_is_the_fastest(self) -> None:
        found = analysis(way("a", 9.0), way("b", 4.0), way("c", 1.0, workers=2), way("d", 1.0, status="failed"))
        assert found.best_single is not None
        assert found.best_single.name == "b"
        assert analysis(way("c", 1.0, workers=2)).best_single is None


class TestAlike:
    @pytest.mark.parametrize(
        ("shares", "alike"),
        [
            ((0.95, 0.95), True),
            ((0.95, 0.94), True),
            ((0.95, 0.9399), False),
            ((None, None), True),
            ((0.95, None), False),
        ],
    )
    def test_accuracies_within_a_hundredth_are(self, shares: tuple[float | None, ...], alike: bool) -> None:
        records = [way(f"way {at}", 1.0, metrics={ACCURACY: share}) for at, share in enumerate(shares)]
        assert analysis(*records).learnt_alike == alike
        # A target that one reached is the better question.
        records[0]["metrics"][TO_ACCURACY] = 1.0
        assert analysis(*records).learnt_alike
        assert analysis(*records).is_target_reached

    @pytest.mark.parametrize(("errors", "alike"), [((1.0, 1.05), True), ((1.0, 1.0501), False), ((1.0, None), False)])
    def test_errors_within_a_twentieth_are(self, errors: tuple[float | None, ...], alike: bool) -> None:
        records = [way(f"way {at}", 1.0, metrics={"test_rmse": error}) for at, error in enumerate(errors)]
        found = analysis(*records)
        assert (found.is_regression, found.learnt_alike) == (True, alike)

    def test_groups_of_other_epochs_and_one_seed_each_may_owe_it_to_the_seed(self) -> None:
        def records(first: float, second: float, seeds: tuple[str, str] = ("1", "1")) -> list[dict[str, Any]]:
            return [
                way(name, 1.0, number=number, metrics={"epochs_to_accuracy": epochs}, settings={"seed": seed})
                for name, epochs in (("a", first), ("b", second))
                for number, seed in enumerate(seeds, start=1)
            ]

        assert analysis(*records(3, 4)).one_seed_decides
        assert not analysis(*records(3, 3)).one_seed_decides
        assert not analysis(*records(3, 4, ("1", "2"))).one_seed_decides
        # Of single trials nobody knows.
        alone = [each for each in records(3, 4) if each["trial"] == 1]
        assert not analysis(*alone).one_seed_decides


class TestSteps:
    def test_measured_steps_are_those_after_the_warm_up(self) -> None:
        found = analysis(
            *(way("a", 1.0, number=at, steps_ms=[1.0] * count) for at, count in ((1, 110), (2, 111))),
            way("b", 1.0, steps_ms=[1.0] * 4),
            way("c", 1.0, steps_ms=[1.0] * 109),
            way("d", 1.0, status="failed"),
            warmup_steps=10,
        )
        assert [found.measured_steps(each) for each in found.groups] == [100, 0, 99, None]
        assert [each.name for each in found.hardly_measured] == ["b", "c"]
        assert found.warmup_steps == 10

    def test_a_record_may_say_itself_how_many_steps_its_warm_up_had(self) -> None:
        told = {"steps_ms": [1.0] * 110, "warmup_left_out": 1}
        found = analysis(
            way("a", 1.0, **told),
            way("b", 1.0, **{**told, "warmup_left_out": 0}, warmup_note="all of its 110 steps are"),
            warmup_steps=10,
        )
        assert [found.measured_steps(each) for each in found.groups] == [109, 0]

    def test_unsteady_groups_are_those_whose_steps_changed_by_more_than_a_tenth(self) -> None:
        drifts = {"a": 0.899, "b": 0.901, "c": 1.099, "d": 1.101, "e": None}
        found = analysis(*(way(name, 1.0, metrics={"drift": drift}) for name, drift in drifts.items()))
        assert [each.name for each in found.unsteady] == ["a", "d"]


def varied(*points: tuple[str, ...], names: Sequence[str] = ("variant", "workers"), **plan: Any) -> Analysis:
    """Groups at these points, in which the n-th takes n times 10 s, twice."""
    return analysis(
        *(
            way(
                ", ".join(point),
                10.0 * at * noise,
                workers=int(point[1]) if point[1].isdigit() else 1,
                number=number,
                factors=dict(zip(names, point, strict=True)),
            )
            for at, point in enumerate(points, start=1)
            for number, noise in ((1, 0.99), (2, 1.01))
        ),
        **plan,
    )


class TestBaseline:
    def test_without_one_the_slowest_is_it(self) -> None:
        found = varied(("x", "1"), ("x", "2"), ("y", "1"))
        slowest = found.groups[2]
        assert [found.is_baseline(each) for each in found.groups] == [False, False, True]
        assert [found.baseline_of(each) for each in found.groups] == [slowest, slowest, None]
        assert list(found.contrasts) == ["x, 1", "x, 2"]
        assert found.contrasts["x, 1"].effect.ratio == pytest.approx(3.0)
        assert found.contrasts["x, 2"].effect.ratio == pytest.approx(1.5)

    def test_others_stand_beside_the_one_that_differs_in_its_factors_alone(self) -> None:
        found = varied(("x", "1"), ("x", "2"), ("y", "1"), ("y", "2"), baseline={"variant": "x"})
        by_name = {each.name: each for each in found.groups}
        assert [found.is_baseline(each) for each in found.groups] == [True, True, False, False]
        assert found.baseline_of(by_name["y, 2"]) is by_name["x, 2"]
        assert found.baseline_of(by_name["y, 1"]) is by_name["x, 1"]
        assert found.contrasts["y, 2"].effect.ratio == pytest.approx(0.5)
        # p is adjusted by Holm for both that were asked.
        alone = found.contrast(by_name["y, 1"], by_name["x, 1"])
        assert alone is not None
        assert found.contrasts["y, 1"].p == pytest.approx(2 * alone.p)

    def test_a_factor_that_does_not_apply_fits_any_value_and_the_same_one_better(self) -> None:
        found = varied(("x", "–"), ("x", "2"), ("y", "2"), ("z", "–"), ("z", "3"), baseline={"variant": "x"})
        by_name = {each.name: each for each in found.groups}
        assert found.baseline_of(by_name["y, 2"]) is by_name["x, 2"]
        assert found.baseline_of(by_name["z, –"]) is by_name["x, –"]
        assert found.baseline_of(by_name["z, 3"]) is by_name["x, –"]
        without = varied(("x", "1"), ("y", "2"), baseline={"variant": "x"})
        assert without.baseline_of(without.groups[1]) is None
        assert without.contrasts == {}

    def test_one_trial_is_no_contrast(self) -> None:
        found = analysis(way("a", 1.0), way("b", 2.0), way("b", 2.1, number=2))
        one, two = found.groups
        assert found.contrast(one, two) is None
        assert found.contrast(two, one) is None


class TestFactors:
    def test_levels_are_in_the_order_of_numbers_and_what_does_not_apply_is_none(self) -> None:
        found = varied(("x", "10"), ("x", "9"), ("y", "–"), ("b", "zero"))
        assert [each.name for each in found.groups] == ["b, zero", "x, 9", "x, 10", "y, –"]
        assert found.levels("workers") == ["9", "10", "zero"]
        assert found.factors == ["variant", "workers"]
        assert varied(("x", "1"), ("x", "2")).factors == ["workers"]
        assert varied(("x", "1"), ("y", "2"), factors=["workers", "variant"]).factors == ["workers", "variant"]

    def test_scaling_is_of_ways_on_several_numbers_of_cores(self) -> None:
        found = varied(("x", "4"), ("x", "1"), ("y", "2"), ("x", "2"))
        assert {name: [each.cores for each in members] for name, members in found.scaling.items()} == {"x": [1, 2, 4]}

    def test_a_sweep_holds_the_other_factors_still(self) -> None:
        found = varied(
            *(("x", "1", "64"), ("x", "1", "8"), ("x", "2", "8"), ("x", "2", "64"), ("y", "1", "8"), ("z", "1", "–")),
            names=("variant", "workers", "batch"),
        )
        swept = found.sweep("batch")
        assert {name: [each.factors["batch"] for each in members] for name, members in swept.items()} == {
            "x, workers 1": ["8", "64"],
            "x, workers 2": ["8", "64"],
        }

    def test_two_ways_of_variance_need_every_combination_twice(self) -> None:
        whole = varied(("x", "1"), ("x", "2"), ("y", "1"), ("y", "2"))
        ((names, table),) = whole.two_ways(TOTAL).items()
        assert names == ("variant", "workers")
        assert [row.factor for row in table] == ["variant", "workers", "variant × workers", "residual"]
        assert varied(("x", "1"), ("x", "2"), ("y", "1")).two_ways(TOTAL) == {}
        # Points where a factor does not apply take no part.
        more = varied(("x", "1"), ("x", "2"), ("y", "1"), ("y", "2"), ("z", "–"))
        assert more.two_ways(TOTAL).keys() == whole.two_ways(TOTAL).keys()
        # Two that never apply together leave the other pairs.
        apart = varied(
            *(("x", "–", "8"), ("x", "–", "64"), ("y", "–", "8"), ("y", "–", "64"), ("–", "1", "8"), ("–", "2", "8")),
            names=("variant", "workers", "batch"),
        )
        assert list(apart.two_ways(TOTAL)) == [("variant", "batch")]

    def test_two_ways_of_variance_hold_a_third_factor_still(self) -> None:
        """Its levels would pass for trials, and what it does for chance."""
        points = [(variant, workers, batch) for variant in "xy" for workers in "12" for batch in ("16", "256")]
        names = ("variant", "workers", "batch")
        assert varied(*points, names=names).two_ways(TOTAL) == {}
        still = [point for point in points if point[2] == "16"]
        assert list(varied(*still, names=names).two_ways(TOTAL)) == [("variant", "workers")]

    def test_variances_are_of_logarithms_of_groups_with_two_trials(self) -> None:
        found = analysis(
            *(way(name, value, number=at) for name in ("a", "b") for at, value in ((1, 1.0), (2, 2.0))), way("c", 50.0)
        )
        rows = found.one_way(TOTAL)
        assert rows is not None
        # The two groups are the same, and the third has one trial.
        assert (rows[0].factor, rows[0].df, rows[0].sum_of_squares) == ("group", 1, pytest.approx(0.0))
        (pair,) = found.tukey(TOTAL)
        assert (pair.first, pair.second, pair.difference) == ("a", "b", pytest.approx(0.0))


class TestCost:
    def costs(
        self, times: Mapping[str, Sequence[float]], single: Sequence[float] = (10.0, 10.1, 9.9, 10.0, 10.05)
    ) -> Any:
        """Ways by their cores, beside one process of one thread."""
        points = {"1": single, **times}
        found = analysis(
            *(
                way(
                    f"x, workers {cores}",
                    value,
                    int(cores),
                    number,
                    factors={"variant": "x" if cores != "1" else "one", "workers": cores},
                )
                for cores, values in points.items()
                for number, value in enumerate(values, start=1)
            )
        )
        (cost,) = found.costs
        return cost

    def test_the_fewest_cores_that_beat_one_thread(self) -> None:
        cost = self.costs({"8": (2.0, 2.1, 1.9), "2": (12.0, 12.1, 11.9), "4": (5.0, 5.1, 4.9)})
        assert (cost.variant, cost.tried, cost.cores, cost.untold) == ("x", (2, 4, 8), 4, ())
        assert cost.beats.effect.ratio == pytest.approx(2.0, rel=0.01)
        assert cost.single.name == "x, workers 1"

    def test_what_is_faster_by_chance_is_untold(self) -> None:
        cost = self.costs({"2": (9.9, 9.0, 10.6), "4": (5.0,), "8": (10.0, 10.0, 20.0)})
        assert (cost.cores, cost.beats) == (None, None)
        assert [(each.cores, contrast is None) for each, contrast in cost.untold] == [(2, False), (4, True)]

    def test_without_one_thread_or_several_cores_there_is_none(self) -> None:
        assert analysis(way("a", 1.0)).costs == []
        assert analysis(way("a", 1.0, workers=2)).costs == []
