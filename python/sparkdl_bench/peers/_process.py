"""Starts a peer's program and leaves nothing of it behind: neither after success, nor an error, nor a timeout."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil

from sparkdl_bench.errors import RunFailedError, RunTimedOutError
from sparkdl_bench.peers import Case, Measurement, Sample, case_to_dict
from sparkdl_bench.peers._environment import tail
from sparkdl_bench.peers._sampler import Sampler

# Every process that a peer starts inherits this; it finds those that left the process group (MPI's daemons do).
MARK = "SPARKDL_PEER_RUN"
_STOP_GRACE_S = 5.0
# Where a program keeps what its processes share as mapped files; gone after it, like its temporary files.
SHARED_MEMORY = "SPARKDL_PEER_SHARED_MEMORY"
_MEMORY = Path("/dev/shm")  # noqa: S108 (Linux' own place for it)
# All that a peer has said, beside its measurements.
LOG = "peer.log"
# Of a Java exception: where it went, which takes the place of what it says.
_STACK = re.compile(r"^\s*(at [\w.$/<>@-]+\([^)]*\)|\.\.\. \d+ (more|common frames omitted)).*$")


def measure(
    name: str,
    command: Sequence[str],
    case: Case,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    out: Path | None = None,
) -> Measurement:
    """Run `command CASE.json OUT.jsonl`, and read the samples and facts that it wrote.

    Args:
        out: a file that is not there yet, where they are to stay; what its processes used and said is then kept
            beside it.

    Raises:
        RunFailedError: it ended with an error, said nothing, or took longer than `timeout_s`.
    """
    memory = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    # What it leaves there, as after a timeout, goes with the folders.
    with _folder(name) as folder, _folder(name, memory) as shared:
        variables = {
            **(environment or {}),
            "TMPDIR": folder,
            SHARED_MEMORY: shared,
            "OMPI_MCA_btl_sm_backing_directory": shared,
            "SPARK_LOCAL_DIRS": os.environ.get("SPARK_LOCAL_DIRS", folder),
        }
        case_file, out_file = Path(folder, "case.json"), out or Path(folder, "out.jsonl")
        case_file.write_text(json.dumps(case_to_dict(case)))
        beside = out.parent if out else None
        run_to_end(name, [*command, str(case_file), str(out_file)], timeout_s, variables, folder, beside)
        return _read(name, out_file)


def _folder(name: str, within: Path | None = None) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix=f"sparkdl-peer-{name}-", dir=within, ignore_cleanup_errors=True)


def left_whole(name: str, out: Path) -> Measurement | None:
    """What a program that writes once, at its end, has left in `out`; None where that is nothing, or a part."""
    try:
        return _read(name, out)
    except (RunFailedError, ValueError):
        return None


def run_to_end(
    name: str,
    command: Sequence[str],
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    folder: str | None = None,
    sampled: Path | None = None,
) -> None:
    """Run `command` in a session of its own; whatever it started is gone when this returns or raises.

    Args:
        sampled: a folder that gets `resources.json`, what its processes used, and `peer.log`, what they said.

    Raises:
        RunFailedError: it ended with an error.
        RunTimedOutError: it took longer than `timeout_s`. The remedy is that of commands with an option --timeout.
    """
    mark = secrets.token_hex(8)
    variables = {**os.environ, **(environment or {}), MARK: mark, "PYTHONUNBUFFERED": "1"}
    with _log(sampled) as log:
        child = subprocess.Popen(  # noqa: S603 (the command is ours)
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=variables,
            cwd=folder,
            start_new_session=True,
        )
        sampler = Sampler(child.pid, lambda: marked(mark)) if sampled else None
        try:
            if sampler:
                sampler.start()
            status = child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            said = _said(log)  # before the end: stopping makes programs talk, too
            raise RunTimedOutError(
                f"'{name}' did not end within {timeout_s:.0f} s and was stopped. It last said: {said}{_whole(sampled)}",
                "Allow more time with --timeout, or ask for fewer steps.",
            ) from None
        finally:
            if sampler and sampled:
                sampler.stop()
                sampler.write(sampled)
            stop_all(child, mark)
        if status != 0:
            raise RunFailedError(f"'{name}' failed with status {status}. It last said: {_said(log)}{_whole(sampled)}")


def stop_all(child: subprocess.Popen[bytes] | None, mark: str, variable: str = MARK) -> None:
    """Ask, wait, then kill: the child, where this process has one, and every process that carries the mark."""

    def ended() -> bool:
        return child is None or child.poll() is not None

    if child is not None and not ended():
        child.terminate()  # alone at first: it ends best what it has started
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_STOP_GRACE_S)
    for stop in (signal.SIGTERM, signal.SIGKILL):
        if not marked(mark, variable) and ended():
            return
        told: set[psutil.Process] = set()
        deadline = time.monotonic() + _STOP_GRACE_S
        while (left := marked(mark, variable)) or not ended():
            for process in set(left) - told:  # each once, and those too that were started meanwhile
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(stop)
            told.update(left)
            # Only now: on a busy machine the time may be over before any process has been asked.
            if time.monotonic() >= deadline:
                break
            time.sleep(0.05)
    still = marked(mark, variable)
    if still:
        raise RunFailedError(
            f"Processes {', '.join(str(process.pid) for process in still)} could not be stopped; stop them by hand."
        )


def marked(mark: str, variable: str = MARK) -> list[psutil.Process]:
    """Living processes of this user that carry `mark` in an environment variable."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(variable) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def _log(folder: Path | None) -> IO[str]:
    if folder is None:
        return tempfile.TemporaryFile("w+", prefix="sparkdl-peer-log-", errors="replace")
    return (folder / LOG).open("w+", errors="replace")


def _whole(folder: Path | None) -> str:
    return f" | All that it said is in {folder.name}/{LOG}." if folder else ""


def _said(log: IO[str]) -> str:
    """The end of it, without the lines of Java's stacks, which would push the reason out."""
    log.seek(0)
    return tail("\n".join(line for line in log.read().splitlines() if not _STACK.match(line))) or "nothing."


def _read(name: str, out_file: Path) -> Measurement:
    samples: list[Sample] = []
    facts: dict[str, object] = {}
    for line in out_file.read_text().splitlines() if out_file.exists() else []:
        record = json.loads(line)
        facts.update(record.get("facts", {}))
        samples.extend(Sample(float(ms), int(record.get("steps", 1))) for ms in record.get("samples_ms", []))
    if not samples:
        raise RunFailedError(f"'{name}' ended without an error but measured nothing.")
    return Measurement(tuple(samples), facts)
