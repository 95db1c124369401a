"""What somebody asks of a launch, checked before anything starts."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sparkdl_bench.config import as_text
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.launching.job import GLOO, NONE, name_of, pickled_call, sources_of
from sparkdl_bench.nearest import suggestion

AUTO, _OF_AUTO = "auto", "block-stream"
# One Spark job per step: there is no group that goes on within the tasks.
_JOB_PER_STEP = ("block-manager", "shuffle")
_SLOTS_SECONDS, _STABLE_SECONDS = 60.0, 15.0
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,")


class _Catalogue(Protocol):
    def variants(self, axis: str) -> list[dict[str, Any]]: ...

    def check(self, settings: Mapping[str, str]) -> None: ...


class _Slots(Protocol):
    def launch_slots(self) -> int: ...


@dataclass(frozen=True)
class Plan:
    """A launch that was checked.

    Attributes:
        function: its name, as users know it.
        sync: as it is done: `auto` has been chosen.
        settings: keys of a run for the backend `sparkdl`, or of `none` for `sparkdl_bench.collective`.
        attempts: the most submissions of the stage.
        call: the function with its arguments, pickled.
        sources: lines by file name, for tracebacks.
    """

    name: str
    function: str
    workers: int
    sync: str
    settings: Mapping[str, str]
    timeout_s: float
    attempts: int
    call: bytes
    sources: Mapping[str, Sequence[str]]

    @property
    def configuration(self) -> dict[str, str]:
        """As `run.json` has it."""
        return {
            "name": self.name,
            "workers": str(self.workers),
            "timeout": f"{self.timeout_s:g}",
            "attempts": str(self.attempts),
            **self.settings,
        }


def plan(
    api: _Catalogue,
    train_fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    workers: int,
    sync: str,
    settings: Mapping[str, Any],
    timeout_s: float,
    attempts: int,
    name: str | None,
) -> Plan:
    """Checks all but the session.

    Raises:
        ConfigurationError: a value is not valid, or the function cannot be pickled.
    """
    if not callable(train_fn):
        raise ConfigurationError(
            f"train_fn is a {type(train_fn).__name__}, and must be a function: launch(train, spark), not "
            "launch(train(), spark). A script is run by `sparkdl-bench launch SCRIPT`."
        )
    _check_whole("workers", workers)
    _check_whole("attempts", attempts)
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not 0 < timeout_s <= 10**6:
        raise ConfigurationError(f"timeout is {timeout_s!r}; it is seconds, more than 0 and up to 1,000,000.")
    way = way_of([str(each["name"]) for each in api.variants("transport")], sync)
    if settings and way == GLOO:
        raise ConfigurationError(
            f"settings are for the backend sparkdl, and sync='{way}' does without it. Leave settings out, or choose "
            "another way, such as sync='block-stream'."
        )
    keys = _texts(settings) if way in (NONE, GLOO) else {**_texts(settings), "transport": way}
    if keys:
        api.check(keys)
    function = name_of(train_fn)
    return Plan(
        name=name or f"launch-{function.rpartition('.')[2].strip('<>')}",
        function=function,
        workers=workers,
        sync=way,
        settings=keys,
        timeout_s=float(timeout_s),
        attempts=attempts,
        call=pickled_call(train_fn, args, kwargs),
        sources=sources_of(train_fn),
    )


def way_of(transports: Sequence[str], sync: str) -> str:
    """How ranks exchange: `none`, `gloo`, or one of the transports, of the backend `sparkdl`."""
    valid = [AUTO, *(each for each in transports if each not in (*_JOB_PER_STEP, AUTO)), GLOO, NONE]
    if sync == AUTO:
        return _OF_AUTO
    if sync in _JOB_PER_STEP:
        raise ConfigurationError(
            f"sync='{sync}' is one or two Spark jobs per step, so a function that goes on within its task cannot have "
            f"it. Valid: {', '.join(valid)}."
        )
    if sync not in valid:
        near = suggestion(sync, valid) if isinstance(sync, str) else ""
        raise ConfigurationError(f"sync is {sync!r}.{near} Valid: {', '.join(valid)}.")
    return sync


def check_session_for(api: _Slots, spark: Any, workers: int, wait_s: float = _SLOTS_SECONDS) -> None:
    """Waits for executors that are still registering, and refuses a session that cannot run so many ranks at once."""
    properties = dict(spark.sparkContext.getConf().getAll())
    if properties.get("spark.dynamicAllocation.enabled", "false").lower() == "true":
        raise ConfigurationError(
            "spark.dynamicAllocation.enabled is true, and Spark runs no barrier stage then, which all ranks of a "
            "launch are. Set it to false, and spark.executor.instances to the number of executors."
        )
    most = _most_slots(spark.sparkContext.master, int(properties.get("spark.task.cpus", "1")))
    slots = _awaited_slots(api.launch_slots, workers, most, wait_s)
    if slots < workers:
        remedy = (
            f"Set workers={slots} or less, or give the session more executors or cores (a slot is spark.task.cpus "
            "cores of an executor)."
            if slots
            else "No executor has registered: look at the master's page and the executors' logs."
        )
        raise ConfigurationError(
            f"workers={workers} must all run at once, and the session (master {spark.sparkContext.master}) has {slots} "
            f"task slots. {remedy}"
        )


def _most_slots(master: str, task_cpus: int) -> int | None:
    """The task slots once all executors have registered, where the master's name says so; 0: those that are there."""
    if cluster := _LOCAL_CLUSTER.match(master):
        return int(cluster.group(1)) * (int(cluster.group(2)) // task_cpus)
    return 0 if master == "local" or master.startswith("local[") else None


def _awaited_slots(look: Callable[[], int], workers: int, most: int | None, wait_s: float) -> int:
    """The task slots, after a wait for those that still come: a lost executor's successor, those of a new session."""
    began = since = time.monotonic()
    seen = look()
    while seen < workers and time.monotonic() - began < wait_s:
        is_stable = seen > 0 and time.monotonic() - since > _STABLE_SECONDS
        if is_stable if most is None else seen >= most:
            break
        time.sleep(0.1)
        now = look()
        if now != seen:
            seen, since = now, time.monotonic()
    return seen


def _texts(settings: Mapping[str, Any]) -> dict[str, str]:
    return {key: as_text(key, value, "the call of launch") for key, value in settings.items()}


def _check_whole(what: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(f"{what} is {value!r}; it is a whole number from 1 on.")
