"""How a command ends when a signal asks it to: one line, exit status 128 + the signal's number, no process left.

The first signal cancels the run that is followed (`runner.interruption`), or else raises `Interrupted` in the main
thread, so that temporary files are removed as the stack unwinds. A second signal, or `_LIMIT_SECONDS` after the first,
ends the command where it stands. Whatever a command starts carries its mark in the environment; `leave` ends all that
does, so that no JVM, executor, engine or `mpiexec` outlives its command.

This module loads before all others of the package, so it imports nothing that takes time.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from sparkdl_bench.errors import Interrupted

if TYPE_CHECKING:
    import psutil

MARK = "SPARKDL_COMMAND"
HANDLED = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)  # Windows has no SIGHUP
_LIMIT_SECONDS = 20.0
# A scheduler that signals a group and then its leader means it once.
_SAME_SECONDS = 0.5
# Looks that find nobody, before nobody is there.
_LOOKS = 2
# For the children to end what they started, then for the rest, then for the kernel.
_ASKED_SECONDS, _TOLD_SECONDS, _KILLED_SECONDS = 8.0, 3.0, 3.0


class _Command:
    """The command of this process; there is one."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.token = ""
        self.loaded = False
        self.starts_processes = False
        self.number: int | None = None
        self.at = 0.0
        self.alarm = -1
        self.leaving = False
        self.status: int | None = None
        self.said = False
        self.cancel: Callable[[int], None] | None = None
        self.last: Callable[[], None] | None = None


_command = _Command()


def install() -> None:
    """Takes the signals over, for the rest of the process. Under `nohup`, SIGHUP stays ignored."""
    for number in HANDLED:
        if not (number == getattr(signal, "SIGHUP", None) and signal.getsignal(number) is signal.SIG_IGN):
            signal.signal(number, _handle)
    sys.addaudithook(_starting)
    # A command that another one started carries the marks of both.
    _command.token = f"{os.getpid()}-{time.time_ns()}"
    os.environ[MARK] = "/".join([mark for mark in (os.environ.get(MARK),) if mark] + [_command.token])


def _starting(event: str, _arguments: tuple[object, ...]) -> None:
    """Before any process is started, by whatever thread: once the command ends, none is, as nobody would end it."""
    if event == "subprocess.Popen":
        _command.starts_processes = True
        if _command.leaving:
            raise RuntimeError("The command is ending, so it starts no process any more.")


def installed() -> bool:
    return bool(_command.token)


def loaded() -> None:
    """The command line is loaded: from now on a signal may find something to remove, and unwinds the stack."""
    import psutil  # noqa: F401 (`leave` must not be the first to load it)

    reading, _command.alarm = os.pipe()
    threading.Thread(target=_watch, args=(reading,), name="sparkdl-signals", daemon=True).start()
    _command.loaded = True
    if _command.number is not None:
        raise Interrupted(_command.number)


def starts_processes() -> None:
    """This command has, or will have, processes to end."""
    _command.starts_processes = True


def number() -> int | None:
    """The signal that asked this command to end; None while none has."""
    return _command.number


def seconds() -> float:
    """Seconds since the command began."""
    return time.monotonic() - _command.began


@contextlib.contextmanager
def cancelling(cancel: Callable[[int], None]) -> Iterator[None]:
    """Within, the first signal calls `cancel` with its number and raises nothing."""
    _command.cancel = cancel
    try:
        yield
    finally:
        _command.cancel = None


def at_last(do: Callable[[], None] | None) -> None:
    """What is done last when the command is interrupted, after all its processes have ended."""
    _command.last = do


def say(line: str) -> None:
    """Writes the one line of an interrupted command to standard error."""
    if _command.said:
        return
    _command.said = True
    with contextlib.suppress(OSError, ValueError):  # the terminal may be closed
        # A bar hides the cursor, and stands on the line.
        clean = "\x1b[?25h\r\x1b[K" if os.isatty(2) else ""
        os.write(2, f"{clean}{line}\n".encode())


def describe(signal_number: int) -> str:
    return f"Interrupted ({signal.Signals(signal_number).name})."


