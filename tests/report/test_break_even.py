"""Fixed cost, steady speed, and when a cluster overtakes one machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import comparisons
import numpy as np
import pytest
from scipy import stats

from sparkdl_bench.report import lines, tables
from sparkdl_bench.report.analysis import Analysis
from sparkdl_bench.report.answer import answer, break_even
from sparkdl_bench.report.break_even import BreakEven, _break_even, _fieller, _kind
from sparkdl_bench.report.decision import decide, fixed_and_steady
from sparkdl_bench.statistics import Interval

STEPS = 400
NOISE = (0.0, 0.02, -0.03, 0.01, 0.0)


def trained(name: str, workers: int, fixed_s: float, ms: float, number: int = 1, **changes: Any) -> dict[str, Any]:
    """A trial of 400 steps whose warm-up belongs to the fixed cost; 0.4 s of evaluations are 1 ms per step."""
    steps_ms = [ms] * STEPS
    metrics = {"seconds_waited": fixed_s + (ms + 1) * STEPS / 1e3}
    record = comparisons.trial(name, number, 1.0, workers)
    facts = {"data": {"train_rows": 6400}}
    return {
        **record,
        "metrics": {**record["metrics"], **metrics},
        "steps_ms": steps_ms,
        "layers_s": {"evaluation": 0.4},
        "facts": facts,
        **changes,
    }


def beside(one: tuple[float, float], two: tuple[float, float], trials: int = 5) -> Analysis:
    """One machine and two workers by fixed seconds and ms per step; trials differ by a little."""
    return comparisons.comparison(
        [
            trained(name, workers, fixed * (1 + noise), ms * (1 + noise), number)
            for workers, name, (fixed, ms) in ((1, "one", one), (2, "two", two))
            for number, noise in enumerate(NOISE[:trials], start=1)
        ]
    )


def test_workers_are_many() -> None:
    found = only(beside((4.0, 5.0), (9.8, 3.2)))
    found = replace(found, group=replace(found.group, name="2 workers"))
    assert break_even(found).startswith("2 workers win over one after about 3,200 steps")
    assert break_even(replace(found, kind="never")).startswith("2 workers never overtake one: ")
    assert break_even(replace(found, kind="until")).startswith("2 workers are ahead of one for about the first ")


def only(analysis: Analysis) -> BreakEven:
    (found,) = decide(analysis).break_even
    return found


def test_fixed_and_steady_stand_apart() -> None:
    one, two = fixed_and_steady(beside((4.0, 5.0), (9.8, 3.2)))
    assert (one.group.name, two.group.name) == ("one", "two")
    assert (one.fixed_s, one.ms_per_step) == pytest.approx((4.0, 6.0))  # 1 ms of each step are evaluations
    assert (two.fixed_s, two.ms_per_step) == pytest.approx((9.8, 4.2))
    for interval, centre in ((one.fixed_interval, 4.0), (one.steady_interval, 6.0)):
        assert interval is not None
        assert interval.low < centre < interval.high
    alone = fixed_and_steady(beside((4.0, 5.0), (9.8, 3.2), trials=1))
    assert [(each.fixed_interval, each.steady_interval) for each in alone] == [(None, None)] * 2


def test_the_intervals_of_both_parts_are_student_s_at_95_percent() -> None:
    one, two = fixed_and_steady(beside((4.0, 5.0), (9.8, 3.2)))
    # Of five trials: t of 4 degrees of freedom, 2.776445, times the standard error.
    spread = 2.776445 * float(np.std(NOISE, ddof=1)) / 5**0.5
    for row, fixed, step in ((one, 4.0, 5.0), (two, 9.8, 3.2)):
        for interval, centre, varies in ((row.fixed_interval, fixed, fixed), (row.steady_interval, step + 1, step)):
            assert interval is not None
            assert (interval.low, interval.high) == pytest.approx(
                (centre - varies * spread, centre + varies * spread), rel=1e-6
            )


def test_fieller_s_interval_is_where_the_difference_may_be_zero() -> None:
    """At its ends Welch's test of "more to start - steps × less per step is 0" has p = 0.05: no formula of ours."""
    random = np.random.default_rng(5)
    sides = {
        "one": (1, random.normal(4.0, 0.1, 6), random.normal(5.0, 0.1, 6)),
        "two": (2, random.normal(9.0, 0.2, 6), random.normal(3.0, 0.1, 6)),
    }
    records = [
        trained(name, workers, fixed[number], ms[number], number + 1)
        for name, (workers, fixed, ms) in sides.items()
        for number in range(6)
    ]
    found = only(comparisons.comparison(records))
    assert found.interval is not None
    assert found.steps is not None

    def p_at(steps: float) -> float:
        (_, one_s, one_ms), (_, two_s, two_ms) = sides["one"], sides["two"]
        seconds = (two_s + steps * two_ms / 1e3, one_s + steps * one_ms / 1e3)
        return float(stats.ttest_ind(*seconds, equal_var=False).pvalue)

    assert p_at(found.steps) == pytest.approx(1.0)
    # The degrees of freedom are taken at the estimate, Welch's at each end: near, and not the same.
    assert [p_at(end) for end in (found.interval.low, found.interval.high)] == pytest.approx([0.05, 0.05], abs=0.012)


