"""Bringing the jars of native code: which, from where, and what is said when it fails. No test here needs a network."""

from __future__ import annotations

import hashlib
from pathlib import Path
from zipfile import ZipFile

import pytest

from sparkdl_bench import jars
from sparkdl_bench.errors import ConfigurationError

PLATFORM = "linux-x86_64"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home: nothing that Maven, sbt or Ivy has brought before."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("COURSIER_CACHE", raising=False)
    monkeypatch.delenv(jars.SETTINGS_VARIABLE, raising=False)
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


@pytest.mark.parametrize("platform", ["linux-arm64", "macosx-arm64"])
def test_other_platforms_get_openblas_alone(platform: str) -> None:
    names = {(jar.name, jar.classifier) for jar in jars.coordinates(platform)}
    assert names == {(name, part) for name in ("javacpp", "openblas", "pytorch") for part in ("", platform)}


def test_unknown_platform_lists_the_valid_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"'windows'.*linux-x86_64, linux-arm64, macosx-arm64"):
        jars.coordinates("windows")


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


@pytest.mark.parametrize("repository", [".m2/repository", ".cache/coursier/v1/https/some.registry/maven2"])
def test_copies_of_maven_and_sbt_are_taken_first(home: Path, registry: Path, tmp_path: Path, repository: str) -> None:
    jar = jars.coordinates(PLATFORM)[1]
    local = home / repository / jar.organization.replace(".", "/") / jar.name / jar.version / jar.file_name
    local.parent.mkdir(parents=True)
    write_jar(local, "the local copy")
    texts = [text_in(path) for path in jars.fetch(tmp_path / "jars", PLATFORM)]
    assert texts[1] == "the local copy"
    assert texts[0] == str(jars.coordinates(PLATFORM)[0])


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
