"""Against R's own figures for the data sets that come with R, and the rate at which equal variants seem to differ.

PlantGrowth (Dobson, 1983) and ToothGrowth (Crampton, 1947) are in R's package datasets; the figures are what R prints
for `t.test`, `summary(aov(…))`, `TukeyHSD(aov(…))` and `shapiro.test`.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from sparkdl_bench import statistics
from sparkdl_bench.statistics import inference

CTRL = [4.17, 5.58, 5.18, 6.11, 4.50, 4.61, 5.17, 4.53, 5.33, 5.14]
TRT1 = [4.81, 4.17, 4.41, 3.59, 5.87, 3.83, 6.03, 4.89, 4.32, 4.69]
TRT2 = [6.31, 5.12, 5.54, 5.50, 5.37, 5.29, 4.92, 6.15, 5.80, 5.26]
PLANTS = {"ctrl": CTRL, "trt1": TRT1, "trt2": TRT2}

TEETH = {
    ("VC", "0.5"): [4.2, 11.5, 7.3, 5.8, 6.4, 10.0, 11.2, 11.2, 5.2, 7.0],
    ("VC", "1"): [16.5, 16.5, 15.2, 17.3, 22.5, 17.3, 13.6, 14.5, 18.8, 15.5],
    ("VC", "2"): [23.6, 18.5, 33.9, 25.5, 26.4, 32.5, 26.7, 21.5, 23.3, 29.5],
    ("OJ", "0.5"): [15.2, 21.5, 17.6, 9.7, 14.5, 10.0, 8.2, 9.4, 16.5, 9.7],
    ("OJ", "1"): [19.7, 23.3, 23.6, 26.4, 20.0, 25.2, 25.8, 21.2, 14.5, 27.3],
    ("OJ", "2"): [25.5, 26.4, 22.4, 24.5, 24.8, 30.9, 26.4, 27.3, 29.4, 23.0],
}


def test_welch_as_r() -> None:
    # R: t.test(len ~ supp, data = ToothGrowth): t = 1.9153, df = 55.309, p-value = 0.06063,
    # 95 percent confidence interval -0.1710156 7.5710156
    oj, vc = ([value for key, values in TEETH.items() if key[0] == supp for value in values] for supp in ("OJ", "VC"))
    found = inference.welch(oj, vc)
    assert found is not None
    assert found.t == pytest.approx(1.9153, abs=5e-5)
    assert found.df == pytest.approx(55.309, abs=5e-4)
    assert found.p == pytest.approx(0.06063, abs=5e-6)
    assert (found.interval.low, found.interval.high) == pytest.approx((-0.1710156, 7.5710156), abs=5e-7)
    assert not found.differs


def test_one_way_as_r() -> None:
    # R: summary(aov(weight ~ group, PlantGrowth)): group 2 3.766 F 4.846 p 0.0159; Residuals 27 10.492
    rows = inference.one_way(PLANTS)
    assert rows is not None
    between, within = rows
    assert (between.sum_of_squares, between.df) == (pytest.approx(3.76634, abs=5e-6), 2)
    assert between.f == pytest.approx(4.846, abs=5e-4)
    assert between.p == pytest.approx(0.01591, abs=5e-6)
    assert (within.sum_of_squares, within.df) == (pytest.approx(10.49209, abs=5e-6), 27)


def test_two_way_as_r() -> None:
    # R: summary(aov(len ~ supp * factor(dose), ToothGrowth)): supp 1 205.4 15.572 0.000231; dose 2 2426.4 92.000
    # < 2e-16; supp:dose 2 108.3 4.107 0.021860; Residuals 54 712.1
    flat = [(value, *key) for key, values in TEETH.items() for value in values]
    rows = inference.two_way(
        [row[0] for row in flat], [row[1] for row in flat], [row[2] for row in flat], ("supp", "dose")
    )
    assert rows is not None
    found = {row.factor: row for row in rows}
    assert found["supp"].f == pytest.approx(15.572, abs=5e-4)
    assert found["supp"].p == pytest.approx(0.000231, abs=5e-7)
    assert found["dose"].f == pytest.approx(92.000, abs=5e-4)
    assert found["dose"].sum_of_squares == pytest.approx(2426.4, abs=0.05)
    assert found["supp × dose"].f == pytest.approx(4.107, abs=5e-4)
    assert found["supp × dose"].p == pytest.approx(0.021860, abs=5e-7)
    assert (found["residual"].sum_of_squares, found["residual"].df) == (pytest.approx(712.1, abs=0.05), 54)


def test_tukey_as_r() -> None:
    # R: TukeyHSD(aov(weight ~ group, PlantGrowth)):
    # trt1-ctrl -0.371 -1.0622161 0.3202161 0.3908711; trt2-ctrl 0.494 -0.1972161 1.1852161 0.1979960;
    # trt2-trt1  0.865  0.1737839 1.5562161 0.0120064
    pairs = inference.tukey(PLANTS)
    assert pairs is not None
    found = [(f"{p.second}-{p.first}", p.difference, p.interval.low, p.interval.high, p.p) for p in pairs]
    expected = [
        ("trt1-ctrl", -0.371, -1.0622161, 0.3202161, 0.3908711),
        ("trt2-ctrl", 0.494, -0.1972161, 1.1852161, 0.1979960),
        ("trt2-trt1", 0.865, 0.1737839, 1.5562161, 0.0120064),
    ]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours[0] == theirs[0]
        assert ours[1:] == pytest.approx(theirs[1:], abs=2e-6)


def test_holm_as_r() -> None:
    # R: p.adjust(c(0.03, 0.01, 0.04, 0.005), "holm"): 0.06 0.03 0.06 0.02
    assert inference.holm([0.03, 0.01, 0.04, 0.005]) == pytest.approx([0.06, 0.03, 0.06, 0.02])
    assert inference.holm([0.5, 0.6]) == pytest.approx([1.0, 1.0])  # never above 1
    assert inference.holm([0.03]) == pytest.approx([0.03])
    assert inference.holm([]) == []


@pytest.mark.long
def test_among_many_equal_variants_one_seems_to_differ_in_at_most_7_of_100_repetitions() -> None:
    random = np.random.default_rng(11)
    raw = adjusted = 0
    for _ in range(100):
        base, *others = random.lognormal(2.0, 0.1, (9, 5)).tolist()
        ps = [effect.p for each in others if (effect := inference.ratio(base, each)) is not None]
        raw += min(ps) < inference.SIGNIFICANT
        adjusted += min(inference.holm(ps)) < inference.SIGNIFICANT
    assert raw / 100 > 0.15
    assert adjusted / 100 <= 0.07


def test_shapiro_as_r() -> None:
    # R: shapiro.test(residuals(aov(weight ~ group, PlantGrowth))): W = 0.96607, p-value = 0.4379
    residuals = [value - float(np.mean(values)) for values in PLANTS.values() for value in values]
    found = inference.shapiro(residuals)
    assert found == pytest.approx((0.96607, 0.4379), abs=5e-5)


def test_hedges_g_by_hand() -> None:
    # (5.032 - 4.661) / pooled sd 0.6963 = 0.5328, times gamma(9) / (sqrt(9) gamma(8.5)) = 0.95765
    pooled = math.sqrt((np.var(CTRL, ddof=1) + np.var(TRT1, ddof=1)) / 2)
    expected = (np.mean(CTRL) - np.mean(TRT1)) / pooled * math.gamma(9) / (3 * math.gamma(8.5))
    assert inference.hedges_g(CTRL, TRT1) == pytest.approx(expected, rel=1e-12)


def test_the_geometric_mean_s_interval_by_hand() -> None:
    # Logarithms to base 2 of 1, 2, 3: mean 2, standard error 1 / sqrt(3), t of 2 degrees of freedom 4.302653.
    found = inference.geometric_interval([2.0, 4.0, 8.0])
    assert found is not None
    half = 4.302653 / math.sqrt(3)
    assert (found.low, found.high) == pytest.approx((2 ** (2 - half), 2 ** (2 + half)), rel=1e-6)
    assert statistics.geometric_mean([2.0, 4.0, 8.0]) == pytest.approx(4.0)
    assert statistics.geometric_mean([0.0, 4.0]) == 0.0
    assert inference.geometric_interval([2.0]) is None  # one trial has no spread
    assert inference.geometric_interval([0.0, 2.0]) is None


@pytest.mark.parametrize("trials", [3, 5, 20])
def test_the_geometric_mean_s_interval_covers_the_truth(trials: int) -> None:
    random = np.random.default_rng(3)
    covered = 0
    for _ in range(1000):
        interval = inference.geometric_interval(random.lognormal(2.0, 0.1, trials).tolist())
        assert interval is not None
        covered += interval.low <= math.exp(2.0) <= interval.high
    assert 0.93 <= covered / 1000 <= 0.97


@pytest.mark.parametrize("df", [1, 1.01, 1.5, 2, 2.7, 3, 4, 8, 30.5, 200])
def test_student_s_t_as_scipy(df: float) -> None:
    assert statistics.student_t(df) == pytest.approx(float(stats.t.ppf(0.975, df)), rel=1e-5)


@pytest.mark.parametrize(("ours", "theirs"), [(2, 2), (3, 3), (4, 4), (2, 3), (4, 9), (9, 3)])
def test_of_fewer_than_five_trials_the_interval_is_welch_s(ours: int, theirs: int) -> None:
    random = np.random.default_rng(13)
    sides = [random.lognormal(1.0, spread, trials).tolist() for spread, trials in ((0.05, ours), (0.2, theirs))]
    found, expected = statistics.ratio_interval(*sides), inference.ratio(*sides)
    assert found is not None
    assert expected is not None
    assert (found.low, found.high) == pytest.approx((expected.interval.low, expected.interval.high), rel=1e-4)


def test_of_five_trials_the_interval_is_a_bootstrap() -> None:
    found = statistics.ratio_interval([1.0, 1.1, 1.2, 1.3, 9.0], [1.0] * 5)
    assert found is not None
    # It ends at what was seen.
    assert 1.0 <= found.low < found.high <= 9.0
    assert statistics.ratio_interval([1.0], [1.0] * 5) is None
    assert statistics.ratio_interval([1.0] * 5, [1.0]) is None
    assert statistics.ratio_interval([0.0, 1.0], [1.0, 1.0]) is None  # zero has no logarithm
    assert statistics.ratio_interval([0.0] * 5, [1.0] * 5) == statistics.Interval(0.0, 0.0)


@pytest.mark.parametrize("trials", [2, 3, 4, 5])
@pytest.mark.parametrize("spreads", [(0.05, 0.05), (0.02, 0.1)])
def test_the_interval_of_a_ratio_covers_the_truth(
    trials: int, spreads: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "RESAMPLES", 1000)
    random = np.random.default_rng(14)
    covered = 0
    for _ in range(1000):
        found = statistics.ratio_interval(*(random.lognormal(0.0, spread, trials).tolist() for spread in spreads))
        assert found is not None
        covered += found.low <= 1.0 <= found.high
    assert 0.92 <= covered / 1000 <= 0.99


@pytest.mark.parametrize("trials", [5, 10])
@pytest.mark.parametrize("kind", ["normal", "lognormal"])
def test_equal_variants_differ_in_3_to_7_of_100_repetitions(trials: int, kind: str) -> None:
    random = np.random.default_rng(7)
    differ = 0
    for _ in range(1000):
        if kind == "normal":
            a, b = random.normal(10.0, 0.5, (2, trials))
        else:
            a, b = random.lognormal(2.0, 0.3, (2, trials))
        effect = inference.ratio(a.tolist(), b.tolist())
        assert effect is not None
        assert effect.differs == (not effect.interval.low <= 1.0 <= effect.interval.high)
        differ += effect.differs
    assert 30 <= differ <= 70


def test_a_variant_twice_as_slow_differs() -> None:
    effect = inference.ratio([2.0, 2.1, 1.9, 2.05, 1.95], [1.0, 1.05, 0.95, 1.02, 0.98])
    assert effect is not None
    assert effect.differs
    assert effect.ratio == pytest.approx(2.0, rel=0.01)
    assert effect.interval.low < 2.0 < effect.interval.high


def test_what_has_no_spread_or_too_few_values_gives_no_made_up_number() -> None:
    assert inference.welch([1.0], [1.0, 2.0]) is None
    assert inference.ratio([1.0], [2.0]) is None
    assert inference.hedges_g([1.0, 1.0], [2.0, 2.0]) is None
    assert inference.shapiro([1.0, 1.0, 1.0]) is None
    assert inference.one_way({"a": [1.0, 2.0]}) is None
    assert inference.one_way({"a": [1.0, 1.0], "b": [2.0, 2.0]}) is None
    assert inference.tukey({"a": [1.0], "b": [2.0, 3.0]}) is None
    assert inference.two_way([1.0, 2.0], ["a", "b"], ["x", "x"], ("one", "two")) is None
    same = inference.welch([3.0, 3.0], [3.0, 3.0])
    other = inference.welch([3.0, 3.0], [4.0, 4.0])
    assert same is not None
    assert other is not None
    assert (same.p, other.p) == (1.0, 0.0)


def test_the_smallest_samples_have_their_numbers_and_one_value_less_has_none() -> None:
    pair, three = [1.0, 2.0], [1.0, 2.0, 4.0]
    found = stats.shapiro(three)
    assert inference.shapiro(three) == pytest.approx((found.statistic, found.pvalue))
    assert inference.shapiro(pair) is None
    assert inference.shapiro([]) is None

    t = stats.ttest_ind(three[:2], [5.0, 9.0], equal_var=False)
    welch = inference.welch(three[:2], [5.0, 9.0])
    assert welch is not None
    assert (welch.t, welch.p) == pytest.approx((t.statistic, t.pvalue))
    assert inference.geometric_interval(pair) is not None

    groups = {"a": pair, "b": [3.0, 5.0]}
    rows, pairs = inference.one_way(groups), inference.tukey(groups)
    assert rows is not None
    assert pairs is not None
    # Between: 2 x 2 x 1.25^2 = 6.25; within: 0.5 + 2.
    assert [(row.sum_of_squares, row.df) for row in rows] == [(pytest.approx(6.25), 1), (pytest.approx(2.5), 2)]
    assert [(each.first, each.second, each.difference) for each in pairs] == [("a", "b", pytest.approx(2.5))]
    # One group alone, and a group of one, have none; one without spread beside one with some has.
    assert (inference.one_way({"a": pair}), inference.tukey({"a": pair})) == (None, None)
    assert (inference.one_way({**groups, "c": [1.0]}), inference.tukey({**groups, "c": [1.0]})) == (None, None)
    assert inference.one_way({"a": pair, "b": [3.0, 3.0]}) is not None
    assert inference.tukey({"a": pair, "b": [3.0, 3.0]}) is not None

    crossed = ([1.0, 2.0, 4.0, 8.0, 3.0, 5.0, 9.0, 9.5], list("aaaabbbb"), list("xxyyxxyy"))
    two = inference.two_way(*crossed, ("one", "two"))
    assert two is not None
    assert [row.df for row in two] == [1.0, 1.0, 1.0, 4.0]
    assert [row.factor for row in two] == ["one", "two", "one × two", "residual"]
    # A combination that came once, one that is missing, and a factor with one level.
    assert inference.two_way(*(each[:-1] for each in crossed), ("one", "two")) is None
    assert inference.two_way(*(each[:6] for each in crossed), ("one", "two")) is None
    assert inference.two_way(crossed[0], ["a"] * 8, crossed[2], ("one", "two")) is None
