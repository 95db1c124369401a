"""All-reduce through a transport of ours, on a local-cluster: a process of its own each time, as the peers have.

`python -m sparkdl_bench.bench.spark_collective CASE.json OUT.jsonl` is that process.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkdl_bench import helper_process, session, transports
from sparkdl_bench.bench import encryption
from sparkdl_bench.bench.collective import Taken, Way
from sparkdl_bench.config import RunFile
from sparkdl_bench.errors import SparkDLError
from sparkdl_bench.jarfiles import find_jars
from sparkdl_bench.peers import CollectiveCase
from sparkdl_bench.peers._process import measure

_JVM_CLASS = "sparkdlbench.bench.NetBench"
_SETTINGS = "SPARKDL_NET_SETTINGS"
_PROPERTIES = "SPARKDL_NET_PROPERTIES"
# Nothing else: collector, threads and kind of sockets are those of a user's own session.
_MEMORY_MB = 2048
# How each transport of ours is told to exchange through shared memory, and how not to; others have sockets alone.
_SHARED_MEMORY: dict[str, dict[bool, dict[str, str]]] = {
    "block-stream": {True: {"host_local": "on"}, False: {"host_local": "off"}},
    "ucx": {True: {"ucx.tls": "posix,sysv,cma,self"}, False: {"ucx.tls": "tcp,self"}},
    "mpi": {
        True: {"mpi.options": "--mca pml ob1 --mca btl sm,self"},
        False: {"mpi.options": "--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include lo"},
    },
}
# Before the name of a transport of ours where a peer has the same name.
OURS = "ours:"


@dataclass(frozen=True)
class Place:
    """Where it runs, if not on a local-cluster here.

    Attributes:
        prefix: words before the driver's command.
        properties: of Spark; with its master.
        variables: of the driver's environment.
        settings: keys of the run that hold there, such as the network interface, in place of a way's own.
    """

    prefix: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


def host_local_choices(transport: str) -> tuple[bool, ...]:
    """Values of `Way.host_local` that a transport of ours has: False is sockets, True is shared memory."""
    return tuple(sorted(_SHARED_MEMORY.get(transport.removeprefix(OURS), {False: {}})))


def spark_transport_missing(transport: str) -> str | None:
    """Why a transport of ours cannot be measured now; None when it can."""
    import pyspark

    try:
        jars = find_jars(pyspark.__version__)
    except SparkDLError as error:
        return str(error)
    if not jars.holds_class(_JVM_CLASS):
        return f"The jar '{jars.thin.name}' has no class {_JVM_CLASS}, which measures '{transport}'. Build it again."
    return transports.missing(RunFile({}, {"transport": transport.removeprefix(OURS)}))


def run_settings(way: Way) -> dict[str, str]:
    """The keys of a run that make the way's transport, topology and codec."""
    transport = way.transport.removeprefix(OURS)
    return {
        "transport": transport,
        "topology": way.topology or "sliced",
        "codec": way.codec,
        "workers": str(way.workers),
        **channel_settings(transport, bool(way.host_local)),
    }


def channel_settings(transport: str, host_local: bool) -> dict[str, str]:
    """The keys of a run that let a transport of ours exchange through shared memory, or through sockets alone."""
    return _SHARED_MEMORY.get(transport, {}).get(host_local, {})


def run_spark_transport(way: Way, warmup: int, iterations: int, timeout_s: float, place: Place | None = None) -> Taken:
    """Milliseconds an all-reduce, the mean over the ranks, and what rank 0 sent its bytes over."""
    place = place or Place()
    case = CollectiveCase(way.elements, way.workers, bool(way.host_local), warmup, iterations)
    settings = {**run_settings(way), **place.settings}
    transport = settings["transport"]
    command = [*place.prefix, sys.executable, "-m", "sparkdl_bench.bench.spark_collective"]
    with tempfile.TemporaryDirectory(prefix="sparkdl-bench-net-") as folder:
        secured = encryption.properties(way.encryption or encryption.OFF, Path(folder))
        # By the environment: other users of the host can read command lines.
        properties = json.dumps({**place.properties, **secured})
        variables = {**place.variables, _SETTINGS: json.dumps(settings), _PROPERTIES: properties}
        measurement = measure(transport, command, case, timeout_s, variables)
    sent = measurement.facts["bytes"]
    channels = [name for name, count in sent.items() if count] if isinstance(sent, dict) else []
    said = measurement.facts.get("facts")
    facts: dict[str, str] = said if isinstance(said, dict) else {}
    found = facts.get("ucx.transports")
    channel = " + ".join(channels) or "none"
    samples_ms = [sample.ms for sample in measurement.samples]
    return Taken(samples_ms, bool(measurement.facts["correct"]), f"{channel} ({found})" if found else channel, facts)


def main() -> None:
    case = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    settings: dict[str, str] = json.loads(os.environ[_SETTINGS])
    _, spark_settings = session.start_jvm(session_options(case["workers"], json.loads(os.environ[_PROPERTIES])))
    with session.open_session(spark_settings) as spark:
        record = _call(session.check_session(spark), settings, case)
    with Path(sys.argv[2]).open("a", encoding="utf-8") as out:
        out.write(json.dumps(record) + "\n")


def session_options(workers: int, properties: Mapping[str, str]) -> dict[str, str]:
    """What the measuring session is given besides what every local session gets (`session.session_settings`)."""
    return {
        "spark.master": f"local-cluster[{workers},1,{_MEMORY_MB}]",
        "spark.app.name": "sparkdl-bench net",
        "spark.executor.memory": f"{_MEMORY_MB}m",
        **properties,
    }


def _call(api: Any, settings: Mapping[str, str], case: Mapping[str, Any]) -> dict[str, Any]:
    """One size through `PythonApi.net`, whose result is a JSON list with one object a size."""
    effort = {"net.warmup": str(case["warmup"]), "net.iterations": str(case["iterations"])}
    (sample,) = api.net({**settings, "net.elements": str(case["elements"]), **effort})
    facts = {name: value for name, value in sample.items() if name != "samples_ms"}
    return {"samples_ms": sample["samples_ms"], "steps": 1, "facts": facts}


if __name__ == "__main__":
    helper_process.run_program(main)
