from __future__ import annotations

import time
from pathlib import Path

import pytest

from sparkdl_bench.comparison.plan import load_plan
from sparkdl_bench.config import load_run_file, parse_run_file
from sparkdl_bench.errors import ConfigurationError

_DEEP = 100_000
_TEXTS = [
    "hidden = " + "[" * _DEEP,
    "hidden = " + "[" * _DEEP + "]" * _DEEP,
    "a = " + "{a = " * _DEEP,
    "a." * _DEEP + "a = 1",
    "[" + "a." * _DEEP + "a]",
    '"a".' * _DEEP + "a = 1",
]


@pytest.mark.parametrize("text", _TEXTS, ids=range(len(_TEXTS)))
def test_toml_nested_100_000_deep_is_refused_at_once(text: str, tmp_path: Path) -> None:
    file = tmp_path / "deep.toml"
    file.write_text(text)
    start = time.monotonic()
    with pytest.raises(ConfigurationError, match="nested more than 64 deep"):
        load_run_file(file)
    with pytest.raises(ConfigurationError, match="nested more than 64 deep"):
        load_plan(file, (), None, None)
    assert time.monotonic() - start < 5


def test_brackets_and_dots_in_texts_and_comments_nest_nothing() -> None:
    text = (
        f"name = \"{'[.' * 100}\"\nother = '{'{.' * 100}' # {'[.' * 100}\nmodel.hidden = [1.5, 2.5]\n"
        + f'quoted = "\\"{"[" * 100}"\nlong = """\n'
        + "[a.\n" * 100
        + '"""\n'
    )
    assert parse_run_file(text, "x.toml").settings["model.hidden"] == "1.5,2.5"
