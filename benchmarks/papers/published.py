"""What a published comparison says, from its file in docs/papers; docs/papers/README.md describes the fields."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from sparkdl_bench.errors import ConfigurationError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCHEMA = 1
EXPERIMENTS = "abcde"
BOUNDS = ("", "at least", "at most", "about")
_TOP = ("schema", "experiment", "paper", "hardware", "software", "setting", "published", "claim", "missing")
_TAG = re.compile(r"</?(?:sub|sup|u|b|i|br)/?>")
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?: ?\* ?10\^\{(-?\d+)\})?")

Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Work:
    """The publication itself."""

    title: str
    authors: Sequence[str]
    venue: str
    year: int = 0
    doi: str = ""

    @property
    def citation(self) -> str:
        year = f", {self.year}" if self.year else ""
        doi = f", doi:{self.doi}" if self.doi else ""
        return f"{', '.join(self.authors)}: {self.title}. {self.venue}{year}{doi}"


@dataclass(frozen=True)
class Hardware:
    """A machine of the experiment; `text` are words of the paper."""

    name: str
    what: str
    text: Sequence[str]


@dataclass(frozen=True)
class Software:
    """A program and its version; `text` are words of the paper."""

    name: str
    version: str
    text: str


@dataclass(frozen=True)
class Setting:
    """A choice of the experiment."""

    name: str
    value: float
    unit: str
    text: str


@dataclass(frozen=True)
class Value:
    """A number that a paper states.

    Attributes:
        of: what it belongs to.
        value: in the unit of its `Published`.
        text: as printed.
        bound: `at least`, `at most` or `about` where the paper says so.
    """

    of: str
    value: float
    text: str
    bound: str = ""

    def __str__(self) -> str:
        return f"{self.bound} {self.value:,g}".strip()


@dataclass(frozen=True)
class Published:
    """Numbers of one figure, table or sentence; with `line` the cells of one line of a table."""

    id: str
    where: str
    quantity: str
    unit: str
    values: Sequence[Value]
    line: bool = False

    def value(self, of: str) -> Value:
        """Raises a KeyError where there is none."""
        return {each.of: each for each in self.values}[of]


@dataclass(frozen=True)
class Claim:
    """A conclusion without a number."""

    id: str
    where: str
    what: str
    text: str


@dataclass(frozen=True)
class Missing:
    """What is drawn or left out without numbers."""

    where: str
    what: str


@dataclass(frozen=True)
class Paper:
    """One published comparison."""

    experiment: str
    paper: Work
    hardware: Sequence[Hardware]
    software: Sequence[Software]
    setting: Sequence[Setting]
    published: Sequence[Published]
    claim: Sequence[Claim]
    missing: Sequence[Missing]

    def numbers(self, name: str) -> Published:
        """The numbers of this id.

        Raises:
            ConfigurationError: there are none; which there are.
        """
        found = {each.id: each for each in self.published}
        if name not in found:
            raise ConfigurationError(
                f"The paper of experiment {self.experiment} has no numbers '{name}'; it has {', '.join(found)}."
            )
        return found[name]

    def quoted(self) -> Iterator[tuple[str, str]]:
        """Every piece of text that the paper must hold, with what it is for."""
        for hardware in self.hardware:
            yield from ((f"hardware {hardware.name}", text) for text in hardware.text)
        yield from ((f"software {each.name}", each.text) for each in self.software)
        yield from ((f"setting {each.name}", each.text) for each in self.setting)
        yield from ((f"{each.id}, {value.of}", value.text) for each in self.published for value in each.values)
        yield from ((f"claim {each.id}", each.text) for each in self.claim)


def load_all(folder: Path) -> dict[str, Paper]:
    """The papers of a folder by experiment.

    Raises:
        ConfigurationError: a file that is none, or two of one experiment.
    """
    found: dict[str, Paper] = {}
    for file in sorted(folder.glob("*.toml")):
        paper = load(file)
        if paper.experiment in found:
            raise ConfigurationError(
                f"Two files of '{folder}' are of experiment {paper.experiment}; {file.name} is one."
            )
        found[paper.experiment] = paper
    return found


def load(file: Path) -> Paper:
    """One paper.

    Raises:
        ConfigurationError: what is wrong with its file.
    """
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"'{file}' cannot be read as TOML: {error}. See docs/papers/README.md.") from error
    where = f"'{file.name}'"
    _refuse_unknown(content, _TOP, where)
    if content.get("schema") != SCHEMA:
        raise ConfigurationError(f"{where} has schema {content.get('schema')!r}; valid is {SCHEMA}.")
    experiment = content.get("experiment")
    if not isinstance(experiment, str) or experiment not in tuple(EXPERIMENTS):
        raise ConfigurationError(f"{where} has experiment {experiment!r}; valid: {', '.join(EXPERIMENTS)}.")
    paper = Paper(
        experiment,
        _entry(Work, content.get("paper", {}), f"[paper] of {where}"),
        _entries(Hardware, content, "hardware", where),
        _entries(Software, content, "software", where),
        _entries(Setting, content, "setting", where),
        [_published(each, where) for each in content.get("published", [])],
        _entries(Claim, content, "claim", where),
        _entries(Missing, content, "missing", where),
    )
    _check(paper, where)
    return paper


def flat(text: str) -> str:
    """Text with single blanks and without the marks of raised and lowered words, as quotes are looked up in it."""
    return " ".join(_TAG.sub("", text).split())


def line_with(texts: Sequence[str], whole: str) -> bool:
    """Whether a line of a table holds these cells one after the other."""
    wanted = [flat(text) for text in texts]
    for line in whole.splitlines():
        cells = [flat(cell) for cell in line.split("|")]
        if any(cells[at : at + len(wanted)] == wanted for at in range(len(cells))):
            return True
    return False


def numbers_in(text: str) -> list[float]:
    """The numbers that a piece of a paper states: `2,132 seconds`, `9.89 * 10^{-16}`."""
    found = []
    for match in _NUMBER.finditer(text):
        digits = re.match(r"[\d,.]+\d|\d", match[0])
        number = float(digits[0].replace(",", "")) if digits else float("nan")
        found.append(float(f"{number!r}e{match[1]}") if match[1] else number)
    return found


def _published(table: Mapping[str, Any], where: str) -> Published:
    listed = table.get("values")
    name = f"[[published]] {table.get('id', '?')} of {where}"
    if not isinstance(listed, list) or not listed:
        raise ConfigurationError(f"{name} has no values.")
    values = [_entry(Value, each, f"a value of {name}") for each in listed]
    return _entry(Published, {**table, "values": values}, name)


def _entries(kind: type[Entry], content: Mapping[str, Any], key: str, where: str) -> list[Entry]:
    return [_entry(kind, table, f"a [[{key}]] of {where}") for table in content.get(key, [])]


def _entry(kind: type[Entry], table: Mapping[str, Any], where: str) -> Entry:
    known = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    _refuse_unknown(table, known, where)
    lacking = [name for name, each in known.items() if each.default is MISSING and name not in table]
    if lacking:
        raise ConfigurationError(f"{where[0].upper()}{where[1:]} lacks {', '.join(lacking)}.")
    empty = [name for name, value in table.items() if isinstance(value, str) and not value.strip()]
    if empty:
        raise ConfigurationError(f"{where[0].upper()}{where[1:]} leaves {', '.join(empty)} empty.")
    return kind(**table)


def _refuse_unknown(table: Mapping[str, Any], known: Mapping[str, Any] | Sequence[str], where: str) -> None:
    unknown = [name for name in table if name not in known]
    if unknown:
        raise ConfigurationError(
            f"{where[0].upper()}{where[1:]} holds {', '.join(unknown)}, which means nothing there. Valid: "
            f"{', '.join(known)}."
        )


def _check(paper: Paper, where: str) -> None:
    if not paper.published:
        raise ConfigurationError(f"{where} states no published numbers.")
    ids = [each.id for each in paper.published] + [each.id for each in paper.claim]
    if len(set(ids)) < len(ids):
        raise ConfigurationError(f"{where} uses an id twice: {', '.join(ids)}.")
    stated = [(value.value, value.text) for each in paper.published for value in each.values]
    stated += [(each.value, each.text) for each in paper.setting]
    for number, text in stated:
        if float(number) not in numbers_in(text):
            raise ConfigurationError(
                f"{where} has the value {number}, and its text {text!r} states {numbers_in(text)}."
            )
    for each in paper.published:
        names = [value.of for value in each.values]
        if len(set(names)) < len(names):
            raise ConfigurationError(f"{each.id} of {where} names a value twice: {', '.join(names)}.")
        wrong = [value.bound for value in each.values if value.bound not in BOUNDS]
        if wrong:
            raise ConfigurationError(
                f"{each.id} of {where} has the bound {wrong[0]!r}; valid: {', '.join(filter(None, BOUNDS))}."
            )
