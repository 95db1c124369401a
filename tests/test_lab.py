"""`sparkdl-bench lab`: hosts with links and processors of a stated speed, a cluster on them, and nothing afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sparkdl_bench import lab
from sparkdl_bench.cli import cli
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.lab import entering, hosts
from sparkdl_bench.lab.state import Daemon, Lab, Plan, boot_id, started_at
from sparkdl_bench.results import RunResults

NAME = f"t{os.getpid()}"
RATE_MBIT = 100
SHARE = 0.5


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Labs of this test are written down here, away from the user's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


class TestPlans:
    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["Lab"], "'Lab' is no name of a lab. Valid are up to 16 small letters"),
            (["a/b"], "'a/b' is no name of a lab"),
            (["x", "--hosts", "0"], "A lab of 0 hosts cannot be made. Valid are 1 to 64."),
            (["x", "--hosts", "65"], "A lab of 65 hosts cannot be made. Valid are 1 to 64."),
            (["x", "--bandwidth", "fast"], "The bandwidth 'fast' is none. Valid are a number with kbit, mbit or gbit"),
            (["x", "--bandwidth", "0gbit"], "The bandwidth '0gbit' is none."),
            (["x", "--cpus", "1,2,3"], "The CPUs 1, 2, 3 do not fit 2 hosts. Valid are one number for all hosts"),
            (["x", "--cpus", "0.01"], "The CPUs 0.01 do not fit 2 hosts."),
            (["x", "--cpus", "nan"], "The CPUs nan do not fit 2 hosts."),
            (["x", "--cpus", "one"], "Invalid value for '--cpus': 'one' are no numbers. Write 1 or 1,0.5."),
            (["x", "--cores", "0"], "0 cores a host are none."),
            (["x", "--memory", "2"], "The memory '2' is none. Valid are 2g, 1500m and the like."),
            (["x", "--cluster", "mesos"], "'mesos' is not one of"),
        ],
    )
    def test_what_cannot_be_made_is_refused_before_anything_is(self, room: Path, words: list[str], said: str) -> None:
        answered = CliRunner().invoke(cli, ["lab", "up", *words])
        assert answered.exit_code == 2
        assert said in answered.stderr
        assert not list(room.rglob("lab.json"))

    @pytest.mark.parametrize(
        ("bandwidth", "megabits"), [("1gbit", 1000.0), ("2.5mbit", 2.5), ("500kbit", 0.5), ("", None)]
    )
    def test_rates(self, bandwidth: str, megabits: float | None) -> None:
        assert Plan("x", bandwidth=bandwidth).megabits == megabits

    def test_one_share_is_every_host_s(self) -> None:
        assert [Plan("x", 2, cpus=(0.5,)).cpus_of(number) for number in (1, 2)] == [0.5, 0.5]
        assert [Plan("x", 2, cpus=(1, 0.5)).cpus_of(number) for number in (1, 2)] == [1, 0.5]
        assert Plan("x", 2).cpus_of(1) is None


class TestState:
    def test_what_was_written_is_found(self, room: Path) -> None:
        made = Lab(Plan("x", 3, "1gbit", (1.0, 0.5, 2.0)), boot_id(), "4.1.4", "spark://a:1", "hdfs://a:2", True)
        made = made.add(Daemon("worker", 1, os.getpid(), started_at(os.getpid()) or 0))
        made.write()
        assert lab.find("x") == made
        assert lab.names() == ["x"]
        assert made.daemons[0].is_alive
        assert not Daemon("worker", 1, os.getpid(), 1).is_alive, "another process with the same number"

    def test_a_name_that_is_nearly_right(self, room: Path) -> None:
        Lab(Plan("mnist"), boot_id()).write()
        with pytest.raises(ConfigurationError, match=r"There is no lab 'mnits'. Did you mean 'mnist'\?"):
            lab.find("mnits")

    def test_without_any(self, room: Path) -> None:
        with pytest.raises(ConfigurationError, match=r"There is no lab 'x'. None is up: `sparkdl-bench lab up` makes"):
            lab.find("x")
        assert "No lab is up." in CliRunner().invoke(cli, ["lab", "status"]).stdout

    def test_a_damaged_file_is_named(self, room: Path) -> None:
        Lab(Plan("x"), boot_id()).write()
        (lab.find("x").folder / "lab.json").write_text('{"plan": 3')
        with pytest.raises(ConfigurationError, match=r"lab.json cannot be read: .* `sparkdl-bench lab down x` takes"):
            lab.find("x")


class TestEntering:
    @pytest.mark.parametrize(
        ("words", "name"),
        [
            (["run", "digits-mlp", "--master", "lab:a"], "a"),
            (["run", "digits-mlp", "--master=lab:a"], "a"),
            (["run", "digits-mlp", "--set", "master=lab:a"], "a"),
            (["run", "digits-mlp", "--set", "spark.master=lab:a"], "a"),
            (["run", "digits-mlp", "--set", "name=lab:a"], None),
            (["run", "lab:a"], None),
            (["run", "--master", "local[2]"], None),
        ],
    )
    def test_where_a_lab_is_named(self, words: list[str], name: str | None) -> None:
        assert entering.named(words) == name

    def test_a_lab_that_is_not_there(self, room: Path) -> None:
        answered = CliRunner().invoke(cli, ["run", "digits-mlp", "--master", "lab:none"])
        assert answered.exit_code == 2
        assert answered.stderr.startswith("There is no lab 'none'.")

    @pytest.mark.skipif(hosts.obstacle() is not None, reason="labs cannot be made here")
    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"complete": False}, "The lab 'x' is there in part only: its making was interrupted. Take it away with"),
            ({"boot": "before"}, "The lab 'x' is there in part only: the machine was started anew since."),
            ({"spark": "3.0.0"}, "The lab 'x' runs Spark 3.0.0, and this is pyspark"),
            ({"daemons": (Daemon("worker", 2, 1, 7),)}, "The lab 'x' has lost its worker on host 2; the logs are in"),
            ({"master": ""}, "The lab 'x' has no Spark cluster (it was made with --cluster none)."),
        ],
    )
    def test_a_lab_that_cannot_be_used(self, room: Path, changes: dict[str, Any], said: str) -> None:
        import pyspark

        whole = {"boot": boot_id(), "spark": pyspark.__version__, "master": "spark://a:1", "complete": True}
        Lab(Plan("x"), **{**whole, **changes}).write()
        answered = CliRunner().invoke(cli, ["run", "digits-mlp", "--master", "lab:x"])
        assert answered.exit_code == 2
        assert said in answered.stderr


def test_without_root_it_is_refused(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    answered = CliRunner().invoke(cli, ["lab", "up", "x"])
    assert answered.exit_code == 2
    assert answered.stderr == "The lab 'x' cannot be made: network namespaces need root.\n"
    assert not list(room.rglob("lab.json"))


def command(*words: str) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-m", "sparkdl_bench", *words]
    return subprocess.run(whole, capture_output=True, text=True, timeout=300, check=False)


def left(name: str) -> list[str]:
    """What is there of a lab beside its folder."""
    listed = hosts.run("ip", "netns", "list").split()
    folders = ("/etc/netns", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup")
    groups = [path.name for folder in folders for path in Path(folder).glob("sparkdl-*")]
    return [word for word in [*listed, *groups] if word.startswith(f"sparkdl-{name}-")]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab of two unequal hosts with a cluster; its commands write into its own cache."""
    if reason := hosts.obstacle(cpus=True):
        pytest.skip(reason)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        made = command("lab", "up", NAME, "--bandwidth", f"{RATE_MBIT}mbit", "--cpus", f"1,{SHARE}")
        try:
            assert made.returncode == 0, made.stderr
            yield lab.find(NAME)
        finally:
            gone = command("lab", "down", NAME)
        assert gone.returncode == 0, gone.stderr
        assert "3 network namespaces, 2 processor limits" in gone.stdout
        assert left(NAME) == []
        assert lab.names() == []