def leave(status: int) -> NoReturn:
    """Ends this process and everything that it started, at once."""
    _command.leaving = True
    # Another thread would wait for a main thread that is stuck while it writes.
    own = (sys.stdout, sys.stderr) if threading.current_thread() is threading.main_thread() else ()
    for stream in own:
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            stream.flush()
    with contextlib.suppress(Exception):  # nothing may keep an interrupted command
        stop_processes()
    if _command.last is not None:
        with contextlib.suppress(Exception):
            _command.last()
    os._exit(status)


def done(status: int) -> None:
    """The command has done its work: a signal ends the rest of the process with the status that it has anyway."""
    if not _command.token:
        return
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    _command.status = status
    atexit.register(_ignore)  # the interpreter would give the signals back to the system


def _ignore() -> None:
    for handled in HANDLED:
        signal.signal(handled, signal.SIG_IGN)


def stop_processes() -> None:
    """Ends what this command started: its children first, as they end best what is theirs; then all that is left."""
    if not _command.loaded or not _command.token:
        return
    import psutil

    def ask(processes: list[psutil.Process], how: int) -> None:
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.send_signal(how)

    # A child that was forked and has not come to its own program yet bears no mark, and loses the signal: asked again.
    asked: dict[int, bool] = {}

    def ask_children() -> list[psutil.Process]:
        unmarked = []
        for child in psutil.Process().children():
            has_mark = _is_marked(child)
            if not has_mark:
                unmarked.append(child)
            if child.pid not in asked or (has_mark and not asked[child.pid]):
                asked[child.pid] = has_mark
                ask([child], signal.SIGTERM)
        return [child for child in unmarked if _is_alive(child)]

    if not psutil.Process().children() and not _command.starts_processes:
        return
    for how, patience in (
        (None, _ASKED_SECONDS),
        (signal.SIGTERM, _TOLD_SECONDS),
        (getattr(signal, "SIGKILL", signal.SIGTERM), _KILLED_SECONDS),
    ):
        deadline = time.monotonic() + patience
        left = ask_children() + marked()
        if how is not None:
            ask(left, how)
        looks = 0
        # Twice: a thread may have been about to start one when the command began to end.
        while (left or looks < _LOOKS) and time.monotonic() < deadline:
            time.sleep(0.05)
            left = ask_children() + marked()
            looks = 0 if left else looks + 1
        if not left:
            return


def marked() -> list[psutil.Process]:
    """Other living processes that carry this command's mark."""
    import psutil

    return [each for each in psutil.process_iter() if each.pid != os.getpid() and _is_marked(each)]


def _is_marked(process: psutil.Process) -> bool:
    """Whether it lives and carries this command's mark."""
    import psutil

    try:
        return _command.token in process.environ().get(MARK, "").split("/") and _is_alive(process)
    except (psutil.Error, OSError):
        return False


def _is_alive(process: psutil.Process) -> bool:
    import psutil

    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except (psutil.Error, OSError):
        return False


def _handle(signal_number: int, _frame: FrameType | None) -> None:
    now = time.monotonic()
    if _command.status is not None:
        os._exit(_command.status)  # all is done and written; only the interpreter has yet to end
    if _command.leaving or (_command.number is not None and now - _command.at < _SAME_SECONDS):
        return
    if _command.number is not None:
        _end_here()
    _command.number, _command.at = signal_number, now
    if not _command.loaded:
        say(describe(signal_number))
        leave(128 + signal_number)
    _quiet()
    os.write(_command.alarm, b".")
    if _command.cancel is not None:
        _command.cancel(signal_number)
    else:
        raise Interrupted(signal_number)


def _watch(alarm: int) -> None:
    """By a thread that is there before any signal: a handler must take no lock that the main thread may hold."""
    os.read(alarm, 1)
    time.sleep(_LIMIT_SECONDS)
    _end_here()


def _end_here() -> None:
    if not _command.leaving and _command.number is not None:
        say(describe(_command.number))
        leave(128 + _command.number)


def _quiet() -> None:
    """An exception during other work makes libraries complain; the one line says it all."""
    logging.disable(logging.CRITICAL)
    sys.unraisablehook = lambda _: None
    threading.excepthook = lambda _: None
