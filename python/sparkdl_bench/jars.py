"""Brings the jars of native code by their Maven coordinates, through the Ivy that every pyspark holds.

`--packages` takes no classifiers and clusters may have no way out, so the jars can be brought once, before a run. Their
coordinates stand in `natives.properties`, which the build reads too, and the SHA-256 of each file in `natives.sha256`:
this is code that every executor loads, so another file is never placed. Nothing is brought twice to one host: what Ivy
has brought is kept in the user's cache, for whatever folder wants it next, and what Maven, sbt or `spark-submit
--packages` has brought is taken from where they keep it. No registry is named here: Ivy's own default is asked, or,
where `SPARKDL_IVY_SETTINGS` names an Ivy settings file (a company's mirror), what that file says.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from xml.sax.saxutils import quoteattr

from sparkdl_bench.errors import ConfigurationError, SparkDLError
from sparkdl_bench.jarfiles import PLATFORMS, cache_folder

SETTINGS_VARIABLE = "SPARKDL_IVY_SETTINGS"
_COORDINATES = Path(__file__).with_name("natives.properties")
_PINNED = Path(__file__).with_name("natives.sha256")
_FETCH_TIMEOUT_SECONDS = 3600
_REACH = (
    f"Check that this host reaches a Maven registry; behind a mirror, name an Ivy settings file in {SETTINGS_VARIABLE}."
)
# Folders between a registry's host and its groups in the cache of sbt: `maven2`, or a mirror's own path.
_REGISTRY_DEPTHS = range(4)


Tell = Callable[[str], None]


def _silent(_: str) -> None:
    """For callers that show no progress."""


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

    @property
    def path(self) -> str:
        """Where a folder in Maven's layout has it."""
        return f"{self.organization.replace('.', '/')}/{self.name}/{self.version}/{self.file_name}"

    def __str__(self) -> str:
        return ":".join(part for part in (self.organization, self.name, self.version, self.classifier) if part)


def fetch(directory: Path, platform: str = "linux-x86_64", tell: Tell = _silent) -> list[Path]:
    """Brings the jars of native code for a platform into a directory; what this host has already is not brought again.

    Both Spark lines need the same ones. A platform without MKL (all but Linux on x86-64) gets OpenBLAS alone.

    Args:
        directory: where to; made if need be. Jars of other platforms or versions in it are left alone.
        platform: of the hosts that will train, one of `jarfiles.PLATFORMS`.
        tell: told which module is brought from a registry, before each.

    Returns:
        The jars, in the order of `coordinates`.

    Raises:
        ConfigurationError: an unknown platform, no Java, no pyspark, or a directory that cannot be written.
        FetchFailedError: Ivy could not bring one of them, or brought another file than the pinned one.
    """
    return fetch_jars(directory, coordinates(platform), tell)


def fetch_jars(directory: Path, wanted: list[Coordinates], tell: Tell = _silent) -> list[Path]:
    """The same for any jars."""
    paths = [directory / jar.file_name for jar in wanted]
    missing = [jar for jar, path in zip(wanted, paths, strict=True) if not path.is_file()]
    if missing:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            room = Path(tempfile.mkdtemp(prefix=".fetch-", dir=directory))
        except OSError as error:
            raise _unwritable(directory, error) from error
        try:
            with _alone():
                _bring(missing, room, tell)
        except OSError as error:
            raise _unwritable(directory, error) from error
        finally:
            # Also after a failure: what has arrived is whole and need not be brought again.
            for jar in missing:
                if (room / jar.file_name).is_file():
                    (room / jar.file_name).replace(directory / jar.file_name)
            shutil.rmtree(room, ignore_errors=True)
    return paths


def _unwritable(directory: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"The directory '{directory}' for the jars cannot be written: {error}. Choose another one."
    )


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


def pinned(listed: Path = _PINNED) -> dict[str, str]:
    """SHA-256 (hexadecimal) of the files of native code, by file name."""
    lines = listed.read_text(encoding="utf-8").splitlines()
    pairs = (line.split() for line in lines if line and not line.startswith("#"))
    return {name: digest for digest, name in pairs}


