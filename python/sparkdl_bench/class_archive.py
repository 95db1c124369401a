"""Archives of the classes that a run loads, which the JVMs of sessions on this host map in place of reading jars.

This is the JVM's own class data sharing (JEP 310, 350): a third and more of a short run's time is three JVMs that each
read, check and link the same ten thousand classes. An archive holds for one JVM and one class path, jar by jar; a JVM
that is given an outdated one starts without it. `class_archive_build` makes them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from sparkdl_bench.jarfiles import cache_folder, checkout, configuration_folder, spark_home

CLASS_PATH_KEYS = ("spark.driver.extraClassPath", "spark.executor.extraClassPath")
JAVA_OPTIONS_KEYS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")


def java_option(class_path: str) -> str:
    """What a JVM is to be started with, or nothing where no archive fits.

    Args:
        class_path: the session's `spark.driver.extraClassPath`, which its executors have too.
    """
    archive = find(class_path)
    # What does not fit after all (another version of the JVM) is no one's concern: the JVM starts as ever.
    return "" if archive is None else f"{quoted('-XX:SharedArchiveFile=', archive)} -Xshare:auto -Xlog:cds=off"


def find(class_path: str) -> Path | None:
    """The archive for sessions with this class path, where it was made and no jar has changed since."""
    archive = place(class_path)
    return archive if archive.is_file() and _is_current(archive) else None


def remove_stale(folder: Path) -> None:
    """Removes archives that no session will take: they are large."""
    for archive in folder.glob("*.jsa"):
        if not _is_current(archive):
            archive.with_suffix(".json").unlink(missing_ok=True)
            archive.unlink(missing_ok=True)


def _is_current(archive: Path) -> bool:
    """Whether its jars are as they were: False also where nothing readable says which they were."""
    try:
        jars = json.loads(archive.with_suffix(".json").read_text(encoding="utf-8"))["jars"]
        return bool(jars == described([path for path, _, _ in jars]))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def described(paths: list[str]) -> list[list[Any]]:
    """Path, bytes and time of change (ns) of each file; zeros for a path that does not exist."""
    found = []
    for path in paths:
        try:
            facts = Path(path).stat()
            found.append([path, facts.st_size, facts.st_mtime_ns])
        except FileNotFoundError:
            found.append([path, 0, 0])
    return found


def place(class_path: str) -> Path:
    """Where the archive is for this class path, Spark, folder of configuration files and Java."""
    java = os.environ.get("JAVA_HOME") or shutil.which("java") or ""
    about = [class_path, str(spark_home()), str(configuration_folder()), os.path.realpath(java)]
    key = hashlib.sha256("\n".join(about).encode()).hexdigest()[:16]
    here = checkout()
    folder = here / "target" / "class-archives" if here else cache_folder("class-archives")
    return folder / f"{key}.jsa"


def quoted(option: str, path: Path) -> str:
    """An option as Spark splits a line of them: double quotes hold blanks together."""
    return f'"{option}{path}"' if any(character.isspace() for character in str(path)) else f"{option}{path}"
