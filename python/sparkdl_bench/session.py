"""Spark sessions that can train: the settings that they need, and the check of a session that a user brings."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from sparkdl_bench import _jvm, class_archive, preflight, profiles, signals, spark_install, submit
from sparkdl_bench.config import ENGINE_PROPERTY
from sparkdl_bench.errors import ConfigurationError, SparkDLError
from sparkdl_bench.frames import is_local
from sparkdl_bench.jarfiles import PLUGIN_CLASS, SCALA_OF_LINE, Jars, configuration_folder, find_jars, spark_line
from sparkdl_bench.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOPBACK = "127.0.0.1"
MANAGER_KEY = "spark.shuffle.manager"
_DELEGATE_KEY = "spark.sparkdl.shuffle.delegate"
SORTING_MANAGER = "org.apache.spark.sparkdlbench.SparkDLShuffleManager"
_DELEGATING_MANAGER = "org.apache.spark.sparkdlbench.SparkDLDelegatingShuffleManager"

# What keeps the resident memory of a local session flat while Spark runs two jobs per step (docs/performance.md).
# Arrays of half a region and more go to the old generation, and slices of a few megabytes should not; and a collector
# that may use half of the time does not ask for more heap because the machine was busy. And what the JIT compilers have
# freed goes back to the system instead of staying in the C library (Java 17.0.9 and later). What the user set stays.
_MEMORY_OPTIONS = (
    "-XX:G1HeapRegionSize=4m -XX:GCTimeRatio=1 -XX:+IgnoreUnrecognizedVMOptions -XX:TrimNativeHeapInterval=20000"
)
# A driver whose executors exchange among themselves allocates so little that minutes pass before its first collection,
# and until then each object lies on a new page.
_DRIVER_OPTIONS = "-XX:G1PeriodicGCInterval=15000"
_LOCAL_SETTINGS = {
    # The JIT compilers' threads allocate and free megabytes, which the C library would keep in an arena a thread.
    "spark.executorEnv.MALLOC_ARENA_MAX": "2",
    # The driver allocates whole blocks for every broadcast, and every stage broadcasts its task.
    "spark.broadcast.blockSize": "256k",
}
# Log4j's own.
_LOG_VARIABLE = "LOG4J_CONFIGURATION_FILE"
_ENGINE_PYTHON = "spark.sparkdl.engine.python"
_ENGINE_PATH = "spark.sparkdl.engine.pythonPath"
# Nobody looks at finished jobs where Spark's own page is off.
_WITHOUT_PAGE = {"spark.ui.retainedJobs": "50", "spark.ui.retainedStages": "50", "spark.ui.retainedTasks": "1000"}


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Adds what training needs to a session builder, and keeps what the user has set: in the builder, on the command
    line of spark-submit, or in spark-defaults.conf. Where both have a list (plugins, jars, class paths), it is joined.

    Call it before the first Spark session of the process starts, because the driver's class path is fixed from then on:
    `spark = sparkdl_bench.configure(SparkSession.builder.master("local-cluster[2,1,2048]")).getOrCreate()`.

    With a local master, Spark also listens on the loopback device alone (environment variable SPARK_LOCAL_IP). Its page
    (`spark.sparkContext.uiWebUrl`) has a tab *Training*.

    Under `spark-submit --packages` the jars of native code need not be on this host: the JVM that runs already has its
    own, and every executor is sent them.

    Raises:
        ConfigurationError: what the builder names is no Spark master, Spark is not supported, jars are missing, or the
            process runs a JVM without our jar already.
    """
    import pyspark

    held = _jvm.is_running()
    _check_master(builder, held)
    jars = find_jars(pyspark.__version__, natives=not held)
    if held:
        _check_api(_jvm.running(), jars.line)
    else:
        spark_install.check(pyspark.__version__)
    options = {**standing_options(), **{name: str(value) for name, value in _options(builder).items()}}
    settings = session_settings(jars, options, bring=bool(jars.dependencies), page=True)
    _bind_loopback(settings)
    for name, value in settings.items():
        if options.get(name) != value:
            builder = builder.config(name, value)
    return builder


def _check_master(builder: SparkSession.Builder, held: bool) -> None:
    """Refuses what is no master, of which Spark would speak in a stack trace of Java's.

    Args:
        held: whether a JVM is there already. It has a master that works, so only what the builder adds is looked at.
    """
    master = _options(builder).get("spark.master", None if held else standing_options().get("spark.master"))
    if master is None or (held and not preflight.is_malformed(str(master))):
        return
    try:
        preflight.check_master(str(master), reach=False)
    except ConfigurationError as error:
        here = 'Set it in the builder: SparkSession.builder.master("local[4]").'
        raise ConfigurationError(str(error).replace("Set it with --master.", here)) from None


