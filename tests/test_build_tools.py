"""The scripts that bring sbt and Maven where they are not installed, the totals at the end of `make test`, and
`make clean`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import run_tests
from standalone import SPARK_HOME

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_SECONDS = 300
# What the scripts themselves, and the programs that they bring, run.
SYSTEM_PROGRAMS = ["basename", "bash", "cat", "dirname", "expr", "gzip", "head", "id", "ls", "mkdir", "mktemp", "mv"]
SYSTEM_PROGRAMS += ["readlink", "rm", "sed", "tar", "tr", "uname"]


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder for PATH with Java and the system's programs, but neither sbt nor Maven."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in SYSTEM_PROGRAMS:
        (folder / name).symlink_to(which(name))
    java = folder / "java"
    java.write_text(f'#!{which("bash")}\nexec "{which("java")}" "$@"\n')
    java.chmod(0o755)
    return folder


def which(name: str) -> Path:
    for folder in os.environ["PATH"].split(os.pathsep):
        if os.access(Path(folder) / name, os.X_OK):
            return Path(folder) / name
    raise AssertionError(f"no {name} on the PATH")


def call(script: str, arguments: list[str], programs: Path, tools: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("MAVEN_HOME", "M2_HOME")}
    environment |= {"PATH": str(programs), "SPARKDL_TOOLS": str(tools), "SPARK_HOME": str(SPARK_HOME)}
    return subprocess.run(
        [str(which("bash")), str(ROOT / "project" / script), *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


def test_maven_comes_by_its_coordinates(programs: Path, tmp_path: Path) -> None:
    for _ in range(2):  # brought, then found
        done = call("mvn", ["--version"], programs, tmp_path / "tools")
        assert done.returncode == 0, done.stderr
        assert f"Maven home: {tmp_path / 'tools' / 'apache-maven-'}" in done.stdout
    assert [path.name.rpartition("-")[0] for path in (tmp_path / "tools").iterdir()] == ["apache-maven"]


def do_not_start_sbt(programs: Path) -> None:
    """The java there tells with which words it would start sbt's launcher."""
    java = programs / "java"
    java.write_text(
        java.read_text().replace("exec", 'case "$*" in *sbt-launch-*) echo "started $*"; exit;; esac\nexec')
    )


def test_the_launcher_of_sbt_comes_by_its_coordinates(programs: Path, tmp_path: Path) -> None:
    do_not_start_sbt(programs)
    done = call("sbt", ["compile"], programs, tmp_path / "tools")
    assert done.returncode == 0, done.stderr
    (launcher,) = (tmp_path / "tools").iterdir()
    assert re.fullmatch(r"sbt-launch-[0-9.]+\.jar", launcher.name)
    assert done.stdout.rstrip().endswith(f"-jar {launcher} compile")


def test_the_launcher_that_an_installed_maven_brings_is_whole_and_comes_once(programs: Path, tmp_path: Path) -> None:
    do_not_start_sbt(programs)
    tools, calls = tmp_path / "tools", tmp_path / "calls"
    writes = (
        f'#!{which("bash")}\necho called >>"{calls}"\nfor word in "$@"; do case "$word" in -DoutputDirectory=*)\n'
        'for other in "$@"; do case "$other" in -Dartifact=*)\n'
        'echo half >"${word#*=}/sbt-launch-${other##*:}.jar";; esac; done;; esac; done\n'
    )
    maven = programs / "mvn"
    maven.write_text(writes + "exit 1\n")
    maven.chmod(0o755)
    done = call("sbt", ["compile"], programs, tools)
    assert done.returncode == 1
    assert "Maven could not bring the launcher" in done.stderr
    assert list(tools.iterdir()) == []
    maven.write_text(writes)
    for _ in range(2):
        done = call("sbt", ["compile"], programs, tools)
        assert done.returncode == 0, done.stderr
        (launcher,) = tools.iterdir()
        assert done.stdout.rstrip().endswith(f"-jar {launcher} compile")
    assert calls.read_text() == "called\n" * 2


