"""Starts the driver's JVM as pyspark does, but does not wait without end for it to tell its port.

pyspark's own `launch_gateway` looks for a file that the JVM writes until it is there or the JVM has failed. Where the
file's folder is removed meanwhile, or the JVM ends with status 0 or hangs, it looks for ever.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

# A JVM starts within 10 s on a busy host of two cores, and within a minute where its class path lies on a slow network.
_LIMIT_SECONDS = 300.0
_LOOK_SECONDS = 0.05


class GatewayError(Exception):
    """The JVM did not start; the message says why, as part of a sentence."""


class EndedError(GatewayError):
    """The JVM ended, and may have said why."""


def launch(jvm_log: IO[bytes] | None = None, inherited: tuple[int, ...] = (), limit: float = _LIMIT_SECONDS) -> Any:
    """Starts a JVM with the arguments in PYSPARK_SUBMIT_ARGS, or connects to the one that spark-submit started.

    The JVM has a session of its own: a signal to the group of this process, such as Ctrl-C, reaches Python alone, which
    ends the run and then the JVM. Where this process ends first, so does the JVM's standard input, and the JVM with it.

    Args:
        jvm_log: an open file for what the JVM writes to standard error; None: this process's standard error.
        inherited: file descriptors that the JVM needs.
        limit: seconds that the JVM may take to listen.

    Returns:
        The gateway of py4j; its `proc` is the JVM's process, or None where spark-submit started it.

    Raises:
        GatewayError: the JVM ended, did not listen within the limit, or had nowhere to tell its port.
        OSError: the process or its folder could not be made.
    """
    from pyspark.java_gateway import launch_gateway

    connect: Callable[..., Any] = launch_gateway
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return connect()
    if os.name == "nt":
        # There the JVM is a child of spark-submit.cmd, which pyspark knows how to end.
        return connect(None, {"pass_fds": inherited, **({"stderr": jvm_log} if jvm_log else {})})
    process, port, secret = _started(jvm_log, inherited, limit)
    os.environ.update(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret)
    try:
        gateway = connect()
    except BaseException:
        _end(process)
        raise
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    gateway.proc = process
    return gateway


def _started(
    jvm_log: IO[bytes] | None, inherited: tuple[int, ...], limit: float
) -> tuple[subprocess.Popen[bytes], int, str]:
    import shlex

    from pyspark.find_spark_home import _find_spark_home

    find: Any = _find_spark_home
    script = str(Path(find()) / "bin" / "spark-submit")
    folder = Path(tempfile.mkdtemp(prefix="sparkdl-gateway-"))
    try:
        told = folder / "port"
        process = subprocess.Popen(  # noqa: S603
            [script, *shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))],
            stdin=subprocess.PIPE,
            stderr=jvm_log,
            env={**os.environ, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told)},
            pass_fds=inherited,
            start_new_session=True,
            preexec_fn=_without_interrupts,
        )
        try:
            _wait(process, told, limit)
            # An int, and the secret as UTF-8 after its length.
            content = told.read_bytes()
            return process, int.from_bytes(content[:4], "big"), content[8:].decode("utf-8")
        except FileNotFoundError:
            _end(process)
            raise GatewayError(_removed(folder)) from None
        except BaseException:
            _end(process)
            raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait(process: subprocess.Popen[bytes], told: Path, limit: float) -> None:
    deadline = time.monotonic() + limit
    # The JVM writes the file under another name, and renames it.
    while not told.is_file():
        status = process.poll()
        if status is not None:
            raise EndedError(f"it ended with status {status}")
        if not told.parent.is_dir():
            raise GatewayError(_removed(told.parent))
        if time.monotonic() > deadline:
            raise GatewayError(f"it did not listen within {limit:g} seconds")
        time.sleep(_LOOK_SECONDS)


def _removed(folder: Path) -> str:
    return f"the folder '{folder}', where it tells its port, was removed while it started"


def _without_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    if process.stdin:
        process.stdin.close()
