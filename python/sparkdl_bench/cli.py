"""The command line. Each file in `commands/` is one command: it defines `command`, and is found by scanning."""

from __future__ import annotations

import errno
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from sparkdl_bench import lazy, signals
from sparkdl_bench.errors import Interrupted, SparkDLError
from sparkdl_bench.lazy import LazyGroup
from sparkdl_bench.redaction import redacted_text
from sparkdl_bench.version import __version__

# What click 8.2 and later raise for a group without a command; older ones print the help.
_HELP_ITSELF: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())


class _Stopped(BaseException):
    """An `Interrupted`, for which click would write an empty line."""


class Cli(LazyGroup):
    """Exit status 0: success, 1: the run failed, 2: wrong usage or configuration; 130: Ctrl-C, 143: SIGTERM,
    129: the terminal was closed.

    An error is one paragraph on standard error, with a stack trace after it where `--debug` stands among the arguments.
    """

    words: Sequence[str] = ()

    def invoke(self, ctx: click.Context) -> Any:
        try:
            if any("lab:" in word for word in self.words) and self.words[0] != "lab":
                from sparkdl_bench.lab import entering

                entering.enter(self.words)
            return super().invoke(ctx)
        except Interrupted as error:
            raise _Stopped from error

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        self.words = words
        extra["standalone_mode"] = False
        try:
            status = super().main(words, *rest, **extra)
        except BaseException as error:
            status = _report(error, debug="--debug" in words)
        number = signals.number()
        if number is not None:
            signals.say(signals.describe(number))
            signals.leave(128 + number)
        status = status if isinstance(status, int) else 0
        if status:
            signals.stop_processes()
        signals.done(status)
        sys.exit(status)


@click.group(
    cls=Cli,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Begin with `sparkdl-bench run digits-mlp`, or `sparkdl-bench try DATA` for data of your own.",
)
@click.version_option(__version__)
def cli() -> None:
    """Train neural nets on Spark, in-band, and compare every way of synchronising them."""


def _report(error: BaseException, debug: bool) -> int:
    """Writes the error's paragraph; returns the exit status."""
    number = signals.number()
    if number is not None:
        # Any error that a signal caused during other work is the signal's doing.
        cause = error.__cause__ if isinstance(error, (_Stopped, click.Abort)) else error
        said = str(cause) if isinstance(cause, Interrupted) else ""
        signals.say(said or signals.describe(number))
        return 128 + number
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1
    if isinstance(error, _HELP_ITSELF):
        click.echo(str(error), err=True)
        return click.UsageError.exit_code
    if isinstance(error, SparkDLError):
        status, paragraph = error.exit_code, str(error)
    elif isinstance(error, click.ClickException):
        status, paragraph = error.exit_code, _usage(error)
    elif isinstance(error, (KeyboardInterrupt, click.Abort)):
        # click wraps the one into the other.
        cause = error.__cause__ if isinstance(error, click.Abort) else error
        status = cause.exit_code if isinstance(cause, Interrupted) else Interrupted().exit_code
        paragraph = str(cause or "") or "Interrupted."
    elif isinstance(error, OSError):
        status, paragraph = 1, _of_system(error)
    else:
        status = 1
        paragraph = (
            f"Internal error: {type(error).__name__}: {error}. This is a bug of sparkdl-bench; --debug shows where "
            "it happened."
        )
    click.echo(redacted_text(paragraph), err=True)
    if debug:
        click.echo(redacted_text("".join(traceback.format_exception(error))), err=True)
        if isinstance(error, SparkDLError) and error.jvm_error and error.jvm_error is not error.__cause__:
            click.echo(redacted_text("".join(traceback.format_exception(error.jvm_error))), err=True)
    return status


def _of_system(error: OSError) -> str:
    """What the system refused: a full disk, a folder that is not ours, a name that it cannot hold."""
    file = f" '{error.filename}'" if error.filename else ""
    remedies = {
        errno.ENOSPC: "Free space there, or name another folder (--set results=DIR for a run, -o for a report).",
        errno.EDQUOT: "Free space there, or name another folder (--set results=DIR for a run, -o for a report).",
        errno.EACCES: "Name a file or folder that this user may read and write.",
        errno.EPERM: "Name a file or folder that this user may read and write.",
        errno.EROFS: "Name a folder that can be written.",
        errno.EPIPE: "The program that read this output has ended; let it read on, or write to a file.",
    }
    remedy = remedies.get(error.errno or 0, "Look at that file and its file system; --debug shows where it happened.")
    return f"The system refused to read or write{file}: {error.strerror or error}. {remedy}"


def _usage(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    hint = f" `{context.command_path} --help` shows the usage." if context else ""
    return lazy.usage(error) + hint