@pytest.mark.parametrize("name", ["sbt", "mvn"])
def test_an_installed_one_is_taken(programs: Path, tmp_path: Path, name: str) -> None:
    program = programs / name
    program.write_text(f'#!{which("bash")}\necho "installed $*"\n')
    program.chmod(0o755)
    done = call(name, ["a", "b c"], programs, tmp_path / "tools")
    assert done.stdout == "installed a b c\n"
    assert not (tmp_path / "tools").exists()


@pytest.mark.parametrize("name", ["sbt", "mvn"])
def test_without_java_they_say_so(programs: Path, tmp_path: Path, name: str) -> None:
    (programs / "java").unlink()
    done = call(name, ["--version"], programs, tmp_path / "tools")
    assert done.returncode == 1
    assert "JDK, version 17" in done.stderr


def test_totals_of_a_report(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite tests="5" failures="1" errors="1" skipped="1"/>'
        '<testsuite tests="2" failures="0"/></testsuites>'
    )
    totals = run_tests.read(report)
    assert str(totals + run_tests.Totals(skipped=1)) == "4 passed, 2 failed, 2 skipped"


FAILING = (
    '<testsuites><testsuite tests="2" failures="1"><testcase classname="a.B" name="goes well"/>'
    '<testcase classname="a.B" name="waits"><failure message="too late"/></testcase></testsuite></testsuites>'
)
PASSING = FAILING.replace(' failures="1"', "").replace('<failure message="too late"/>', "")


def part(folder: Path, first: str, second: str) -> run_tests.Part:
    """Tests whose first run leaves the one report, and whose second leaves the other."""

    def command(report: str, status: int) -> list[str]:
        program = "import sys; open(sys.argv[1], 'w').write(sys.argv[2]); sys.exit(int(sys.argv[3]))"
        return [sys.executable, "-c", program, str(folder / "report.xml"), report, str(status)]

    return run_tests.Part(
        "Scala", command(first, int(first != PASSING)), lambda _: command(second, int(second != PASSING)), folder
    )


@pytest.mark.parametrize(
    ("first", "second", "status", "last"),
    [
        (PASSING, FAILING, 0, "2 passed, 0 failed, 0 skipped"),
        (FAILING, PASSING, 0, "2 passed, 0 failed, 0 skipped, 1 of them passed only alone"),
        (FAILING, FAILING, 1, "1 passed, 1 failed, 0 skipped"),
        # The process broke down without a failed test to run again.
        ("<testsuites/>", PASSING, 1, "0 passed, 0 failed, 0 skipped"),
        (FAILING.replace('failures="1"', 'failures="1" errors="1"'), PASSING, 1, "0 passed, 2 failed, 0 skipped"),
    ],
)
def test_what_failed_beside_others_is_run_again_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], first: str, second: str, status: int, last: str
) -> None:
    tests = part(tmp_path / "reports", first, second)
    of_all = tmp_path / "reports-all" / "report.xml"
    of_all.parent.mkdir()
    of_all.write_text("of an earlier time")
    assert run_tests.conclude([("Scala", *run_tests.settle(tests, dict(os.environ)))]) == status
    printed = capfd.readouterr().out.splitlines()
    assert printed[-1] == last
    assert any("a.B: waits: too late" in line for line in printed) == (first != PASSING and "a.B" in first)
    assert not of_all.exists() or of_all.read_text() == first
    assert of_all.exists() == (first == FAILING)


