"""Names of a report's parts, which become ids of a page and parts of file names."""

from __future__ import annotations

import re

_STRANGE = re.compile(r"[^\w.-]+")


def plain(name: str) -> str:
    """The name with a hyphen for whatever is neither letter nor digit: names of factors come from records, which
    somebody else may have written."""
    return _STRANGE.sub("-", name)
