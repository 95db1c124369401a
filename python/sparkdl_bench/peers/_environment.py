"""A peer's virtual environment: made by package names and pinned versions, made once, checked before use."""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sparkdl_bench.errors import ConfigurationError, RunFailedError
from sparkdl_bench.jars import Coordinates, resolve
from sparkdl_bench.peers._java import Java

INSTALL_TIMEOUT_S = 1800.0
_OLDEST, _NEWEST = (3, 10), (3, 12)


@dataclass(frozen=True)
class Environment:
    """One virtual environment, which several peers may share.

    Attributes:
        name: its folder's name.
        requirements: pinned requirements, with their dependencies.
        without_dependencies: pinned requirements whose own dependency lists are wrong (`pip install --no-deps`).
        imports: modules that must import for the environment to count as whole.
        jars: Maven coordinates (`group:name:version`, with `:classifier` where there is one) of what is brought with
            all that it depends on, besides modules of `jars_without`.
        jars_without: groups of Maven modules that its Spark brings, or nobody needs.
        oldest_python, newest_python: between which (major, minor) the pinned versions have wheels.
        java: the Javas that its programs run on; None: they need none.
        disk_gb: room that it takes, told before it is made.
    """

    name: str
    requirements: tuple[str, ...]
    without_dependencies: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    oldest_python: tuple[int, int] = _OLDEST
    newest_python: tuple[int, int] = _NEWEST
    java: Java | None = None
    disk_gb: float = 0.1
    jars: tuple[str, ...] = ()
    jars_without: tuple[str, ...] = ()

    @property
    def all_requirements(self) -> tuple[str, ...]:
        return self.requirements + self.without_dependencies + self.jars

    @property
    def needs(self) -> str:
        """`Python 3.10 to 3.12, Java 17`."""
        python = f"Python 3.{self.oldest_python[1]} to 3.{self.newest_python[1]}"
        return f"{python}, {self.java}" if self.java else python

    def unable(self) -> str | None:
        """Why it cannot be made or used on this host; None where it can."""
        try:
            find_python(self.newest_python, self.oldest_python)
            if self.java:
                self.java.home()
        except ConfigurationError as error:
            return str(error)
        return None

    def remove(self, directory: Path) -> bool:
        """Takes it away; False where there was nothing."""
        if not self.folder(directory).exists():
            return False
        with _locked(directory / f".{self.name}.lock"):
            self._marker(directory).unlink(missing_ok=True)  # first: half of one must not look whole
            shutil.rmtree(self.folder(directory))
        return True

    def folder(self, directory: Path) -> Path:
        return directory / self.name

    def python(self, directory: Path) -> Path:
        return self.folder(directory) / "bin" / "python"

    def program(self, directory: Path, name: str) -> Path:
        """A console script or program of the environment, e.g. `mpiexec`."""
        return self.folder(directory) / "bin" / name

    def jar_folder(self, directory: Path) -> Path:
        """Where the jars lie."""
        return self.folder(directory) / "jars"

    def site_packages(self, directory: Path) -> Path:
        found = sorted(self.folder(directory).glob("lib/python3.*/site-packages"))
        if not found:
            raise RunFailedError(
                f"The environment {self.folder(directory)} has no site-packages folder; remove it and install it again."
            )
        return found[0]

    def is_ready(self, directory: Path) -> bool:
        """Whether these very versions were installed and verified here."""
        try:
            return str(json.loads(self._marker(directory).read_text())["digest"]) == self._digest()
        except (OSError, ValueError, KeyError):
            return False

    def install(self, directory: Path) -> bool:
        """Make it; True when anything had to be done. Safe against a second installer at the same time."""
        directory.mkdir(parents=True, exist_ok=True)
        with _locked(directory / f".{self.name}.lock"):
            if self.is_ready(directory):
                return False
            base = find_python(self.newest_python, self.oldest_python)
            shutil.rmtree(self.folder(directory), ignore_errors=True)
            # Unpacking pip takes most of the time, and nothing is to be installed.
            bare = [] if self.requirements or self.without_dependencies else ["--without-pip"]
            _run(
                [base, "-m", "venv", *bare, str(self.folder(directory))],
                f"making the virtual environment of '{self.name}'",
            )
            self._pip(directory, self.requirements, [])
            self._pip(directory, self.without_dependencies, ["--no-deps"])
            if self.jars:
                wanted = [Coordinates(*each.split(":")) for each in self.jars]
                resolve(wanted, self.jars_without, self.jar_folder(directory))
            self.build(directory)
            self._verify(directory)
            self._marker(directory).write_text(
                json.dumps({"digest": self._digest(), "requirements": list(self.all_requirements), "python": base})
                + "\n"
            )
            return True

    def build(self, directory: Path) -> None:
        """What is made there of our own, once the packages are there; a subclass may have something."""

    def _marker(self, directory: Path) -> Path:
        return self.folder(directory) / "sparkdl-environment.json"

    def _digest(self) -> str:
        pinned = [self.requirements, self.without_dependencies, *([self.jars, self.jars_without] if self.jars else [])]
        return hashlib.sha256(json.dumps(pinned).encode()).hexdigest()

    def _pip(self, directory: Path, requirements: tuple[str, ...], options: list[str]) -> None:
        if requirements:
            command = [
                str(self.python(directory)),
                "-m",
                "pip",
                "install",
                "--no-input",
                "--quiet",
                "--disable-pip-version-check",
            ]
            _run([*command, *options, *requirements], f"installing {', '.join(requirements)}")

    def _verify(self, directory: Path) -> None:
        for module in self.imports:
            _run(
                [str(self.python(directory)), "-c", f"import {module}"],
                f"importing {module} in the new environment '{self.name}'",
            )


