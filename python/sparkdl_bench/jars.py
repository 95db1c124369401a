"""Brings the jars of native code by their Maven coordinates, through the Ivy that every pyspark holds.

`--packages` takes no classifiers and clusters may have no way out, so the jars can be brought beforehand. Their
coordinates stand in `natives.properties`, which the build reads too. What Maven or sbt has brought to this host is not
brought again. No registry is named here: Ivy's own default is asked, or, where `SPARKDL_IVY_SETTINGS` names an Ivy
settings file (a company's mirror), what that file says.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from sparkdl_bench.errors import ConfigurationError, SparkDLError

PLATFORMS = ("linux-x86_64", "linux-arm64", "macosx-arm64")
SETTINGS_VARIABLE = "SPARKDL_IVY_SETTINGS"
_COORDINATES = Path(__file__).with_name("natives.properties")
_FETCH_TIMEOUT_SECONDS = 3600


class FetchFailedError(SparkDLError):
    """The jars could not be brought: no network, or a registry that does not hold them."""


@dataclass(frozen=True)
class Coordinates:
    """One jar's Maven coordinates; `classifier` is empty for the jar without one."""

    organization: str
    name: str
    version: str
    classifier: str = ""

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}{f'-{self.classifier}' if self.classifier else ''}.jar"

    def __str__(self) -> str:
        return ":".join(part for part in (self.organization, self.name, self.version, self.classifier) if part)


def fetch(directory: Path, platform: str = "linux-x86_64") -> list[Path]:
    """Brings the jars of native code for a platform into a directory; what lies there already is not brought again.

    Both Spark lines need the same ones. A platform without MKL (all but Linux on x86-64) gets OpenBLAS alone.

    Args:
        directory: where to; made if need be. Jars of other platforms or versions in it are left alone.
        platform: of the hosts that will train, one of `PLATFORMS`.

    Returns:
        The jars, in the order of `coordinates`.

    Raises:
        ConfigurationError: an unknown platform, no Java, no pyspark, or a directory that cannot be written.
        FetchFailedError: Ivy could not bring one of them.
    """
    return fetch_jars(directory, coordinates(platform))


def fetch_jars(directory: Path, wanted: list[Coordinates]) -> list[Path]:
    """The same for any jars."""
    paths = [directory / jar.file_name for jar in wanted]
    missing = [jar for jar, path in zip(wanted, paths, strict=True) if not path.is_file()]
    if missing:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            room = Path(tempfile.mkdtemp(prefix=".fetch-", dir=directory))
        except OSError as error:
            raise ConfigurationError(
                f"The directory '{directory}' for the jars cannot be written: {error}. Choose another one."
            ) from error
        try:
            _bring(missing, room)
        finally:
            # Also after a failure: what has arrived is whole and need not be brought again.
            for jar in missing:
                if (room / jar.file_name).is_file():
                    (room / jar.file_name).replace(directory / jar.file_name)
            shutil.rmtree(room, ignore_errors=True)
    return paths


def coordinates(platform: str) -> list[Coordinates]:
    """The jars of native code for a platform, those without a classifier included."""
    if platform not in PLATFORMS:
        raise ConfigurationError(
            f"There is no native code for platform '{platform}'. Valid are {', '.join(PLATFORMS)}; name that of the "
            "hosts that will train."
        )
    properties = _properties(_COORDINATES.read_text(encoding="utf-8"))
    organization = properties["organization"]
    found = []
    for name in properties["artifacts"].split():
        if platform not in properties[f"{name}.platforms"].split():
            continue
        version = properties[f"{name}.version"]
        found.append(Coordinates(organization, name, version))
        classifiers = properties[f"{name}.classifiers"].replace("{platform}", platform).split()
        found.extend(Coordinates(organization, name, version, classifier) for classifier in classifiers)
    return found


def _properties(text: str) -> dict[str, str]:
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def _bring(jars: list[Coordinates], room: Path) -> None:
    elsewhere = [jar for jar in jars if not _place_local_copy(jar, room)]
    # One module at a time: Ivy hands over all or nothing, and these are large.
    for name in dict.fromkeys(jar.name for jar in elsewhere):
        _retrieve([jar for jar in elsewhere if jar.name == name], room)


