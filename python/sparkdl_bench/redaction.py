"""What stays out of everything that is written or said: the patterns of `redaction.json`, which the JVM reads too."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

HIDDEN = "*********(redacted)"
_MARK = r"\1(redacted)"


@cache
def _patterns(part: str) -> tuple[re.Pattern[str], ...]:
    lists = json.loads(Path(__file__).with_name("redaction.json").read_text(encoding="utf-8"))
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in lists[part])


def is_secret(name: str) -> bool:
    """Whether the value of a key or property of this name is hidden whole."""
    return any(pattern.search(name) for pattern in _patterns("names"))


def redacted_text(text: str) -> str:
    """A text without the secrets in it: users of URIs, `password=…` and their like."""
    for pattern in _patterns("values"):
        text = pattern.sub(_MARK, text)
    return text


def redacted(values: Mapping[str, str]) -> dict[str, str]:
    """Settings and properties with secrets replaced, those within values too."""
    return {key: HIDDEN if is_secret(key) and value else redacted_text(value) for key, value in values.items()}
