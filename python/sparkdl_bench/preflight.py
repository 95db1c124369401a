"""What can be known of a session before it starts, from its Spark properties and this host alone.

The rules of runs are the JVM's. These are Spark's own and the network's, and without them a user waits a minute or more
for an error that names something else.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sparkdl_bench import catalogue, datafiles
from sparkdl_bench.config import RunFile
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.nearest import cut, near_file

_REACH_S = 5.0
_MIB = 1024 * 1024
# Spark's UnifiedMemoryManager: 1.5 times what it reserves for the system.
_LEAST_MEMORY = 450 * _MIB
_UNITS = {"": 1, "k": 1024, "m": _MIB, "g": 1024 * _MIB, "t": 1024 * 1024 * _MIB, "p": 1024**3 * _MIB}
_COUNT = r"0*[1-9]\d*"
_LOCAL = re.compile(rf"local\[\s*({_COUNT}|\*)\s*(?:,\s*\d+\s*)?\]")
_LOCAL_CLUSTER = re.compile(rf"local-cluster\[\s*({_COUNT})\s*,\s*({_COUNT})\s*,\s*({_COUNT})\s*\]")
_HOST = r"(?:[\w.-]+|\[[0-9a-fA-F:.]+\]):\d+"
_STANDALONE = re.compile(rf"spark://{_HOST}(?:,{_HOST})*")
_MASTERS = "local[4], local-cluster[2,1,2048], spark://HOST:7077, yarn, k8s://https://HOST:6443"

Fault = tuple[str, str]


def check(run: RunFile, properties: Mapping[str, str] | None = None) -> None:
    """Refuses a run that could not begin, with the first reason. Wrong keys and values count, too.

    Args:
        properties: of the session, where they are more than the run's own.
    """
    catalogue.check(run.settings)
    for _, message in faults(run, properties):
        raise ConfigurationError(message)


def check_master(master: str, *, reach: bool = True) -> None:
    """Refuses what is no master by its form, and, with `reach`, one that nobody answers for."""
    for look in (_master, *((_reach,) if reach else ())):
        for _, message in look({"spark.master": master}, {}):
            raise ConfigurationError(message)


def is_malformed(master: str) -> bool:
    """Whether no session can start with a master, wherever it runs."""
    known = master in ("local", "yarn") or master.startswith("k8s://")
    return not known and not any(form.fullmatch(master) for form in (_LOCAL, _LOCAL_CLUSTER, _STANDALONE))


def local_cores(master: str) -> int | None:
    """The cores of this host that `local`, `local[n]` or `local[n,failures]` takes; None for `local[*]` and others."""
    if master == "local":
        return 1
    found = _LOCAL.fullmatch(master)
    return int(found.group(1)) if found and found.group(1) != "*" else None


def check_launch(run: RunFile, results: str) -> None:
    """The same for a launch, which has workers and a session, and neither batch nor data.

    Args:
        results: the folder for its results.
    """
    catalogue.check(run.settings)
    settings = {"workers": run.settings.get("workers", ""), "results": results}
    for look in (_master, _slots, _memory, _results, _reach):
        for _, message in look(run.spark, settings):
            # `launch` has options for what are keys of a run.
            said = re.sub(r"(?:--set )?\b(results|workers|master)=", r"--\1 ", message)
            raise ConfigurationError(re.sub(r"^results is", "--results is", said))


def faults(run: RunFile, properties: Mapping[str, str] | None = None) -> Iterator[Fault]:
    """Everything that would keep a session from starting or the run from beginning: the check's name, and why."""
    conf = dict(run.spark if properties is None else properties)
    settings = _complete(run.settings)
    looks: tuple[Callable[[Mapping[str, str], Mapping[str, str]], Iterator[Fault]], ...] = (
        _master,
        _batch,
        _slots,
        _memory,
        _unread,
        _paths,
        _results,
        _engine,
        _reach,
    )
    for look in looks:
        yield from look(conf, settings)


def _complete(settings: Mapping[str, str]) -> dict[str, str]:
    """With the defaults of the keys that are looked at here; what is no valid value is left to the check of values."""
    known = catalogue.load()
    if known is None:
        return dict(settings)
    wrong = known.faults(settings, most=0)
    looked_at = ("workers", "batch", "batch_per_worker", "engine.name", "data.source", "data.header", "results")
    # Of a source that is none nothing is known but that.
    defaults = {key: known.default(key) for key in looked_at if key != "data.source" or key not in wrong}
    return {**defaults, **{key: value for key, value in settings.items() if key not in wrong}}


