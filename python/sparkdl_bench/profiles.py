"""Spark profiles: files of Spark properties, such as the settings of one shuffle manager, by name or by path."""

from __future__ import annotations

from pathlib import Path

import javaproperties

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.jarfiles import checkout

_SUFFIX = ".conf"


def load(name_or_path: str) -> dict[str, str]:
    """The properties of a profile.

    Args:
        name_or_path: `celeborn` for `conf/spark/celeborn.conf` (of the checkout, or of the installed package), or the
            path of any file of the format of `spark-defaults.conf`.

    Raises:
        ConfigurationError: there is no such profile or file, or it holds something else than Spark properties.
    """
    path = _find(name_or_path)
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"The Spark profile '{path}' cannot be read: {error}.") from error


def names() -> list[str]:
    """The profiles that have a name."""
    return sorted({path.stem for folder in _folders() for path in folder.glob(f"*{_SUFFIX}")})


def parse(text: str, origin: str) -> dict[str, str]:
    """The properties of a profile's text; `origin` names it in errors."""
    found: dict[str, str] = {}
    try:
        lines = properties(text)
    except ValueError as error:
        raise ConfigurationError(f"The Spark profile '{origin}' cannot be read: {error}.") from error
    for key, value, source in lines:
        if not key.startswith(("spark.", "hadoop.")) or not value:
            raise ConfigurationError(
                f"A line of the Spark profile '{origin}' is {source.strip()!r}. Valid are lines of a Spark property "
                "and its value, as in spark-defaults.conf, and comments that begin with #."
            )
        found[key] = value
    return found


def properties(text: str) -> list[tuple[str, str, str]]:
    """Name, value and whole line of each property in a text in the format of `spark-defaults.conf`, in its order.

    That is the format of `java.util.Properties`, but for the values, which Spark trims.

    Raises:
        ValueError: an escape that is none.
    """
    elements = (element for element in javaproperties.parse(text) if isinstance(element, javaproperties.KeyValue))
    return [(key, value.strip(), source) for key, value, source in elements]


def _find(name_or_path: str) -> Path:
    path = Path(name_or_path)
    if path.is_file():
        return path
    for folder in _folders():
        named = folder / f"{name_or_path}{_SUFFIX}"
        if path.name == name_or_path and named.is_file():
            return named
    raise ConfigurationError(
        f"There is no Spark profile '{name_or_path}'. Valid are {', '.join(names())}, and the path of a file in the "
        "format of spark-defaults.conf."
    )


def _folders() -> list[Path]:
    """Of the checkout, where this runs from one, and of the package as installed."""
    here = checkout()
    return [*([here / "conf" / "spark"] if here else []), Path(__file__).resolve().parent / "conf" / "spark"]
