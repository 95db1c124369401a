"""Tables of pages that say which kept report their numbers are from: `<!-- report: FOLDER -->` in the line before."""

from __future__ import annotations

import re
from collections.abc import Iterator

_REPORTED = re.compile(r"<!-- report: ([\w-]+) -->\n\n?((?:^\|[^\n]*\n)+)", re.MULTILINE)


def reported(text: str) -> Iterator[tuple[str, str]]:
    """(folder of docs/results, table) of each."""
    yield from _REPORTED.findall(text)
