"""Looks at a session, or at what a session would be, before a run: what would go wrong, and what to do about it.

The rules are the JVM's (`sparkdlbench.doctor`), those of a run among them; those for which there need be no JVM are in
`catalogue` and `preflight`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from sparkdl_bench import catalogue, exports, preflight, session, spark_properties
from sparkdl_bench.config import RunFile
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.progress import tell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Finding:
    """Something that would go wrong: what was looked at, and one paragraph with its remedy."""

    check: str
    message: str

    def to_dict(self) -> dict[str, str]:
        return {"check": self.check, "message": self.message}


def examine(run: RunFile, jvm_log: IO[bytes] | None = None, *, start: bool = True) -> list[Finding]:
    """Everything that would keep a run from working well, or from working.

    Args:
        jvm_log: where the JVM's standard error goes.
        start: whether to start a JVM, for the rules that are its own, and then, where nothing was found, the Spark
            session, to look at its executors too.
    """
    # A name that is only doubted keeps no session from starting.
    doubted = [Finding("properties", message) for message in spark_properties.doubts(run.spark)]
    return [*doubted, *_examine(run, jvm_log, start)]


def _examine(run: RunFile, jvm_log: IO[bytes] | None, start: bool) -> list[Finding]:
    wrong = _wrong_settings(run)
    seen = [Finding(check, message) for check, message in preflight.faults(run)]
    known = [*(Finding("settings", message) for message in wrong.values()), *seen]
    if not start or preflight.is_malformed(run.spark.get("spark.master", "local")):
        return [*known, *_installation()]
    try:
        tell("starting the driver's JVM")
        api, spark_settings = session.start_jvm({"spark.app.name": "sparkdl-bench doctor", **run.session}, jvm_log)
    except ConfigurationError as error:
        return [*known, Finding("installation", str(error))]
    # Without what is known to be wrong, the JVM tells what else is.
    right = {key: value for key, value in run.settings.items() if key not in wrong}
    told = _findings(api.doctor_before_start(spark_settings, right))
    found = [*known, *(each for each in told if each.message not in {one.message for one in known})]
    # A session with such properties might not start, or start wrongly.
    if found:
        return found
    try:
        with session.open_session(spark_settings, tell) as spark:
            tell("looking at the session and its executors")
            return examine_session(spark, run.settings)
    except ConfigurationError as error:
        return [Finding("session", str(error))]


def _installation() -> list[Finding]:
    try:
        session.check_installed()
    except ConfigurationError as error:
        return [Finding("installation", str(error))]
    return []


def _wrong_settings(run: RunFile) -> dict[str, str]:
    """By key, every key and value that is wrong by itself; what the JVM alone knows is none of them."""
    known = catalogue.load()
    return known.faults(run.settings) if known else {}


def examine_session(spark: SparkSession, settings: Mapping[str, str] | None = None) -> list[Finding]:
    """The same for a session of the user's own.

    Args:
        settings: keys of the run that it is for; the defaults hold for others.
    """
    try:
        api = session.check_session(spark)
    except ConfigurationError as error:
        return [Finding("installation", str(error))]
    properties = dict(spark.sparkContext.getConf().getAll())
    # Its ports are taken by itself. Its settings and its shuffle manager are looked at again, with the executors there.
    before = [
        finding
        for finding in _findings(api.doctor_before_start(properties, settings or {}))
        if finding.check not in ("ports", "settings", "shuffle-manager")
    ]
    with exports.for_jvm(settings or {}) as readable:
        found = [*before, *_findings(api.doctor_session(readable))]
    return list(dict.fromkeys(found))  # what both have found, once


def _findings(found: list[dict[str, Any]]) -> list[Finding]:
    return [Finding(str(each["check"]), str(each["message"])) for each in found]
