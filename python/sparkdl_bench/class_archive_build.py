"""Makes the archive of a run's classes (`class_archive`): a short training shows which, and the JVM writes them down.

`python -m sparkdl_bench.class_archive_build SETTINGS.json` is that training, in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from sparkdl_bench import _jvm, class_archive, helper_process
from sparkdl_bench.errors import ConfigurationError, SparkDLError
from sparkdl_bench.jarfiles import configuration_folder, find_jars
from sparkdl_bench.peers._environment import tail
from sparkdl_bench.session import open_session, session_settings, start_jvm
from sparkdl_bench.trainer import Trainer

_DUMP_TIMEOUT_S = 600.0
_END_TIMEOUT_S = 30.0
# What these JVMs do takes less time than optimising it would.
_IN_HASTE = "-XX:TieredStopAtLevel=1"
# Two executors; what comes with a second worker (lanes, meetings) is loaded too.
_MASTER = "local-cluster[2,1,1024]"


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
    class_path = _class_path()
    found = class_archive.find(class_path)
    if found is not None:
        return found
    folder = configuration_folder()
    if folder.is_dir() and any(folder.iterdir()):
        raise ConfigurationError(
            f"Spark's configuration files lie in '{folder}', which comes before Spark's jars in the class path, and a "
            "JVM archives nothing that is found behind a folder with files. Sessions with these files start without an "
            "archive, as before; for others, call this without SPARK_CONF_DIR, with pyspark's own Spark."
        )
    archive = class_archive.place(class_path)
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="sparkdl-bench-classes-", dir=archive.parent) as name:
        room = Path(name)
        described = helper_process.ask(
            __name__, {"folder": str(room)}, "classes of a run", failed="No run could be watched: "
        )
        lists = _complete(sorted(room.glob("*.lst")))
        # In the order of loading, since a class comes after what it extends.
        classes = dict.fromkeys(line for each in lists for line in each.read_text(encoding="utf-8").splitlines())
        chosen, made = room / "all.txt", room / archive.name
        chosen.write_text("\n".join(classes) + "\n", encoding="utf-8")
        jars = class_archive.described(described["class_path"].split(os.pathsep))
        _dump(Path(described["java_home"], "bin", "java"), described["class_path"], chosen, made)
        class_archive.remove_stale(archive.parent)
        stamp = room / "stamp.json"
        stamp.write_text(json.dumps({"jars": jars}), encoding="utf-8")
        # First, or another process would take the archive for a stale one and remove it.
        stamp.replace(archive.with_suffix(".json"))
        made.replace(archive)
    return archive


def _dump(java: Path, class_path: str, classes: Path, archive: Path) -> None:
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
    end = time.monotonic() + _END_TIMEOUT_S
    while any(psutil.pid_exists(int(each.stem.removeprefix("pid"))) for each in lists):
        if time.monotonic() > end:
            raise SparkDLError(f"The JVMs of a run did not end within {_END_TIMEOUT_S:.0f} s after it.")
        time.sleep(0.1)
    if len(lists) < 3:
        raise SparkDLError(f"A driver and two executors wrote {len(lists)} lists of classes; three were expected.")
    return lists


def _class_path() -> str:
    """That of local sessions of which the user sets nothing."""
    import pyspark

    return session_settings(find_jars(pyspark.__version__), {"spark.master": _MASTER})[class_archive.CLASS_PATH_KEYS[0]]


def _main() -> None:
    """A short training whose JVMs write down the classes that they load; says what it ran with."""
    room = Path(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["folder"])
    option = f"{class_archive.quoted('-XX:DumpLoadedClassList=', room / '%p.lst')} {_IN_HASTE}"
    options = {
        "spark.master": _MASTER,
        "spark.ui.enabled": "false",
        **dict.fromkeys(class_archive.JAVA_OPTIONS_KEYS, option),
    }
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
    helper_process.run_program(_main)