def find_python(newest: tuple[int, int], oldest: tuple[int, int] = _OLDEST) -> str:
    """This Python when it is new and old enough, otherwise the newest `python3.x` on the PATH that is."""
    if oldest <= sys.version_info[:2] <= newest:
        return sys.executable
    wanted = [f"python3.{minor}" for minor in range(newest[1], oldest[1] - 1, -1)]
    for name in wanted:
        program = shutil.which(name)
        # A version manager's shim may exist for a version that is not active: ask it.
        if program and _answers(program):
            return program
    raise ConfigurationError(
        f"This peer's pinned packages need Python 3.{oldest[1]} to 3.{newest[1]}, but this is Python "
        f"{sys.version.split()[0]} and none of {', '.join(wanted)} is on the PATH. Install one of them and try again."
    )


def _answers(program: str) -> bool:
    command = [program, "--version"]
    return subprocess.run(command, capture_output=True, timeout=30).returncode == 0  # noqa: S603 (the command is ours)


# Of urllib3, which pip uses.
_NO_INDEX = ("NewConnectionError", "ConnectTimeoutError", "ProxyError", "NameResolutionError")


def _run(command: list[str], doing: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise RunFailedError(
            f"{doing} took longer than {INSTALL_TIMEOUT_S:.0f} s and was stopped. Is the package index reachable?"
        ) from None
    if done.returncode != 0:
        raise RunFailedError(f"{doing} failed with status {done.returncode}: {_why(done.stderr or done.stdout)}")


def _why(said: str) -> str:
    """What pip's output means: without a network it tries five times, and then says that there is no such package."""
    if any(sign in said for sign in _NO_INDEX):
        return (
            "the package index cannot be reached from this host. Check the network, and pip's settings of the index "
            "and the proxy (`pip config list`)."
        )
    return tail(said)


def tail(text: str, limit: int = 1500) -> str:
    """The last lines of a program's output on one line; credentials that an address may carry are taken out."""
    joined = " | ".join(line.strip() for line in text.strip().splitlines() if line.strip())
    return re.sub(r"://[^/@\s]+@", "://***@", joined)[-limit:]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
