"""Refuses TOML that is nested beyond what any of our files needs: its parsers go down a level a call."""

from __future__ import annotations

import re

from sparkdl_bench.errors import ConfigurationError

LIMIT = 64
# Texts and comments, of which nothing counts. What is not closed ends with its line, and the parser complains.
_TEXTS = re.compile(
    r"""'''.*?(?:'''|\Z)|\"\"\".*?(?:\"\"\"|\Z)|'[^'\n]*'?|"(?:[^"\\\n]|\\.)*"?|\#[^\n]*""",
    re.DOTALL,
)
_DOTTED = re.compile(rf"[\w-]+[ \t]*(?:\.[ \t]*[\w-]+[ \t]*){{{LIMIT}}}")


def check(text: str, origin: str) -> None:
    """Raises ConfigurationError for arrays, tables or dotted keys that are nested more than `LIMIT` deep."""
    plain = _TEXTS.sub("x", text)
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", plain):
        depth = depth + 1 if bracket in "[{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    if deepest > LIMIT or _DOTTED.search(plain):
        raise ConfigurationError(
            f"The file '{origin}' is nested more than {LIMIT} deep (brackets, or parts of a dotted key). Valid are a "
            "table and its keys, such as [model] with hidden = [100, 50], and lists of lists. Correct the line."
        )
