"""The numbers in the charts with lines: each point from trials that stand here, and nothing is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import comparisons
import pytest

from sparkdl_bench.report import lines
from sparkdl_bench.report.analysis import Analysis
from sparkdl_bench.report.vega import MORE, SERIES, Plot


def shown(plot: Plot | None) -> Plot:
    assert plot is not None
    return plot


def points(plot: Plot | None, name: str = "points") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = shown(plot).spec["datasets"][name]
    return found


def axis(plot: Plot | None, which: str) -> dict[str, Any]:
    found: dict[str, Any] = shown(plot).spec["layer"][0]["encoding"][which]
    return found


def labels(plot: Plot | None) -> list[str]:
    """What stands in the chart beside its lines."""
    texts = [layer["mark"].get("text") for layer in shown(plot).spec["layer"]]
    return [text for text in dict.fromkeys(texts) if text]


def learnt(
    name: str, number: int, seconds: Sequence[float], shares: Sequence[float | None], **changes: Any
) -> dict[str, Any]:
    """A trial evaluated at these seconds, which reaches 0.9 where it does; its clock began 2 s after the command."""
    history = [
        {"epoch": at, "seconds": second, "accuracy": share}
        for at, (second, share) in enumerate(zip(seconds, shares, strict=True), start=1)
    ]
    reached = next(
        (each["seconds"] for each in history if each["accuracy"] is not None and each["accuracy"] >= 0.9), None
    )
    made = comparisons.trial(name, number, seconds[-1], 1)
    metrics = {"seconds_before_clock": 2.0, "seconds_to_accuracy": reached}
    metrics["seconds_waited_to_accuracy"] = None if reached is None else reached + 2.0
    return {**made, "history": history, "metrics": {**made["metrics"], **metrics}, **changes}


def learning(*trials: dict[str, Any], **plan: Any) -> Analysis:
    return comparisons.comparison(trials, **{"target_accuracy": 0.9, **plan})


class TestTimeToAccuracy:
    def test_every_evaluation_is_a_point_by_the_clock_from_the_command(self) -> None:
        analysis = learning(
            learnt("one", 1, (1, 2, 3), (0.5, 0.8, 0.95)),
            learnt("one", 2, (1, 2, 5), (0.5, None, 0.92)),
            learnt("one", 3, (1, 2, 4), (0.6, 0.7, 0.9)),
            learnt("two", 1, (1, 2), (0.4, 0.91)),
        )
        plot = lines.time_to_accuracy(analysis)
        # The quickest group is drawn last, over the others.
        assert [each["series"] for each in points(plot)] == ["one"] * 8 + ["two"] * 2
        found = [(each["trial"], each["x"], each["y"], each["epoch"], each["typical"]) for each in points(plot)]
        assert found == [
            *((1, 3.0, 0.5, 1, False), (1, 4.0, 0.8, 2, False), (1, 5.0, 0.95, 3, False)),
            *((2, 3.0, 0.5, 1, False), (2, 7.0, 0.92, 3, False)),
            *((3, 3.0, 0.6, 1, True), (3, 4.0, 0.7, 2, True), (3, 6.0, 0.9, 3, True)),
            *((1, 3.0, 0.4, 1, True), (1, 4.0, 0.91, 2, True)),
        ]
        assert axis(plot, "x")["axis"]["title"] == "seconds from the command"
        assert labels(plot)[0] == "target 90.0%"

    def test_without_waits_the_run_s_own_clock_counts(self) -> None:
        trial = learnt("one", 1, (1, 2, 3), (0.5, 0.8, 0.95))
        metrics = {**trial["metrics"], "seconds_waited_to_accuracy": None, "seconds_waited": None}
        plot = lines.time_to_accuracy(learning({**trial, "metrics": metrics}))
        assert [each["x"] for each in points(plot)] == [1.0, 2.0, 3.0]
        assert axis(plot, "x")["axis"]["title"] == "seconds since the run began"

    def test_a_group_of_single_evaluations_has_no_line(self) -> None:
        once = learnt("once", 1, (3,), (0.95,))
        assert lines.time_to_accuracy(learning(once)) is None
        # Nor has one whose second evaluation is of no share of rows; one trial with two is enough.
        assert lines.time_to_accuracy(learning(learnt("once", 1, (3, 4), (0.95, None)))) is None
        again = learnt("once", 2, (3, 4), (0.8, 0.95))
        assert len(points(lines.time_to_accuracy(learning(once, again)))) == 3

    def test_the_axis_starts_where_something_was_evaluated_and_ends_after_the_last_target(self) -> None:
        def domain(first: float, last: float, at: float) -> tuple[list[float], str]:
            plot = lines.time_to_accuracy(learning(learnt("one", 1, (first - 2, at - 2, last - 2), (0.5, 0.9, 0.95))))
            return axis(plot, "x")["scale"]["domain"], shown(plot).note

        # 1.3 times the time to the target, if evaluations go on so long.
        assert domain(4, 50, 10)[0] == pytest.approx([0.94 * 4, 13.0])
        assert domain(4, 11, 10)[0] == pytest.approx([0.94 * 4, 11.0])
        # A little less than a quarter of the axis and a little more: a geometric mean's last digit is the processor's.
        (start, end), note = domain(3.24, 13, 10)
        assert (start, end) == (0.0, pytest.approx(13.0))
        assert "starts at" not in note
        (start, _), note = domain(3.26, 13, 10)
        assert start == pytest.approx(0.94 * 3.26)
        assert "The axis starts at 3.06 s: nothing was evaluated before." in note

    def test_times_that_are_far_apart_have_a_logarithmic_axis(self) -> None:
        def scale(slow: float) -> dict[str, Any]:
            quick = learnt("quick", 1, (1, 8), (0.5, 0.9))
            plot = lines.time_to_accuracy(learning(quick, learnt("slow", 1, (2, slow - 2), (0.5, 0.9))))
            found: dict[str, Any] = axis(plot, "x")["scale"]
            return found

        # 10 s and almost three times as long.
        assert scale(29.9)["domain"] == pytest.approx([0.0, 29.9])
        assert "type" not in scale(29.9)
        assert scale(31)["type"] == "log"
        assert scale(31)["domain"] == pytest.approx([0.9 * 3, 1.1 * 31])

    def test_where_one_never_gets_there_the_axis_has_all_its_time(self) -> None:
        never = learnt("never", 1, (4, 100), (0.5, 0.6))
        plot = lines.time_to_accuracy(learning(learnt("one", 1, (1, 8), (0.5, 0.9)), never))
        assert axis(plot, "x")["scale"]["domain"] == [0.0, 102.0]

    def test_shares_far_below_the_target_are_cut_off(self) -> None:
        def domain(low: float, **plan: Any) -> list[float]:
            plot = lines.time_to_accuracy(learning(learnt("one", 1, (1, 2), (low, 0.9)), **plan))
            found: list[float] = axis(plot, "y")["scale"]["domain"]
            return found

        # The target lets 10 % of the rows be wrong: five times as many are shown, and a little room.
        assert domain(0.1) == pytest.approx([0.5 - 0.06 * 0.4, 0.9 + 0.06 * 0.4])
        assert domain(0.7) == pytest.approx([0.7 - 0.06 * 0.2, 0.9 + 0.06 * 0.2])
        assert domain(0.1, target_accuracy=None) == pytest.approx([0.1 - 0.06 * 0.8, 0.9 + 0.06 * 0.8])
        assert domain(0.9) == pytest.approx([0.9 - 0.006, 0.9 + 0.006])
        whole = lines.time_to_accuracy(learning(learnt("one", 1, (1, 2), (0.0, 1.0)), target_accuracy=None))
        assert axis(whole, "y")["scale"]["domain"] == [0.0, 1.0]

    def test_who_reached_the_target_is_named_quickest_first_and_four_at_most(self) -> None:
        trials = [learnt(f"way {at}", 1, (1, 20 - at), (0.5, 0.9)) for at in range(6)]
        plot = lines.time_to_accuracy(learning(*trials, learnt("never", 1, (1, 9), (0.5, 0.6))))
        named = next(
            layer["data"]["values"]
            for layer in shown(plot).spec["layer"]
            if "values" in layer.get("data", {}) and layer["mark"]["type"] == "point"
        )
        colours = {each.name: each.colour for each in shown(plot).series}
        strong = [name for name, colour in colours.items() if colour != lines._FAINT]
        assert len(strong) == 4
        assert [each["series"] for each in named] == sorted(strong, reverse=True)
        first = {"series": "way 5", "x": pytest.approx(17.0), "y": 0.9, "label": "17 s  way 5", "rank": 0}
        assert named[0] == first
        assert [each["rank"] for each in named] == list(range(len(named)))

    def test_six_have_colours_and_of_seven_four(self) -> None:
        def colours(count: int) -> list[str]:
            trials = [learnt(f"way {at}", 1, (1, 20 - at), (0.5, 0.9)) for at in range(count)]
            return [each.colour for each in shown(lines.time_to_accuracy(learning(*trials))).series]

        assert MORE[0] == lines._FAINT
        assert colours(6) == list(SERIES[:6])
        assert colours(7) == [*SERIES[:4], *[lines._FAINT] * 3]


def timed(name: str, workers: int, fixed_s: float, ms: float, number: int, steps: int = 100) -> dict[str, Any]:
    made = comparisons.trial(name, number, 1.0, workers)
    metrics = {**made["metrics"], "seconds_waited": fixed_s + ms * steps / 1e3}
    return {**made, "metrics": metrics, "steps_ms": [ms] * steps}


def costs(found: Mapping[str, tuple[int, float, float]], trials: int = 2, steps: int = 100) -> Analysis:
    return comparisons.comparison(
        [
            timed(name, workers, fixed, ms, number, steps)
            for name, (workers, fixed, ms) in found.items()
            for number in range(1, trials + 1)
        ]
    )


class TestFixedAndSteady:
    def test_a_line_is_the_fixed_cost_and_so_many_steps(self) -> None:
        plot = lines.fixed_and_steady(costs({"one": (1, 1.0, 4.0), "two": (2, 5.0, 2.0)}))
        by_name = {name: [each for each in points(plot) if each["series"] == name] for name in ("one", "two")}
        for name, fixed, ms in (("one", 1.0, 4.0), ("two", 5.0, 2.0)):
            steps = [each["x"] for each in by_name[name]]
            # From 10 steps to twice as many as the lead is taken after: 49 of them, each as far from the last one.
            assert (len(steps), steps[0], steps[-1]) == (49, 10.0, pytest.approx(4000.0))
            assert [later / step for step, later in pairwise(steps)] == pytest.approx([400 ** (1 / 48)] * 48)
            assert [each["y"] for each in by_name[name]] == pytest.approx([fixed + ms * each / 1e3 for each in steps])
        assert points(plot, "crossings") == [{"x": pytest.approx(2000.0), "label": "2,000 steps: two", "rank": 1}]
        assert "measured: 100 steps" in labels(plot)
        assert shown(plot).description.endswith("per step: one 1 s and 4 ms per step; two 5 s and 2 ms per step.")

    def test_without_a_crossing_the_axis_has_four_times_what_was_measured(self) -> None:
        plot = lines.fixed_and_steady(costs({"one": (1, 1.0, 2.0), "two": (2, 5.0, 2.0)}))
        assert max(each["x"] for each in points(plot)) == pytest.approx(400.0)
        assert points(plot, "crossings") == []

    def test_a_lead_that_is_taken_at_once_is_not_told(self) -> None:
        # After 9 steps, and after 20.
        plot = lines.fixed_and_steady(costs({"one": (1, 1.0, 4.0), "two": (2, 1.018, 2.0)}))
        assert points(plot, "crossings") == []
        plot = lines.fixed_and_steady(costs({"one": (1, 1.0, 4.0), "two": (2, 1.04, 2.0)}))
        assert [each["label"] for each in points(plot, "crossings")] == ["20 steps: two"]
        # After 10 steps, and after 11; these seconds are sums without rounding.
        plot = lines.fixed_and_steady(costs({"one": (1, 1.0, 2000.0), "two": (2, 11.0, 1000.0)}))
        assert points(plot, "crossings") == []
        plot = lines.fixed_and_steady(costs({"one": (1, 1.0, 2000.0), "two": (2, 12.0, 1000.0)}))
        assert [each["label"] for each in points(plot, "crossings")] == ["11 steps: two"]

    def test_a_lead_over_or_by_one_trial_is_not_told(self) -> None:
        pair = [timed("one", 1, 1.0, 4.0, number) for number in (1, 2)]
        found = lines.fixed_and_steady(comparisons.comparison([*pair, timed("two", 2, 5.0, 2.0, 1)]))
        assert points(found, "crossings") == []
        assert shown(found).note.endswith("; of one trial that cannot be told (two).")
        other = [timed("two", 2, 5.0, 2.0, number) for number in (1, 2)]
        found = lines.fixed_and_steady(comparisons.comparison([timed("one", 1, 1.0, 4.0, 1), *other]))
        assert points(found, "crossings") == []

    def test_of_four_leaders_those_beside_one_trial_are_not_told(self) -> None:
        found = {"a": (1, 1.0, 8.0), "b": (2, 2.0, 6.0), "c": (3, 4.0, 4.0), "d": (4, 8.0, 2.0)}
        records = [
            timed(name, workers, fixed, ms, number)
            for name, (workers, fixed, ms) in found.items()
            for number in ((1,) if name == "b" else (1, 2))
        ]
        told = points(lines.fixed_and_steady(comparisons.comparison(records)), "crossings")
        assert [(each["label"], each["rank"]) for each in told] == [("2,000 steps: d", 3)]

    def test_one_line_is_none_and_neither_is_one_without_steps(self) -> None:
        assert lines.fixed_and_steady(costs({"one": (1, 1.0, 4.0)})) is None
        assert lines.fixed_and_steady(costs({"one": (1, 1.0, 4.0), "two": (2, 5.0, 0.0)})) is None

    def test_who_starts_in_no_time_still_has_a_place_on_the_axis(self) -> None:
        plot = lines.fixed_and_steady(costs({"one": (1, 0.0, 4.0), "two": (2, 5.0, 2.0)}))
        assert points(plot)[0]["y"] == pytest.approx(0.01 + 4.0 * 10 / 1e3)

    def test_six_lines_are_enough_and_leaders_are_among_them(self) -> None:
        found = {f"way {at}": (at, float(at), 20.0 - at / 10) for at in range(1, 9)}
        found["late"] = (9, 99.0, 1.0)
        plot = lines.fixed_and_steady(costs(found))
        names = {each.name for each in shown(plot).series}
        assert len(names) == 6
        assert {"way 1", "late"} <= names
        assert {each["series"] for each in points(plot)} == names
        # The others are those that took least for what was measured.
        assert names == {"late", *(f"way {at}" for at in range(1, 6))}

    def test_parts_of_a_second_decide_who_is_among_six(self) -> None:
        # After 100 steps 2.5 s and 2.4 s; the others take less.
        found = {f"way {at}": (1, 1.0, 6.0 + at / 10) for at in range(4)}
        found |= {"lead": (1, 0.5, 5.0), "out": (1, 1.0, 15.0), "in": (1, 1.3, 11.0)}
        plot = lines.fixed_and_steady(costs(found))
        assert {each.name for each in shown(plot).series} == {"lead", "in", *(f"way {at}" for at in range(4))}


def test_the_envelope_has_each_leader_from_where_it_leads() -> None:
    # a and b meet at 1,000 steps, b and d at 2,000, a and d at 1,333; c is never the quickest.
    found = {"a": (1.0, 5.0), "b": (3.0, 3.0), "c": (9.0, 2.9), "d": (7.0, 1.0)}
    assert lines.envelope(found) == [(0.0, "a"), (1000.0, "b"), (2000.0, "d")]
    # Of two that start alike the one that steps faster; of two that take the lead at once likewise.
    assert lines.envelope({"a": (1.0, 5.0), "b": (1.0, 4.0)}) == [(0.0, "b")]
    assert lines.envelope({"a": (1.0, 5.0), "b": (2.0, 4.0), "c": (3.0, 3.0)}) == [(0.0, "a"), (1000.0, "c")]


def of_workers(seconds: Mapping[int, Sequence[float]], host_cores: int = 64) -> Analysis:
    return comparisons.comparison(
        [
            {
                **comparisons.trial(f"ours, workers {workers}", number, value, workers),
                "factors": {"variant": "ours", "workers": str(workers)},
            }
            for workers, values in seconds.items()
            for number, value in enumerate(values, start=1)
        ],
        host_cores,
    )


class TestScaling:
    def test_speed_ups_are_over_the_best_process_of_one_thread(self) -> None:
        plot = lines.scaling(of_workers({1: (10.0, 40.0), 2: (5.0, 20.0), 4: (4.0, 4.0)}))
        # 20, 10 and 4 s in the middle.
        assert [(each["x"], each["y"]) for each in points(plot, "centres")] == [
            (1, pytest.approx(1.0)),
            (2, pytest.approx(2.0)),
            (4, pytest.approx(5.0)),
        ]
        assert [(each["x"], each["y"]) for each in points(plot)] == [
            *((1, pytest.approx(2.0)), (1, pytest.approx(0.5)), (2, pytest.approx(4.0)), (2, pytest.approx(1.0))),
            *((4, pytest.approx(5.0)), (4, pytest.approx(5.0))),
        ]
        assert points(plot, "ideal") == [{"x": 1, "y": 1}, {"x": 4, "y": 4}]
        assert axis(plot, "x")["axis"]["values"] == [1, 2, 4]
        assert labels(plot) == ["ideal", "COST: the best process of one thread, ours, workers 1"]
        assert [each.name for each in shown(plot).series] == ["ours"]

    def test_cores_that_the_host_has_not_are_no_ideal(self) -> None:
        seconds = {1: (10.0,), 2: (5.0,), 4: (4.0,)}
        plot = lines.scaling(of_workers(seconds, host_cores=2))
        assert points(plot, "ideal")[-1] == {"x": 2, "y": 2}
        assert "this host has 2 cores" in labels(plot)
        assert "Beyond 2 cores, which the host has, threads share a core." in shown(plot).note
        plot = lines.scaling(of_workers(seconds, host_cores=4))
        assert points(plot, "ideal")[-1] == {"x": 4, "y": 4}
        assert len(labels(plot)) == 2
        assert "share a core" not in shown(plot).note

    def test_there_is_none_without_one_thread_or_with_one_number_of_cores(self) -> None:
        assert lines.scaling(of_workers({1: (10.0,)})) is None
        assert lines.scaling(of_workers({2: (10.0,), 4: (5.0,)})) is None


def swept(batches: Mapping[int, float]) -> Analysis:
    records = []
    for batch, rate in batches.items():
        made = comparisons.trial(f"ours, batch {batch}", 1, 1e4 / rate, 2, batch=batch)
        metrics = {**made["metrics"], "rows_per_second": rate}
        records.append({**made, "factors": {"variant": "ours", "batch": str(batch)}, "metrics": metrics})
    return comparisons.comparison(records)


def test_a_sweep_over_batches_has_each_one_s_rate_and_time() -> None:
    analysis = swept({128: 2000.0, 32: 500.0, 64: 1000.0})
    rate, time = lines.batch_rate(analysis), lines.batch_time(analysis)
    assert [(each["x"], each["y"]) for each in points(rate)] == [
        *((32, pytest.approx(500.0)), (64, pytest.approx(1000.0)), (128, pytest.approx(2000.0)))
    ]
    assert [(each["x"], each["y"]) for each in points(time)] == [
        *((32, pytest.approx(20.0)), (64, pytest.approx(10.0)), (128, pytest.approx(5.0)))
    ]
    assert axis(rate, "x")["axis"]["values"] == [32, 64, 128]
    assert axis(rate, "y")["axis"]["title"] == "rows per second"
    assert shown(time).title == "Seconds from the command to its end by batch"
    assert lines.batch_rate(swept({32: 500.0})) is None


def used(name: str, number: int, seconds: float, scale: float = 1.0) -> dict[str, Any]:
    told = {
        "seconds": [0.0, 1.234567, 2.0],
        "cpu_cores": [scale * each for each in (0.25, 1.23456, 2.0)],
        "resident_bytes": [int(scale * 2**30 * each) for each in (0.5, 1, 2)],
        "network_sent_bytes_per_s": [0, 1_500_000, 3_000_000],
    }
    return {**comparisons.trial(name, number, seconds, 1), "resources": told}


def test_what_was_used_over_time_is_the_median_trial_s_in_units_to_read() -> None:
    trials = [used("one", 1, 9.0, 7.0), used("one", 2, 5.0), used("one", 3, 1.0, 7.0)]
    analysis = comparisons.comparison([*trials, comparisons.trial("untold", 1, 3.0, 1)])

    def values(plot: Plot | None) -> list[tuple[str, float, float]]:
        return [(each["series"], each["x"], each["y"]) for each in points(plot)]

    assert values(lines.utilisation(analysis)) == [("one", 0.0, 0.25), ("one", 1.2346, 1.235), ("one", 2.0, 2.0)]
    assert [each[2] for each in values(lines.memory(analysis))] == [0.5, 1.0, 2.0]
    assert [each[2] for each in values(lines.network(analysis))] == [0.0, 1.5, 3.0]
    assert "GiB" in axis(lines.memory(analysis), "y")["axis"]["title"]
    assert "MB/s" in axis(lines.network(analysis), "y")["axis"]["title"]
    assert lines.memory(comparisons.comparison([comparisons.trial("untold", 1, 3.0, 1)])) is None


def by_epoch(name: str, seconds: float, workers: int = 2, epochs: int = 2) -> dict[str, Any]:
    told = [{"epoch": at, "compute": seconds + at, "communication": 10.0 * at} for at in range(1, epochs + 1)]
    return {**comparisons.trial(name, 1, seconds, workers), "epoch_phases": told}


def test_computing_and_communication_stand_by_epoch() -> None:
    plot = lines.epochs(comparisons.comparison([by_epoch("two", 5.0)]))
    assert points(plot) == [
        {"series": "two, compute", "x": 1, "y": 6.0},
        {"series": "two, communication", "x": 1, "y": 10.0},
        {"series": "two, compute", "x": 2, "y": 7.0},
        {"series": "two, communication", "x": 2, "y": 20.0},
    ]
    # There is no half epoch.
    assert axis(plot, "x")["axis"] == {"title": "epoch", "tickMinStep": 1}
    compute, communication = shown(plot).series
    assert (compute.dash, communication.dash) == (False, True)
    assert compute.colour == communication.colour
    for alone in (by_epoch("one", 5.0, workers=1), by_epoch("short", 5.0, epochs=1), comparisons.trial("old", 1, 5, 2)):
        assert lines.epochs(comparisons.comparison([alone])) is None


def test_four_groups_are_told_by_epoch_the_fastest_ones() -> None:
    many = [by_epoch(f"way {at}", 10.0 - at) for at in range(5)]
    plot = lines.epochs(comparisons.comparison(many))
    assert shown(plot).title.endswith("by epoch: the 4 fastest of 5 groups")
    assert {each["series"].partition(",")[0] for each in points(plot)} == {f"way {at}" for at in range(1, 5)}
    assert shown(lines.epochs(comparisons.comparison(many[:4]))).title.endswith("by epoch")


ROW = {"transport": "tcp", "workers": 2, "elements": 1000, "busbw_gbps": 3.5}


def test_bandwidths_stand_at_the_bytes_of_the_vector() -> None:
    rows = [
        {**ROW, "elements": 0},
        ROW,
        {**ROW, "transport": "gloo", "elements": 50, "busbw_gbps": 2.0, "link_gbps": 20.0},
    ]
    plot = lines.bus_bandwidth(rows)
    assert points(plot) == [
        {"series": "tcp, 2 ranks", "x": 4000, "y": 3.5},
        {"series": "gloo, 2 ranks", "x": 200, "y": 2.0},
    ]
    assert [each.name for each in shown(plot).series] == ["gloo, 2 ranks", "tcp, 2 ranks"]
    assert labels(plot) == ["a plain TCP stream"]
    (line,) = [each for each in shown(plot).spec["layer"] if each["mark"]["type"] == "rule"]
    assert line["encoding"] == {"y": {"datum": 20.0, "type": "quantitative"}}
    assert labels(lines.bus_bandwidth([ROW])) == []
    assert lines.bus_bandwidth([{**ROW, "elements": 0}]) is None


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({}, "tcp, 2 ranks"),
        ({"host_local": False, "topology": "ring", "codec": "fp32", "encryption": "off"}, "tcp ring, 2 ranks"),
        ({"host_local": True, "codec": "bf16", "encryption": "tls"}, "tcp host-local bf16 tls, 2 ranks"),
        ({"host_local": None, "topology": None}, "tcp, 2 ranks"),
    ],
)
def test_a_way_is_named_by_what_tells_it_from_others(more: dict[str, Any], name: str) -> None:
    assert points(lines.bus_bandwidth([{**ROW, **more}]))[0]["series"] == name


def test_straight_axes_of_amounts_start_at_zero_and_no_others() -> None:
    def zero(plot: Plot | None, which: str) -> Any:
        return axis(plot, which)["scale"].get("zero")

    scaling = lines.scaling(of_workers({1: (10.0,), 2: (5.0,)}))
    assert (zero(scaling, "x"), zero(scaling, "y")) == (False, True)
    sweep = lines.batch_rate(swept({32: 500.0, 64: 900.0}))
    assert (zero(sweep, "y"), axis(sweep, "x")["scale"]["type"]) == (True, "log")
    used_memory = lines.memory(comparisons.comparison([used("one", 1, 9.0)]))
    assert (zero(used_memory, "x"), zero(used_memory, "y")) == (True, True)
    assert zero(lines.epochs(comparisons.comparison([by_epoch("two", 5.0)])), "y") is True
    learnt_soon = lines.time_to_accuracy(learning(learnt("one", 1, (1, 8), (0.5, 0.9))))
    assert (zero(learnt_soon, "x"), zero(learnt_soon, "y")) == (False, False)
    # What an axis has been told is where it ends.
    for which in ("x", "y"):
        assert axis(learnt_soon, which)["scale"]["nice"] is False


def test_the_second_round_of_colours_is_dashed_and_more_than_two_are_none() -> None:
    looks = lines._coloured([str(at) for at in range(20)])
    assert [(each.colour, each.dash) for each in looks[:10]] == [(colour, False) for colour in SERIES]
    assert [(each.colour, each.dash) for each in looks[10:]] == [(colour, True) for colour in SERIES]
    many = comparisons.comparison([comparisons.trial(f"way {at}", 1, 1.0 + at, 1) for at in range(24)])
    assert [group.name for group in lines._fastest(many, many.groups)] == [f"way {at}" for at in range(20)]
    # Who has no look of its own takes one that nobody else has in this chart.
    of_two = lines._of_groups(many, ["way 22", "way 1"])
    assert [each.name for each in of_two] == ["way 1", "way 22"]
    assert len({(each.colour, each.dash) for each in of_two}) == 2
