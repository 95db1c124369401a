"""Run files: one complete, named run per TOML file, and what `--set` changes in it.

Names and values are the catalogue's and the JVM's to check; this module knows TOML alone, and where a named file lies.
"""

from __future__ import annotations

import inspect
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkdl_bench import catalogue, frames, runfiles, toml_depth
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.nearest import cut

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROFILE_KEY = "spark_profile"
_SPARK_PREFIX = "spark."
_OWN_SPARK_PREFIX = "spark.sparkdl."
_ENGINE_KEY = "engine.name"
_OF_MASTER = ("master", "spark.master")
# Of files that somebody gives who takes the run file for the data.
_OF_DATA = (".csv", ".tsv", ".parquet", ".libsvm", ".svm")
ENGINE_PROPERTY = _OWN_SPARK_PREFIX + _ENGINE_KEY


@dataclass(frozen=True)
class RunFile:
    """A run as text: nothing is interpreted yet.

    Attributes:
        spark: Spark configuration by its full name, `spark.master` among it.
        settings: the run's own keys, dotted (`model.hidden`), with their values as text.
    """

    spark: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.settings.get("name", "run")

    @property
    def session(self) -> dict[str, str]:
        """The properties of a Spark session for it: its own, and the engine, whose jars the session brings."""
        engine = self.settings.get(_ENGINE_KEY)
        return {**self.spark, **({ENGINE_PROPERTY: engine} if engine else {})}

    def with_settings(self, assignments: Iterable[str]) -> RunFile:
        """A copy in which each `key=value` holds: a Spark property (`spark.…`), `master`, or a key of the run."""
        spark, settings = dict(self.spark), dict(self.settings)
        for assignment in assignments:
            key, equals, value = (part.strip() for part in assignment.partition("="))
            if not equals or not key:
                raise ConfigurationError(
                    f"--set {assignment!r} is not of the form key=value. Write for example --set batch=256 or "
                    "--set spark.executor.memory=2g."
                )
            _place(key, value, spark, settings)
        return RunFile(spark, settings)

    def with_properties(self, properties: Mapping[str, str]) -> RunFile:
        """A copy in which these Spark properties hold."""
        spark, settings = dict(self.spark), dict(self.settings)
        for key, value in properties.items():
            if key.startswith(_OWN_SPARK_PREFIX):
                _place(key, value, spark, settings)
            else:
                spark[key] = value
        return RunFile(spark, settings)

    def with_profile(self) -> RunFile:
        """A copy in which the Spark profile that `spark_profile` names holds wherever the run itself says nothing."""
        settings = dict(self.settings)
        name = settings.pop(PROFILE_KEY, None)
        if name is None:
            return self
        from sparkdl_bench import profiles

        below = RunFile().with_properties(profiles.load(name))
        return RunFile({**below.spark, **self.spark}, {**below.settings, **settings})


def load_run_file(path: Path, assignments: Iterable[str] = (), spark_conf: str | None = None) -> RunFile:
    """Reads a run file, lays its Spark profile below it and `spark_conf` above, and applies `--set` assignments.

    Args:
        path: of the TOML file, or the name of one of ours.
        assignments: `key=value` each.
        spark_conf: the name of a profile, or the path of a file of Spark properties.

    Raises:
        ConfigurationError: the file is missing or not TOML, or holds a value that no key can have (a date, a table in a
            list).
    """
    path = runfiles.find(path)
    if path.name.removesuffix(".gz").endswith(_OF_DATA) and path.exists():
        raise ConfigurationError(
            f"'{path}' is data by its name, and a run file is TOML that says how to train on data. `sparkdl-bench init "
            f"--data {shlex.quote(str(path))}` writes one, and `sparkdl-bench try {shlex.quote(str(path))}` trains "
            "without."
        )
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors begin a file with a byte order mark
    except IsADirectoryError as error:
        raise ConfigurationError(f"The run file '{path}' is a folder. Give the path of a TOML file in it.") from error
    except OSError as error:
        raise ConfigurationError(
            f"The run file '{path}' cannot be read: {error.strerror}.{runfiles.nearby(path)} A run file is TOML, or "
            "the name of one that comes with sparkdl-bench, such as digits-mlp."
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"The run file '{path}' is not UTF-8 text: {error.reason}. A run file is TOML."
        ) from error
    run = parse_run_file(text, str(path))
    if spark_conf is not None:
        from sparkdl_bench import profiles  # its parser of properties takes as long to load as all else here

        run = run.with_properties(profiles.load(spark_conf))
    return run.with_settings(assignments).with_profile()


