"""How a report writes numbers."""

from __future__ import annotations

import math

import pytest

from sparkdl_bench.report.numbers import between, counted, number
from sparkdl_bench.statistics import Interval


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-0.0, "0"),
        (1, "1"),
        (-1.5, "-1.5"),
        (0.012345, "0.0123"),
        (12.345, "12.3"),
        (998.6, "999"),
        (999.4, "999"),
        (999.6, "1,000"),
        (1000, "1,000"),
        (-1000.4, "-1,000"),
        (1234567.8, "1,234,568"),
        (0.00012345, "0.000123"),
        # Without powers of ten.
        (0.000012345, "0.0000123"),
        (0.00002, "0.00002"),
        (0.0000001, "0.0000001"),
        (-0.0000123456, "-0.0000123"),
        (0.00000012345, "0.000000123"),
        (0.000000012345, "0.000000012"),
        (-0.0000000001, "0"),
    ],
)
def test_three_digits_that_count_and_no_powers_of_ten(value: float, text: str) -> None:
    assert number(value) == text


def test_more_digits_where_they_are_asked_for() -> None:
    assert (number(1.23456, 5), number(1.23456, 2), number(4.5, 5)) == ("1.2346", "1.2", "4.5")


def test_an_interval_without_an_upper_end_says_so() -> None:
    assert between(Interval(1.2, 1.4)) == "95 % CI 1.2 to 1.4"
    assert between(Interval(1.2, math.inf)) == "95 % CI 1.2 and above"


def test_one_is_not_many() -> None:
    assert [counted(count, "trial") for count in (0, 1, 2, 1234)] == ["0 trials", "1 trial", "2 trials", "1,234 trials"]
