"""Bringing the jars of native code: which, from where, and what is said when it fails. No test here needs a network."""

from __future__ import annotations

import hashlib
import re
import shutil
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from zipfile import ZipFile

import click
import pyspark
import pytest
from click.testing import CliRunner

from sparkdl_bench import class_archive_build, jarfiles, jars, ucx
from sparkdl_bench.commands import jars as jars_command
from sparkdl_bench.commands.jars import command
from sparkdl_bench.errors import ConfigurationError, SparkDLError
from sparkdl_bench.jarfiles import PLATFORMS
from sparkdl_bench.lab import hadoop

PLATFORM = "linux-x86_64"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home: nothing that Maven, sbt or Ivy has brought before."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setattr(jars, "_homes", lambda: [folder])  # not that of the password file
    for name in ("COURSIER_CACHE", "XDG_CACHE_HOME", jars.SETTINGS_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(jars, "pinned", dict)  # the jars of these tests are not the real ones
    return folder


@pytest.fixture
def registry(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Maven registry in a folder, with a small jar for each of the real coordinates; Ivy asks it alone."""
    folder = tmp_path / "registry"
    for jar in jars.coordinates(PLATFORM):
        place = folder / jar.organization.replace(".", "/") / jar.name / jar.version
        place.mkdir(parents=True, exist_ok=True)
        write_jar(place / jar.file_name, str(jar))
        (place / f"{jar.name}-{jar.version}.pom").write_text(
            f"<project><modelVersion>4.0.0</modelVersion><groupId>{jar.organization}</groupId>"
            f"<artifactId>{jar.name}</artifactId><version>{jar.version}</version></project>"
        )
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="folder"/><resolvers>'
        f'<ibiblio name="folder" m2compatible="true" root="{folder.as_uri()}"/></resolvers></ivysettings>'
    )
    monkeypatch.setenv(jars.SETTINGS_VARIABLE, str(settings))
    return folder


class FakeIvy:
    """In the place of Ivy: makes small jars, slowly, and counts how often it is asked for each."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def retrieve(self, wanted: list[jars.Coordinates], room: Path) -> None:
        self.asked.update(str(jar) for jar in wanted)
        time.sleep(0.02)
        for jar in wanted:
            write_jar(room / jar.file_name, str(jar))

    def asked_once_for(self, wanted: list[jars.Coordinates]) -> bool:
        return self.asked == Counter(str(jar) for jar in wanted)


@pytest.fixture
def ivy(home: Path, monkeypatch: pytest.MonkeyPatch) -> FakeIvy:
    fake = FakeIvy()
    monkeypatch.setattr(jars, "_retrieve", fake.retrieve)
    return fake


def write_jar(path: Path, text: str) -> None:
    with ZipFile(path, "w") as archive:
        archive.writestr("coordinates.txt", text)


def text_in(path: Path) -> str:
    with ZipFile(path) as archive:
        return archive.read("coordinates.txt").decode()


def test_x86_64_linux_gets_mkl_and_every_native_part() -> None:
    names = {(jar.name, jar.classifier) for jar in jars.coordinates("linux-x86_64")}
    assert names == {
        (name, classifier) for name in ("javacpp", "openblas", "pytorch", "mkl") for classifier in ("", "linux-x86_64")
    } | {("mkl", "linux-x86_64-redist")}


def test_a_mac_gets_openblas_alone() -> None:
    platform = "macosx-arm64"
    names = {(jar.name, jar.classifier) for jar in jars.coordinates(platform)}
    assert names == {(name, part) for name in ("javacpp", "openblas", "pytorch") for part in ("", platform)}


def test_unknown_platform_lists_the_valid_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"'windows'.*linux-x86_64, macosx-arm64"):
        jars.coordinates("windows")


@pytest.mark.parametrize("platform", PLATFORMS)
def test_every_file_of_native_code_has_its_hash(platform: str) -> None:
    digests = jars.pinned()
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests.values())
    names = [jar.file_name for jar in (*jars.coordinates(platform), ucx.JUCX)]
    assert [name for name in names if name not in digests] == []
    assert any(name.startswith(f"libucx_cu12-{ucx.VERSION}-") for name in digests)


def test_no_hash_is_of_a_version_that_nothing_brings() -> None:
    wanted = {jar.file_name for platform in PLATFORMS for jar in jars.coordinates(platform)}
    others = {name for name in jars.pinned() if not name.startswith(f"libucx_cu12-{ucx.VERSION}-")}
    assert others == wanted | {ucx.JUCX.file_name}


