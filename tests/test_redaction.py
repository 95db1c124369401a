"""What stays out of results and messages: the same cases as RedactionSuite.scala."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparkdl_bench.redaction import HIDDEN, is_secret, redacted, redacted_text

CASES: dict[str, Any] = json.loads(Path(__file__).with_name("redaction_cases.json").read_text(encoding="utf-8"))


def test_names() -> None:
    assert [name for name in CASES["hidden_names"] if not is_secret(name)] == []
    assert [name for name in CASES["shown_names"] if is_secret(name)] == []


@pytest.mark.parametrize(("text", "shown"), CASES["texts"])
def test_texts(text: str, shown: str) -> None:
    assert redacted_text(text) == shown
    assert redacted({"data.path": text, "spark.a.password": text}) == {"data.path": shown, "spark.a.password": HIDDEN}


@pytest.mark.parametrize("text", CASES["shown_texts"])
def test_texts_that_stay(text: str) -> None:
    assert redacted_text(text) == text
