"""What a lab is, and the file that says so for as long as anything of it is there."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.nearest import suggestion

MOST_HOSTS = 64
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,15}")
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kmg])bit")
_MEMORY = re.compile(r"[1-9][0-9]*[mg]")
_TIMES = {"k": 1e-3, "m": 1.0, "g": 1e3}
# Private addresses of which nothing outside the lab ever hears; every lab has the same.
_SUBNET = "10.78.0"
_GATEWAY = 254
CLUSTERS = ("standalone", "yarn", "none")


@dataclass(frozen=True)
class Plan:
    """What `lab up` is asked for.

    Attributes:
        bandwidth: of each host's link, each way, as tc writes it (`1gbit`); empty: as fast as the kernel.
        cpus: of each host in turn, processors that its Spark worker and its executors may use at most, a number for
            all or one for each; empty: no limit.
        cores: task slots of each host.
        memory: that each host offers to executors (`2g`).
        cluster: `standalone`, `yarn` or `none`.
        hdfs: a name node on the gateway and a data node on each host.
    """

    name: str
    hosts: int = 2
    bandwidth: str = ""
    cpus: tuple[float, ...] = ()
    cores: int = 1
    memory: str = "2g"
    cluster: str = "standalone"
    hdfs: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigurationError(
                f"'{self.name}' is no name of a lab. Valid are up to 16 small letters, digits and hyphens: lab1."
            )
        if not 1 <= self.hosts <= MOST_HOSTS:
            raise ConfigurationError(f"A lab of {self.hosts} hosts cannot be made. Valid are 1 to {MOST_HOSTS}.")
        if self.bandwidth and not self.megabits:
            raise ConfigurationError(
                f"The bandwidth '{self.bandwidth}' is none. Valid are a number with kbit, mbit or gbit, such as 1gbit; "
                "leave it out for links without a limit."
            )
        if self.cpus and (len(self.cpus) not in (1, self.hosts) or not all(each >= _LEAST_CPUS for each in self.cpus)):
            raise ConfigurationError(
                f"The CPUs {', '.join(f'{each:g}' for each in self.cpus)} do not fit {self.hosts} hosts. Valid are one "
                f"number for all hosts, or one for each, each at least {_LEAST_CPUS}, such as 1,0.5."
            )
        if self.cores < 1:
            raise ConfigurationError(f"{self.cores} cores a host are none. Valid is 1 or more.")
        if not _MEMORY.fullmatch(self.memory):
            raise ConfigurationError(f"The memory '{self.memory}' is none. Valid are 2g, 1500m and the like.")
        if self.cluster not in CLUSTERS:
            raise ConfigurationError(f"There is no cluster '{self.cluster}'. Valid are {', '.join(CLUSTERS)}.")

    @property
    def megabits(self) -> float | None:
        """A second, each way; None without a limit."""
        found = _RATE.fullmatch(self.bandwidth)
        return float(found.group(1)) * _TIMES[found.group(2)] if found else None

    def cpus_of(self, number: int) -> float | None:
        return self.cpus[0 if len(self.cpus) == 1 else number - 1] if self.cpus else None


# Less, and a JVM takes minutes to start.
_LEAST_CPUS = 0.1


@dataclass(frozen=True)
class Daemon:
    """A process of a lab.

    Attributes:
        host: its number; 0 is the gateway.
        started: clock ticks from the machine's start to the process's; with it no later process is taken for this one.
    """

    what: str
    host: int
    pid: int
    started: int

    @property
    def is_alive(self) -> bool:
        return started_at(self.pid) == self.started


@dataclass(frozen=True)
class Lab:
    """A lab that is there, or a part of one.

    Attributes:
        boot: of which run of the machine it is; after another start nothing but its folder is left.
        complete: `up` came to its end.
        spark: version of pyspark that its daemons are of.
        master: what drivers name; empty without a cluster.
        file_system: its HDFS; empty without one.
    """

    plan: Plan
    boot: str
    spark: str = ""
    master: str = ""
    file_system: str = ""
    complete: bool = False
    daemons: tuple[Daemon, ...] = field(default=())

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def folder(self) -> Path:
        return base() / self.name

    def namespace(self, number: int) -> str:
        """Of the host `number`; 0 is the gateway."""
        return f"sparkdl-{self.name}-{number}"

    @staticmethod
    def address(number: int) -> str:
        return f"{_SUBNET}.{number or _GATEWAY}"

    @property
    def numbers(self) -> range:
        """The hosts, without the gateway."""
        return range(1, self.plan.hosts + 1)

    @property
    def hadoop_configuration(self) -> Path:
        return self.folder / "hadoop"

    def add(self, daemon: Daemon) -> Lab:
        return replace(self, daemons=(*self.daemons, daemon))

    def write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        new = self.folder / "lab.json.new"
        new.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        new.replace(self.folder / "lab.json")


def base() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache, "sparkdl-bench", "labs")


def names() -> list[str]:
    return sorted(path.parent.name for path in base().glob("*/lab.json"))


def find(name: str) -> Lab:
    """The lab of that name.

    Raises:
        ConfigurationError: there is none, or its file cannot be read.
    """
    file = base() / name / "lab.json"
    if not _NAME.fullmatch(name) or not file.is_file():
        known = names()
        there = f"There are {', '.join(known)}." if known else "None is up: `sparkdl-bench lab up` makes one."
        raise ConfigurationError(f"There is no lab '{name}'.{suggestion(name, known)} {there}")
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
        plan = Plan(**{**read["plan"], "cpus": tuple(read["plan"]["cpus"])})
        return Lab(**{**read, "plan": plan, "daemons": tuple(Daemon(**each) for each in read["daemons"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigurationError(
            f"{file} cannot be read: {error}. `sparkdl-bench lab down {name}` takes away all that has the lab's name."
        ) from error


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def started_at(pid: int) -> int | None:
    """Clock ticks from the machine's start to the process's; None where there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name of a program stands in parentheses and may hold some.
    words = text[text.rindex(")") + 2 :].split()
    return None if words[0] == "Z" else int(words[19])
