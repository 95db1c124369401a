"""What a launch sends to its ranks, and the words in which they answer."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparkdl_bench.errors import ConfigurationError

# Kinds of the messages from ranks.
PLACE, LOG, REPORT, FAILED, DONE = "place", "log", "report", "failed", "done"
# The result of a rank: it travels as the task's own.
VALUE, UNPICKLABLE = "value", "unpicklable"
_LARGEST_SOURCE = 1 << 20

NONE, GLOO = "none", "gloo"


@dataclass(frozen=True)
class Job:
    """One launch, as every rank gets it.

    Attributes:
        launch_id: of this launch alone.
        attempt: 0 for the first submission of the stage.
        attempts: the most submissions that there may be.
        sync: `none`, `gloo`, or the transport of the backend `sparkdl`.
        settings: keys of a run for that transport.
        timeout_s: the longest wait for another rank, seconds.
        call: `train_fn`, its arguments and keyword arguments, pickled.
        sources: lines by file name, for tracebacks of code that no file of the executor holds.
        version: of this package at the driver.
    """

    launch_id: str
    size: int
    sync: str
    timeout_s: float
    call: bytes
    version: str
    attempt: int = 0
    attempts: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, Sequence[str]] = field(default_factory=dict)


def pickled_call(train_fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """The call as bytes; functions and classes of `__main__` and of notebooks travel whole.

    Raises:
        ConfigurationError: something in it cannot be pickled.
    """
    try:
        return dumps((train_fn, tuple(args), dict(kwargs)))
    except Exception as error:  # whatever a __reduce__ of the user's objects raises
        raise ConfigurationError(
            f"'{name_of(train_fn)}' cannot be sent to the workers, because something that it uses or is given cannot "
            f"be pickled ({type(error).__name__}: {error}). Make Spark sessions, DataFrames, locks, open files and "
            "connections inside the function, and give it paths and plain values."
        ) from error


def dumps(value: Any) -> bytes:
    """Pickles by cloudpickle, which Spark brings."""
    from pyspark import cloudpickle

    pickler: Any = cloudpickle
    return bytes(pickler.dumps(value))


def loads(data: bytes) -> Any:
    """The opposite of `dumps`; of bytes of this very launch alone."""
    from pyspark import cloudpickle

    return cloudpickle.loads(data)


def sources_of(train_fn: Callable[..., Any]) -> dict[str, list[str]]:
    """The file of the function, for tracebacks where the executors do not have it; empty where it is too long."""
    code = getattr(inspect.unwrap(train_fn), "__code__", None)
    if code is None:
        return {}
    lines = linecache.getlines(code.co_filename)
    return {code.co_filename: lines} if lines and sum(map(len, lines)) <= _LARGEST_SOURCE else {}


def name_of(train_fn: Callable[..., Any]) -> str:
    """`module.function`, as users know it; of a script its file's name."""
    shown = getattr(train_fn, "shown_name", None)
    if isinstance(shown, str):
        return shown
    name = getattr(train_fn, "__qualname__", type(train_fn).__qualname__)
    module = getattr(train_fn, "__module__", None)
    return name if module in (None, "__main__", "builtins") else f"{module}.{name}"
