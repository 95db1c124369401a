from __future__ import annotations

import numpy as np
import pytest

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.models import initializers


def test_the_bits_are_the_jvms() -> None:
    # The same values stand in InitializersSuite.
    uniform = initializers.values("he-uniform", (50, 30), 42, 0)
    assert [uniform[index] for index in (0, 1, 1499)] == [
        np.float32(-0.14016400277614594),
        np.float32(0.4076322317123413),
        np.float32(-0.23109868168830872),
    ]


@pytest.mark.parametrize("element", [0, 1, 999])
def test_normal_values_are_the_documented_formula(element: int) -> None:
    expected = np.float32(_plain_normal(42, 3, element)) * np.float32(0.01)
    assert initializers.values("gaussian-0.01", (40, 25), 42, 3)[element] == expected


def _plain_normal(seed: int, parameter: int, element: int) -> float:
    """With Python's own integers, from docs/reference/models.md."""
    mask, gamma = (1 << 64) - 1, 0x9E3779B97F4A7C15
    key = initializers.mix(seed + gamma * (parameter + 1))
    total = 0
    for part in range(3):
        word = initializers.mix((key + gamma * (3 * element + part + 1)) & mask)
        total += sum((word >> shift) & 0xFFFF for shift in (0, 16, 32, 48))
    return (total - 393210) / 65536


@pytest.mark.parametrize(
    ("name", "deviation"),
    [
        ("he-normal", (2 / 36) ** 0.5),
        ("he-out-normal", (2 / 72) ** 0.5),
        ("lecun-normal", (1 / 36) ** 0.5),
        ("xavier-normal", (2 / 108) ** 0.5),
    ],
)
def test_deviations(name: str, deviation: float) -> None:
    values = initializers.values(name, (8, 4, 3, 3), 1, 0, 50_000)
    assert abs(values.std() / deviation - 1) < 0.02
    assert abs(values.mean()) < 0.02 * deviation


def test_bounds_and_constants() -> None:
    assert np.abs(initializers.values("torch-uniform", (8, 4, 3, 3), 1, 0)).max() <= 1 / 6
    assert initializers.values("constant-0.2", (3,), 1, 0).tolist() == [np.float32(0.2)] * 3
    assert initializers.values("zero", (2, 2), 1, 0).tolist() == [0, 0, 0, 0]


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="no initialiser called 'magic'"):
        initializers.values("magic", (2, 2), 1, 0)
    with pytest.raises(ConfigurationError, match="two dimensions"):
        initializers.values("he-normal", (2,), 1, 0)


def test_dropout_masks_belong_to_rows_and_steps() -> None:
    together = initializers.dropout_factors(1, 4, 0.3, 7, [3, 9, 5], 5000)
    alone = initializers.dropout_factors(1, 4, 0.3, 7, [9], 5000)
    np.testing.assert_array_equal(together[1], alone[0])
    assert set(np.unique(together)) == {np.float32(0), np.float32(1 / 0.7)}
    assert abs((together == 0).mean() - 0.3) < 0.02
    other_step = initializers.dropout_factors(1, 4, 0.3, 8, [9], 5000)
    assert abs(((other_step == 0) & (alone == 0)).mean() - 0.09) < 0.02
