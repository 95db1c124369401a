"""Intervals that stay valid although trials are added and many groups are compared."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from sparkdl_bench.statistics import inference, sequential


def test_the_error_is_spent_once_over_all_looks() -> None:
    spent = sum(sequential.tail(trials, 3) for trials in range(2 * sequential.FEWEST, 100_000))
    assert spent == pytest.approx(sequential.ERROR / 3, rel=1e-4)


def test_at_one_look_it_is_welch_s_interval_at_a_stricter_level() -> None:
    slow, fast = [4.0, 8.0, 16.0], [1.1, 2.0, 4.3]
    a, b = np.log(slow), np.log(fast)
    found = sequential.speed_up(sequential.logs(slow), sequential.logs(fast), 2)
    error = sequential.ERROR * 5 / 30 / 2
    expected = stats.ttest_ind(a, b, equal_var=False).confidence_interval(1 - 2 * error)
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((expected.low, expected.high))
    usual = inference.ratio(slow, fast)
    assert usual is not None
    assert found.low < usual.interval.low < usual.ratio < usual.interval.high < found.high


@pytest.mark.parametrize(("slow_trials", "fast_trials"), [(4, 6), (6, 4), (8, 3), (12, 10)])
def test_numbers_of_trials_that_differ_count_each_for_its_side(slow_trials: int, fast_trials: int) -> None:
    random = np.random.default_rng(slow_trials)
    slow, fast = random.lognormal(1.0, 0.3, slow_trials), random.lognormal(0.5, 0.1, fast_trials)
    found = sequential.speed_up(sequential.logs(slow.tolist()), sequential.logs(fast.tolist()), 3)
    trials = slow_trials + fast_trials
    error = 0.02 * 5 / (trials * (trials - 1)) / 3
    expected = stats.ttest_ind(np.log(slow), np.log(fast), equal_var=False).confidence_interval(1 - 2 * error)
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((expected.low, expected.high))


def test_without_spread_there_is_no_width_and_below_three_trials_no_end() -> None:
    same = sequential.logs([2.0, 2.0, 2.0])
    found = sequential.speed_up(same, sequential.logs([1.0, 1.0, 1.0]), 1)
    assert (found.low, found.high) == pytest.approx((2.0, 2.0))
    for few in ([2.0], [2.0, 2.0]):
        assert sequential.speed_up(same, sequential.logs(few), 1) == sequential.Interval(0.0, math.inf)


def test_more_trials_are_asked_for_where_the_difference_is_small_or_the_spread_large() -> None:
    random = np.random.default_rng(2)
    noise = random.normal(0.0, 0.05, (2, 5))
    noise -= noise.mean(axis=1, keepdims=True)

    def asked(ratio: float, spread: float = 1.0) -> int | None:
        slow, fast = np.exp(noise * spread) * [[ratio], [1.0]]
        return sequential.more_trials(sequential.logs(slow), sequential.logs(fast), 1, 1.1)

    found = [asked(1.3), asked(1.2), asked(1.3, 2.0)]
    assert all(each is not None for each in found)
    assert found[0] is not None
    assert 1 <= found[0] < (found[1] or 0)
    assert found[0] < (found[2] or 0)
    assert asked(1.1) is None  # the margin itself
    one = sequential.logs([1.0])
    assert sequential.more_trials(one, one, 1, 1.1) == 4
