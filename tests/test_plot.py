from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.plot import draw, draw_where_possible
from sparkdl_bench.results import RunResults


def test_draws_a_png(results_folder: Path) -> None:
    path = draw(RunResults(results_folder))
    assert path == results_folder / "plot.png"
    assert path.read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_it_says_what_to_install(results_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'sparkdl-bench\[plot\]'"):
        draw(RunResults(results_folder))


def test_a_run_without_an_epoch(results_folder: Path) -> None:
    (results_folder / "summary.json").write_text('{"history": []}')
    with pytest.raises(ConfigurationError, match="no finished epoch"):
        draw(RunResults(results_folder))


def test_nobody_who_did_not_ask_hears_of_it(results_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert draw_where_possible(RunResults(results_folder)) == results_folder / "plot.png"
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert draw_where_possible(RunResults(results_folder)) is None
