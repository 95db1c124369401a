"""The way to the JVM: the only module that knows py4j. It sees one class, `sparkdlbench.PythonApi`, and JDK types."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import IO, Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from sparkdl_bench import gateway, signals, spark_install
from sparkdl_bench.errors import ConfigurationError, DivergedError, RunFailedError, SparkDLError
from sparkdl_bench.files import written

_API_CLASS = "sparkdlbench.PythonApi"
_ERRORS: dict[str, type[SparkDLError]] = {
    "sparkdlbench.common.ConfigurationException": ConfigurationError,
    "sparkdlbench.common.RunFailedException": RunFailedError,
    "sparkdlbench.common.DivergedException": DivergedError,
}
# Set to 1: errors are raised from the JVM's, whose stack Python then prints.
DEBUG_VARIABLE = "SPARKDL_DEBUG"
# For a JVM that was killed until its process is seen to be gone.
_END_SECONDS = 2.0
_WAITING_SECONDS = 10.0


class Api:
    """`sparkdlbench.PythonApi` with Python types. Errors of the JVM arrive as this package's own."""

    def __init__(self, jvm: Any) -> None:
        self._api = jvm.sparkdlbench.PythonApi

    def version(self) -> str:
        return str(self._call("version"))

    def build_facts(self) -> dict[str, Any]:
        """`version`, `spark_line`, `scala` and `commit` of the jar."""
        return self._object("buildFacts")

    def axes(self) -> list[str]:
        """What there are variants of, in order."""
        return [str(axis) for axis in json.loads(self._call("axes"))]

    def variants(self, axis: str) -> list[dict[str, Any]]:
        """The variants of an axis: `name`, `doc`, and `keys` with `name`, `default`, `valid`, `doc` each."""
        return self._list("variants", axis)

    def all_keys(self) -> list[dict[str, Any]]:
        """Every configuration key: `name`, `default`, `valid`, `doc`."""
        return self._list("keys")

    def check(self, settings: Mapping[str, str]) -> None:
        """Raises ConfigurationError for an unknown key or a value that is not valid. Needs no Spark session."""
        self._call("check", dict(settings))

    def check_spark(self, properties: Mapping[str, str]) -> None:
        """Raises ConfigurationError where a session with these Spark properties could not have its shuffle manager."""
        self._call("checkSpark", dict(properties))

    def doctor_before_start(self, properties: Mapping[str, str], settings: Mapping[str, str]) -> list[dict[str, Any]]:
        """What would go wrong in a session with these properties: `check` and `message` each. Needs no session."""
        return self._list("doctorBeforeStart", dict(properties), dict(settings))

    def doctor_session(self, settings: Mapping[str, str]) -> list[dict[str, Any]]:
        """What would go wrong with a run in the session that is there."""
        return self._list("doctorSession", dict(settings))

    def decoding(self) -> dict[str, Any]:
        """The decoding that `start` waits for: `source`, `done`, `parts`, `rows`; empty where there is none."""
        return self._object("decoding")

    def cancel_decoding(self) -> None:
        self._call("cancelDecoding")

    def start(self, settings: Mapping[str, str]) -> str:
        """Checks session and data, then starts the run in the background; returns the run's id."""
        return str(self._call("start", dict(settings)))

    def poll(self, run_id: str) -> dict[str, Any]:
        """The run's state and progress now."""
        return self._object("poll", run_id)

    def wait(self, run_id: str, millis: int) -> dict[str, Any]:
        """As `poll`, after the state or the step has changed or `millis` milliseconds have passed."""
        return self._object("await", run_id, millis)

    def net(self, settings: Mapping[str, str]) -> list[dict[str, Any]]:
        """All-reduces timed in the session, one object a size; the `net.` keys say which."""
        return self._list("net", dict(settings))

    def net_refusal(self, settings: Mapping[str, str]) -> str:
        """Why these settings have no all-reduce to time; empty where they have. Needs no session."""
        return str(self._call("netRefusal", dict(settings)))

    def statistics(self, settings: Mapping[str, str]) -> dict[str, Any]:
        """One pass over a data set: moments of each value, rows by class, and the `folder` that holds the same."""
        return self._object("statistics", dict(settings))

    def load_data(self, settings: Mapping[str, str], samples: int, memory: bool) -> dict[str, Any]:
        """How the executors load a data set: `samples_ms`, `prepare_ms`, `peak_bytes`, `held_bytes`, `rows`."""
        return self._object("loadData", dict(settings), samples, memory)

    def cancel(self, run_id: str) -> None:
        self._call("cancel", run_id)

    def forget(self, run_id: str) -> None:
        """Lets the JVM drop a finished run and its weights."""
        self._call("forget", run_id)

    def feed(self, settings: Mapping[str, str]) -> dict[str, Any]:
        """Decodes a set for a loop of the user's own: `settings`, `rows`, `shape`, `classes`, `identity`."""
        return self._object("feed", dict(settings))

    def launch_slots(self) -> int:
        """How many ranks of a launch can run at once on the executors that have registered."""
        return int(self._call("launchSlots"))

    def launch_open(self, launch_id: str) -> None:
        """From now on the ranks of this launch may meet and tell. ConfigurationError where there is one of this id."""
        self._call("launchOpen", launch_id)

    def launch_messages(self, launch_id: str, millis: int) -> list[dict[str, Any]]:
        """What ranks have told since the last call: `rank`, `host`, `attempt`, `kind`, `payload` each.

        Waits up to `millis` milliseconds for the first. Of kind `dropped`, `payload["count"]` of that rank's messages
        found no room.
        """
        return self._list("launchMessages", launch_id, millis)

    def launch_close(self, launch_id: str) -> None:
        """Ends a launch: its ranks meet no more, and what they tell is dropped."""
        self._call("launchClose", launch_id)

    def transport_line(self, run_id: str) -> str:
        """Which transport `transport=auto` chose and why, as one line; empty where the user named one."""
        return str(self._call("transportLine", run_id))

    def warning(self, run_id: str) -> str:
        """Where a finished run's results are in place of their folder; empty where all is well."""
        return str(self._call("warning", run_id))

    def save_models(self, run_id: str) -> Path:
        """Writes the model of a finished run, and the best one where it was kept; returns the model's folder."""
        return Path(str(self._call("saveModels", run_id)))

    def best_weights(self, run_id: str, path: str) -> bool:
        """As `weights`, of the best evaluation; False and no file where `keep_best` was off."""
        return bool(self._call("bestWeights", run_id, path))

    def weights(self, run_id: str, path: str) -> list[dict[str, Any]]:
        """Writes the weights to `path` as flat little-endian fp32.

        Returns:
            `name`, `shape` and `offset` (in values) of each parameter.
        """
        return self._list("weights", run_id, path)

    def model(self, settings: Mapping[str, str], shape: Sequence[int], classes: int) -> dict[str, Any]:
        """The specification of the model that a run with these settings trains on such rows. Needs no session."""
        return self._object("model", dict(settings), ",".join(str(size) for size in shape), classes)

    def model_input(self, run_id: str) -> dict[str, Any]:
        """How a finished run's rows became the model's, as in `input.json` of a saved model."""
        return self._object("modelInput", run_id)

    def transform(
        self, folder: str, view: str, result: str, columns: Sequence[str], settings: Mapping[str, str]
    ) -> None:
        """Makes the view `result` of the view `view`, with the predictions of the model in the folder."""
        self._call("transform", folder, view, result, list(columns), dict(settings))

    def scores(self, folder: str, rows: str, scores: str) -> None:
        """Writes to the file `scores` what the model in the folder makes of the file `rows`, both flat fp32."""
        self._call("scores", folder, rows, scores)

    def model_spec(self, run_id: str) -> dict[str, Any]:
        return self._object("modelSpec", run_id)

    def _object(self, method: str, *arguments: Any) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self._call(method, *arguments))
        return value

    def _list(self, method: str, *arguments: Any) -> list[dict[str, Any]]:
        value: list[dict[str, Any]] = json.loads(self._call(method, *arguments))
        return value

    def _call(self, method: str, *arguments: Any) -> Any:
        return translated(lambda: getattr(self._api, method)(*arguments))