def parse_run_file(text: str, origin: str) -> RunFile:
    """Parses the text of a run file; `origin` names it in errors. Without a `name`, the file's name is the run's."""
    toml_depth.check(text, origin)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(
            f"The run file '{origin}' is not valid TOML: {error}. Put strings in quotes (transport = "
            '"block-manager"), and lists in brackets (hidden = [100, 50]).'
        ) from error
    if "base" in document:
        raise ConfigurationError(
            f"'{origin}' describes a comparison (its key 'base' names the run file that it varies), not a run. "
            f"`sparkdl-bench compare {origin}` runs it; a run file has no 'base'."
        )
    spark: dict[str, str] = {}
    settings: dict[str, str] = {}
    table = document.pop("spark", {})
    if not isinstance(table, dict):
        raise ConfigurationError(
            f"'spark' in the run file '{origin}' has the value {table!r}; it must be a table, headed [spark], that "
            "holds 'master' and Spark properties."
        )
    written: dict[str, str] = {}
    for key, value in flatten(table, origin).items():
        if key != "master" and not key.startswith(_SPARK_PREFIX):
            raise ConfigurationError(
                f"The key '{key}' in the [spark] table of '{origin}' is no Spark property. Valid are 'master' and "
                f"names that begin with '{_SPARK_PREFIX}': did you mean '{_SPARK_PREFIX}{key}'? Keys of the run stand "
                "outside that table."
            )
        if key.startswith(_OWN_SPARK_PREFIX):
            _place_once(key, snake_case(key.removeprefix(_OWN_SPARK_PREFIX)), value, settings, written, origin)
        elif key in _OF_MASTER and spark.get("spark.master", value) != value:
            raise ConfigurationError(
                f"The run file '{origin}' sets 'spark.master' twice: as 'master' and as 'spark.master', to "
                f"'{spark['spark.master']}' and '{value}'. Set it once."
            )
        else:
            _place(key, value, spark, settings)
    for key, value in flatten(document, origin).items():
        _place_once(key, key, value, settings, written, origin)
    settings.setdefault("name", Path(origin).stem)
    return RunFile(spark, settings)


def flatten(table: Mapping[str, Any], origin: str, prefix: str = "") -> dict[str, str]:
    """Nested tables as dotted keys, and every value as the text that the JVM parses.

    Raises:
        ConfigurationError: a value that is none, or a key with dots in its name that says otherwise than a table's.
    """
    flat: dict[str, str] = {}
    for key, value in table.items():
        name = prefix + key
        found = (
            flatten(value, origin, name + ".") if isinstance(value, Mapping) else {name: as_text(name, value, origin)}
        )
        for leaf, text in found.items():
            if flat.setdefault(leaf, text) != text:
                raise ConfigurationError(
                    f"'{leaf}' stands twice in {origin}, once as a table's key and once with dots in its name, with "
                    f"the values '{cut(flat[leaf])}' and '{cut(text)}'. Set it once."
                )
    return flat


def as_text(name: str, value: Any, origin: str) -> str:
    """`True` is `true`, `[100, 50]` is `100,50`; numbers and texts are themselves."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float, str, Path)):
        return str(value)
    if isinstance(value, (list, tuple)):
        items = [item.item() if _is_numpy_scalar(item) else item for item in value]
        if all(isinstance(item, (int, float, str)) for item in items):
            return ",".join(_item_as_text(name, item, origin) for item in items)
    if _is_numpy_scalar(value):
        return as_text(name, value.item(), origin)
    raise ConfigurationError(_no_value(name, value, origin))


def _item_as_text(name: str, item: Any, origin: str) -> str:
    # The JVM splits a list at its commas, and knows no quotes.
    if isinstance(item, str) and "," in item:
        raise ConfigurationError(
            f"The key '{name}' in {origin} is a list with the item {cut(repr(item))}, and items are separated by "
            "commas, so none may hold one. Give two items where two are meant; a column whose name has a comma must be "
            "renamed first."
        )
    return as_text(name, item, origin)


def _is_numpy_scalar(value: Any) -> bool:
    """Also an array without dimensions; NumPy is not loaded to find out."""
    return callable(getattr(value, "item", None)) and getattr(value, "ndim", None) == 0


def _no_value(name: str, value: Any, origin: str) -> str:
    foreign = frames.of_another_library(value)
    if foreign and name in ("data.table", "data.test_table"):
        return f"'{name}' in {origin} is {foreign}"
    valid = "Valid are texts, numbers, true and false, and lists of numbers or texts."
    if isinstance(value, type) or callable(value):
        kind = "class" if isinstance(value, type) else "function" if inspect.isroutine(value) else "object"
        called = getattr(value, "__qualname__", type(value).__name__)
        return (
            f"The key '{name}' in {origin} has the {kind} {called} as its value, and training runs in the executors' "
            f"JVMs, which cannot call Python. {valid} `sparkdl-bench list keys` shows what '{name}' may be; a "
            "training function of your own is run by sparkdl_bench.launch(train, spark)."
        )
    given = f"{type(value).__module__}.{type(value).__name__}".removeprefix("builtins.")
    listed = f" Give {name.rpartition('.')[2]}=value.tolist()." if hasattr(value, "tolist") else ""
    return f"The key '{name}' in {origin} has the value {cut(repr(value))} of type {given}. {valid}{listed}"


def _place(key: str, value: str, spark: dict[str, str], settings: dict[str, str]) -> None:
    if key == "master":
        spark["spark.master"] = value
    elif key.startswith(_OWN_SPARK_PREFIX) or not key.startswith(_SPARK_PREFIX):
        name, meant = catalogue.canonical(snake_case(key.removeprefix(_OWN_SPARK_PREFIX)), value)
        settings[name] = meant
    else:
        spark[key] = value


def _place_once(
    key: str, plain: str, value: str, settings: dict[str, str], written: dict[str, str], origin: str
) -> None:
    """A key of a file, by the name that it stands for; the file may not say two things of one key.

    Args:
        key: as the file has it.
        plain: the same without the prefix of Spark properties.
        written: as which key the file has set each name so far.
    """
    name, meant = catalogue.canonical(plain, value)
    if settings.get(name, meant) != meant:
        raise ConfigurationError(
            f"The run file '{origin}' sets '{name}' twice: as '{written[name]}' to '{settings[name]}', and as '{key}' "
            f"to '{meant}'. Set it once."
        )
    settings[name] = meant
    written.setdefault(name, key)


def snake_case(name: str) -> str:
    """`engine.blasThreads`, as it is written after `spark.sparkdl.`, and `engine.blas_threads` are the same key."""
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()
