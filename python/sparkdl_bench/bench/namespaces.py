"""Two hosts on one: Linux network namespaces with links of their own between them (needs root), and Spark across.

Each host has the same network interfaces: `data0`, as fast as asked, `side0`, unlimited, and `dead0`, which leads
nowhere. Namespaces carry the number of this process in their names, and only those are made and removed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from sparkdl_bench.errors import ConfigurationError, RunFailedError
from sparkdl_bench.session import MANAGER_KEY, SORTING_MANAGER

_COMMAND_S = 30.0
_START_S = 90.0
_STOP_S = 20.0
# Private addresses of which nothing outside the namespaces ever hears.
_SUBNETS = {"data0": "10.77.1", "side0": "10.77.2"}
_PORT = 7077


@dataclass(frozen=True)
class Host:
    """One namespace.

    Attributes:
        number: 1 or 2; the last part of its addresses.
    """

    namespace: str
    number: int

    def address(self, interface: str = "data0") -> str:
        return f"{_SUBNETS[interface]}.{self.number}"

    def command(self, *words: str) -> list[str]:
        """`words` run on this host, which has a name of its own (MPI tells hosts apart by it)."""
        named = ["unshare", "--uts", "sh", "-c", 'echo "$0" > /proc/sys/kernel/hostname && exec "$@"', self.namespace]
        return ["ip", "netns", "exec", self.namespace, *named, *words]


def obstacle() -> str | None:
    """Why there can be no such hosts here; None when there can."""
    if not sys.platform.startswith("linux"):
        return "network namespaces need Linux"
    if os.geteuid() != 0:
        return "network namespaces need root"
    lacking = [name for name in ("ip", "tc", "unshare") if shutil.which(name) is None]
    if lacking:
        return f"network namespaces need the programs {' and '.join(lacking)} (packages iproute2, util-linux)"
    name = f"sparkdl{os.getpid()}t"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, timeout=_COMMAND_S)  # noqa: S603, S607
    if tried.returncode != 0:
        return f"this system makes no network namespaces: {tried.stderr.strip()}"
    _run("ip", "netns", "del", name)
    return None


@contextmanager
def two_hosts(megabits: int = 1000) -> Iterator[tuple[Host, Host]]:
    """Two hosts whose `data0` carries so many megabits a second each way (tc's tbf); gone afterwards in any case.

    Raises:
        ConfigurationError: this user or system cannot make them.
    """
    reason = obstacle()
    if reason:
        raise ConfigurationError(f"The hosts cannot be made: {reason}.")
    hosts = Host(f"sparkdl{os.getpid()}a", 1), Host(f"sparkdl{os.getpid()}b", 2)
    with ExitStack() as stack:
        for host in hosts:
            _run("ip", "netns", "add", host.namespace)
            stack.callback(_remove, host)
        for interface in _SUBNETS:
            ends = [word for host in hosts for word in ("netns", host.namespace)]
            # Both ends are born in their namespace, so no name can meet one of this host's own.
            _run(
                *("ip", "link", "add", interface, *ends[:2], "type", "veth"),
                *("peer", "name", interface, *ends[2:]),
            )
        for host in hosts:
            _up(host, megabits)
        yield hosts


def _up(host: Host, megabits: int) -> None:
    _run(*host.command("ip", "link", "set", "lo", "up"))
    for interface in _SUBNETS:
        _run(*host.command("ip", "address", "add", f"{host.address(interface)}/24", "dev", interface))
        _run(*host.command("ip", "link", "set", interface, "up"))
    _run(*host.command("ip", "link", "add", "dead0", "type", "veth", "peer", "name", "dead1"))
    _run(*host.command("ip", "link", "set", "dead1", "up"))
    _run(*host.command("ip", "address", "add", f"10.77.{2 + host.number}.{host.number}/24", "dev", "dead0"))
    _run(*host.command("ip", "link", "set", "dead0", "up"))
    limit = ("tbf", "rate", f"{megabits}mbit", "burst", "256kb", "latency", "50ms")
    _run(*host.command("tc", "qdisc", "add", "dev", "data0", "root", *limit))


def _remove(host: Host) -> None:
    """What still runs there would keep its interfaces alive."""
    left = subprocess.run(["ip", "netns", "pids", host.namespace], capture_output=True, text=True, timeout=_COMMAND_S)  # noqa: S603, S607
    for pid in left.stdout.split():
        subprocess.run(["kill", "-KILL", pid], capture_output=True, timeout=_COMMAND_S)  # noqa: S603, S607
    _run("ip", "netns", "del", host.namespace)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=_COMMAND_S, check=False)  # noqa: S603
    if done.returncode != 0:
        raise RunFailedError(f"`{' '.join(words)}` failed: {done.stderr.strip() or done.stdout.strip()}.")


@contextmanager
def cluster(
    hosts: Sequence[Host],
    folder: Path,
    memory: str = "2g",
    cores: Sequence[int] = (),
    spark: Mapping[str, str] | None = None,
) -> Iterator[dict[str, str]]:
    """A standalone cluster: the master on the first host, a worker of one core on each. Gives a driver's properties.

    Args:
        cores: processor cores; each host's worker, with its executors, runs on one of these alone. None: on any.
        spark: properties of the master and the workers. Where a driver authenticates itself (`spark.authenticate`),
            they must have the same secret, or refuse it.

    The driver is a process on the first host: `hosts[0].command(...)` with `environment(hosts[0])`.
    """
    first = hosts[0]
    properties = folder / "daemons.conf"
    properties.touch(mode=0o600)
    properties.write_text("".join(f"{key} {value}\n" for key, value in (spark or {}).items()))
    common = ["--webui-port", "0", "--properties-file", str(properties)]
    with ExitStack() as stack:
        master = ["org.apache.spark.deploy.master.Master", "--host", first.address(), "--port", str(_PORT)]
        process = stack.enter_context(_daemon(first, [*master, *common], folder / "master.log"))
        _wait_for(process, folder / "master.log", "Starting Spark master at")
        address = f"spark://{first.address()}:{_PORT}"
        for host in hosts:
            log = folder / f"worker-{host.number}.log"
            worker = ["org.apache.spark.deploy.worker.Worker", "--host", host.address(), *common]
            worker += ["--cores", "1", "--memory", memory, "--work-dir", str(folder / f"work-{host.number}"), address]
            process = stack.enter_context(_daemon(host, worker, log, cores[host.number - 1 : host.number]))
            _wait_for(process, log, "Successfully registered with master")
        yield {
            "spark.master": address,
            "spark.driver.host": first.address(),
            "spark.driver.bindAddress": first.address(),
            "spark.ui.enabled": "false",
            # On Spark 3.5 nothing wraps the shuffle manager of a cluster by itself.
            **({MANAGER_KEY: SORTING_MANAGER} if pyspark.__version__.startswith("3.") else {}),
        }


def environment(host: Host) -> dict[str, str]:
    """For Spark's processes on a host."""
    return {
        **os.environ,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": host.address(),
        "SPARK_LOCAL_HOSTNAME": host.address(),
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "512m",
    }


@contextmanager
def _daemon(
    host: Host, arguments: Sequence[str], log: Path, cores: Sequence[int] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    with log.open("wb") as stream:
        bound = ["taskset", "--cpu-list", ",".join(map(str, cores))] if cores else []
        process = subprocess.Popen(  # noqa: S603 (the command is ours)
            host.command(*bound, str(spark_class), *arguments),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            # `ip`, the shell and the script replace themselves by java, so that this process id is the daemon's.
            env=environment(host),
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_S)


def _wait_for(process: subprocess.Popen[bytes], log: Path, text: str) -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end:
        if text in log.read_text(errors="replace"):
            return
        if process.poll() is not None:
            break
        time.sleep(0.2)
    said = log.read_text(errors="replace")[-2000:]
    raise RunFailedError(
        f"Spark did not start on a host of the test: '{text}' did not appear in its log. It said: {said}"
    )


def stream_gbps(sender: Host, receiver: Host, seconds: float = 2.0) -> float:
    """Gigabits a second of a plain TCP stream over `data0`, by `link`'s program on both hosts.

    Raises:
        RunFailedError: it could not be measured.
    """
    with tempfile.TemporaryDirectory(prefix="sparkdl-stream-") as folder:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        program = [sys.executable, "-m", "sparkdl_bench.bench.link"]
        receiving = subprocess.Popen(  # noqa: S603 (the command is ours)
            receiver.command(*program, "receive", receiver.address(), str(seconds)),
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            port = re.fullmatch(r"port (\d+)\n", receiving.stdout.readline() if receiving.stdout else "")
            if not port:
                raise RunFailedError("The plain TCP stream could not be measured: its receiver did not start.")
            sending = sender.command(*program, "send", receiver.address(), port.group(1))
            subprocess.run(sending, cwd=folder, env=environment, timeout=_COMMAND_S + seconds, check=False)  # noqa: S603
            said, _ = receiving.communicate(timeout=_COMMAND_S)
            return float(said)
        except (subprocess.TimeoutExpired, ValueError) as error:
            raise RunFailedError(f"The plain TCP stream could not be measured: {error}.") from error
        finally:
            receiving.kill()
            receiving.wait(_STOP_S)
