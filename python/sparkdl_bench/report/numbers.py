"""How numbers are written: short, without powers of ten."""

from __future__ import annotations

import math

from sparkdl_bench.statistics import Interval

_MOST_DECIMALS = 9


def number(value: float, digits: int = 3) -> str:
    """Three significant digits, without powers of ten: 0.0123, 1.23, 12.3, 1,234; less than 0.0000000005 is 0."""
    if abs(value) < 0.5 * 10**-_MOST_DECIMALS:
        return "0"
    text = f"{value:.{digits}g}"
    if abs(value) >= 1000 or "e+" in text:
        return f"{value:,.0f}"
    if "e" not in text:
        return text
    decimals = min(digits - 1 - math.floor(math.log10(abs(value))), _MOST_DECIMALS)
    return f"{value:.{decimals}f}".rstrip("0").rstrip(".")


def between(interval: Interval) -> str:
    """`95 % CI 1.2 to 1.4`; without an upper end `95 % CI 1.2 and above`."""
    if math.isfinite(interval.high):
        return f"95 % CI {number(interval.low)} to {number(interval.high)}"
    return f"95 % CI {number(interval.low)} and above"


def counted(count: int, what: str) -> str:
    """`1 trial`, `5 trials`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