def apart(ours: Sequence[float], theirs: Sequence[float], less: float) -> Interval | None:
    """Fieller's interval of trials with these fixed seconds, ours with steps that are shorter by `less` s, always."""
    sides = [np.array([(each, 1.0 + step) for each in side]) for side, step in ((ours, 0.0), (theirs, less))]
    more = sides[0][:, 0].mean() - sides[1][:, 0].mean()
    return _fieller(sides[0], sides[1], float(more), less)


def test_where_steps_do_not_vary_fieller_s_interval_is_welch_s() -> None:
    ours, theirs = [9.0, 9.4, 8.7], [4.0, 4.1, 4.05, 3.9, 4.0, 3.95]
    of_difference = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    for less in (0.002, 100.0):  # after thousands of steps, and within the first
        found = apart(ours, theirs, less)
        assert found is not None
        assert (found.low, found.high) == pytest.approx((of_difference.low / less, of_difference.high / less))
    # Two trials are enough; no number of steps is below none.
    found = apart([5.0, 7.0], [4.0, 5.0], 1.0)
    assert found is not None
    assert (found.low, found.high > 2) == (0.0, True)
    assert apart([5.0], [4.0, 5.0], 1.0) is None


@pytest.mark.parametrize(
    ("start", "step", "kind"),
    [
        ((-2.0, -1.0), (-2.0, -1.0), "from the first step"),
        ((1.0, 2.0), (1.0, 2.0), "never"),
        # Who is equal in one part is ahead by the other.
        ((0.0, 0.0), (-2.0, -1.0), "from the first step"),
        ((-2.0, -1.0), (0.0, 1e-10), "from the first step"),
        ((1.0, 2.0), (-1e-10, 0.0), "never"),
        ((0.0, 0.0), (1.0, 2.0), "never"),
        ((0.0, 0.0), (0.0, 0.0), "unknown"),
        # An interval that holds 0 tells nothing, however clear the other is.
        ((-2.0, -1.0), (-2.0, 0.01), "unknown"),
        ((-2.0, 0.0), (-2.0, -1.0), "unknown"),
        ((1.0, 2.0), (-1e-8, 2.0), "unknown"),
        ((-0.01, 2.0), (1.0, 2.0), "unknown"),
        ((0.0, 0.0), (-1e-10, 1.0), "unknown"),
    ],
)
def test_who_seems_ahead_in_both_parts_is_where_both_intervals_say_so(
    start: tuple[float, float], step: tuple[float, float], kind: str
) -> None:
    assert _kind(Interval(*start), Interval(*step), None) == kind


@pytest.mark.parametrize(
    ("start", "step", "high", "kind"),
    [
        ((1.0, 2.0), (-2.0, -1.0), 9.0, "after"),
        ((-2.0, -1.0), (1.0, 2.0), 9.0, "until"),
        # It may have been ahead from the first step on: the interval of the steps begins at 0.
        ((-1.0, 2.0), (-2.0, -1.0), 9.0, "after"),
        ((1.0, 2.0), (-2.0, -1.0), float("inf"), "unknown"),
        ((1.0, 2.0), (-2.0, 0.1), 9.0, "unknown"),
        # A difference by rounding is none that somebody has to make up for.
        ((0.0, 1e-10), (-2.0, -1.0), 9.0, "from the first step"),
        ((1.0, 2.0), (-1e-10, 0.0), 9.0, "never"),
    ],
)
def test_one_overtakes_the_other_where_steps_differ(
    start: tuple[float, float], step: tuple[float, float], high: float, kind: str
) -> None:
    assert _kind(Interval(*start), Interval(*step), Interval(0.0, high)) == kind