def start(properties: Mapping[str, str], jvm_log: IO[bytes] | None = None, inherited: tuple[int, ...] = ()) -> Any:
    """Starts the driver's JVM, without a Spark context, or finds the one that spark-submit started.

    Args:
        properties: what the JVM is started with, for messages; it reads them from the file of `submit.handed_over`.
        jvm_log: an open file for what the JVM writes to standard error; None: this process's standard error.
        inherited: file descriptors that the JVM needs.
    """
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError

    # pyspark keeps its JVM in these two attributes; there is no public way to start one before the Spark context.
    holder: Any = SparkContext
    if holder._gateway is None:
        signals.starts_processes()
        _quiet_py4j()
        try:
            launched = gateway.launch(jvm_log, inherited)
        except (gateway.GatewayError, PySparkRuntimeError, OSError) as error:
            ended = not isinstance(error, gateway.GatewayError) or isinstance(error, gateway.EndedError)
            raise ConfigurationError(
                _too_old(jvm_log)
                or f"The JVM for Spark (master {properties.get('spark.master', 'not set')!r}) did not start: "
                f"{(_reason(jvm_log) if ended else '') or error}. Check the Spark properties; Spark needs JDK "
                f"{spark_install.MIN_JAVA} or newer, and JAVA_HOME is {os.environ.get('JAVA_HOME', '')!r}."
            ) from error
        holder._gateway, holder._jvm = launched, launched.jvm
    jvm = holder._jvm
    _check_java(jvm)
    return jvm


