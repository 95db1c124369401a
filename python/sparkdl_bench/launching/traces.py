"""The traceback of an exception in the user's code, without the frames of who called it."""

from __future__ import annotations

import linecache
import os
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

# A message to the driver has to stay below 1 MiB, with up to twelve bytes for a character.
MOST_CHARS = 48 << 10
_MOST_OF_MESSAGE = 4 << 10
_OURS = str(Path(__file__).resolve().parent) + os.sep
_RUNNERS = ("runpy.py", "<frozen runpy>")
# What a rank gets to see when another one has left it.
_OF_THE_EXCHANGE = re.compile(
    r"connection (was )?(closed|reset|refused)|closed by peer|broken pipe|gloo|process group|timed? ?out|sparkdl|"
    r"other ranks?|rank \d+",
    re.IGNORECASE,
)


def of_user(error: BaseException) -> str:
    """As Python prints it, with the causes; from the first frame of the user's own code on."""
    shown = "".join(traceback.format_exception(type(error), error, _from_user(error.__traceback__)))
    if len(shown) <= MOST_CHARS:
        return shown.rstrip("\n")
    half = MOST_CHARS // 2
    return f"{shown[:half]}\n[… {len(shown) - 2 * half} characters left out …]\n{shown[-half:]}".rstrip("\n")


def message_of(error: BaseException) -> str:
    """`ValueError: no rows`, as the last line of a traceback has it."""
    if isinstance(error, SystemExit):
        return f"it ended with exit status {error.code!r}"
    return "".join(traceback.format_exception_only(type(error), error)).strip()[:_MOST_OF_MESSAGE]


def is_of_exchange(error: BaseException) -> bool:
    """Whether it arose between ranks, so that it may be the consequence of another rank's end."""
    folders = {*_folders("torch"), str(Path(_OURS).parent / "torch"), str(Path(_OURS).parent / "worker")}
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    if innermost is None:
        return False
    file = innermost.tb_frame.f_code.co_filename
    return file.startswith(tuple(folder + os.sep for folder in folders)) and bool(_OF_THE_EXCHANGE.search(str(error)))


def know_sources(sources: Mapping[str, Sequence[str]]) -> None:
    """Lets tracebacks show the lines of files that are not on this host, such as a notebook's cells."""
    for name, lines in sources.items():
        if not Path(name).is_file():
            linecache.cache[name] = (sum(map(len, lines)), None, list(lines), name)


def _from_user(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(_OURS) and file not in _RUNNERS and Path(file).name != "runpy.py":
            return trace
        trace = trace.tb_next
    return None


def _folders(package: str) -> Sequence[str]:
    loaded = sys.modules.get(package)
    return list(getattr(loaded, "__path__", []))
