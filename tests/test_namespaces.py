"""All-reduces between two hosts, made of network namespaces with several interfaces each (needs root)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from programs import execute
from sparkdl_bench.bench import namespaces
from sparkdl_bench.bench.spark_collective import spark_transport_missing

pytestmark = pytest.mark.on_one_line

HERE = Path(__file__).resolve().parent
TIMEOUT_SECONDS = 300
SMALL = {"workers": "2", "net.elements": "200003", "net.warmup": "1", "net.iterations": "2", "timeout": "60"}
CASES: dict[str, dict[str, str]] = {
    "auto": {"transport": "tcp", "topology": "ring"},
    "by subnet": {"transport": "tcp", "topology": "ring", "tcp.interface": "10.77.2.0/24"},
    "to nowhere": {"transport": "tcp", "topology": "ring", "tcp.interface": "dead0"},
    # Both hosts have one kernel, and must not take that for one host.
    "in-band": {"transport": "block-stream", "topology": "sliced"},
}
UCX = {"transport": "ucx", "topology": "sliced", "ucx.tls": "tcp,self", "ucx.devices": "side0"}
MPI_WORDS = "--mca pml ob1 --mca btl tcp,sm,self --mca btl_tcp_if_include side0 --prtemca prte_if_include side0"
MPI = {"transport": "mpi", "topology": "sliced", "mpi.options": MPI_WORDS}
EXTRA = {"ucx": UCX, "mpi": MPI}


@pytest.fixture(scope="module", autouse=True)
def needs_namespaces() -> None:
    reason = namespaces.obstacle()
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each case gave: the facts of its all-reduces, or the error's text."""
    folder = tmp_path_factory.mktemp("namespaces")
    cases = {**CASES, **{name: case for name, case in EXTRA.items() if not spark_transport_missing(f"ours:{name}")}}
    return _between_hosts(folder, {name: {**SMALL, **case} for name, case in cases.items()})


def _between_hosts(folder: Path, cases: dict[str, dict[str, str]], secure: dict[str, str] | None = None) -> Any:
    """The cases in one session. `secure`: properties that the cluster's processes and the session have in common."""
    with namespaces.two_hosts() as hosts, namespaces.cluster(hosts, folder, spark=secure) as properties:
        spark = {**properties, **(secure or {}), "spark.executor.memory": "1g", "spark.task.maxFailures": "1"}
        (folder / "cases.json").write_text(json.dumps({"spark": spark, "cases": cases}))
        program = [sys.executable, str(HERE / "namespace_run.py"), "cases.json", "out.json"]
        environment = {**namespaces.environment(hosts[0]), "PYTHONPATH": str(HERE.parent / "python")}
        execute(hosts[0].command(*program), environment, folder, timeout=TIMEOUT_SECONDS)
        return json.loads((folder / "out.json").read_text())


def test_sums_across_two_hosts_are_right_and_go_over_sockets(found: dict[str, Any]) -> None:
    for name, channel in (("auto", "tcp"), ("in-band", "block-stream")):
        assert found[name]["correct"] is True, name
        assert set(found[name]["bytes"]) == {channel, f"{channel}.framing"}, name


def test_the_interface_that_reaches_the_others_is_chosen_by_itself_or_by_subnet(found: dict[str, Any]) -> None:
    assert found["auto"]["facts"]["tcp.interface"].endswith("(data0)")
    assert found["by subnet"]["correct"] is True
    assert found["by subnet"]["facts"]["tcp.interface"].endswith("(side0)")


def test_an_interface_that_leads_nowhere_is_named_with_the_ranks(found: dict[str, Any]) -> None:
    said = found["to nowhere"]
    assert isinstance(said, str)
    assert "No address of rank" in said
    assert "can be reached by every rank: 10.77." in said
    assert "Set tcp.interface" in said


def test_a_cluster_that_authenticates_takes_a_session_that_has_its_secret(tmp_path: Path) -> None:
    secure = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": "of-the-test",
        "spark.network.crypto.enabled": "true",
    }
    found = _between_hosts(tmp_path, {"in-band": {**SMALL, **CASES["in-band"]}}, secure)
    assert found["in-band"]["correct"] is True
    assert (tmp_path / "daemons.conf").stat().st_mode & 0o077 == 0


def test_ucx_goes_across_by_the_device_that_it_is_told(found: dict[str, Any]) -> None:
    reason = spark_transport_missing("ucx")
    if reason:
        pytest.skip(reason)
    assert found["ucx"]["correct"] is True
    assert found["ucx"]["facts"]["ucx.transports"] == "tcp/side0"


def test_mpi_is_started_on_the_other_host_by_the_task_there(found: dict[str, Any]) -> None:
    reason = spark_transport_missing("ours:mpi")
    if reason:
        pytest.skip(reason)
    assert found["mpi"]["correct"] is True
    assert set(found["mpi"]["bytes"]) == {"mpi"}
    assert found["mpi"]["facts"]["mpi.library"].startswith("Open MPI v5")


def test_a_failure_leaves_no_namespace(found: dict[str, Any]) -> None:
    assert found
    with pytest.raises(ZeroDivisionError):
        _fail_between_hosts()
    assert not _own()


def _fail_between_hosts() -> None:
    with namespaces.two_hosts():
        assert len(_own()) == 2
        raise ZeroDivisionError


def _own() -> list[str]:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True, timeout=30).stdout
    names = [line.split()[0] for line in listed.splitlines()]
    return [name for name in names if name[:-1] == f"sparkdl{os.getpid()}"]
