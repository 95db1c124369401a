"""The list of mutants that must die fits the sources; `make soak` sees them die (project/listed_mutants.py)."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
# What issue and rules name; a list that lost one of them would hold nothing to it.
NAMED = 9


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "project"))
    for name in ("mutants", "listed_mutants"):
        sys.modules.pop(name, None)
    return importlib.import_module("listed_mutants")


def test_every_replacement_applies(listed: Any) -> None:
    assert listed.stale() == []


def test_every_replacement_is_python_and_its_tests_are_there(listed: Any) -> None:
    for each in listed.MUTANTS:
        whole = (ROOT / listed.PACKAGE / each.file).read_text(encoding="utf-8")
        compile(listed.mutated(each, whole), each.file, "exec")
        assert all((ROOT / test).exists() for test in each.tests), each


def test_each_kind_has_several(listed: Any) -> None:
    kinds = [each.about for each in listed.MUTANTS]
    assert len(set(kinds)) == NAMED
    assert min(kinds.count(kind) for kind in kinds) >= 4


def test_a_list_that_is_older_than_the_sources_says_so(listed: Any) -> None:
    with pytest.raises(SystemExit, match=r"statistics/x\.py holds 'a = 1' 0 times.*up to date"):
        listed.mutated(listed.Listed("x", "statistics/x.py", "a = 1", "a = 2"), "a = 3")


def test_parts_have_files_and_reasons_have_their_lines(listed: Any) -> None:
    mutants = importlib.import_module("mutants")
    for part in mutants.PARTS:
        assert all((ROOT / mutants.PACKAGE / module).is_file() for module in part.modules), part.name
        assert all((ROOT / test.partition("::")[0]).exists() for test in part.tests), part.name
    drawn = {module for part in mutants.PARTS for module in part.modules}
    for file, _, held in mutants.LOOKED_AT:
        assert file in drawn
        assert held in (ROOT / mutants.PACKAGE / file).read_text(encoding="utf-8"), f"{file}: {held}"