@pytest.mark.on_one_line
class TestLab:
    def test_its_daemons_live_after_the_command(self, up: Lab) -> None:
        assert [(each.what, each.host) for each in up.daemons] == [("master", 0), ("worker", 1), ("worker", 2)]
        shown = command("lab", "status", NAME).stdout
        assert f"--master lab:{NAME}" in shown
        assert "has ended" not in shown

    def test_one_of_a_name(self, up: Lab) -> None:
        again = command("lab", "up", NAME)
        assert again.returncode == 2
        assert again.stderr.startswith(f"The lab '{NAME}' is up. Use it, take it away")

    def test_links_carry_what_was_asked_for_and_no_more(self, up: Lab) -> None:
        receive = (
            "import socket,time\ns=socket.create_server(('10.78.0.2',5000));print('up',flush=True)\nc,_=s.accept()\n"
        )
        receive += "t=time.time();n=0\nwhile d:=c.recv(1<<20): n+=len(d)\nprint(n*8/1e6/(time.time()-t))"
        send = "import socket,time\ns=socket.create_connection(('10.78.0.2',5000));t=time.time()\n"
        send += "while time.time()<t+2: s.sendall(bytes(1<<16))"
        receiver = subprocess.Popen(
            hosts.command(up, 2, sys.executable, "-c", receive), stdout=subprocess.PIPE, text=True
        )
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "up\n"
        subprocess.run(hosts.command(up, 1, sys.executable, "-c", send), check=True, timeout=60)
        megabits = float(receiver.communicate(timeout=60)[0])
        assert 0.7 * RATE_MBIT < megabits < 1.1 * RATE_MBIT

    def test_a_host_has_its_share_of_a_processor(self, up: Lab) -> None:
        burn = "import time\nt=time.time()\nwhile time.time()<t+2: pass\nprint(time.process_time()/(time.time()-t))"
        done = subprocess.run(
            hosts.command(up, 2, sys.executable, "-c", burn), capture_output=True, text=True, check=True, timeout=60
        )
        assert float(done.stdout) < SHARE * 1.15

    def test_nothing_reaches_in_or_out(self, up: Lab) -> None:
        routes = subprocess.run(
            hosts.command(up, 1, "ip", "route"), capture_output=True, text=True, check=True, timeout=60
        ).stdout
        assert "default" not in routes
        assert "10.78.0" not in hosts.run("ip", "route")

    def test_a_run_trains_on_its_hosts(self, up: Lab, tmp_path: Path) -> None:
        words = ["--set", f"results={tmp_path}", "--set", "epochs=1", "--set", "spark.executor.memory=1g"]
        done = command("run", "digits-mlp", "--master", f"lab:{NAME}", *words)
        assert done.returncode == 0, done.stderr
        (folder,) = tmp_path.iterdir()
        results = RunResults(folder)
        assert results.summary["status"] == "success"
        assert json.loads((folder / "run.json").read_text())["rank_groups"] == [[0], [1]], "one host each"

    def test_commands_on_the_edge_node(self, up: Lab) -> None:
        done = command("lab", "exec", NAME, "sh", "-c", "hostname; echo {master}; exit 3")
        assert done.returncode == 3
        assert done.stdout.split() == [up.namespace(0), "spark://10.78.0.254:7077"]
        refused = command("lab", "exec", NAME, "echo", "{hdfs}")
        assert refused.returncode == 2
        assert f"The lab '{NAME}' has no HDFS for {{hdfs}}." in refused.stderr