def _master(conf: Mapping[str, str], _: Mapping[str, str]) -> Iterator[Fault]:
    master = conf.get("spark.master", "")
    if master == "yarn" and not _knows_yarn():
        yield (
            "master",
            "The master is yarn, and neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set, so Spark would not find the "
            "cluster. Set one to the folder that holds yarn-site.xml and core-site.xml.",
        )
    if "spark.master" not in conf or not is_malformed(master):
        return
    meant = ""
    if master.startswith("lab:"):
        meant = f" A lab is named on the command line: --master {cut(master)}."
    elif re.fullmatch(_HOST, master):
        meant = f" Did you mean 'spark://{master}'?"
    elif re.fullmatch(r"spark://[\w.-]+", master):
        meant = f" Did you mean '{master}:7077'?"
    said = f"'{cut(master)}' is no Spark master" if master.strip() else "The master is empty"
    yield "master", f"{said}.{meant} Masters look so: {_MASTERS}. Set it with --master."


def _knows_yarn() -> bool:
    from sparkdl_bench.jarfiles import configuration_folder

    set_here = any(os.environ.get(name) for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"))
    return set_here or (configuration_folder() / "spark-env.sh").is_file()


def _batch(_: Mapping[str, str], settings: Mapping[str, str]) -> Iterator[Fault]:
    workers, batch = _bounds(settings.get("workers"))[-1], _whole(settings.get("batch"))
    if _whole(settings.get("batch_per_worker")) or workers is None or batch is None or batch >= workers:
        return
    yield (
        "batch",
        f"batch = {batch} is the global batch and less than workers = {settings['workers']}, so some workers would "
        f"never see a row. Set batch to {workers} or more, or use fewer workers.",
    )


def _slots(conf: Mapping[str, str], settings: Mapping[str, str]) -> Iterator[Fault]:
    workers, cpus = _bounds(settings.get("workers"))[0], _whole(conf.get("spark.task.cpus", "1")) or 1
    slots = _known_slots(conf, cpus)
    if workers is None or slots is None or workers <= slots:
        return
    master = conf.get("spark.master", "")
    larger = re.sub(r"\[\s*\d+", f"[{workers}", master) if "[" in master else f"local[{workers}]"
    remedy = f"Set workers={max(1, slots)}, or master={larger}." if slots else "Lower spark.task.cpus."
    per_task = f" of {cpus} cores" if cpus > 1 else ""
    yield (
        "slots",
        f"workers = {settings['workers']} must all run at once, and the master {master} has {slots} task "
        f"slot{'s' if slots != 1 else ''}{per_task}. {remedy}",
    )


def _known_slots(conf: Mapping[str, str], cpus: int) -> int | None:
    """Task slots of a master whose name says how many cores there are."""
    master = conf.get("spark.master", "")
    if cores := local_cores(master):
        return cores // cpus
    if found := _LOCAL_CLUSTER.fullmatch(master):
        return int(found.group(1)) * (int(found.group(2)) // cpus)
    return None


def _memory(conf: Mapping[str, str], _: Mapping[str, str]) -> Iterator[Fault]:
    master = conf.get("spark.master", "")
    local = master in ("", "local") or _LOCAL.fullmatch(master) is not None
    here = _host_memory()
    for key in ("spark.driver.memory", *(() if local else ("spark.executor.memory",))):
        text = conf.get(key)
        if text is None:
            continue
        size = _bytes(text)
        if size is None:
            yield (
                "memory",
                f"{key} is '{text}', which is no size. Write a whole number and a unit, such as 2g or 1500m.",
            )
        elif size < _LEAST_MEMORY:
            yield (
                "memory",
                f"{key} is {text}, and Spark starts with at least {_LEAST_MEMORY // _MIB}m. Set {key}=1g or more.",
            )
        elif here and size > here and (key == "spark.driver.memory" or "local" in master):
            yield (
                "memory",
                f"{key} is {text}, and this machine has {here // _MIB} MiB. Set {key}={max(1, here // _MIB // 4)}m or "
                "less.",
            )
    if found := _LOCAL_CLUSTER.fullmatch(master):
        yield from _cluster_memory(master, int(found.group(1)), int(found.group(3)), conf, here)


def _cluster_memory(
    master: str, workers: int, each_mib: int, conf: Mapping[str, str], here: int | None
) -> Iterator[Fault]:
    asked = _bytes(conf.get("spark.executor.memory", "1g"))
    if asked is not None and asked > each_mib * _MIB:
        told = conf.get("spark.executor.memory", "1g, Spark's default")
        yield (
            "memory",
            f"The master {master} gives each worker {each_mib} MiB, and spark.executor.memory is {told}: no executor "
            f"fits. Set the master's last number to {asked // _MIB} or more, or lower spark.executor.memory.",
        )
    elif asked is not None and here and workers * asked > here:
        yield (
            "memory",
            f"{workers} executors of {asked // _MIB} MiB are more than this machine's {here // _MIB} MiB. Use fewer "
            "executors, or a lower spark.executor.memory.",
        )


# They say how rows are read and kept, and not which they are, so they may stand beside any source (UnreadKeys.scala).
_OF_ANY_SOURCE = (
    "data.split_bytes",
    "data.cache_dir",
    "data.memory_limit",
    "data.on_error",
    "data.max_skipped",
    "data.test_rows",
)


def _unread(_: Mapping[str, str], settings: Mapping[str, str]) -> Iterator[Fault]:
    """A key of data sets that the run's own source does not read: it asks for other rows than those of the source."""
    known, source = catalogue.load(), settings.get("data.source", "")
    if known is None:
        return
    readers: dict[str, list[str]] = {}
    for each in known.variants["data"]:
        for key in each["keys"]:
            readers.setdefault(str(key["name"]), []).append(str(each["name"]))
    if not any(source in names for names in readers.values()):
        return
    for key in sorted(settings):
        own = readers.get(key, [source])
        if source in own or key in _OF_ANY_SOURCE or _same(settings[key], known.default(key)):
            continue
        yield (
            "settings",
            # In the JVM's words: `doctor` hears it from both.
            f"Configuration key '{key}' is '{settings[key]}', and the data source '{source}' does not read it: the run "
            "would have other rows than that asks for. Leave the key out, or set data.source to one that reads it: "
            f"{', '.join(own)}.",
        )


def _same(one: str, other: str) -> bool:
    """Whether two texts are one value: `10` and `+10`, `1` and `1.0`."""
    try:
        return float(one) == float(other)
    except ValueError:
        return one.strip().lower() == other.strip().lower()


_MODEL_FILES = ("model.spec", "model.initial_weights")


def _paths(_: Mapping[str, str], settings: Mapping[str, str]) -> Iterator[Fault]:
    for key in ("data.path", "data.test_path", *_MODEL_FILES):
        text = settings.get(key, "")
        if not text or any(mark in text for mark in "*?[{,"):
            continue
        path = local_path(text)
        if path is None:
            continue
        if not path.exists():
            yield "settings" if key in _MODEL_FILES else "data", _no_path(key, text, path)
        elif key not in _MODEL_FILES:
            header = settings.get("data.header", "false").lower() == "true"
            if said := datafiles.fault(settings.get("data.source", ""), path, f"'{text}' ({key})", header=header):
                yield "data", said
    resumed = local_path(settings.get("resume", "")) if settings.get("resume") else None
    if resumed is not None and (said := _no_checkpoint(resumed)):
        yield (
            "settings",
            f"There is no complete checkpoint in '{settings['resume']}' to resume from: {said} Name the folder that "
            "checkpoint.dir had in the run to continue, or the URI of another file system (hdfs://…).",
        )


def _no_checkpoint(folder: Path) -> str | None:
    """Why a folder has none, by its names alone (CheckpointStore.scala); what is damaged inside, the JVM finds."""
    if not folder.is_dir():
        return "there is no such folder on this host."
    try:
        steps = _steps(folder)
        if any((step / "manifest.json").is_file() for step in steps):
            return None
        if steps:
            # Of an earlier version, perhaps: the JVM reads the files, and says so.
            old = any(re.fullmatch(r"rank-\d+-of-\d+", file.name) for step in steps for file in step.iterdir())
            return None if old else f"no rank has written the last file of a step ({cut(steps[-1].name)})."
        below = sorted(each.name for each in folder.iterdir() if each.is_dir() and _steps(each))
    except OSError as error:
        return f"it cannot be read ({error.strerror})."
    held = f" Its sub-folder '{cut(below[0])}' does." if below else ""
    return f"it holds no folder step-….{held}"


def _steps(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if re.fullmatch(r"step-\d{1,18}", each.name) and each.is_dir())


def _no_path(key: str, text: str, path: Path) -> str:
    return (
        f"{key} is '{text}', and there is no such file or folder on this host.{near_file(path)} Set it with "
        f"--set {key}=PATH, or give the URI of another file system (hdfs://…)."
    )


def _results(_: Mapping[str, str], settings: Mapping[str, str]) -> Iterator[Fault]:
    """The results' folder, which the driver makes on this host: a run that cannot keep anything need not begin."""
    text = settings.get("results", "")
    if not text:
        return
    path = Path(text).absolute()
    there = next(each for each in (path, *path.parents) if each.exists())
    if not there.is_dir():
        yield "settings", f"results is '{text}', and '{there}' is a file. Name a folder with --set results=DIR."
    elif not os.access(there, os.W_OK | os.X_OK):
        yield (
            "settings",
            f"results is '{text}', and this user may not write to '{there}'. Name another folder with --set "
            "results=DIR.",
        )


def local_path(text: str) -> Path | None:
    """The path on this host that a text names; None for another file system, or where Hadoop's default may be one."""
    if text.startswith("file:"):
        return Path(unquote(urlsplit(text).path))
    if re.match(r"[A-Za-z][\w+.-]*:", text) or _has_default_file_system():
        return None
    return Path(text)


def _has_default_file_system() -> bool:
    """Whether Hadoop is configured here, so that a path without a scheme may belong to a cluster's file system."""
    return any(os.environ.get(name) for name in ("HADOOP_CONF_DIR", "HADOOP_HOME", "SPARK_CONF_DIR"))


def _engine(conf: Mapping[str, str], settings: Mapping[str, str]) -> Iterator[Fault]:
    import importlib.util

    name = settings.get("engine.name", "")
    master = conf.get("spark.master", "")
    own = settings.get("engine.python", "auto") == "auto" and not settings.get("engine.python_path")
    if name == "torch" and master.startswith("local") and own and importlib.util.find_spec("torch") is None:
        yield (
            "engine",
            "Engine torch computes with PyTorch in this Python, which has none. Install it (pip install "
            "'sparkdl-bench[torch]'), name another Python with engine.python, or use engine.name=libtorch, which "
            "needs nothing.",
        )


def _reach(conf: Mapping[str, str], _: Mapping[str, str]) -> Iterator[Fault]:
    """A master that nobody answers for: Spark itself would try for a minute and more, and then name something else."""
    master = conf.get("spark.master", "")
    hosts = _addresses(master)
    reasons = []
    for host, port in hosts:
        try:
            with socket.create_connection((host, port), timeout=_REACH_S):
                return
        except OSError as error:
            reasons.append(f"{host}:{port} ({_why(error)})")
    if reasons:
        yield (
            "master",
            f"The master {master} cannot be reached: {', '.join(reasons)}. Start it, or correct its host and port "
            "(--master); a firewall may be in between.",
        )


def _why(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "no host has this name"
    if isinstance(error, TimeoutError):
        return f"no answer within {_REACH_S:.0f} s"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    return error.strerror or str(error)


def _addresses(master: str) -> list[tuple[str, int]]:
    if master.startswith("spark://"):
        found = [each.rpartition(":") for each in master.removeprefix("spark://").split(",")]
        return [(host.strip("[]"), int(port)) for host, _, port in found if host and port.isdigit()]
    if master.startswith("k8s://"):
        address = master.removeprefix("k8s://")
        parts = urlsplit(address if "://" in address else f"https://{address}")
        try:
            return [(parts.hostname, parts.port or (80 if parts.scheme == "http" else 443))] if parts.hostname else []
        except ValueError:
            return []
    return []


def _host_memory() -> int | None:
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    found = re.search(r"MemTotal:\s+(\d+) kB", text)
    return int(found.group(1)) * 1024 if found else None


def _bytes(text: str) -> int | None:
    """As Spark reads sizes of memory: without a unit, MiB."""
    found = re.fullmatch(r"(\d+)([kmgtp]?)b?", text.strip().lower())
    if found is None:
        return None
    return int(found.group(1)) * (_UNITS[found.group(2)] if found.group(2) else _MIB)


def _bounds(text: str | None) -> list[int | None]:
    """Of a number of workers: it alone, or the bounds of a range of them (`2..8`)."""
    return [_whole(part.strip()) for part in text.split("..")] if text else [None]


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"\d+", text) else None
