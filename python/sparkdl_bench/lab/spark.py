"""Spark's standalone cluster in a lab: the master on the gateway, a worker on each host."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pyspark

from sparkdl_bench.jarfiles import configuration_folder
from sparkdl_bench.lab import daemons
from sparkdl_bench.lab.state import Lab

_PORT = 7077


def environment(lab: Lab, number: int) -> dict[str, str]:
    """For Spark's processes on a host, drivers among them: they listen on the host's own address."""
    address = lab.address(number)
    own = {"SPARK_LOCAL_IP": address, "SPARK_LOCAL_HOSTNAME": address, "SPARK_HOME": str(home())}
    if _configuration(lab).is_dir():
        own["SPARK_CONF_DIR"] = str(_configuration(lab))
    if lab.hadoop_configuration.is_dir():
        own["HADOOP_CONF_DIR"] = str(lab.hadoop_configuration)
    return {**os.environ, **own}


def start(lab: Lab) -> Lab:
    """The cluster's daemons; the lab that comes back names its master."""
    address = f"spark://{lab.address(0)}:{_PORT}"
    master = ["org.apache.spark.deploy.master.Master", "--host", lab.address(0), "--port", str(_PORT)]
    lab = _daemon(lab, 0, "master", [*master, "--webui-port", "8080"], "Starting Spark master at")
    for number in lab.numbers:
        worker = ["org.apache.spark.deploy.worker.Worker", "--host", lab.address(number), "--webui-port", "8081"]
        worker += ["--cores", str(lab.plan.cores), "--memory", lab.plan.memory]
        worker += ["--work-dir", str(_room(lab, number) / "work"), address]
        lab = _daemon(lab, number, "worker", worker, "Successfully registered with master")
    return replace(lab, master=address)


def _daemon(lab: Lab, number: int, what: str, words: list[str], ready: str) -> Lab:
    local = _room(lab, number) / "local"
    local.mkdir(parents=True, exist_ok=True)
    own = {"SPARK_NO_DAEMONIZE": "1", "SPARK_DAEMON_MEMORY": "512m", "SPARK_LOCAL_DIRS": str(local)}
    script = str(home() / "bin" / "spark-class")
    return daemons.start(lab, number, what, [script, *words], {**environment(lab, number), **own}, ready)


def _room(lab: Lab, number: int) -> Path:
    return lab.folder / f"host-{number}"


def add_default(lab: Lab, name: str, value: str) -> None:
    """A property that every driver in the lab has unless it sets it, after those of the user's own Spark."""
    own = _configuration(lab)
    if not own.is_dir():
        users = configuration_folder()
        if users.is_dir():
            shutil.copytree(users, own)
        own.mkdir(exist_ok=True)
    with (own / "spark-defaults.conf").open("a", encoding="utf-8") as file:
        file.write(f"\n{name} {value}\n")


def _configuration(lab: Lab) -> Path:
    return lab.folder / "spark"


def home() -> Path:
    return Path(pyspark.__file__).parent
