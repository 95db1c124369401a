"""Where tables are shown."""

from __future__ import annotations

from rich.console import Console


def default_console() -> Console:
    """The terminal; wide enough for every column where the output is a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=160)
