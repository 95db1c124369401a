"""The hosts of a lab: namespaces on a switch, links of a stated rate, processors of a stated share."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from sparkdl_bench.errors import RunFailedError
from sparkdl_bench.lab.state import Lab

_COMMAND_S = 30.0
_END_S = 15.0
_PROGRAMS = ("ip", "tc", "unshare")
_BRIDGE = "switch0"
_INTERFACE = "data0"
# Of a CPU quota, microseconds: the kernel's own default.
_PERIOD = 100_000
# From here `ip netns exec` takes what /etc holds on a host.
_ETC = Path("/etc/netns")
_V1 = Path("/sys/fs/cgroup/cpu")
_V2 = Path("/sys/fs/cgroup")


def obstacle(*, cpus: bool = False) -> str | None:
    """Why there can be no lab here; None when there can.

    Args:
        cpus: one whose hosts have a limit of processors.
    """
    if not sys.platform.startswith("linux"):
        return "network namespaces need Linux"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if lacking := [name for name in _PROGRAMS if shutil.which(name) is None]:
        return f"{' and '.join(lacking)} cannot be found on the PATH (packages iproute2, util-linux)"
    if cpus and _cpu_controller() is None:
        return "this system has no controller of processors (cgroup v1 `cpu`, or `cpu` in cgroup v2's subtree)"
    return None


def make(lab: Lab) -> None:
    """The switch and the hosts.

    Raises:
        RunFailedError: the system refuses one; what was made until then is there.
    """
    gateway = lab.namespace(0)
    lines = [f"{lab.address(number)} {lab.namespace(number)}" for number in (0, *lab.numbers)]
    for number in (0, *lab.numbers):
        etc = _ETC / lab.namespace(number)
        etc.mkdir(parents=True, exist_ok=True)
        (etc / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]), encoding="ascii")
    run("ip", "netns", "add", gateway)
    _inside(gateway, "ip", "link", "set", "lo", "up")
    _inside(gateway, "ip", "link", "add", _BRIDGE, "type", "bridge")
    _inside(gateway, "ip", "address", "add", f"{lab.address(0)}/24", "dev", _BRIDGE)
    _inside(gateway, "ip", "link", "set", _BRIDGE, "up")
    for number in lab.numbers:
        host = lab.namespace(number)
        run("ip", "netns", "add", host)
        port = f"port{number}"
        # Both ends are born in their namespace, so no name can meet one of this host's own.
        run(
            *("ip", "link", "add", _INTERFACE, "netns", host, "type", "veth"),
            *("peer", "name", port, "netns", gateway),
        )
        _inside(host, "ip", "link", "set", "lo", "up")
        _inside(host, "ip", "address", "add", f"{lab.address(number)}/24", "dev", _INTERFACE)
        _inside(host, "ip", "link", "set", _INTERFACE, "up")
        _inside(gateway, "ip", "link", "set", port, "master", _BRIDGE, "up")
        if lab.plan.bandwidth:
            limit = ("tbf", "rate", lab.plan.bandwidth, "burst", "256kb", "latency", "50ms")
            _inside(host, "tc", "qdisc", "add", "dev", _INTERFACE, "root", *limit)
            _inside(gateway, "tc", "qdisc", "add", "dev", port, "root", *limit)
        share = lab.plan.cpus_of(number)
        if share is not None:
            _limit(lab, number, share)


def unmake(lab: Lab) -> list[str]:
    """All that has the lab's name, processes first; what it was, in words."""
    gone: list[str] = []
    listed = run("ip", "netns", "list").split() if shutil.which("ip") else []
    own = [name for name in listed if _is_of(lab, name)]
    pids = {int(pid) for name in own for pid in run("ip", "netns", "pids", name).split()}
    pids |= {daemon.pid for daemon in lab.daemons if daemon.is_alive}
    pids.discard(os.getpid())
    if pids:
        end(pids)
        gone.append(f"{len(pids)} process{'es' if len(pids) > 1 else ''}")
    for name in own:
        run("ip", "netns", "del", name)
    for path in _ETC.glob(f"sparkdl-{lab.name}-*"):
        if _is_of(lab, path.name):
            shutil.rmtree(path)
    if own:
        gone.append(f"{len(own)} network namespace{'s' if len(own) > 1 else ''}")
    groups = [path for root in (_V1, _V2) for path in root.glob(f"sparkdl-{lab.name}-*") if _is_of(lab, path.name)]
    for path in groups:
        _remove_group(path)
    if groups:
        gone.append(f"{len(groups)} processor limit{'s' if len(groups) > 1 else ''}")
    return gone