def standing_options() -> dict[str, str]:
    """What Spark takes where a session's builder is silent.

    That is what spark-submit gave the JVM that runs already, or else spark-defaults.conf and, before it, the `--conf`
    options in the environment variable PYSPARK_SUBMIT_ARGS.
    """
    if _jvm.is_running():
        return _jvm.spark_properties(_jvm.running())
    words = submit.words()
    defaults = configuration_folder() / "spark-defaults.conf"
    files = [defaults] if words.file is None else [defaults, words.file] if words.defaults_too else [words.file]
    standing: dict[str, str] = {}
    for file in files:
        standing.update(_of_file(file))
    return {**standing, **words.properties}


def _of_file(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    try:
        text = path.read_text(encoding="utf-8")
        return {name: value for name, value, _ in profiles.properties(text) if name.startswith("spark.")}
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"Spark's configuration file {path} cannot be read: {error}. Fix it, or name another folder in the "
            "environment variable SPARK_CONF_DIR."
        ) from error


def session_settings(
    jars: Jars, options: Mapping[str, str], *, bring: bool = True, page: bool = False
) -> dict[str, str]:
    """The user's Spark options with ours merged in.

    A local master finds the jars on the class path, where they are: `spark.jars` would copy all of them for every
    executor of every run. Any other master is sent them; Spark 3.5 also wants them on the executors' class path, since
    it makes its shuffle manager before it fetches jars, so there they must lie at the same path on every host.

    Args:
        jars: of this host.
        options: the user's.
        bring: whether the session is to have the jars from here; False where it has all of them from elsewhere. Ours on
            the class path would hide those: its class loader does not see jars that Spark fetches.
        page: whether somebody may look at Spark's own page, with its tab *Training*; where not, it is off.
    """
    settings = dict(options)
    paths = [str(path) for path in [*(jars.all if bring else []), *_engine_jars(jars, options)]]
    local = is_local(options.get("spark.master", ""))
    if local or jars.line == "3.5":
        _merge(settings, "spark.executor.extraClassPath", paths, os.pathsep)
    if local:
        _merge(settings, "spark.driver.extraClassPath", paths, os.pathsep)
        settings.setdefault("spark.driver.host", _LOOPBACK)
        settings.setdefault("spark.driver.bindAddress", _LOOPBACK)
        if not page:
            settings.setdefault("spark.ui.enabled", "false")
        unseen = _WITHOUT_PAGE if settings.get("spark.ui.enabled", "true").lower() == "false" else {}
        # Spark 4.1's own choice where it can; sockets of native epoll alone can be told how to control congestion.
        epoll = {"spark.shuffle.io.mode": "EPOLL"} if jars.line == "3.5" and _has_native_epoll() else {}
        ours = {**_LOCAL_SETTINGS, **unseen, **epoll, **_own_python(), **_java_options(settings)}
        settings.update({name: value for name, value in ours.items() if name not in settings})
    else:
        _merge(settings, "spark.jars", paths, ",")
    # What Spark 3.5 makes before it fetches jars is on the class path or nowhere.
    early = bring or jars.line != "3.5"
    if early and jars.holds_class(PLUGIN_CLASS):
        _merge(settings, "spark.plugins", [PLUGIN_CLASS], ",")
    # From Spark 4 on the plugin itself wraps the shuffle manager. A cluster of Spark 3.5 must be told by hand: its
    # executors do not start where the jar is not at this path on their hosts.
    if bring and local and jars.line == "3.5" and jars.holds_class(SORTING_MANAGER):
        _wrap_shuffle_manager(settings)
    return settings


def _java_options(settings: Mapping[str, str]) -> dict[str, str]:
    """Options of a local session's JVMs; with the classes of a run where they were archived for this class path."""
    paths = {settings.get(key, "") for key in class_archive.CLASS_PATH_KEYS}
    archived = class_archive.java_option(*paths) if len(paths) == 1 else ""
    options = f"{_MEMORY_OPTIONS} {archived}".strip()
    of_driver, of_executor = class_archive.JAVA_OPTIONS_KEYS
    return {of_driver: f"{_DRIVER_OPTIONS} {options}", of_executor: options}


