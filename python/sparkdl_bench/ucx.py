"""Brings what the transport `ucx` needs: the jar of jucx by its Maven coordinates, and UCX's libraries from PyPI.

The libraries' wheel is unpacked into a jar, so that Spark brings them to every executor as it brings other jars.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from sparkdl_bench import jars
from sparkdl_bench.errors import ConfigurationError

# As in build.sbt and UcxLibraries.scala: jucx and the libraries must be of one version.
VERSION = "1.18.1"
PLATFORM = "linux-x86_64"
JUCX = jars.Coordinates("org.openucx", "jucx", VERSION)
# The name tells of CUDA, and nothing of CUDA is needed or taken.
REQUIREMENT = f"libucx-cu12=={VERSION}"
# Ours alone: no registry has it.
LIBRARIES = jars.Coordinates("io.github.sparkdl-bench", "ucx-libraries", VERSION, PLATFORM)
LIBRARIES_JAR = LIBRARIES.file_name
_PLATFORM_TAGS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
_RESOURCES = f"sparkdlbench/native/ucx/{PLATFORM}"
_LIBRARIES = ("libucm.so.0", "libucs.so.0", "libuct.so.0", "libucp.so.0", "ucx/libuct_cma.so.0")
_WHEEL_FOLDER = "libucx/lib/"
_PIP_TIMEOUT_S = 600


def fetch(directory: Path, platform: str) -> list[Path]:
    """Brings both jars into a directory; what this host has already is not brought again.

    Raises:
        ConfigurationError: another platform than Linux on x86-64, or a directory that cannot be written.
        FetchFailedError: Ivy or pip could not bring them.
    """
    if platform != PLATFORM:
        raise ConfigurationError(f"Of jucx {VERSION} there is native code for {PLATFORM} alone, not for '{platform}'.")
    libraries = directory / LIBRARIES_JAR
    (jucx,) = jars.fetch_jars(directory, [JUCX])
    if not libraries.is_file():
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=directory) as room:
            draft = Path(room) / LIBRARIES_JAR
            if not jars.place_copy(LIBRARIES, Path(room)):
                _pack(_download(Path(room)), draft)
                jars.keep(LIBRARIES, draft)
            draft.replace(libraries)
    return [jucx, libraries]


def _download(room: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-input", "--quiet", "--disable-pip-version-check"]
    tags = [word for tag in _PLATFORM_TAGS for word in ("--platform", tag)]
    digests = [digest for name, digest in jars.pinned().items() if name.startswith(f"libucx_cu12-{VERSION}-")]
    required = room / "required.txt"
    required.write_text(f"{REQUIREMENT} {' '.join(f'--hash=sha256:{digest}' for digest in digests)}\n")
    command += ["--no-deps", "--only-binary=:all:", *tags, "--dest", str(room), "--require-hashes", "-r", str(required)]
    try:
        done = subprocess.run(  # noqa: S603 (the command is ours)
            command, capture_output=True, text=True, timeout=_PIP_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as error:
        raise jars.FetchFailedError(
            f"pip did not bring {REQUIREMENT} within {_PIP_TIMEOUT_S} seconds. Check that this host reaches a Python "
            "package index, or pip's own configuration of a mirror."
        ) from error
    wheels = list(room.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        raise jars.FetchFailedError(
            f"pip could not bring {REQUIREMENT}. Check that this host reaches a Python package index, or pip's own "
            f"configuration of a mirror. pip said:\n{(done.stdout + done.stderr)[-3000:]}"
        )
    return wheels[0]


def _pack(wheel: Path, jar: Path) -> None:
    """The libraries out of the wheel into a jar, with a list of them (size, name), which tells versions apart."""
    with ZipFile(wheel) as packed, ZipFile(jar, "w", ZIP_DEFLATED) as made:
        held = set(packed.namelist())
        lacking = [name for name in _LIBRARIES if _WHEEL_FOLDER + name not in held]
        if lacking:
            raise jars.FetchFailedError(
                f"The wheel '{wheel.name}' holds no {', '.join(lacking)}: it is not built as expected. Give "
                f"ucx.libraries a folder with the hosts' own UCX {VERSION}."
            )
        lines = []
        for name in _LIBRARIES:
            content = packed.read(_WHEEL_FOLDER + name)
            made.writestr(f"{_RESOURCES}/{name}", content)
            lines.append(f"{len(content)} {name}\n")
        made.writestr(f"{_RESOURCES}/files.txt", "".join(lines))