def is_as_pinned(path: Path) -> bool:
    """Whether a file holds what `natives.sha256` says of its name; True where it says nothing (not native code)."""
    digest = pinned().get(path.name)
    return digest is None or digest == _sha256(path)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def place_copy(jar: Coordinates, room: Path) -> bool:
    """Places a jar in `room` that was brought to this host before; False where it was not, or is another file."""
    for path in _copies(jar):
        if path.is_file() and is_as_pinned(path):
            _link(path, room / jar.file_name)
            return True
    return False


def keep(jar: Coordinates, path: Path) -> None:
    """Keeps a jar that has just arrived, for other folders; where the cache cannot be written nothing is kept."""
    with suppress(OSError):
        kept = _repository() / jar.path
        kept.parent.mkdir(parents=True, exist_ok=True)
        _link(path, kept)


def _bring(jars: list[Coordinates], room: Path, tell: Tell) -> None:
    elsewhere = [jar for jar in jars if not place_copy(jar, room)]
    # One module at a time: Ivy hands over all or nothing, and these are large.
    names = list(dict.fromkeys(jar.name for jar in elsewhere))
    for number, name in enumerate(names, start=1):
        module = [jar for jar in elsewhere if jar.name == name]
        tell(f"fetching {name} {module[0].version} ({number} of {len(names)})")
        _retrieve(module, room)
        for jar in module:
            keep(jar, room / jar.file_name)


def _retrieve(jars: list[Coordinates], room: Path) -> None:
    """Lets Ivy place these jars of one module in `room`, each under its own file name."""
    arrived = room / "arrived"
    failure = _ask_ivy(_descriptor(jars), room, arrived)
    # What an Ivy that failed or was stopped has left may be the half of a jar.
    absent = [str(jar) for jar in jars if failure is not None or not (arrived / jar.file_name).is_file()]
    if absent:
        raise FetchFailedError(f"Ivy could not bring {', '.join(absent)}. {_REACH} Ivy said:\n{failure or ''}")
    refused = [jar for jar in jars if not is_as_pinned(arrived / jar.file_name)]
    if refused:
        raise FetchFailedError(
            f"What the registry sent for {', '.join(str(jar) for jar in refused)} is not the file that this version "
            f"was made with: its SHA-256 is {_sha256(arrived / refused[0].file_name)}, and "
            f"{pinned()[refused[0].file_name]} is expected. Nothing of it was kept. Try again; where it stays so, the "
            "registry or a mirror in between serves something else under this name: ask those who run it."
        )
    for jar in jars:
        (arrived / jar.file_name).replace(room / jar.file_name)


def resolve(jars: Sequence[Coordinates], without: Sequence[str], room: Path) -> None:
    """Lets Ivy place these jars and all that they depend on in the folder `room`.

    Args:
        without: groups whose modules are left out, with what they alone depend on.

    Raises:
        FetchFailedError: a jar could not be brought.
    """
    with tempfile.TemporaryDirectory(prefix="sparkdl-bench-ivy-") as scratch:
        failure = _ask_ivy(_closure(jars, without), Path(scratch), Path(scratch, "arrived"))
        if failure is not None:
            raise FetchFailedError(f"Ivy could not bring {', '.join(map(str, jars))}. {_REACH} Ivy said:\n{failure}")
        arrived = Path(scratch, "arrived")
        absent = [str(jar) for jar in jars if not (arrived / jar.file_name).is_file()]
        if absent:
            raise FetchFailedError(f"Ivy brought no {', '.join(absent)}. {_REACH}")
        shutil.copytree(arrived, room, dirs_exist_ok=True)