def test_what_a_registry_serves_under_the_name_is_refused_where_it_is_another_file(
    registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = jars.coordinates(PLATFORM)[1]
    monkeypatch.setattr(jars, "pinned", lambda: {jar.file_name: "0" * 64})
    with pytest.raises(jars.FetchFailedError, match=rf"sent for {jar} is not the file.*{'0' * 64} is expected"):
        jars.fetch(tmp_path / "jars", PLATFORM)
    assert not list(tmp_path.glob(f"jars/{jar.file_name}"))
    assert not list(tmp_path.glob(f"home/**/{jar.file_name}")), "nothing of it is kept for later either"


def test_a_copy_of_another_tool_that_is_another_file_is_passed_over(
    home: Path, ivy: FakeIvy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = jars.coordinates(PLATFORM)[1]
    changed = home / ".m2" / "repository" / jar.path
    whole = home / ".ivy2" / "cache" / jar.organization / jar.name / "jars" / jar.file_name
    for path, text in ((changed, "changed"), (whole, "as published")):
        path.parent.mkdir(parents=True)
        write_jar(path, text)
    monkeypatch.setattr(jars, "pinned", lambda: {jar.file_name: hashlib.sha256(whole.read_bytes()).hexdigest()})
    assert text_in(jars.fetch(tmp_path / "jars", PLATFORM)[1]) == "as published"


def test_pip_takes_the_libraries_of_ucx_by_their_hash_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: object) -> SimpleNamespace:
        asked.append(Path(command[-1]).read_text())
        assert "--require-hashes" in command
        return SimpleNamespace(returncode=1, stdout="", stderr="THESE PACKAGES DO NOT MATCH THE HASHES")

    asked: list[str] = []
    monkeypatch.setattr(ucx.subprocess, "run", run)
    with pytest.raises(jars.FetchFailedError, match="DO NOT MATCH THE HASHES"):
        ucx._download(tmp_path)
    (digest,) = [digest for name, digest in jars.pinned().items() if name.startswith("libucx")]
    assert asked == [f"libucx-cu12=={ucx.VERSION} --hash=sha256:{digest}\n"]


def test_a_host_that_has_no_native_code_is_told_what_trains_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars_command.platform, "system", lambda: "Linux")
    monkeypatch.setattr(jars_command.platform, "machine", lambda: "aarch64")
    with pytest.raises(ConfigurationError, match=r"this host, linux-arm64.*engine\.name=numpy"):
        jars_command.host_platform()


def test_ivy_brings_every_jar_under_its_own_name(registry: Path, tmp_path: Path) -> None:
    target = tmp_path / "made" / "by" / "fetch"
    paths = jars.fetch(target, PLATFORM)
    assert [text_in(path) for path in paths] == [str(jar) for jar in jars.coordinates(PLATFORM)]
    assert sorted(path.name for path in target.iterdir()) == sorted(path.name for path in paths)


def test_what_is_there_is_not_brought_again(registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = jars.fetch(tmp_path / "jars", PLATFORM)
    before = {path: path.stat().st_mtime_ns for path in first}
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert jars.fetch(tmp_path / "jars", PLATFORM) == first
    assert {path: path.stat().st_mtime_ns for path in first} == before


@pytest.mark.parametrize(
    "folder",
    [
        ".m2/repository/{maven}",
        ".cache/coursier/v1/https/some.registry/maven2/{maven}",
        ".cache/coursier/v1/https/some.registry/{maven}",
        ".cache/coursier/v1/https/user%40some.mirror/artifactory/api/maven-central/{maven}",
        ".ivy2/cache/{organization}/{name}/jars",
        ".ivy2.5.2/cache/{organization}/{name}/bundles",
    ],
)
def test_copies_of_maven_sbt_and_spark_submit_are_taken_first(
    home: Path, ivy: FakeIvy, tmp_path: Path, folder: str
) -> None:
    others = jars.coordinates(PLATFORM)
    jar = others.pop(1)
    maven = str(Path(jar.path).parent)
    local = home / folder.format(maven=maven, organization=jar.organization, name=jar.name) / jar.file_name
    local.parent.mkdir(parents=True)
    write_jar(local, "the local copy")
    texts = [text_in(path) for path in jars.fetch(tmp_path / "jars", PLATFORM)]
    assert texts[1] == "the local copy"
    assert ivy.asked_once_for(others)


@pytest.mark.parametrize(("variable", "below"), [("COURSIER_CACHE", ""), ("XDG_CACHE_HOME", "coursier/v1")])
def test_a_cache_of_sbt_that_the_user_has_moved(
    ivy: FakeIvy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, below: str
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "moved"))
    for jar in jars.coordinates(PLATFORM):
        local = tmp_path / "moved" / below / "https" / "some.registry" / "maven2" / jar.path
        local.parent.mkdir(parents=True, exist_ok=True)
        write_jar(local, "the local copy")
    assert {text_in(path) for path in jars.fetch(tmp_path / "jars", PLATFORM)} == {"the local copy"}
    assert ivy.asked_once_for([])