@pytest.mark.parametrize(("first", "status"), [(PASSING, 0), (FAILING, 1)])
def test_in_ci_a_test_that_passes_only_alone_is_a_failure(
    first: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    made = part(tmp_path / "reports", first, PASSING)
    monkeypatch.setattr(run_tests, "Part", lambda *_: made)
    monkeypatch.setattr(sys, "argv", ["run_tests.py", "--scala", "2.13.16"])
    archived = run_tests.run
    monkeypatch.setattr(run_tests, "run", lambda words, env: 0 if "archive" in words else archived(words, env))
    monkeypatch.setattr(run_tests.signal, "signal", lambda *_: None)
    for ci, expected in (("true", status), ("", 0)):
        monkeypatch.setenv("CI", ci)
        assert run_tests.main() == expected
    assert ("UNSTABLE" in capfd.readouterr().out) == bool(status)


@pytest.mark.parametrize(
    ("words", "of_scala", "of_python"),
    [
        ([], "jvm/test", "--long=with"),
        (["--long", "without"], "jvm/testOnly * -- -l sparkdlbench.TakesLong", "--long=without"),
        (["--long", "only"], "jvm/testOnly * -- -n sparkdlbench.TakesLong", "--long=only"),
    ],
)
def test_long_tests_by_themselves(
    words: list[str], of_scala: str, of_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def settle(part: run_tests.Part, _: dict[str, str]) -> tuple[run_tests.Outcome, None]:
        commands.append(part.command)
        return run_tests.Outcome(0, run_tests.Totals(1), {}), None

    monkeypatch.setattr(run_tests, "settle", settle)
    monkeypatch.setattr(run_tests, "run", lambda *_: 0)
    monkeypatch.setattr(run_tests.signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["run_tests.py", "--scala", "2.13.16", *words, "tests/test_cli.py"])
    assert run_tests.main() == 0
    scala, python = commands
    assert scala[-1] == of_scala
    assert python[-2:] == [of_python, "tests/test_cli.py"]


def test_every_test_is_in_one_half_or_the_other() -> None:
    def collected(which: str) -> list[str]:
        words = ["--collect-only", "-q", f"--long={which}", "tests/test_recovery.py"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
        )
        return [line for line in done.stdout.splitlines() if "::" in line]

    short, long, both = collected("without"), collected("only"), collected("with")
    assert short
    assert long
    assert sorted(short + long) == sorted(both)


def test_the_tag_of_long_scala_tests_is_the_one_they_have() -> None:
    tag = ROOT / "jvm" / "src" / "test" / "scala" / Path(*run_tests.LONG_TAG.split(".")).with_suffix(".scala")
    assert f'Tag("{run_tests.LONG_TAG}")' in tag.read_text(encoding="utf-8")


def test_the_slowest_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "one.xml").write_text(
        '<testsuite><testcase classname="tests.test_a.TestB" name="x" time="2.5"/>'
        '<testcase classname="tests.test_a" name="y" time="1"/><testcase classname="tests.test_c" name="z"/>'
        "</testsuite>"
    )
    (tmp_path / "two.xml").write_text('<testsuite><testcase classname="a.BSuite" name="x" time="40"/></testsuite>')
    seconds = run_tests.durations(sorted(tmp_path.glob("*.xml")))
    assert seconds == {"tests.test_a": 3.5, "tests.test_c": 0.0, "a.BSuite": 40.0}
    assert run_tests.slowest("All", seconds) == "All, slowest of 44 s: a.BSuite 40, tests.test_a 4, tests.test_c 0"
    assert run_tests.slowest("All", {}) == "All, slowest of 0 s: none"
    several = {str(number): float(number) for number in range(20)}
    assert run_tests.slowest("All", several).count(",") == run_tests.SLOWEST


def test_the_suites_of_failed_scala_tests_run_one_after_the_other() -> None:
    assert run_tests.alone({"a.B: waits": "", "a.B: ends": "", "a.C: is: there": ""}) == [
        "jvm/testOnly a.B",
        "jvm/testOnly a.C",
    ]


def test_tests_that_never_end_are_ended(capfd: pytest.CaptureFixture[str]) -> None:
    sleeping = [sys.executable, "-c", "import subprocess; subprocess.run(['sleep', '1000'])"]
    assert run_tests.run(sleeping, dict(os.environ), limit_s=1.0) == 124
    assert "has not ended after 1 s" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("spark", "minors", "chosen"),
    [
        ("4.1", {"python3": 11}, "python3"),
        ("4.1", {"python3": 14, "python3.13": 13, "python3.12": 12}, "python3.13"),
        ("4.1", {"python3": 14}, "python3"),
        ("4.1", {"python3": 9, "python3.10": 10}, "python3.10"),
        ("4.1", {"python3": 9}, ""),
        ("3.5", {"python3": 13, "python3.12": 12, "python3.11": 11}, "python3.11"),
        ("3.5", {"python3": 12}, "python3"),
    ],
)
def test_the_python_that_make_chooses(
    programs: Path, tmp_path: Path, spark: str, minors: dict[str, int], chosen: str
) -> None:
    for name, minor in minors.items():
        # The one that runs this, made to think that it is another.
        program = f"import sys; sys.version_info = (3, {minor}, 0); exec(sys.argv[1])"
        (programs / name).write_text(f"#!{which('bash')}\nexec '{sys.executable}' -c '{program}' \"$2\"\n")
        (programs / name).chmod(0o755)
    shutil.copy(ROOT / "Makefile", tmp_path)
    done = subprocess.run(
        [str(which("make")), "--eval", "choice: ; @echo '$(PYTHON)'", "choice", f"SPARK={spark}"],
        cwd=tmp_path,
        env={"PATH": str(programs)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=TIMEOUT_SECONDS,
    )
    assert done.stdout.strip() == chosen


MADE = [
    *("target/jars-4/ours.jar", "jvm/target/scala-2.13/ours.jar", "dist/ours.whl", ".pytest_cache/v", ".mypy_cache/v"),
    *(".ruff_cache/v", ".hypothesis/v", "tests/comparison/__pycache__/a.pyc", "python/sparkdl_bench/__pycache__/a.pyc"),
    "benchmarks/suites/__pycache__/a.pyc",
]
INSTALLED = [
    *(".venv/bin/python", ".venv-3.5/bin/python", "python/sparkdl_bench.egg-info/PKG-INFO", ".bsp/sbt.json"),
    *("project/target/a.jar", "project/project/target/a.jar"),
]
KEPT = [
    *("results/1/summary.json", "results/compare/1/plan.json", "benchmarks/results/host/1.json", "my-net.toml"),
    *("jvm/src/main/scala/A.scala", "project/build.properties", "python/sparkdl_bench/jars/.gitignore", "tests/a.py"),
]


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_clean_removes_what_was_made_and_nothing_else(tmp_path: Path) -> None:
    for name in [*MADE, *INSTALLED, *KEPT]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    shutil.copy(ROOT / "Makefile", tmp_path)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    for target, left in (("clean", [*INSTALLED, *KEPT]), ("distclean", KEPT)):
        subprocess.run(["make", target], cwd=tmp_path, env=environment, check=True, timeout=TIMEOUT_SECONDS)
        assert files_in(tmp_path) == {"Makefile", *left}, target


CODEC = "package sparkdlbench.codec\n\ntrait Codec\ntrait SixteenBit extends Codec\n"
# By case: what a file beside the trait holds, and what the scan makes of it.
DECLARED = {
    "plain": ("final class New extends Codec {\n", "sparkdlbench.codec.New"),
    "wrapped": ("final class New\n    extends Codec\n    with Serializable {\n", "sparkdlbench.codec.New"),
    "sub_trait": ("final class New extends SixteenBit {\n", "sparkdlbench.codec.New"),
    "second_parent": ("final class New extends Other[Int](1, (2)) with Codec {\n", "sparkdlbench.codec.New"),
    "comments_and_texts": (
        '// final class Old extends Codec\nobject Texts { val text = "\\"final class Old extends Codec" }\n',
        "",
    ),
    "hidden": ("private final class Chosen(bits: Int) extends Codec\nabstract class Half extends Codec\n", ""),
    "not_final": ("class New extends Codec\n", "New is a Codec and would not be found, because it is not final"),
    "object": ("object New extends SixteenBit {\n", "because it is an object"),
    "inner": ("object All {\n  final class New extends Codec\n}\n", "because it stands inside another declaration"),
    "parameters": ("final class New[T](bits: Int = 1) extends Codec\n", "because its constructor has parameters"),
}
# Prints for each folder of cases which codecs the scan finds, or why it stops.
SCANNING = """
lazy val scan = taskKey[Unit]("Scans each folder of cases by itself")
scan := IO.listFiles(baseDirectory.value / "cases").foreach { folder =>
  val texts = (folder ** "*.scala").get.map(file => file.getName -> IO.read(file))
  val told = scala.util.Try(Services.providers(texts)).fold(_.getMessage, _.values.flatten.mkString(" "))
  println(s"case ${folder.getName}: $told.")
}
"""


def kinds() -> list[str]:
    """The traits whose classes are found, each with its package."""
    text = (ROOT / "project" / "Services.scala").read_text().partition("Seq(")[2].partition(")")[0]
    return re.findall(r'"([\w.]+)"', text)


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """By case what project/Services.scala makes of it."""
    build = tmp_path_factory.mktemp("scan")
    (build / "project").mkdir()
    for name in ("build.properties", "Services.scala"):
        shutil.copy(ROOT / "project" / name, build / "project" / name)
    (build / "build.sbt").write_text(SCANNING)
    for name, (code, _) in DECLARED.items():
        folder = build / "cases" / name
        folder.mkdir(parents=True)
        (folder / "Codec.scala").write_text(CODEC)
        (folder / "New.scala").write_text(f"package sparkdlbench.codec\n\n{code}")
    away = build / "cases" / "another_package"
    away.mkdir()
    (away / "Codec.scala").write_text(CODEC)
    imports = "import sparkdlbench.codec.{Codec, SixteenBit}"
    (away / "Far.scala").write_text(f"package sparkdlbench.far\n\n{imports}\n\nfinal class Far extends SixteenBit\n")
    shutil.copytree(ROOT / "jvm" / "src" / "main" / "scala", build / "cases" / "whole_tree")
    for kind in kinds():
        package, trait = kind.rsplit(".", 1)
        new = build / "cases" / "whole_tree" / "sparkdlbench" / package.replace(".", "/") / f"New{trait}.scala"
        new.write_text(f"package sparkdlbench.{package}\n\nfinal class New{trait} extends {trait} {{}}\n")
    done = subprocess.run(
        [str(ROOT / "project" / "sbt"), "scan"],
        env=os.environ | {"SBT_PROJECT": str(build)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(re.findall(r"^case (\w+): (.*)\.$", done.stdout, re.MULTILINE))


@pytest.mark.parametrize("case", DECLARED)
def test_a_variant_is_found_or_stops_the_build(scanned: dict[str, str], case: str) -> None:
    expected = DECLARED[case][1]
    told = scanned[case]
    assert (expected in told and "final class" in told) if "because" in expected else told == expected


def test_one_file_adds_a_variant_of_any_kind(scanned: dict[str, str]) -> None:
    found = set(scanned["whole_tree"].split())
    new = {f"sparkdlbench.{kind.rpartition('.')[0]}.New{kind.rpartition('.')[2]}" for kind in kinds()}
    assert {"sparkdlbench.codec.NewCodec", "sparkdlbench.model.NewLayerKind"} <= new <= found
    table = (ROOT / "CONTRIBUTING.md").read_text()
    assert [kind for kind in kinds() if f"`{kind.rpartition('.')[2]}`" not in table] == []


def test_a_variant_of_another_package_is_found_through_its_imports(scanned: dict[str, str]) -> None:
    assert scanned["another_package"] == "sparkdlbench.far.Far"
