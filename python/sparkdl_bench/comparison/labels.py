"""Which values are classes, and the keys of a run that say so."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from sparkdl_bench.errors import ConfigurationError

# Usual names of a label's column, in lower case.
NAMES = ("label", "class", "target", "y", "category", "species")
MOST_CLASSES = 1000
_NO_REGRESSION = (
    "Name the label's column with --label (label= from Python). This command trains nets that tell classes "
    "apart; numbers are predicted by a run whose file has loss.name=mean-squared, or by Trainer(loss='mean-squared')."
)


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def refuse_many(labels: Collection[str], where: str) -> None:
    """Raises ConfigurationError where there are more values than classes can be.

    Args:
        where: the column, as a sentence begins with it.
    """
    if len(labels) > MOST_CLASSES:
        raise ConfigurationError(
            f"{where} holds more than {MOST_CLASSES} different values, so it is no class. {_NO_REGRESSION}"
        )


def keys(labels: Iterable[str], where: str) -> dict[str, str]:
    """The keys that say which labels there are: their count where they are 0, 1, …, else their names.

    Raises:
        ConfigurationError: they are no classes, or one alone.
    """
    named = sorted({str(label) for label in labels})
    if len(named) == 1:
        raise ConfigurationError(
            f"{where} holds one value only, '{named[0]}', so there is nothing to tell apart. Name the label's column "
            "with --label (label= from Python), or bring rows of another class."
        )
    wrong = [name for name in named if "," in name or not name.strip()]
    if wrong:
        raise ConfigurationError(
            f"{where} holds {wrong[0]!r}, which cannot be a class: names of classes are not empty and hold no comma. "
            "Rename it in the data."
        )
    numbers = {float(each) for each in named if is_number(each)}
    if len(numbers) == len(named) and numbers == set(range(len(named))):
        return {"data.classes": str(len(named))}
    fractional = [name for name in named if is_number(name) and not float(name).is_integer()]
    if fractional:
        raise ConfigurationError(
            f"{where} holds fractional numbers such as {fractional[0]}, so it is no class. {_NO_REGRESSION}"
        )
    if len(numbers) == len(named):
        named.sort(key=float)
    return {"data.label_names": ",".join(named)}


def of_table(labels: Sequence[object], where: str) -> dict[str, str]:
    """The keys of the labels that a table's column holds.

    Raises:
        ConfigurationError: they are no classes.
    """
    if any(label is None for label in labels):
        raise ConfigurationError(f"{where} holds nulls. Leave those rows out: frame.dropna(subset=[…]).")
    texts = {re.sub(r"\.0$", "", str(label)) for label in labels}
    refuse_many(texts, where)
    return keys(texts, where)