def _retrieve(jars: list[Coordinates], room: Path) -> None:
    """Lets Ivy place these jars of one module in `room`, each under its own file name."""
    descriptor = room / "ivy.xml"
    descriptor.write_text(_descriptor(jars), encoding="utf-8")
    chosen = os.environ.get(SETTINGS_VARIABLE)
    if chosen and not Path(chosen).is_file():
        raise ConfigurationError(
            f"{SETTINGS_VARIABLE} names the Ivy settings file '{chosen}', which is not there. Correct the path "
            "or unset it."
        )
    command = [
        *(_java(), "-jar", str(ivy())),
        *(("-settings", chosen) if chosen else ()),
        *("-cache", str(room / "cache"), "-ivy", str(descriptor), "-confs", "default", "-warn"),
        *("-retrieve", f"{room}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    try:
        done = subprocess.run(  # noqa: S603
            command,
            capture_output=True,
            text=True,
            timeout=_FETCH_TIMEOUT_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise FetchFailedError(
            f"The jars did not arrive within {_FETCH_TIMEOUT_SECONDS} seconds. Check that this host reaches a Maven "
            f"registry; behind a mirror, name an Ivy settings file in {SETTINGS_VARIABLE}."
        ) from error
    absent = [str(jar) for jar in jars if not (room / jar.file_name).is_file()]
    if absent:
        messages = "\n".join(
            line
            for line in (done.stdout + done.stderr).splitlines()
            if line.strip() and not re.match(r"\.+ \(\d+kB\)", line)
        )
        raise FetchFailedError(
            f"Ivy could not bring {', '.join(absent)}. Check that this host reaches a Maven registry; behind a mirror, "
            f"name an Ivy settings file in {SETTINGS_VARIABLE}. Ivy said:\n{messages[-3000:]}"
        )


def _descriptor(jars: list[Coordinates]) -> str:
    """An ivy.xml that asks for exactly these jars of one module and nothing that it depends on."""
    module = jars[0]
    artifacts = "\n".join(
        f'      <artifact name={quoteattr(jar.name)} type="jar" ext="jar"'
        + (f" m:classifier={quoteattr(jar.classifier)}/>" if jar.classifier else "/>")
        for jar in jars
    )
    return f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="sparkdl-bench" module="natives"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org={quoteattr(module.organization)} name={quoteattr(module.name)} rev={quoteattr(module.version)}
                conf="default->master" transitive="false">
{artifacts}
    </dependency>
  </dependencies>
</ivy-module>
"""


def _place_local_copy(jar: Coordinates, room: Path) -> bool:
    """Places a jar that Maven or sbt has brought to this host before; False where neither has."""
    for repository in _local_repositories():
        path = repository / jar.organization.replace(".", "/") / jar.name / jar.version / jar.file_name
        if path.is_file():
            target = room / jar.file_name
            try:
                target.hardlink_to(path)
            except OSError:
                shutil.copyfile(path, target)
            return True
    return False


def _local_repositories() -> list[Path]:
    """Folders in Maven's layout on this host: Maven's own, and each registry's in the cache of sbt (Coursier)."""
    home = Path.home()
    caches = [home / ".cache" / "coursier" / "v1", home / "Library" / "Caches" / "Coursier" / "v1"]
    if os.environ.get("COURSIER_CACHE"):
        caches.insert(0, Path(os.environ["COURSIER_CACHE"]))
    found = [
        home / ".m2" / "repository",
        *(folder for cache in caches for folder in sorted(cache.glob("https/*/maven2"))),
    ]
    return [folder for folder in found if folder.is_dir()]


def _java() -> str:
    """The java that Spark itself would take."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not java or not Path(java).is_file():
        where = f"JAVA_HOME names '{home}', which has no bin/java" if home else "there is no java on the PATH"
        raise ConfigurationError(
            f"Bringing jars needs Java, and {where}. Install a JDK 17 or later, or set JAVA_HOME to it."
        )
    return java


def ivy() -> Path:
    """The jar of Ivy inside the pyspark that is installed."""
    found = importlib.util.find_spec("pyspark")
    folder = Path(found.origin).parent / "jars" if found and found.origin else None
    jars = sorted(folder.glob("ivy-*.jar")) if folder else []
    if not jars:
        raise ConfigurationError(
            "Bringing jars needs the Ivy inside pyspark, and "
            + (f"'{folder}' holds none. " if folder else "pyspark is not installed. ")
            + "Install it whole, for example with pip install 'pyspark>=4.1,<4.2'."
        )
    return jars[-1]
