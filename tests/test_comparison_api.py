"""What `compare()` and `try` refuse before they measure anything."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from click.testing import CliRunner

import sparkdl_bench
from sparkdl_bench.cli import cli
from sparkdl_bench.errors import ConfigurationError


@pytest.mark.parametrize("minutes", ["0", "-1", "nan"])
def test_no_time_is_not_ten_minutes(minutes: str) -> None:
    result = CliRunner().invoke(cli, ["try", "digits", "--minutes", minutes])
    assert result.exit_code == 2
    said = f"minutes = {float(minutes)} is not valid; it is a number above 0, such as 10.\n"
    assert result.stderr == said


def test_what_reports_need_is_missed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def without(name: str, *rest: Any) -> Any:
        return None if name == "scipy" else find(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    with pytest.raises(ConfigurationError) as refused:
        sparkdl_bench.compare("digits")
    assert str(refused.value) == (
        "Answers and pages need the package 'scipy', which is not installed here. The extra 'report' brings all that "
        "they need: pip install 'sparkdl-bench[report]'."
    )