def _own_python() -> dict[str, str]:
    """Engines that are Python processes compute with this one, and with the package as it is here: executors of this
    host know neither."""
    folder = Path(__file__).resolve().parents[1]
    installed = folder.name in ("site-packages", "dist-packages")
    return {_ENGINE_PYTHON: sys.executable, **({} if installed else {_ENGINE_PATH: str(folder)})}


def _has_native_epoll() -> bool:
    """Whether the library that Spark 3.5 brings loads here: built for Linux with the GNU C library, on two machines."""
    return platform.libc_ver()[0] == "glibc" and platform.machine() in ("x86_64", "aarch64")


def _engine_jars(jars: Jars, options: Mapping[str, str]) -> list[Path]:
    """What the session's engine needs besides our jars. BigDL is for Spark 3.5 alone: elsewhere the JVM says so."""
    from sparkdl_bench import peers

    engine = options.get(ENGINE_PROPERTY, "")
    return peers.engine_jars(engine) if engine and jars.line == "3.5" else []


def check_session(spark: Any) -> _jvm.Api:
    """Checks that a session can train, and returns the way to its JVM.

    Raises:
        ConfigurationError: a Spark Connect session, one that is stopped, an unsupported Spark, no jar (the message has
            the lines to add), or a jar made for another Spark.
    """
    if not is_connect(spark) and not hasattr(spark, "sparkContext"):
        raise ConfigurationError(
            f"The session is a {type(spark).__name__}, and must be a SparkSession, such as "
            'sparkdl_bench.configure(SparkSession.builder.master("local-cluster[2,1,2048]")).getOrCreate().'
        )
    if is_connect(spark):
        raise ConfigurationError(
            "This is a Spark Connect session, which has no JVM that sparkdl-bench could call. Use a classic session: "
            "SparkSession.builder.master(...) in place of .remote(...), without the environment variable SPARK_REMOTE "
            "and with spark.api.mode=classic."
        )
    if _jvm.is_stopped(spark):
        raise ConfigurationError(
            "This Spark session is stopped (spark.stop()), so nothing can train in it. Start a new one, "
            'spark = sparkdl_bench.configure(SparkSession.builder.master("local-cluster[2,1,2048]")).getOrCreate(), '
            "and hand in that one."
        )
    line = spark_line(spark.version)
    jvm = _jvm.jvm_of(spark)
    _check_api(jvm, line)
    api = _jvm.Api(jvm)
    try:
        facts = api.build_facts()
    except SparkDLError as error:
        if _jvm.is_linkage_error(error):
            raise ConfigurationError(_wrong_line(spark.version, line, "another Scala version")) from error
        raise
    if facts["spark_line"] != line:
        raise ConfigurationError(
            _wrong_line(spark.version, line, f"Spark {facts['spark_line']} (Scala {facts['scala']})")
        )
    return api


def is_connect(spark: Any) -> bool:
    """True for a session of Spark Connect, on every supported Spark."""
    is_remote = getattr(spark, "is_remote", None)
    return type(spark).__module__.startswith("pyspark.sql.connect") or (callable(is_remote) and is_remote() is True)


def check_installed(*, natives: bool = True) -> Jars:
    """The jars that a session needs; refuses, without a JVM, what is not there, and a Spark or Java that does not fit.

    Args:
        natives: whether the jars of native code must be there.
    """
    import pyspark

    jars = find_jars(pyspark.__version__, natives=natives)
    spark_install.check(pyspark.__version__)
    return jars


def start_jvm(
    options: Mapping[str, str], jvm_log: IO[bytes] | None = None, *, natives: bool = True
) -> tuple[_jvm.Api, dict[str, str]]:
    """Starts the driver's JVM for the command line, without a Spark context.

    Args:
        options: Spark properties of the run.
        jvm_log: where the JVM's standard error goes.
        natives: whether the jars of native code must be there.

    Returns:
        the way to the JVM, and the Spark properties with ours merged in.

    Raises:
        ConfigurationError: what is named is no Spark master, or the installation is not fit.
    """
    asked = {"spark.ui.showConsoleProgress": "false", **standing_options(), **options}
    if "spark.master" in asked:
        preflight.check_master(asked["spark.master"], reach=False)
    jars = check_installed(natives=natives)
    settings = session_settings(jars, asked)
    _bind_loopback(settings)
    with _quiet_logs(), submit.handed_over(settings) as inherited:
        jvm = _jvm.start(settings, jvm_log, inherited)
    _check_api(jvm, jars.line)
    return _jvm.Api(jvm), settings