@pytest.mark.parametrize(("trials", "together"), [(2, 0.0), (5, 0.0), (5, 1.0), (10, -1.0)])
def test_of_equal_ways_about_one_in_twenty_seems_to_differ(trials: int, together: float) -> None:
    """8 ± 0.5 s to start, 5 ± 0.2 ms per step; a trial that starts late has slow steps, quick ones, or either."""
    random = np.random.default_rng(11)
    group = beside((8.0, 5.0), (8.0, 5.0), trials=1).groups[0]
    kinds = []
    for _ in range(500):
        noise = random.normal(0.0, 1.0, (2, trials, 2))
        noise[:, :, 1] = noise[:, :, 1] if together == 0 else together * noise[:, :, 0]
        sides = np.array([8.0, 5e-3]) + noise * np.array([0.5, 0.2e-3])
        kinds.append(_break_even(group, group, *sides).kind)
    assert len(kinds) - kinds.count("unknown") <= 0.07 * len(kinds)


def test_one_clock_times_all_groups() -> None:
    """Cells that share an application do not know how long their user waited; peers beside them do."""
    random = np.random.default_rng(12)
    records = []
    for name, workers, waited in (("peer", 1, True), ("ours", 2, False)):
        for number in range(1, 6):
            seconds = float(random.normal(2.0, 0.001)) + 0.006 * STEPS
            # The peer's command has taken 6 s before its clock began.
            metrics = {"seconds_total": seconds, "seconds_waited": seconds + 6.0 if waited else None}
            record = trained(name, workers, 0.0, 5.0, number)
            records.append({**record, "metrics": {**record["metrics"], **metrics}})
    analysis = comparisons.comparison(records)
    assert [row.fixed_s for row in fixed_and_steady(analysis)] == pytest.approx([2.0, 2.0], abs=0.01)
    assert [row.ms_per_step for row in fixed_and_steady(analysis)] == pytest.approx([6.0, 6.0])
    assert only(analysis).more_to_start_s == pytest.approx(0.0, abs=0.01)
    assert "by the runs' own clocks" in tables.fixed_and_steady(analysis).note
    # Where all of them know it, from the command.
    peers = comparisons.comparison(records[:5])
    assert [row.fixed_s for row in fixed_and_steady(peers)] == pytest.approx([8.0], abs=0.01)


def test_two_workers_win_after_so_many_steps_and_rows_though_the_run_was_shorter() -> None:
    analysis = beside((4.0, 5.0), (9.8, 3.2))
    found = only(analysis)
    assert (found.kind, found.group.name, found.other.name) == ("after", "two", "one")
    assert (found.more_to_start_s, found.less_per_step_ms) == pytest.approx((5.8, 1.8))
    assert found.steps == pytest.approx(5800 / 1.8)
    assert found.steps > STEPS
    assert found.interval is not None
    assert found.interval.low < 5800 / 1.8 < found.interval.high
    assert (found.rows, found.passes) == pytest.approx((32 * 5800 / 1.8, 32 * 5800 / 1.8 / 6400))
    (said,) = [line for line in answer(analysis).details if "wins" in line]
    assert said.startswith(
        "two wins over one after about 3,200 steps (about 16 passes over the training set, 100,000 rows): 5.8 s more "
        "to start, 1.8 ms less per step; 95 % CI "
    )
    shown = tables.break_evens(analysis).rows[0]
    assert [cell.text for cell in shown[:5]] == ["two", "one", "5.8", "1.8", "after …"]