@pytest.mark.campaign
@pytest.mark.skipif(hosts.obstacle() is not None, reason="labs cannot be made here")
def test_yarn_and_hdfs(room: Path) -> None:
    name = f"{NAME}y"
    made = command("lab", "up", name, "--cluster", "yarn", "--hdfs")
    try:
        assert made.returncode == 0, made.stderr
        assert command("lab", "hdfs", name, "-mkdir", "/runs").returncode == 0
        words = ["--set", "epochs=1", "--set", "spark.executor.memory=1g"]
        words += [
            "--set",
            "spark.executor.memoryOverhead=512m",
            "--set",
            f"results={room / 'runs'}",
            "--set",
            "checkpoint.dir=hdfs://10.78.0.254:9000/runs",
        ]
        done = command("run", "digits-mlp", "--master", f"lab:{name}", *words, "--set", "checkpoint.every=20")
        assert done.returncode == 0, done.stderr
        (folder,) = (room / "runs").iterdir()
        assert json.loads((folder / "run.json").read_text())["rank_groups"] == [[0], [1]], "one host each"
        assert "step-" in command("lab", "hdfs", name, "-ls", "/runs").stdout
    finally:
        gone = command("lab", "down", name)
    assert gone.returncode == 0, gone.stderr
    assert left(name) == []


@pytest.mark.on_one_line
@pytest.mark.skipif(hosts.obstacle() is not None, reason="labs cannot be made here")
class TestBrokenLabs:
    def test_what_a_crash_leaves_is_taken_away(self, room: Path) -> None:
        name = f"{NAME}c"
        whole = [sys.executable, "-m", "sparkdl_bench", "lab", "up", name]
        process = subprocess.Popen(whole, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        while "standalone" not in process.stderr.readline():
            assert process.poll() is None
        until = time.monotonic() + 60
        while not lab.find(name).daemons:
            assert time.monotonic() < until
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        process.stderr.close()
        assert left(name)
        said = command("lab", "up", name).stderr
        assert said.startswith(f"The lab '{name}' is there in part.")
        gone = command("lab", "down", name)
        assert gone.returncode == 0, gone.stderr
        assert "1 process, 3 network namespaces" in gone.stdout
        assert left(name) == []

    def test_a_signal_takes_away_what_was_made(self, room: Path) -> None:
        name = f"{NAME}s"
        process = subprocess.Popen(
            [sys.executable, "-m", "sparkdl_bench", "lab", "up", name], stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        while "standalone" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[1]
        assert process.returncode == 128 + signal.SIGTERM
        assert said == "Interrupted (SIGTERM).\n"
        assert left(name) == []
        assert lab.names() == []
