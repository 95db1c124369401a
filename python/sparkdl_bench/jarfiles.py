"""Where this package's jars are: the thin jar of each Spark line, and the jars of native code that it needs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.version import __version__

# Those that libtorch is published for under the coordinates of natives.properties; there is none for Linux on ARM.
PLATFORMS = ("linux-x86_64", "macosx-arm64")
SCALA_OF_LINE = {"3.5": "2.12", "4": "2.13"}
FOLDER_VARIABLE = "SPARKDL_JARS"
PLUGIN_CLASS = "sparkdlbench.SparkDLPlugin"
_THIN_PREFIX = "sparkdl-bench-spark-"
_NATIVE_PREFIX = "pytorch-"


@dataclass(frozen=True)
class Jars:
    """The jars for one Spark line.

    Attributes:
        line: `3.5` or `4`.
        thin: our own classes.
        dependencies: what they need besides Spark, native code included; empty where none was found.
    """

    line: str
    thin: Path
    dependencies: tuple[Path, ...]

    @property
    def all(self) -> list[Path]:
        return [self.thin, *self.dependencies]

    def holds_class(self, name: str) -> bool:
        """True where the thin jar has the class of that dotted name."""
        with ZipFile(self.thin) as archive:
            return name.replace(".", "/") + ".class" in archive.namelist()


def spark_line(version: str) -> str:
    """The Spark line of a version: `3.5` for 3.5.x, `4` for 4.x. Anything else is a ConfigurationError."""
    if re.match(r"3\.5(\.|$)", version):
        return "3.5"
    if re.match(r"4\.", version):
        return "4"
    raise ConfigurationError(
        f"Spark {version} is not supported. sparkdl-bench works with Spark 3.5 and Spark 4.x; install one, for example "
        "with pip install 'pyspark>=4.1,<4.2'."
    )


def find_jars(version: str, *, natives: bool = True) -> Jars:
    """The jars for a Spark version.

    Args:
        version: of the Spark (or pyspark) that will run.
        natives: whether to insist on the jars of native code, which every training needs.

    Raises:
        ConfigurationError: unsupported Spark, or no jar where it is looked for.
    """
    line = spark_line(version)
    thin = find_thin(line)
    dependencies = _find_dependencies(line)
    if natives and not dependencies:
        chosen = os.environ.get(FOLDER_VARIABLE)
        raise ConfigurationError(
            f"The jars of native code for Spark {line} were not found in {_listed(_folders(line))}. Bring them with "
            f"`sparkdl-bench jars fetch{f' {chosen}' if chosen else ''}`, or set {FOLDER_VARIABLE} to the folder that "
            "holds them."
        )
    _check_readable(thin)
    return Jars(line, thin, dependencies)


def checkout() -> Path | None:
    """The checkout that this runs from; None where the package is installed."""
    folder = Path(__file__).resolve().parents[2]
    return folder if (folder / "build.sbt").is_file() else None


def spark_home() -> Path:
    """Of the Spark that pyspark starts."""
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home())  # type: ignore[no-untyped-call,unused-ignore]


def configuration_folder() -> Path:
    """Where that Spark looks for its configuration files; it need not exist."""
    return Path(os.environ.get("SPARK_CONF_DIR") or spark_home() / "conf")


def cache_folder(line: str) -> Path:
    """Where `sparkdl-bench jars fetch` puts a line's jars unless told otherwise."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "sparkdl-bench" / "jars" / line


def optional_folder() -> Path:
    """Where `sparkdl-bench jars fetch --ucx` puts its jars unless told otherwise; both lines take the same."""
    return cache_folder("optional")


def _folders(line: str) -> list[Path]:
    """Folders in the order in which they are looked through."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return [Path(chosen), Path(chosen) / line]
    here = checkout()
    return [*([here / "target" / f"jars-{line}"] if here else []), cache_folder(line)]


def _version(thin: Path) -> tuple[bool, list[int], str]:
    """That of this package before all others, then the newest."""
    version = thin.stem.rpartition("-spark-")[2].partition("-")[2]
    return version == __version__, [int(part) for part in re.findall(r"\d+", version)], version


def find_thin(line: str) -> Path:
    """The jar of our own classes for a Spark line; a ConfigurationError where there is none."""
    folders = [*_folders(line), Path(__file__).resolve().parent / "jars"]
    pattern = f"{_THIN_PREFIX}{line}_{SCALA_OF_LINE[line]}-*.jar"
    for folder in folders:
        found = [path for path in folder.glob(pattern) if not path.stem.endswith(("-sources", "-javadoc", "-tests"))]
        if found:
            return max(found, key=_version)
    others = sorted({path.name for folder in folders for path in folder.glob(f"{_THIN_PREFIX}*.jar")})
    held = (
        f" They hold {', '.join(others)}, which {'fits' if len(others) == 1 else 'fit'} another Spark."
        if others
        else ""
    )
    raise ConfigurationError(
        f"There is no jar of sparkdl-bench for Spark {line} (named {pattern}) in {_listed(folders)}.{held} Install the "
        f"wheel, which holds it, build it in a checkout with `make jars`, or set {FOLDER_VARIABLE} to the folder that "
        "holds it."
    )


def _find_dependencies(line: str) -> tuple[Path, ...]:
    for folder in _folders(line):
        jars = sorted(path for path in folder.glob("*.jar") if not path.name.startswith(_THIN_PREFIX))
        if any(path.name.startswith(_NATIVE_PREFIX) for path in jars):
            return tuple(path.resolve() for path in [*jars, *_optional(folder)])
    return ()


def _optional(beside: Path) -> list[Path]:
    """Jars that some variants need (`jars fetch --ucx`), unless the user's own folder holds everything."""
    if os.environ.get(FOLDER_VARIABLE):
        return []
    return sorted(path for path in optional_folder().glob("*.jar") if not (beside / path.name).exists())


def _check_readable(jar: Path) -> None:
    try:
        with ZipFile(jar):
            return
    except (OSError, BadZipFile) as error:
        raise ConfigurationError(f"The jar '{jar}' cannot be read: {error}. Build or install it again.") from error


def _listed(folders: list[Path]) -> str:
    return ", ".join(f"'{folder}'" for folder in folders)
