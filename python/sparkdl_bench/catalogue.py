"""Every key and variant that there is, without a JVM: what the build has written into the thin jar.

`sparkdlbench/catalogue.json` is made from the Scala registry (Catalogue.scala), so no list is kept here. A wrong key or
value is so found in milliseconds. What only the JVM can tell (which values go together) it still tells later. Where
there is no jar, or one without the file, nothing is checked here.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.nearest import cut, suggestion

_FILE = "sparkdlbench/catalogue.json"
_SCHEMA = 1
_MOST_SHOWN = 3


@dataclass(frozen=True)
class Catalogue:
    """What `Catalogue.whole` says.

    Attributes:
        keys: facts of each key by its name: `default`, `valid`, `doc`, `kind` and its bounds.
        variants: facts of each variant, by axis.
        named_by: by key, the variants that it may name.
        elsewhere: by key, what to say of values that one may expect there and that mean something else.
        aliases: other names of keys, and the keys that each may mean.
        values: by key, other words for its values.
    """

    keys: Mapping[str, Mapping[str, Any]]
    variants: Mapping[str, list[dict[str, Any]]]
    named_by: Mapping[str, Sequence[str]]
    elsewhere: Mapping[str, Mapping[str, str]]
    aliases: Mapping[str, Sequence[str]]
    values: Mapping[str, Mapping[str, str]]

    def key(self, written: str) -> str:
        """The key that a name stands for; the name itself where it stands for none.

        Raises:
            ConfigurationError: it may mean several.
        """
        if written in self.keys:
            return written
        meant = self.aliases.get(written, ())
        if len(meant) > 1:
            raise ConfigurationError(f"The key '{written}' may mean {' or '.join(meant)}. Write the one that is meant.")
        return meant[0] if meant else written

    def value(self, key: str, written: str) -> str:
        """The value that a text stands for; the text itself where it is valid or stands for none."""
        if written in self.named_by.get(key, ()):
            return written
        return self.values.get(key, {}).get(_letters(written), written)

    def default(self, key: str) -> str:
        """What holds where nobody sets the key."""
        return str(self.keys[key]["default"])

    def faults(self, settings: Mapping[str, str], most: int | None = None) -> dict[str, str]:
        """By key, what is wrong with it; nothing where the JVM must tell.

        Args:
            most: so many are said in words, since each takes a comparison with all words that there are; the others are
                empty.
        """
        found: dict[str, str] = {}
        for key, value in settings.items():
            fault = self._fault(key, value)
            if fault is not None:
                found[key] = fault(key, value) if most is None or len(found) < most else ""
        return found

    def _fault(self, key: str, value: str) -> Callable[[str, str], str] | None:
        """What says in words what is wrong; None where nothing is."""
        if key not in self.keys:
            return self._unknown
        if key in self.named_by:
            known = value in self.named_by[key] or value == self.default(key)
            return None if known else self._no_variant
        return None if _is_valid(self.keys[key], value) else self._not_valid

    def _unknown(self, key: str, _: str) -> str:
        near = suggestion(key, [*self.keys, *self.aliases], by_parts=True)
        for alias, meant in self.aliases.items():
            near = near.replace(f"'{alias}'", f"'{meant[0]}'")
        return f"Unknown configuration key '{cut(key)}'.{near} `sparkdl-bench list keys` describes all keys."

    def _no_variant(self, key: str, value: str) -> str:
        axis = key.partition(".")[0]
        valid = list(dict.fromkeys([*self.named_by[key], self.default(key)]))
        meant = self.elsewhere.get(key, {}).get(value)
        hint = f" {meant}" if meant else suggestion(value, valid)
        return (
            f"There is no {axis} called '{cut(value)}'.{hint} Valid: {', '.join(valid)}. `sparkdl-bench list {axis}` "
            "describes them."
        )

    def _not_valid(self, key: str, value: str) -> str:
        facts = self.keys[key]
        choices = {"choice": facts.get("values", ()), "flag": ("true", "false")}.get(str(facts["kind"]), ())
        near = _meant_flag(value) if facts["kind"] == "flag" else suggestion(value, choices)
        return (
            f"Configuration key '{key}' has the value '{cut(value)}', which is not valid.{near} "
            f"Valid: {facts['valid']}. Set it with --set {key}=VALUE, or in the run's TOML file."
        )


def check(settings: Mapping[str, str], *, from_file: bool = True) -> None:
    """Refuses wrong keys and values, up to three of them at once, before there is a JVM.

    Args:
        from_file: whether they come from a file or a command line, so that the message says how to set them there.
    """
    known = load()
    faults = list(known.faults(settings, _MOST_SHOWN).values()) if known else []
    if not faults:
        return
    more = f" And {len(faults) - _MOST_SHOWN} more keys are wrong." if len(faults) > _MOST_SHOWN else ""
    shown = faults[:_MOST_SHOWN]
    if not from_file:
        shown = [re.sub(r" Set it with .*$", "", each) for each in shown]
    if len(shown) > 1:
        shown = [
            re.sub(r" `sparkdl-bench list keys` describes all keys\.| Set it with .*$", "", each) for each in shown
        ]
    raise ConfigurationError(" ".join(shown) + more)


def canonical(key: str, value: str) -> tuple[str, str]:
    """A key and its value by the names that they stand for; as they are where there is no catalogue."""
    known = load()
    if known is None:
        return key, value
    name = known.key(key)
    return name, known.value(name, value)


@cache
def load() -> Catalogue | None:
    """That of the jar for the installed Spark; None where there is none to read."""
    for jar in _thin_jars():
        try:
            with ZipFile(jar) as archive:
                content = json.loads(archive.read(_FILE))
        except (OSError, BadZipFile, KeyError, ValueError):
            continue  # the JVM says what is wrong with that jar
        if content.pop("schema", None) != _SCHEMA:
            continue
        keys = {str(each["name"]): each for each in content.pop("keys")}
        return Catalogue(keys=keys, **content)
    return None


def _thin_jars() -> Iterable[Path]:
    """Without importing pyspark, which takes longer than all the rest."""
    from sparkdl_bench import jarfiles

    version = _spark_version()
    if version is None:
        return ()
    try:
        return (jarfiles.find_thin(jarfiles.spark_line(version)),)
    except ConfigurationError:
        return ()


def _spark_version() -> str | None:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    try:
        text = Path(found.origin).with_name("version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    version = re.search(r"__version__[^=]*=\s*[\"']([^\"']+)", text)
    return version.group(1) if version else None


def _is_valid(facts: Mapping[str, Any], value: str) -> bool:
    """What the key's kind says; a kind that this version does not know is the JVM's to check."""
    kind = facts["kind"]
    if kind == "choice":
        return value in facts["values"]
    if kind == "flag":
        return value.lower() in ("true", "false")
    if kind == "whole-number":
        number = _whole(value)
        return number is not None and facts["min"] <= number <= facts["max"]
    if kind == "whole-number-or-range":
        bounds = [_whole(part.strip()) for part in value.split("..")]
        return len(bounds) <= 2 and all(
            number is not None and least <= number <= facts["max"]
            for number, least in zip(bounds, (facts["min"], bounds[0] or facts["min"]), strict=False)
        )
    if kind == "whole-numbers":
        numbers = [_whole(part.strip()) for part in value.split(",") if part.strip()]
        return all(number is not None and number > 0 for number in numbers)
    if kind == "number":
        return _is_number(value, facts["min"], facts.get("below"))
    return True


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[+-]?\d+", text) else None


def _is_number(text: str, least: float, below: float | None) -> bool:
    if re.search(r"0[xX]", text):
        return True  # Java's hexadecimal notation
    try:
        number = float(re.sub(r"(?<=[\d.])[dDfF]$", "", text.strip()))
    except ValueError:
        return False
    return least <= number < float("inf") and (below is None or number < below)


def _meant_flag(value: str) -> str:
    word = value.lower()
    if word in ("yes", "on", "1", "y", "t"):
        return " Did you mean 'true'?"
    if word in ("no", "off", "0", "n", "f"):
        return " Did you mean 'false'?"
    return suggestion(value, ("true", "false"))


def _letters(text: str) -> str:
    return re.sub("[^a-z0-9]", "", text.lower())