def is_stopped(spark: Any) -> bool:
    """True for a classic session whose Spark context has ended, by Python or in the JVM."""
    context = getattr(spark.sparkContext, "_jsc", None)
    return context is None or bool(context.sc().isStopped())


def in_another_thread(call: Callable[[], Any], waiting: Callable[[], None] = lambda: None) -> Any:
    """Calls in another thread and waits: pyspark then leaves Ctrl-C to this command, and no signal interrupts py4j.

    Args:
        waiting: called every ten seconds of the wait.
    """
    if not signals.installed() or threading.current_thread() is not threading.main_thread():
        return call()
    future: Future[Any] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name="sparkdl-session", daemon=True).start()
    while not wait([future], _WAITING_SECONDS).done:
        waiting()
    return future.result()


def has_ended(patience: float = 0.0) -> bool:
    """True where the JVM that this process started is gone.

    Args:
        patience: seconds that one may take to end which does not answer any more.
    """
    return _status(patience) is not None


def _status(patience: float) -> int | None:
    """The exit status of the JVM's process; None while it runs, or where another program started it."""
    from pyspark import SparkContext

    holder: Any = SparkContext
    process = getattr(holder._gateway, "proc", None)
    if process is None:
        return None
    deadline = time.monotonic() + patience
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    status: int | None = process.poll()
    return status


def _why_ended() -> str:
    status = _status(_END_SECONDS)
    if status is None:
        return "The driver's JVM does not answer any more."
    if status >= 0:
        return f"The driver's JVM has ended with status {status}."
    name = signal.Signals(-status).name
    memory = " perhaps for want of memory (spark.driver.memory, or the host's)" if -status == signal.SIGKILL else ""
    return f"The driver's JVM was killed by signal {-status} ({name}){',' if memory else ''}{memory}."


def _quiet_py4j() -> None:
    """What it complains of comes as an error, too; it writes to its own logger and to the root logger."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(lambda record: "py4j" not in Path(record.pathname).parts)


def jvm_of(spark: Any) -> Any:
    """The JVM behind a classic Spark session."""
    return spark.sparkContext._jvm


def is_running() -> bool:
    """True where this process has a driver JVM already, whose class path can no longer be changed."""
    from pyspark import SparkContext

    return getattr(SparkContext, "_gateway", None) is not None


def running() -> Any:
    """The JVM that this process has."""
    from pyspark import SparkContext

    return SparkContext._jvm


def system_property(jvm: Any, name: str) -> str:
    """A system property of a JVM; empty where it has none of that name."""
    return str(jvm.java.lang.System.getProperty(name) or "")


def spark_properties(jvm: Any) -> dict[str, str]:
    """The Spark properties that a JVM was started with, which every new Spark context of it begins with."""
    return {pair._1(): pair._2() for pair in jvm.org.apache.spark.SparkConf(True).getAll()}


def has_api(jvm: Any) -> bool:
    """True where the JVM can load this package's classes."""
    # py4j cannot load a class that is not there, and then takes its name for a package.
    return type(jvm.sparkdlbench.PythonApi).__name__ == "JavaClass"


