"""How Spark's properties reach the JVM: by a file that its user alone may read. Command lines are for every user."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import javaproperties

_VARIABLE = "PYSPARK_SUBMIT_ARGS"
_CONF = ("--conf", "-c")
_FILE = "--properties-file"
_DEFAULTS_TOO = "--load-spark-defaults"


@dataclass(frozen=True)
class Words:
    """What the environment variable PYSPARK_SUBMIT_ARGS says.

    Attributes:
        properties: of its `--conf`.
        file: its `--properties-file`, which Spark reads in place of spark-defaults.conf.
        defaults_too: whether Spark reads both.
        others: all else, for the command line.
    """

    properties: Mapping[str, str]
    file: Path | None
    defaults_too: bool
    others: tuple[str, ...]


def words() -> Words:
    """The words of PYSPARK_SUBMIT_ARGS; without it those of pyspark."""
    left = iter(shlex.split(os.environ.get(_VARIABLE, "pyspark-shell")))
    properties: dict[str, str] = {}
    others: list[str] = []
    file: Path | None = None
    defaults_too = False
    for word in left:
        option, equals, value = word.partition("=")
        if option in (*_CONF, _FILE) and not equals:
            value = next(left, "")
        if option in _CONF:
            name, _, given = value.partition("=")
            if name.strip():
                properties[name.strip()] = given
        elif option == _FILE:
            file = Path(value)
        elif word == _DEFAULTS_TOO:
            defaults_too = True
        else:
            others.append(word)
    return Words(properties, file, defaults_too, tuple(others))


@contextmanager
def handed_over(properties: Mapping[str, str]) -> Iterator[tuple[int, ...]]:
    """While it lasts, spark-submit as pyspark starts it reads these properties, from a file of mode 0600.

    The file replaces spark-defaults.conf and the `--conf` of PYSPARK_SUBMIT_ARGS: the properties have to hold both.
    On Linux it has no name, so that nothing is left of it however this process ends: spark-submit has to inherit the
    file descriptors that this yields.
    """
    before = os.environ.get(_VARIABLE)
    with _file() as (file, name, inherited):
        file.write(javaproperties.dumps(properties, timestamp=False, ensure_ascii=False))
        file.flush()
        os.environ[_VARIABLE] = shlex.join([_FILE, name, *words().others])
        try:
            yield inherited
        finally:
            if before is None:
                os.environ.pop(_VARIABLE, None)
            else:
                os.environ[_VARIABLE] = before


@contextmanager
def _file() -> Iterator[tuple[IO[str], str, tuple[int, ...]]]:
    """An open file, what others open it by, and the descriptors that they need for that."""
    if sys.platform.startswith("linux"):
        with tempfile.TemporaryFile("w", encoding="utf-8") as file:
            number = file.fileno()
            yield file, f"/dev/fd/{number}", (number,)
    else:  # /dev/fd of other systems shares its position: the second of the two programs that read it would find an end
        with tempfile.NamedTemporaryFile("w", prefix="sparkdl-bench-", suffix=".properties", encoding="utf-8") as file:
            yield file.file, file.name, ()
