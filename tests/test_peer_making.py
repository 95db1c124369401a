"""How a peer's packages, jars and own class are brought: the commands, without an index, a compiler or Ivy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkdl_bench import jars, peers
from sparkdl_bench.errors import ConfigurationError, RunFailedError
from sparkdl_bench.jars import Coordinates, FetchFailedError
from sparkdl_bench.peers import CollectiveCase, FitCase, _dl4j, _environment
from sparkdl_bench.peers._base import Launch
from sparkdl_bench.peers._environment import Environment


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What is done to make one, in its order: commands by what they are for, and jars."""
    seen: list[Any] = []

    def run(command: list[str], doing: str) -> None:
        seen.append((doing, command))
        (tmp_path / "e").mkdir(exist_ok=True)

    monkeypatch.setattr(_environment, "_run", run)
    monkeypatch.setattr(_environment, "find_python", lambda newest, oldest: f"python {oldest} to {newest}")
    monkeypatch.setattr(_environment, "resolve", lambda *arguments: seen.append(arguments))
    return seen


def test_packages_come_first_then_those_without_dependencies_then_jars(done: list[Any], tmp_path: Path) -> None:
    wanted = Environment(
        "e",
        ("a==1", "b==2"),
        ("c==3",),
        imports=("a", "c"),
        newest_python=(3, 11),
        jars=("g:n:1", "g:n:1:linux"),
        jars_without=("org.x",),
    )
    assert wanted.install(tmp_path)
    python = str(tmp_path / "e" / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--no-input", "--quiet", "--disable-pip-version-check"]
    base = "python (3, 10) to (3, 11)"
    assert done == [
        ("making the virtual environment of 'e'", [base, "-m", "venv", str(tmp_path / "e")]),
        ("installing a==1, b==2", [*pip, "a==1", "b==2"]),
        ("installing c==3", [*pip, "--no-deps", "c==3"]),
        ([Coordinates("g", "n", "1"), Coordinates("g", "n", "1", "linux")], ("org.x",), tmp_path / "e" / "jars"),
        ("importing a in the new environment 'e'", [python, "-c", "import a"]),
        ("importing c in the new environment 'e'", [python, "-c", "import c"]),
    ]
    marker = json.loads((tmp_path / "e" / "sparkdl-environment.json").read_text())
    assert marker["requirements"] == ["a==1", "b==2", "c==3", "g:n:1", "g:n:1:linux"]
    assert marker["python"] == base
    done.clear()
    assert not wanted.install(tmp_path)
    assert done == []


@pytest.mark.parametrize(("own", "bare"), [({}, True), ({"requirements": ("a==1",)}, False), ({"other": 1}, False)])
def test_pip_is_there_where_something_is_to_be_brought(
    done: list[Any], tmp_path: Path, own: dict[str, Any], bare: bool
) -> None:
    made = Environment("e", own.get("requirements", ()), ("c==3",) if "other" in own else ())
    made.install(tmp_path)
    assert ("--without-pip" in done[0][1]) == bare
    assert [doing.split(" ")[0] for doing, _ in done] == ["making", *([] if bare else ["installing"])]


@pytest.mark.parametrize(
    ("optimizer", "is_taken"),
    [
        ({}, True),
        ({"momentum": "0"}, True),
        ({"momentum": "0.0", "nesterov": "false"}, True),
        ({"momentum": "0.9", "nesterov": "true"}, True),
        ({"momentum": "0.9"}, False),
        ({"momentum": "0.9", "nesterov": "false"}, False),
        # The rule is of SGD alone.
        ({"name": "adam"}, True),
    ],
)
def test_dl4j_takes_plain_and_nesterov_s_steps(optimizer: dict[str, str], is_taken: bool) -> None:
    case = FitCase("rows.npz", optimizer=optimizer)
    peer = peers.find("dl4j-averaging")
    if is_taken:
        peer.check(case)
    else:
        with pytest.raises(ConfigurationError, match="Nesterov's momentum alone"):
            peer.check(case)


@pytest.fixture
def of_dl4j(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _dl4j._WithPorts:
    made = _dl4j._WithPorts("dl4j", ("pyspark==3.5.9",), java=_dl4j._JAVA)
    spark = tmp_path / "dl4j" / "lib" / "python3.11" / "site-packages" / "pyspark" / "jars"
    for file in (spark / "spark.jar", made.jar_folder(tmp_path) / "dl4j.jar"):
        file.parent.mkdir(parents=True)
        file.touch()
    monkeypatch.setattr(_dl4j, "_compiler", lambda: Path("/jdk/bin/javac"))
    return made


def test_dl4j_s_own_class_is_compiled_over_its_jars(
    of_dl4j: _dl4j._WithPorts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    answer = types.SimpleNamespace(returncode=0, stdout="", stderr="")
    monkeypatch.setattr(_dl4j.subprocess, "run", lambda command, **more: asked.append((command, more)) or answer)
    for _ in range(2):  # anew over what is there
        of_dl4j.build(tmp_path)
    (command, more), again = asked
    assert again == (command, more)
    assert command[0] == "/jdk/bin/javac"
    assert command[command.index("-d") + 1] == str(tmp_path / "dl4j" / "classes")
    assert [Path(each).name for each in command[command.index("-cp") + 1].split(os.pathsep)] == [
        "spark.jar",
        "dl4j.jar",
    ]
    assert Path(command[-1]).is_file()
    assert more == {"capture_output": True, "text": True, "timeout": _environment.INSTALL_TIMEOUT_S, "check": False}
    for said, told in ((("", "wrong"), "wrong"), (("out", ""), "out")):
        answer.returncode, (answer.stdout, answer.stderr) = 1, said
        with pytest.raises(RunFailedError, match=rf"Compiling ExecutorPorts\.java failed: {told}$"):
            of_dl4j.build(tmp_path)


def test_a_compiler_that_never_ends_is_told(
    of_dl4j: _dl4j._WithPorts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hangs(command: list[str], **_: Any) -> Any:
        raise subprocess.TimeoutExpired(command, 1)

    monkeypatch.setattr(_dl4j.subprocess, "run", hangs)
    with pytest.raises(RunFailedError, match=r"Compiling ExecutorPorts\.java took more than 1800 s\."):
        of_dl4j.build(tmp_path)


def test_dl4j_s_programs_find_spark_before_the_jars_that_have_the_same(
    of_dl4j: _dl4j._WithPorts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = types.SimpleNamespace(home=lambda: Path("/jdk"))
    launch = Launch(FitCase("rows.npz", threads=3), of_dl4j, tmp_path)
    peer = peers.find("dl4j-shared")
    monkeypatch.setattr(_dl4j.Dl4j, "environment", None, raising=False)
    own = replace(peer, environment=replace(of_dl4j, java=java))  # type: ignore[type-var]
    found = own.variables(launch)
    home = tmp_path / "dl4j" / "lib" / "python3.11" / "site-packages" / "pyspark"
    folder = tmp_path / "dl4j"
    assert found["SPARK_HOME"] == str(home)
    assert found["SPARKDL_DL4J"] == "shared"
    assert found["SPARKDL_DL4J_CLASSES"].split(os.pathsep) == [
        *(str(home / "jars" / "*"), str(folder / "classes"), str(folder / "jars" / "*"))
    ]
    assert (found["OMP_NUM_THREADS"], found["SPARK_LOCAL_IP"]) == ("3", "127.0.0.1")
    assert found["PYSPARK_PYTHON"] == str(folder / "bin" / "python")


class Ivy:
    """Ivy that says and does what it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.room = tmp_path / "room"
        self.room.mkdir()
        self.asked: list[Any] = []
        self.answer = types.SimpleNamespace(returncode=1, stdout="", stderr="")
        monkeypatch.setattr(jars, "ivy", lambda: Path("ivy.jar"))
        monkeypatch.setattr(jars, "_java", lambda: "java")
        monkeypatch.setattr(jars.subprocess, "run", self._run)
        monkeypatch.delenv(jars.SETTINGS_VARIABLE, raising=False)

    def _run(self, command: list[str], **more: Any) -> Any:
        self.asked.append(command)
        if self.answer is None:
            raise subprocess.TimeoutExpired(command, more["timeout"])
        return self.answer

    def ask(self) -> str | None:
        return jars._ask_ivy("<ivy-module/>", self.room, self.room / "arrived")


@pytest.fixture
def ivy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ivy:
    return Ivy(monkeypatch, tmp_path)


def test_ivy_gets_the_descriptor_and_its_settings(ivy: Ivy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ivy.answer.returncode = 0
    assert ivy.ask() is None
    assert (ivy.room / "ivy.xml").read_text() == "<ivy-module/>"
    assert ivy.asked[0] == [
        *("java", "-jar", "ivy.jar", "-cache", str(ivy.room / "cache"), "-ivy", str(ivy.room / "ivy.xml")),
        *("-confs", "default", "-warn"),
        *("-retrieve", f"{ivy.room}/arrived/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    settings = tmp_path / "settings.xml"
    monkeypatch.setenv(jars.SETTINGS_VARIABLE, str(settings))
    with pytest.raises(ConfigurationError, match=r"settings\.xml', which is not there"):
        ivy.ask()
    settings.touch()
    assert ivy.ask() is None
    assert ivy.asked[1][3:5] == ["-settings", str(settings)]


def test_what_ivy_said_is_told_without_its_progress(ivy: Ivy) -> None:
    ivy.answer.stdout = "first\n\n.... (12kB)\n   \n.. (345kB) and more\n"
    ivy.answer.stderr = "a .. (1kB) in a line\nlast\n"
    assert ivy.ask() == "first\na .. (1kB) in a line\nlast"
    ivy.answer.stdout, ivy.answer.stderr = "x" * 5000 + "\n", "end"
    said = ivy.ask()
    assert said is not None
    assert (len(said), said[-5:]) == (3000, "x\nend")


def test_an_ivy_that_never_ends_is_told(ivy: Ivy) -> None:
    ivy.answer = None
    with pytest.raises(FetchFailedError, match=rf"did not arrive within {jars._FETCH_TIMEOUT_SECONDS} seconds"):
        ivy.ask()


def test_an_installer_that_never_ends_and_one_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys; sys.stderr.write('last\\n\\n words \\n'); sys.exit(3)"
    with pytest.raises(RunFailedError, match=r"installing x failed with status 3: last \| words$"):
        _environment._run([sys.executable, "-c", code], "installing x")
    monkeypatch.setattr(_environment, "INSTALL_TIMEOUT_S", 0.0)
    with pytest.raises(RunFailedError, match="took longer than 0 s and was stopped"):
        _environment._run([sys.executable, "-c", "input()"], "installing x")


def test_the_newest_python_that_answers_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    version = sys.version_info[:2]
    assert _environment.find_python(version, version) == sys.executable
    asked: list[str] = []
    answering = {"/usr/bin/python3.97", "/usr/bin/python3.95"}
    monkeypatch.setattr(_environment.shutil, "which", lambda name: None if name == "python3.98" else f"/usr/bin/{name}")
    monkeypatch.setattr(_environment, "_answers", lambda program: asked.append(program) or program in answering)
    assert _environment.find_python((3, 99), (3, 95)) == "/usr/bin/python3.97"
    assert asked == ["/usr/bin/python3.99", "/usr/bin/python3.97"]
    assert _environment.find_python((3, 96), (3, 95)) == "/usr/bin/python3.95"
    with pytest.raises(ConfigurationError, match=r"none of python3\.96 is on the PATH"):
        _environment.find_python((3, 96), (3, 96))


def test_a_program_answers_where_it_ends_well() -> None:
    assert _environment._answers(sys.executable)
    assert not _environment._answers("/bin/false")


def test_a_peer_says_why_it_cannot_run_or_what_is_missing(tmp_path: Path) -> None:
    reasons: list[str | None] = [None]
    own = types.SimpleNamespace(unable=lambda: reasons[0], is_ready=lambda _: ready[0], disk_gb=0.25)
    ready = [True]
    peer: Any = replace(peers.find("mpi"), environment=own)  # type: ignore[type-var]
    assert (peer.unable(), peer.missing(tmp_path)) == (None, None)
    ready[0] = False
    assert f"`sparkdl-bench peers install mpi --dir {tmp_path}` (0.25 GB)" in peer.missing(tmp_path)
    assert "`sparkdl-bench peers install mpi` (" in peer.missing(peers.default_directory())
    reasons[0] = "It is small."
    assert peer.unable() == peer.missing(tmp_path) == "The peer 'mpi' cannot run on this host. It is small."


def test_a_peer_refuses_what_it_has_no_channel_or_program_for() -> None:
    both, sockets = peers.find("mpi"), peers.find("gloo")
    for host_local in (True, False):
        both.check(CollectiveCase(host_local=host_local))
    sockets.check(CollectiveCase(host_local=False))
    with pytest.raises(ConfigurationError, match=r"'gloo' has no shared memory channel .* Ask for sockets"):
        sockets.check(CollectiveCase(host_local=True))
    alone = replace(both, host_local_choices=(True,))  # type: ignore[type-var]
    with pytest.raises(ConfigurationError, match=r"'mpi' has no socket channel .* Ask for host-local"):
        alone.check(CollectiveCase(host_local=False))
    with pytest.raises(ConfigurationError, match="'mpi' cannot run a case of kind 'fit'; it runs allreduce"):
        both.check(FitCase("rows.npz"))
    with pytest.raises(ConfigurationError, match="has one way to run alone"):
        peers.find("dl4j-averaging").check(FitCase("rows.npz", tuned=True))


def test_a_training_s_ranks_talk_as_open_mpi_would_by_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("psutil.cpu_count", lambda logical: 4)
    peer: Any = peers.find("mpi")
    for case, layers in (
        (FitCase("rows.npz", workers=2), "sm,self"),
        (CollectiveCase(host_local=True), "sm,self"),
        (CollectiveCase(host_local=False), "tcp,self"),
    ):
        words = peer.command(Launch(case, peer.environment, tmp_path))
        assert words[words.index("btl") + 1] == layers


def test_a_run_of_which_nobody_says_how_many_has_two_workers() -> None:
    assert {peers.find(name).workers for name in ("pytorch-ddp", "bigdl")} == {2}