def translated(call: Callable[[], Any]) -> Any:
    """Calls, and raises what the JVM throws as this package's errors.

    The Java error is their `jvm_error`; it is their cause as well, which Python prints with its stack, where the
    environment variable SPARKDL_DEBUG is 1.
    """
    try:
        return call()
    except Py4JJavaError as error:
        raised = _translate(error)
        raised.jvm_error = error
        raise raised from (error if os.environ.get(DEBUG_VARIABLE) == "1" else None)
    except (Py4JNetworkError, ConnectionError) as error:
        raise RunFailedError(_why_ended()) from error
    except Py4JError as error:
        if has_ended(_END_SECONDS):
            raise RunFailedError(_why_ended()) from error
        raise SparkDLError(
            f"The jar and the Python package of sparkdl-bench do not fit: {error}. Install both from one version."
        ) from error


def is_linkage_error(error: SparkDLError) -> bool:
    """True where the JVM could not link classes: a jar made for another Scala or Spark."""
    cause = error.jvm_error
    return isinstance(cause, Py4JJavaError) and any(
        name.startswith("java.lang.") and name.endswith("Error") for name, _ in _chain(cause.java_exception)
    )


def _translate(error: Py4JJavaError) -> SparkDLError:
    chain = _chain(error.java_exception)
    for name, message in chain:
        if name in _ERRORS:
            return _ERRORS[name](message)
    name, message = chain[-1]
    first = message.strip().splitlines()[0] if message.strip() else "no message"
    return SparkDLError(
        f"The JVM failed with {name}: {first}. Its stack is shown with --debug, in Python with "
        f"{DEBUG_VARIABLE}=1 in the environment."
    )


def _chain(exception: Any) -> list[tuple[str, str]]:
    """Class name and message of a Java exception and of its causes, outermost first."""
    chain: list[tuple[str, str]] = []
    while exception is not None and len(chain) < 20:
        chain.append((str(exception.getClass().getName()), str(exception.getMessage() or "")))
        exception = exception.getCause()
    return chain


def _check_java(jvm: Any) -> None:
    version = str(jvm.java.lang.System.getProperty("java.specification.version"))
    if int(version.split(".")[0]) < spark_install.MIN_JAVA:
        raise ConfigurationError(
            f"Spark runs on Java {version} ({jvm.java.lang.System.getProperty('java.home')}); sparkdl-bench needs JDK "
            f"{spark_install.MIN_JAVA} or newer. Set JAVA_HOME to one."
        )


def _too_old(log: IO[bytes] | None) -> str:
    """What to say where Java could not load Spark's classes; else nothing."""
    said = written(log) if log else ""
    if "UnsupportedClassVersionError" not in said:
        return ""
    java = os.environ.get("JAVA_HOME") or "on the PATH"
    return (
        f"The Java that Spark found ({java}) is older than JDK {spark_install.MIN_JAVA}, which Spark's classes need. "
        "Set JAVA_HOME to a newer one."
    )


def _reason(log: IO[bytes] | None) -> str:
    """The line of the JVM's log that says why it ended: an exception's, or the last one."""
    if log is None:
        return ""
    lines = written(log).strip().splitlines()
    exceptions = [line for line in lines if "Exception" in line or "Error:" in line]
    reason = exceptions[0] if exceptions else lines[-1] if lines else ""
    return re.sub(r'^Exception in thread "[^"]*" [\w.$]+: ', "", reason.strip()).rstrip(".")
