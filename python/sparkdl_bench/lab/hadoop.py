"""Hadoop's daemons in a lab: HDFS and YARN, on the gateway and on each host, from the jars of Hadoop's test cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from xml.sax.saxutils import escape

from sparkdl_bench import jars, machine
from sparkdl_bench.lab import daemons, hosts, spark
from sparkdl_bench.lab.state import Lab

VERSION = "3.5.0"
# As sbt resolves the four of `MiniHdfs` in build.sbt, so that a host that has built has them already.
JARS = tuple(
    jars.Coordinates(*coordinates.split(":"))
    for coordinates in (
        f"org.apache.hadoop:hadoop-client-minicluster:{VERSION}",
        "org.slf4j:slf4j-simple:1.7.36",
        "org.junit.jupiter:junit-jupiter-api:5.10.2",
        "org.mockito:mockito-core:4.11.0",
        # What these need.
        f"org.apache.hadoop:hadoop-client-api:{VERSION}",
        "org.xerial.snappy:snappy-java:1.1.10.4",
        f"org.apache.hadoop:hadoop-client-runtime:{VERSION}",
        "org.slf4j:slf4j-api:1.7.36",
        "org.opentest4j:opentest4j:1.3.0",
        "org.junit.platform:junit-platform-commons:1.10.2",
        "org.apiguardian:apiguardian-api:1.1.2",
        "net.bytebuddy:byte-buddy:1.12.19",
        "net.bytebuddy:byte-buddy-agent:1.12.19",
        "org.objenesis:objenesis:3.3",
        "commons-logging:commons-logging:1.3.0",
        "com.google.code.findbugs:jsr305:3.0.2",
        # What the daemons' programs need beyond the test cluster's.
        "ch.qos.reload4j:reload4j:1.2.22",
        "org.bouncycastle:bcprov-jdk18on:1.79",
        "org.bouncycastle:bcpkix-jdk18on:1.79",
        "org.bouncycastle:bcutil-jdk18on:1.79",
    )
)
_RPC = 9000
_OPENS = ("java.lang", "java.util", "java.net", "java.nio")


def default_folder() -> Path:
    """Where the jars are kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache, "sparkdl-bench", f"hdfs-{VERSION}")


def start_hdfs(lab: Lab) -> Lab:
    """A name node on the gateway, a data node on each host; the lab that comes back names its file system."""
    jars.fetch_jars(default_folder(), list(JARS))
    lab = replace(lab, file_system=f"hdfs://{lab.address(0)}:{_RPC}")
    _write(lab.hadoop_configuration, _of_hdfs(lab, 0))
    name_node = "org.apache.hadoop.hdfs.server.namenode.NameNode"
    hosts.run(*hosts.command(lab, 0, *_java(lab.hadoop_configuration, name_node, "-format", "-nonInteractive")))
    lab = _daemon(lab, 0, "name-node", name_node, "RPC up at")
    for number in lab.numbers:
        _write(_configuration(lab, number), _of_hdfs(lab, number))
        node = "org.apache.hadoop.hdfs.server.datanode.DataNode"
        lab = _daemon(lab, number, "data-node", node, "successfully registered with NN")
    return lab


def start_yarn(lab: Lab) -> Lab:
    """A resource manager on the gateway, a node manager on each host; the lab that comes back names YARN as its master.

    Drivers find Spark's jars where they are: every host has them. Without HDFS an application's files lie in a folder
    of the lab that all hosts see.
    """
    jars.fetch_jars(default_folder(), list(JARS))
    _write(lab.hadoop_configuration, _of_yarn(lab, 0))
    manager = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"
    lab = _daemon(lab, 0, "resource-manager", manager, "Transitioned to active state")
    for number in lab.numbers:
        _write(_configuration(lab, number), _of_yarn(lab, number))
        node = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"
        lab = _daemon(lab, number, "node-manager", node, "Registered with ResourceManager as")
    spark.add_default(lab, "spark.yarn.jars", f"local:{spark.home() / 'jars'}/*")
    return replace(lab, master="yarn")


