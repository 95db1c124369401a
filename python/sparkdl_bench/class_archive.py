"""Archives of the classes that a run loads, which the JVMs of sessions on this host map in place of reading jars.

This is the JVM's own class data sharing (JEP 310, 350): a third and more of a short run's time is three JVMs that each
read, check and link the same ten thousand classes. An archive holds for one JVM and one class path, jar by jar; a JVM
that is given one which does not fit any more goes on without.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sparkdl_bench import _jvm
from sparkdl_bench.errors import ConfigurationError, SparkDLError
from sparkdl_bench.jarfiles import cache_folder, checkout, configuration_folder, spark_home

CLASS_PATH_KEYS = ("spark.driver.extraClassPath", "spark.executor.extraClassPath")
JAVA_OPTIONS_KEYS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")
_DUMP_TIMEOUT_S = 600.0
_END_TIMEOUT_S = 30.0
# What these JVMs do takes less time than optimising it would.
_IN_HASTE = "-XX:TieredStopAtLevel=1"
# Two executors; what comes with a second worker (lanes, meetings) is loaded too.
_MASTER = "local-cluster[2,1,1024]"


def java_option(class_path: str) -> str:
    """What a JVM is to be started with, or nothing where no archive fits.

    Args:
        class_path: the session's `spark.driver.extraClassPath`, which its executors have too.
    """
    archive = find(class_path)
    # What does not fit after all (another version of the JVM) is no one's concern: the JVM starts as ever.
    return "" if archive is None else f"{_quoted('-XX:SharedArchiveFile=', archive)} -Xshare:auto -Xlog:cds=off"


def find(class_path: str) -> Path | None:
    """The archive for sessions with this class path, where it was made and no jar has changed since."""
    archive = _place(class_path)
    return archive if archive.is_file() and _is_current(archive) else None


def create() -> Path:
    """Makes the archive for local sessions with the jars of this host, where there is none that fits.

    One short training in two executors shows which classes a run loads; up to a minute on two cores.

    Returns:
        The archive, of some 200 MB.

    Raises:
        ConfigurationError: jars are missing, or Spark's folder of configuration files is not empty (a JVM archives
            no class that is found behind a folder of files).
        SparkDLError: the JVM could not make it.
    """
    from sparkdl_bench import apart

    class_path = _class_path()
    found = find(class_path)
    if found is not None:
        return found
    folder = configuration_folder()
    if folder.is_dir() and any(folder.iterdir()):
        raise ConfigurationError(
            f"Spark's configuration files lie in '{folder}', which stands in the class path before Spark's jars, and a "
            "JVM archives nothing that is found behind a folder with files. Sessions with these files start without an "
            "archive, as before; for others, call this without SPARK_CONF_DIR, with pyspark's own Spark."
        )
    archive = _place(class_path)
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="sparkdl-bench-classes-", dir=archive.parent) as name:
        room = Path(name)
        described = apart.ask(__name__, {"folder": str(room)}, "classes of a run", failed="No run could be watched: ")
        lists = _complete(sorted(room.glob("*.lst")))
        # In the order of loading, since a class comes after what it extends.
        classes = dict.fromkeys(line for each in lists for line in each.read_text(encoding="utf-8").splitlines())
        chosen, made = room / "all.txt", room / archive.name
        chosen.write_text("\n".join(classes) + "\n", encoding="utf-8")
        jars = _described(described["class_path"].split(os.pathsep))
        _dump(Path(described["java_home"], "bin", "java"), described["class_path"], chosen, made)
        _forget_stale(archive.parent)
        made.replace(archive)
        stamp = room / "stamp.json"
        stamp.write_text(json.dumps({"jars": jars}), encoding="utf-8")
        stamp.replace(archive.with_suffix(".json"))
    return archive


def _dump(java: Path, class_path: str, classes: Path, archive: Path) -> None:
    from sparkdl_bench.peers._environment import tail

    command = [str(java), "-Xshare:dump", f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={archive}"]
    # Each class that cannot be archived (signed jars, generated ones) is a warning, and they are hundreds.
    command += [_IN_HASTE, "-Xlog:cds=error,gc*=off", "-cp", class_path]
    try:
        done = subprocess.run(  # noqa: S603 (the command is ours)
            command, capture_output=True, text=True, timeout=_DUMP_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise SparkDLError(f"{java} did not make the archive of classes within {_DUMP_TIMEOUT_S:.0f} s.") from None
    if done.returncode != 0 or not archive.is_file():
        raise SparkDLError(f"{java} could not make the archive of classes: {tail(done.stderr or done.stdout)}")


def _complete(lists: list[Path]) -> list[Path]:
    """Waits for the JVMs that write the lists, which are named after their process ids."""
    import psutil

    end = time.monotonic() + _END_TIMEOUT_S
    while any(psutil.pid_exists(int(each.stem.removeprefix("pid"))) for each in lists):
        if time.monotonic() > end:
            raise SparkDLError(f"The JVMs of a run did not end within {_END_TIMEOUT_S:.0f} s after it.")
        time.sleep(0.1)
    if len(lists) < 3:
        raise SparkDLError(f"A driver and two executors wrote {len(lists)} lists of classes; three were expected.")
    return lists


def _forget_stale(folder: Path) -> None:
    """Removes archives that no session will take: they are large."""
    for archive in folder.glob("*.jsa"):
        if not _is_current(archive):
            archive.with_suffix(".json").unlink(missing_ok=True)
            archive.unlink(missing_ok=True)


def _is_current(archive: Path) -> bool:
    """Whether its jars are as they were: False also where nothing readable says which they were."""
    try:
        jars = json.loads(archive.with_suffix(".json").read_text(encoding="utf-8"))["jars"]
        return bool(jars == _described([path for path, _, _ in jars]))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _described(paths: list[str]) -> list[list[Any]]:
    """Path, bytes and time of change (ns) of each file; zeros for a path that does not exist."""
    described = []
    for path in paths:
        try:
            facts = Path(path).stat()
            described.append([path, facts.st_size, facts.st_mtime_ns])
        except FileNotFoundError:
            described.append([path, 0, 0])
    return described


def _place(class_path: str) -> Path:
    """Where the archive is for this class path, Spark, folder of configuration files and Java."""
    java = os.environ.get("JAVA_HOME") or shutil.which("java") or ""
    about = [class_path, str(spark_home()), str(configuration_folder()), os.path.realpath(java)]
    key = hashlib.sha256("\n".join(about).encode()).hexdigest()[:16]
    here = checkout()
    folder = here / "target" / "class-archives" if here else cache_folder("class-archives")
    return folder / f"{key}.jsa"


def _class_path() -> str:
    """That of local sessions of which the user sets nothing."""
    import pyspark

    from sparkdl_bench.jarfiles import find_jars
    from sparkdl_bench.session import session_settings

    return session_settings(find_jars(pyspark.__version__), {"spark.master": _MASTER})[CLASS_PATH_KEYS[0]]


def _quoted(option: str, path: Path) -> str:
    """An option as Spark splits a line of them: double quotes hold blanks together."""
    return f'"{option}{path}"' if any(character.isspace() for character in str(path)) else f"{option}{path}"


def _main() -> None:
    """A short training whose JVMs write down the classes that they load; says what it ran with."""
    from sparkdl_bench.session import open_session, start_jvm
    from sparkdl_bench.trainer import Trainer

    room = Path(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["folder"])
    option = f"{_quoted('-XX:DumpLoadedClassList=', room / '%p.lst')} {_IN_HASTE}"
    options = {"spark.master": _MASTER, "spark.ui.enabled": "false", **dict.fromkeys(JAVA_OPTIONS_KEYS, option)}
    with Path(os.devnull).open("wb") as nothing:
        _, settings = start_jvm(options, nothing)
        with open_session(settings) as spark:
            Trainer(model="mlp", data="digits", workers=2, epochs=1).fit(spark)
            # A data frame's classes: a program of the user's own has one in most cases.
            spark.range(8).selectExpr("sum(id)").collect()
            jvm = _jvm.jvm_of(spark)
            class_path, java_home = (_jvm.system_property(jvm, name) for name in ("java.class.path", "java.home"))
    print(json.dumps({"class_path": class_path, "java_home": java_home}))


if __name__ == "__main__":
    from sparkdl_bench import apart

    apart.run_program(_main)