def _ask_ivy(descriptor: str, room: Path, arrived: Path) -> str | None:
    """Lets Ivy place what an ivy.xml asks for in `arrived`; what Ivy said where it failed."""
    written = room / "ivy.xml"
    written.write_text(descriptor, encoding="utf-8")
    chosen = os.environ.get(SETTINGS_VARIABLE)
    if chosen and not Path(chosen).is_file():
        raise ConfigurationError(
            f"{SETTINGS_VARIABLE} names the Ivy settings file '{chosen}', which is not there. Correct the path "
            "or unset it."
        )
    command = [
        *(_java(), "-jar", str(ivy())),
        *(("-settings", chosen) if chosen else ()),
        *("-cache", str(room / "cache"), "-ivy", str(written), "-confs", "default", "-warn"),
        *("-retrieve", f"{arrived}/[artifact]-[revision](-[classifier]).[ext]"),
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
    if done.returncode == 0:
        return None
    messages = "\n".join(
        line
        for line in (done.stdout + done.stderr).splitlines()
        if line.strip() and not re.match(r"\.+ \(\d+kB\)", line)
    )
    return messages[-3000:]


def _descriptor(jars: Sequence[Coordinates]) -> str:
    """An ivy.xml that asks for exactly these jars of one module and nothing that it depends on."""
    return _module("natives", _dependency(jars, 'conf="default->master" transitive="false"'))


def _closure(jars: Sequence[Coordinates], without: Sequence[str]) -> str:
    """An ivy.xml that asks for these jars and all that they depend on."""
    modules: dict[tuple[str, str], list[Coordinates]] = {}
    for jar in jars:
        modules.setdefault((jar.organization, jar.name), []).append(jar)
    wanted = [_dependency(each, 'conf="default->default"') for each in modules.values()]
    return _module("closure", *wanted, *(f"    <exclude org={quoteattr(group)}/>" for group in without))


def _module(name: str, *lines: str) -> str:
    joined = "\n".join(lines)
    return f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="sparkdl-bench" module={quoteattr(name)}/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{joined}
  </dependencies>
</ivy-module>
"""


def _dependency(jars: Sequence[Coordinates], attributes: str) -> str:
    """One module and those of its files that are asked for."""
    module = jars[0]
    artifacts = "\n".join(
        f'      <artifact name={quoteattr(jar.name)} type="jar" ext="jar"'
        + (f" m:classifier={quoteattr(jar.classifier)}/>" if jar.classifier else "/>")
        for jar in jars
    )
    names = (module.organization, module.name, module.version)
    named = " ".join(f"{key}={quoteattr(name)}" for key, name in zip(("org", "name", "rev"), names, strict=True))
    return f"""    <dependency {named} {attributes}>
{artifacts}
    </dependency>"""


def _repository() -> Path:
    """Where this package keeps what was brought for it, in Maven's layout."""
    return cache_folder("repository")


def _copies(jar: Coordinates) -> Iterator[Path]:
    """Where a jar lies, or would lie, that this package, Maven, sbt or `spark-submit --packages` has brought here."""
    yield _repository() / jar.path
    homes = _homes()
    for home in homes:
        yield home / ".m2" / "repository" / jar.path
    for cache in _sbt_caches(homes):
        for depth in _REGISTRY_DEPTHS:
            yield from sorted(cache.glob("/".join(["http*", "*", *["*"] * depth, jar.path])))
    for home in homes:
        for ivy_home in (".ivy2", ".ivy2.5.2"):
            yield from (home / ivy_home / "cache" / jar.organization / jar.name).glob(f"*/{jar.file_name}")


def _homes() -> list[Path]:
    """The user's home, and what a JVM takes for it: that of the password file, whatever HOME says."""
    homes = [Path.home()]
    with suppress(KeyError):
        homes.append(Path(pwd.getpwuid(os.getuid()).pw_dir))
    return list(dict.fromkeys(homes))


def _sbt_caches(homes: list[Path]) -> list[Path]:
    """Where sbt (Coursier) keeps what it has brought, each registry in a folder of its address."""
    chosen = os.environ.get("COURSIER_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    return [
        *([Path(chosen)] if chosen else []),
        *([Path(base) / "coursier" / "v1"] if base else []),
        *(home / ".cache" / "coursier" / "v1" for home in homes),
        *(home / "Library" / "Caches" / "Coursier" / "v1" for home in homes),
    ]


def _link(source: Path, target: Path) -> None:
    """Links or copies a file; `target` is there whole or not at all."""
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as room:
        draft = Path(room) / target.name
        try:
            draft.hardlink_to(source)
        except OSError:
            shutil.copyfile(source, draft)
        draft.replace(target)


@contextmanager
def _alone() -> Iterator[None]:
    """Lets a user's fetches take turns, so that the second one finds what the first has brought."""
    lock: IO[str] | None = None
    with suppress(OSError):  # a cache that cannot be written keeps nothing to find
        _repository().mkdir(parents=True, exist_ok=True)
        lock = (_repository() / ".lock").open("w")
    with lock or nullcontext():
        if lock:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


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