def test_the_home_of_a_jvm_is_looked_into_where_home_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "own"))
    monkeypatch.setattr(jars.pwd, "getpwuid", lambda _: SimpleNamespace(pw_dir=str(tmp_path / "jvm")))
    assert jars._homes() == [tmp_path / "own", tmp_path / "jvm"]
    monkeypatch.setenv("HOME", str(tmp_path / "jvm"))
    assert jars._homes() == [tmp_path / "jvm"]


def test_what_one_folder_got_no_other_folder_or_line_asks_for_again(ivy: FakeIvy, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    asked = [[str(first)], [], ["--line", "3.5"], ["--line", "4"], [str(second)]]
    told: list[Path] = []
    for words in asked:
        done = CliRunner().invoke(command, ["fetch", *words, "--platform", PLATFORM], catch_exceptions=False)
        told += [Path(line) for line in done.output.splitlines()]
    wanted = jars.coordinates(PLATFORM)
    assert ivy.asked_once_for(wanted)
    assert [text_in(path) for path in told] == [str(jar) for jar in wanted] * len(asked)
    assert len({path.parent for path in told}) == 4  # the line of the pyspark installed is one of the two
    # A jar takes its room once, and outlives the folder that it was brought into.
    assert len({path.stat().st_ino for path in told}) == len(wanted)
    shutil.rmtree(first)
    jars.fetch(tmp_path / "third", PLATFORM)
    assert ivy.asked_once_for(wanted)


class TestArchive:
    """`jars fetch` archives a run's classes where sessions of this host take what it brings."""

    @pytest.fixture
    def made(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        made: list[str] = []
        monkeypatch.setattr(class_archive_build, "create", lambda: made.append("archive"))
        return made

    def _fetch(self, *words: str) -> click.testing.Result:
        return CliRunner().invoke(command, ["fetch", *words, "--platform", PLATFORM], catch_exceptions=False)

    def test_only_of_the_folder_that_sessions_take(
        self, ivy: FakeIvy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: list[str]
    ) -> None:
        thin = jarfiles.find_thin(jarfiles.spark_line(pyspark.__version__))
        folder = tmp_path / "used"
        folder.mkdir()
        shutil.copy(thin, folder)
        monkeypatch.setenv(jarfiles.FOLDER_VARIABLE, str(folder))
        assert self._fetch(str(tmp_path / "other")).exit_code == 0
        assert ivy.asked
        assert self._fetch(str(folder), "--no-archive").exit_code == 0
        assert made == []
        assert self._fetch(str(folder)).exit_code == 0
        assert made == ["archive"]

    def test_without_one_the_jars_are_there_all_the_same(
        self, ivy: FakeIvy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail() -> None:
            raise SparkDLError("The JVM said no.")

        monkeypatch.setattr(class_archive_build, "create", fail)
        monkeypatch.setattr(jars_command, "_are_used", lambda _: True)
        done = self._fetch(str(tmp_path / "used"))
        assert done.exit_code == 0
        assert ivy.asked
        assert len(done.stdout.splitlines()) == len(jars.coordinates(PLATFORM))
        assert "No archive of classes was made" in done.stderr
        assert "The JVM said no." in done.stderr


def test_what_is_fetched_is_told_before_it_comes(ivy: FakeIvy, tmp_path: Path) -> None:
    told: list[str] = []
    jars.fetch(tmp_path / "jars", PLATFORM, told.append)
    modules = list(dict.fromkeys((jar.name, jar.version) for jar in jars.coordinates(PLATFORM)))
    assert told == [
        f"fetching {name} {version} ({number} of {len(modules)})"
        for number, (name, version) in enumerate(modules, start=1)
    ]
    jars.fetch(tmp_path / "other", PLATFORM, told.append)
    assert len(told) == len(modules), "what is here already is not fetched"


def test_platforms_do_not_stand_for_each_other(ivy: FakeIvy, tmp_path: Path) -> None:
    for platform in PLATFORMS:
        jars.fetch(tmp_path / platform, platform)
        assert {path.name for path in (tmp_path / platform).iterdir()} == {
            jar.file_name for jar in jars.coordinates(platform)
        }
    assert set(ivy.asked.values()) == {1}


def test_two_fetches_at_once_ask_once(ivy: FakeIvy, tmp_path: Path) -> None:
    fetches = [
        threading.Thread(target=jars.fetch, args=(tmp_path / name, PLATFORM)) for name in ("one", "two", "three")
    ]
    for fetch in fetches:
        fetch.start()
    for fetch in fetches:
        fetch.join(60)
    assert ivy.asked_once_for(jars.coordinates(PLATFORM))
    assert len(list(tmp_path.glob("*/pytorch-*.jar"))) == 2 * len(fetches)


def test_a_cache_that_cannot_be_written_hinders_nobody(home: Path, ivy: FakeIvy, tmp_path: Path) -> None:
    (home / ".cache").write_text("no folder")
    assert all(path.is_file() for path in jars.fetch(tmp_path / "jars", PLATFORM))


def test_a_copy_that_breaks_off_leaves_no_half_of_a_jar(
    home: Path, ivy: FakeIvy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = jars.coordinates(PLATFORM)[0]
    local = home / ".m2" / "repository" / jar.path
    local.parent.mkdir(parents=True)
    write_jar(local, "the local copy")

    def refuse(*_: object) -> None:
        raise OSError("another file system")

    def break_off(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes()[:10])
        raise OSError("no room left")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    monkeypatch.setattr(shutil, "copyfile", break_off)
    with pytest.raises(ConfigurationError, match=r"cannot be written: no room left"):
        jars.fetch(tmp_path / "jars", PLATFORM)
    assert list((tmp_path / "jars").iterdir()) == []


def test_the_libraries_of_ucx_come_once(ivy: FakeIvy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    downloads = []

    def download(room: Path) -> Path:
        downloads.append(room)
        wheel = room / "libucx.whl"
        with ZipFile(wheel, "w") as made:
            for name in ucx._LIBRARIES:
                made.writestr(ucx._WHEEL_FOLDER + name, name)
        return wheel

    monkeypatch.setattr(ucx, "_download", download)
    first, second = (ucx.fetch(tmp_path / name, PLATFORM) for name in ("first", "second"))
    assert [path.name for path in second] == [ucx.JUCX.file_name, ucx.LIBRARIES_JAR]
    assert [path.read_bytes() for path in second] == [path.read_bytes() for path in first]
    assert len(downloads) == 1
    assert ivy.asked_once_for([ucx.JUCX])


def test_the_jars_of_hdfs_are_those_that_the_build_has_brought() -> None:
    build = (Path(__file__).resolve().parents[1] / "build.sbt").read_text()
    listed = re.findall(r'"([^"]+)" % "([^"]+)" % "([^"]+)" % MiniHdfs', build)
    assert [jars.Coordinates(*each) for each in listed] == list(hadoop.JARS[: len(listed)])
    assert len(listed) == 4


def test_a_jar_that_nobody_has_is_named_and_the_rest_is_kept(registry: Path, tmp_path: Path) -> None:
    for path in registry.rglob("pytorch-*-linux-x86_64.jar"):
        path.unlink()
    with pytest.raises(jars.FetchFailedError, match=r"org\.bytedeco:pytorch:[^,]*:linux-x86_64.*SPARKDL_IVY_SETTINGS"):
        jars.fetch(tmp_path / "jars", PLATFORM)
    left = {path.name.partition("-")[0] for path in (tmp_path / "jars").iterdir()}
    assert left == {"javacpp", "openblas", "mkl"}


def test_a_jar_with_a_wrong_checksum_is_refused(registry: Path, tmp_path: Path) -> None:
    (path,) = registry.rglob("javacpp-*-linux-x86_64.jar")
    path.with_name(path.name + ".sha1").write_text(hashlib.sha1(b"something else").hexdigest())
    with pytest.raises(jars.FetchFailedError, match="javacpp"):
        jars.fetch(tmp_path / "jars", PLATFORM)
    assert not (tmp_path / "jars" / path.name).exists()


def test_without_java_the_message_says_so(registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigurationError, match=r"nowhere.*JDK 17"):
        jars.fetch(tmp_path / "jars", PLATFORM)


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        jars.fetch(tmp_path / "file" / "jars", PLATFORM)


def test_settings_that_are_not_there(registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(jars.SETTINGS_VARIABLE, str(tmp_path / "none.xml"))
    with pytest.raises(ConfigurationError, match=r"none\.xml"):
        jars.fetch(tmp_path / "jars", PLATFORM)


def test_the_build_reads_the_same_coordinates() -> None:
    build = (Path(__file__).resolve().parents[1] / "build.sbt").read_text()
    assert "natives.properties" in build
    assert 'bytedeco" %' not in build
