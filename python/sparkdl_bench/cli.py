"""The command line. Each file in `commands/` is one command: it defines `command`, and is found by scanning."""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import click

from sparkdl_bench import lazy
from sparkdl_bench.errors import Interrupted, SparkDLError
from sparkdl_bench.lazy import LazyGroup
from sparkdl_bench.version import __version__


class Cli(LazyGroup):
    """Exit status 0: success, 1: the run failed, 2: wrong usage or configuration, 130: Ctrl-C, 143: SIGTERM.

    An error is one paragraph on standard error, with a stack trace after it where `--debug` stands among the arguments.
    """

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        extra["standalone_mode"] = False
        with _sigterm_as_interrupt():
            try:
                status = super().main(words, *rest, **extra)
            except BaseException as error:
                status = _report(error, debug="--debug" in words)
        sys.exit(status if isinstance(status, int) else 0)


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """SIGTERM ends us as Ctrl-C does: the run is cancelled, and no process of ours is left."""

    def interrupt(number: int, _frame: FrameType | None) -> NoReturn:
        signal.signal(number, signal.SIG_IGN)  # asked twice, we still clean up once
        raise Interrupted(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@click.group(cls=Cli, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cli() -> None:
    """Train neural nets on Spark, in-band, and compare every way of synchronising them."""


def _report(error: BaseException, debug: bool) -> int:
    """Writes the error's paragraph; returns the exit status."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1
    if isinstance(error, SparkDLError):
        status, paragraph = error.exit_code, str(error)
    elif isinstance(error, click.ClickException):
        status, paragraph = error.exit_code, _usage(error)
    elif isinstance(error, (KeyboardInterrupt, click.Abort)):
        # click wraps the one into the other.
        cause = error.__cause__ if isinstance(error, click.Abort) else error
        status = cause.exit_code if isinstance(cause, Interrupted) else Interrupted().exit_code
        paragraph = str(cause or "") or "Interrupted."
    else:
        status = 1
        paragraph = (
            f"Internal error: {type(error).__name__}: {error}. This is a bug of sparkdl-bench; --debug shows where "
            "it happened."
        )
    click.echo(paragraph, err=True)
    if debug:
        click.echo("".join(traceback.format_exception(error)), err=True)
        if isinstance(error, SparkDLError) and error.jvm_error and error.jvm_error is not error.__cause__:
            click.echo("".join(traceback.format_exception(error.jvm_error)), err=True)
    return status


def _usage(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    hint = f" `{context.command_path} --help` shows the usage." if context else ""
    return lazy.usage(error) + hint