def _of_hdfs(lab: Lab, number: int) -> dict[str, dict[str, str]]:
    room = lab.folder / "hdfs"
    common = {
        "dfs.namenode.name.dir": str(room / "name"),
        "dfs.namenode.http-address": f"{lab.address(0)}:9870",
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.replication": str(min(3, lab.plan.hosts)),
        "dfs.permissions.enabled": "false",
        # So that a small cluster goes on writing when it has lost a data node.
        "dfs.client.block.write.replace-datanode-on-failure.policy": "NEVER",
    }
    own = {
        "dfs.datanode.data.dir": str(room / f"data-{number}"),
        "dfs.datanode.hostname": lab.address(number),
        **{f"dfs.datanode.{what}": f"{lab.address(number)}:{port}" for what, port in _DATA_NODE.items()},
    }
    return {"core-site": _core(lab), "hdfs-site": {**common, **(own if number else {})}}


def _of_yarn(lab: Lab, number: int) -> dict[str, dict[str, str]]:
    room = lab.folder / f"host-{number}" / "yarn"
    size = int(lab.plan.memory[:-1]) * (1024 if lab.plan.memory.endswith("g") else 1)
    common = {
        "yarn.resourcemanager.hostname": lab.address(0),
        "yarn.scheduler.minimum-allocation-mb": "128",
        "yarn.scheduler.maximum-allocation-mb": str(size + _APPLICATION_MASTER_MB),
    }
    own = {
        "yarn.nodemanager.hostname": lab.address(number),
        # The application's own master has room beside the executors.
        "yarn.nodemanager.resource.memory-mb": str(size + _APPLICATION_MASTER_MB),
        "yarn.nodemanager.resource.cpu-vcores": str(lab.plan.cores + 1),
        "yarn.nodemanager.local-dirs": str(room / "local"),
        "yarn.nodemanager.log-dirs": str(room / "logs"),
        "yarn.nodemanager.vmem-check-enabled": "false",
        # A development machine's disk may well be 90 % full, at which a node manager declares itself ill.
        "yarn.nodemanager.disk-health-checker.enable": "false",
        "yarn.nodemanager.delete.debug-delay-sec": "3600",
    }
    queues = {"yarn.scheduler.capacity.root.queues": "default", "yarn.scheduler.capacity.root.default.capacity": "100"}
    # By memory alone YARN would put two executors on one host; the cores count too.
    queues["yarn.scheduler.capacity.resource-calculator"] = (
        "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator"
    )
    return {
        "core-site": _core(lab),
        "yarn-site": {**common, **(own if number else {})},
        "capacity-scheduler": queues,
    }


# What Spark asks for its application master in client mode: 512 MB, and as much overhead as YARN allots at least.
_APPLICATION_MASTER_MB = 1024


def _core(lab: Lab) -> dict[str, str]:
    return {"fs.defaultFS": lab.file_system or "file:///", "hadoop.tmp.dir": str(lab.folder / "hadoop-tmp")}


def _configuration(lab: Lab, number: int) -> Path:
    return lab.folder / f"host-{number}" / "hadoop" if number else lab.hadoop_configuration


_DATA_NODE = {"address": 9866, "http.address": 9864, "ipc.address": 9867}


def file_system_words(lab: Lab, *words: str) -> list[str]:
    """The command that does what `hdfs dfs` does with these words."""
    return _java(lab.hadoop_configuration, "org.apache.hadoop.fs.FsShell", *words)


def _daemon(lab: Lab, number: int, what: str, program: str, ready: str) -> Lab:
    words = _java(_configuration(lab, number), program)
    return daemons.start(lab, number, what, words, spark.environment(lab, number), ready)


def _java(configuration: Path, program: str, *words: str) -> list[str]:
    folder = default_folder()
    class_path = os.pathsep.join([str(configuration), *(str(folder / jar.file_name) for jar in JARS)])
    opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENS]
    return [machine.java(), "-Xmx512m", *opens, "-cp", class_path, program, *words]


def _write(folder: Path, files: Mapping[str, Mapping[str, str]]) -> None:
    """Hadoop's configuration files, by name without `.xml`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in files.items():
        properties = "".join(
            f"<property><name>{escape(key)}</name><value>{escape(value)}</value></property>\n"
            for key, value in values.items()
        )
        text = f'<?xml version="1.0"?>\n<configuration>\n{properties}</configuration>\n'
        (folder / f"{name}.xml").write_text(text, encoding="utf-8")