def _is_of(lab: Lab, name: str) -> bool:
    prefix = lab.namespace(0)[:-1]
    return name.startswith(prefix) and name[len(prefix) :].isdigit()


def command(lab: Lab, number: int, *words: str) -> list[str]:
    """`words` run on the host `number`, which has a name of its own (MPI tells hosts apart by it)."""
    namespace = lab.namespace(number)
    named = ["unshare", "--uts", "sh", "-c", 'echo "$0" > /proc/sys/kernel/hostname && exec "$@"', namespace]
    group = _group(lab, number)
    # Before `ip netns exec`, which mounts another /sys, in which no group can be seen.
    joined = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs")] if group else []
    return [*joined, "ip", "netns", "exec", namespace, *named, *words]


def end(pids: set[int]) -> None:
    """Asks processes to end, and kills those that have not after some seconds."""
    for number, seconds in ((signal.SIGTERM, _END_S), (signal.SIGKILL, _END_S)):
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        until = time.monotonic() + seconds
        while (pids := {pid for pid in pids if _is_there(pid)}) and time.monotonic() < until:
            time.sleep(0.1)
        if not pids:
            return
    raise RunFailedError(
        f"The processes {', '.join(map(str, sorted(pids)))} do not end, even when killed; they wait in the kernel. Run "
        "`sparkdl-bench lab down` again later."
    )


def run(*words: str) -> str:
    """What a program of the system prints.

    Raises:
        RunFailedError: it failed; its own words are in the message.
    """
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_COMMAND_S, check=False)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise RunFailedError(f"`{' '.join(words)}` did not end within {_COMMAND_S:.0f} s.") from error
    if done.returncode != 0:
        raise RunFailedError(f"`{' '.join(words)}` failed: {done.stderr.strip() or done.stdout.strip()}.")
    return done.stdout


def _inside(namespace: str, *words: str) -> None:
    run("ip", "netns", "exec", namespace, *words)


def _is_there(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return False
    # A child of this process that has ended, and that nobody has waited for, is a zombie.
    return state != "Z"


def _cpu_controller() -> Path | None:
    if (_V1 / "cpu.cfs_quota_us").is_file():
        return _V1
    try:
        return _V2 if "cpu" in (_V2 / "cgroup.subtree_control").read_text(encoding="ascii").split() else None
    except OSError:
        return None


def _limit(lab: Lab, number: int, share: float) -> None:
    root = _cpu_controller()
    if root is None:
        raise RunFailedError(f"The limit of {share:g} CPUs cannot be set: {obstacle(cpus=True)}.")
    group = root / lab.namespace(number)
    group.mkdir()
    quota = max(1000, round(share * _PERIOD))
    if root == _V1:
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD), encoding="ascii")
        (group / "cpu.cfs_quota_us").write_text(str(quota), encoding="ascii")
    else:
        (group / "cpu.max").write_text(f"{quota} {_PERIOD}", encoding="ascii")


def _group(lab: Lab, number: int) -> Path | None:
    root = _cpu_controller() if number and lab.plan.cpus else None
    return root / lab.namespace(number) if root else None


def _remove_group(path: Path) -> None:
    until = time.monotonic() + _END_S
    while True:
        try:
            path.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:  # the kernel lets a group go a moment after its last process
            if time.monotonic() > until:
                raise RunFailedError(f"The processor limit {path} cannot be removed: {error}.") from error
            time.sleep(0.1)
        else:
            return