@pytest.mark.parametrize(
    ("two", "kind", "said"),
    [
        ((9.8, 5.5), "never", "two never overtakes one: 5.8 s more to start, and its step is not shorter (0.5 ms more"),
        ((3.0, 4.0), "from the first step", "two is ahead of one from the first step: 1 s less to start, 1 ms less"),
        ((3.0, 9.0), "until", "two is ahead of one for about the first 250 steps"),
        ((9.8, 4.99), "unknown", "When two is ahead of one is not known: 5.8 s more to start, 0.01 ms less per step"),
        ((3.0, 4.99), "unknown", "When two is ahead of one is not known: 1 s less to start, 0.01 ms less per step"),
        ((4.01, 5.5), "unknown", "When two is ahead of one is not known: 0.01 s more to start, 0.5 ms more per step"),
    ],
)
def test_where_there_is_no_such_number_it_says_why(two: tuple[float, float], kind: str, said: str) -> None:
    analysis = beside((4.0, 5.0), two)
    assert only(analysis).kind == kind
    (line,) = [line for line in answer(analysis).details if line.startswith(said)]
    assert line.endswith("and at least one of these two differences may be chance.") == (kind == "unknown")


@pytest.mark.parametrize("two", [(9.8, 3.2), (9.8, 5.5), (3.0, 4.0), (3.0, 9.0)])
def test_one_trial_is_no_answer(two: tuple[float, float]) -> None:
    """Whatever it looks like: the next trial may turn it round."""
    analysis = beside((4.0, 5.0), two, trials=1)
    found = only(analysis)
    assert (found.kind, found.interval, found.steps, found.rows, found.passes) == ("one trial", None, None, None, None)
    (said,) = [line for line in answer(analysis).details if line.startswith("When two overtakes one cannot be told")]
    assert said.endswith("nothing says how far both vary. That takes 2 trials of each at least, and 5 to know it well.")
    (shown,) = tables.break_evens(analysis).rows
    assert [cell.text for cell in shown[4:]] == ["one trial", "–", "–", "–"]
    plot = lines.fixed_and_steady(analysis)
    assert plot is not None
    assert "steps: two" not in str(plot.spec)
    assert plot.note.endswith("; of one trial that cannot be told (one, two).")


def test_what_one_trial_has_shown_is_told() -> None:
    (said,) = [line for line in answer(beside((4.0, 5.0), (9.8, 3.2), trials=1)).details if line.startswith("When two")]
    assert "cannot be told from one trial: it was 5.8 s more to start, 1.8 ms less per step, and nothing says" in said
    analysis = beside((4.0, 5.0), (9.8, 3.2))
    plot = lines.fixed_and_steady(analysis)
    assert plot is not None
    assert "3,200 steps: two" in str(plot.spec)
    assert plot.note.endswith("takes the lead.")


def test_one_side_of_one_trial_is_enough_not_to_tell() -> None:
    records = [trained("one", 1, 4.0, 5.0, number) for number in range(1, 6)] + [trained("two", 2, 9.8, 3.2)]
    assert only(comparisons.comparison(records)).kind == "one trial"


def test_other_batches_are_not_compared_by_steps() -> None:
    records = [trained("one", 1, 4.0, 5.0), trained("two", 2, 9.0, 3.0, batch=64)]
    assert decide(comparisons.comparison(records)).break_even == ()


def test_the_interval_covers_the_truth() -> None:
    """Fieller's interval of 95 %, fixed cost and steps drawn with a spread of 5 %."""
    random = np.random.default_rng(8)
    covered = 0
    for _ in range(200):
        records = [
            trained(name, workers, random.normal(fixed, 0.05 * fixed), random.normal(ms, 0.05 * ms), number)
            for workers, name, fixed, ms in ((1, "one", 4.0, 5.0), (2, "two", 9.0, 3.0))
            for number in range(1, 6)
        ]
        found = only(comparisons.comparison(records))
        interval = found.interval or Interval(0.0, float("inf"))
        covered += interval.low <= 2500 <= interval.high
    assert 180 <= covered <= 199


def test_records_that_do_not_say_enough_have_none() -> None:
    def without(*names: str) -> Mapping[str, Any]:
        made = trained("two", 2, 9.0, 3.0)
        return {name: value for name, value in made.items() if name not in names}

    assert fixed_and_steady(comparisons.comparison([{**without(), "steps_ms": []}])) == []
    cold = {**without(), "warmup_left_out": 0, "warmup_note": "all of its steps are of the warm-up"}
    assert fixed_and_steady(comparisons.comparison([cold])) == []
    (row,) = fixed_and_steady(comparisons.comparison([without("layers_s")]))
    assert row.ms_per_step == pytest.approx(3.0)
