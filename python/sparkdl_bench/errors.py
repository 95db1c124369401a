"""The errors of this package. Each message is one paragraph: what, which value, what is valid, what to do."""

from __future__ import annotations

import signal


class SparkDLError(Exception):
    """Base of everything that this package raises on purpose; `exit_code` is the command line's exit status."""

    exit_code = 1
    jvm_error: BaseException | None = None
    """The JVM's exception with its stack, where one is behind this error."""


class ConfigurationError(SparkDLError):
    """A wrong usage, configuration, data set or session. The user can fix it.

    It is found before training starts: on the driver, or, where only a rank can tell, by a rank.
    """

    exit_code = 2


class RunFailedError(SparkDLError):
    """A run that started and could not be finished."""


class WriteError(SparkDLError):
    """A file that could not be written: a full disk, a quota, permissions. Nothing of it is left."""


class DivergedError(RunFailedError):
    """A run whose loss is NaN or infinite; the message says at which step and what to lower."""


class RankFailedError(RunFailedError):
    """A launch in which a rank raised an exception, or lost its process or executor.

    Attributes:
        rank: the one with which it began; None where nobody can tell.
        host: its executor's, as Spark names it.
        traceback: of the user's code, as Python prints it; empty where the process or executor was lost.
    """

    def __init__(self, message: str, rank: int | None = None, host: str | None = None, traceback: str = "") -> None:
        super().__init__(message)
        self.rank = rank
        self.host = host
        self.traceback = traceback


class RunTimedOutError(RunFailedError):
    """Something did not end in its time, and was stopped.

    Attributes:
        what: what that was and what it said last, for who names another remedy.
    """

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what} {remedy}")
        self.what = what


class RunCancelledError(RunFailedError):
    """A run that something else than Ctrl-C has cancelled, such as Spark's own page; its `summary.json` says so."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, or another signal that ends a command in the same way.

    Attributes:
        exit_code: as shells have it, 128 + the signal's number.
    """

    def __init__(self, number: int = signal.SIGINT, message: str = "") -> None:
        super().__init__(message)
        self.exit_code = 128 + number