@contextmanager
def open_session(settings: Mapping[str, str], tell: Callable[[str], None] = lambda _: None) -> Iterator[SparkSession]:
    """A Spark session with these properties, stopped at the end. Where it cannot start: a ConfigurationError.

    Args:
        tell: called with what it does: at the start, and every ten seconds until it has started.
    """
    from pyspark.sql import SparkSession

    tell(f"starting Spark ({settings.get('spark.master', 'the master of its own configuration')})")
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        spark = _jvm.translated(
            lambda: _jvm.in_another_thread(builder.getOrCreate, lambda: tell("Spark is still starting"))
        )
    except SparkDLError as error:
        if not _jvm.has_ended():
            raise ConfigurationError(
                f"Spark did not start with master {settings.get('spark.master', 'of its own configuration')!r}. "
                f"{_not_taken(str(error), settings)} Check the master and the Spark properties: --master, "
                "--set spark.…, the [spark] table of a run file, spark-defaults.conf."
            ) from error
        raise
    try:
        yield spark
    finally:
        # A JVM that has ended has no session, and that of an interrupted command ends with it.
        if signals.number() is None and not _jvm.has_ended():
            spark.stop()


def _not_taken(error: str, settings: Mapping[str, str]) -> str:
    """What the user is told; Spark says no more than that its context was stopped where no master took it."""
    if "stopped SparkContext" not in error:
        return error
    authenticate = settings.get("spark.authenticate", "false (its default)")
    return (
        "The master did not take the application: it cannot be reached, or its processes and this session differ in "
        f"spark.authenticate ({authenticate} here), its secret, or spark.network.crypto.enabled."
    )


def _check_api(jvm: Any, line: str) -> None:
    if not _jvm.has_api(jvm):
        raise ConfigurationError(_missing_jar(line))


def _missing_jar(line: str) -> str:
    artifact = f"io.github.sparkdl-bench:sparkdl-bench-spark-{line}_{SCALA_OF_LINE[line]}:{__version__}"
    return (
        "This Spark session has no jar of sparkdl-bench. Start Python anew and build the session, before any other, "
        "with these lines:\n"
        "    import sparkdl_bench\n"
        "    spark = sparkdl_bench.configure(SparkSession.builder).getOrCreate()\n"
        "or, where spark-submit starts Python, give it this line:\n"
        f"    --packages {artifact}"
    )


def _wrong_line(version: str, line: str, made_for: str) -> str:
    return (
        f"The jar of sparkdl-bench in this session is made for {made_for}, and Spark is {version}. In spark.jars, "
        f"--jars and the class paths, put sparkdl-bench-spark-{line}_{SCALA_OF_LINE[line]}-{__version__}.jar in its "
        "place, or let sparkdl_bench.configure(builder) choose."
    )


def _options(builder: SparkSession.Builder) -> dict[str, Any]:
    return dict(getattr(builder, "_options", {}))


def _merge(settings: dict[str, str], name: str, values: list[str], separator: str) -> None:
    if not values:
        return
    present = [value for value in settings.get(name, "").split(separator) if value]
    settings[name] = separator.join(present + [value for value in values if value not in present])


def _wrap_shuffle_manager(settings: dict[str, str]) -> None:
    own = settings.get(MANAGER_KEY, "sort")
    if own in (SORTING_MANAGER, _DELEGATING_MANAGER):
        return
    if own in ("sort", "tungsten-sort", "org.apache.spark.shuffle.sort.SortShuffleManager"):
        settings[MANAGER_KEY] = SORTING_MANAGER
    else:
        settings[MANAGER_KEY] = _DELEGATING_MANAGER
        settings[_DELEGATE_KEY] = own


def _bind_loopback(settings: Mapping[str, str]) -> None:
    # Master and workers of a local-cluster read the environment alone.
    if is_local(settings.get("spark.master", "")) and settings.get("spark.driver.host") == _LOOPBACK:
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """Lets the JVM start with this package's log configuration where the user has none.

    Not by SPARK_CONF_DIR: that folder would stand in the class path, and an archive of classes ends there.
    """
    home = os.environ.get("SPARK_HOME")
    users = [os.environ.get(name) for name in ("SPARK_CONF_DIR", _LOG_VARIABLE)]
    if any(users) or (home and (Path(home) / "conf").is_dir()):
        yield
        return
    os.environ[_LOG_VARIABLE] = str(Path(__file__).resolve().parent / "conf" / "log4j2.properties")
    try:
        yield
    finally:
        del os.environ[_LOG_VARIABLE]
