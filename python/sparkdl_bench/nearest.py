"""The word that somebody most likely meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from itertools import islice
from pathlib import Path

# Of two words' letters, how many are the same and in order: at 0.6 `gpus` would be `n_push`, and `loss` be `tls`.
_NEAR = 0.75
# Longer words are no typing errors of anything, and take long to compare.
_LONGEST = 60
# Of a folder with more files the rest is not looked at.
_MOST_FILES = 1000


def ranked(typed: str, candidates: Iterable[str], *, by_parts: bool = False) -> list[tuple[float, str]]:
    """Candidates with their likeness to a word, from 0 to 1, the nearest first.

    Args:
        by_parts: whether a dotted candidate is also compared by its last part, where the word has no dot.
    """
    word = typed.lower()
    parts = by_parts and "." not in word
    found = [(max(_likeness(word, name), _likeness(word, _last(name)) if parts else 0.0), name) for name in candidates]
    return sorted(found, key=lambda each: (-each[0], each[1]))


def suggestion(typed: str, candidates: Iterable[str], *, by_parts: bool = False, quote: str = "'") -> str:
    """` Did you mean 'x'?`, with the space before it; empty where none is near enough to be what was meant."""
    found = ranked(typed, candidates, by_parts=by_parts) if len(typed) <= _LONGEST else []
    return f" Did you mean {quote}{found[0][1]}{quote}?" if found and found[0][0] >= _NEAR else ""


def near_file(path: Path, others: Iterable[str] = ()) -> str:
    """` Did you mean 'rows.csv'?` for a path where nothing is, of what lies beside it and the other words."""
    try:
        beside = sorted(each.name for each in islice(path.parent.iterdir(), _MOST_FILES))
    except OSError:
        beside = []
    return suggestion(path.name, [*beside, *others])


def cut(typed: str) -> str:
    """What somebody typed, for a message: one line of a length to read, without what a terminal would obey."""
    shown = "".join(each if each.isprintable() else repr(each)[1:-1] for each in typed[: _LONGEST + 1])
    return shown if len(typed) <= _LONGEST else shown[:_LONGEST] + "…"


def _likeness(word: str, name: str) -> float:
    if sorted(word) == sorted(name):
        return 1.0  # the same letters in another order
    if len(word) >= 3 and name.startswith(word):
        return max(0.9, len(word) / len(name))
    if len(name) >= 5 and word.startswith((f"{name}_", f"{name}-")):
        return _NEAR  # `dropout_rate` is `dropout`, where nothing is nearer
    if (
        word.isalpha()
        and len(word) == len(name) == 3
        and sum(one == other for one, other in zip(word, name, strict=True)) == 2
    ):
        return _NEAR  # one wrong letter of three
    return SequenceMatcher(None, word, name).ratio()


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def listed(names: Sequence[str], most: int = 12) -> str:
    """`a, b, c`, cut where there are many."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
