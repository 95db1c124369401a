"""`make release`: what registries ask for, checked on files as small as they may be; whole builds are a campaign."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

import release
from sparkdl_bench.config import tomllib
from sparkdl_bench.version import __version__

ROOT = Path(__file__).resolve().parents[1]
EPOCH = 1_800_000_000
BUILD_TIMEOUT_S = 3600
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<groupId>io.github.sparkdl-bench</groupId><artifactId>{artifact}</artifactId><version>1.2.3</version>
<name>n</name><description>d</description><url>u</url>
<licenses><license><name>Apache-2.0</name><url>l</url></license></licenses>
<developers><developer><name>d</name><url>d</url></developer></developers>
<scm><url>s</url><connection>c</connection><developerConnection>e</developerConnection></scm>
</project>"""


def source_distribution(names: list[str], moment: int) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.uid, entry.uname = len(name), moment, moment % 1000, f"user{moment}"
            archive.addfile(entry, io.BytesIO(name.encode()))
    return raw.getvalue()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A commit with what a build leaves, in the places where `make release` leaves it."""
    root = tmp_path / "checkout"
    for line, scala in release.SCALA_OF_LINE.items():
        artifact = f"sparkdl-bench-spark-{line}_{scala}"
        folder = root / "jvm" / "target" / f"scala-{scala}"
        folder.mkdir(parents=True)
        for ending in (".jar", "-sources.jar", "-javadoc.jar"):
            (folder / f"{artifact}-1.2.3{ending}").write_bytes(f"{line}{ending}".encode())
        (folder / f"{artifact}-1.2.3.pom").write_text(POM.format(artifact=artifact))
    (root / "dist").mkdir()
    (root / "dist" / "sparkdl_bench-1.2.3-py3-none-any.whl").write_bytes(b"wheel")
    (root / "dist" / "sparkdl_bench-1.2.3.tar.gz").write_bytes(source_distribution(["a", "b"], 1_700_000_000))
    (root / ".gitignore").write_text("target/\ndist/\n")
    who = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    for words in (["init", "--quiet"], ["add", ".gitignore"], [*who, "commit", "--quiet", "--message", "all"]):
        subprocess.run(["git", *words], cwd=root, check=True)
    return root


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home of GnuPG with one secret key that is thrown away."""
    if not shutil.which("gpg"):
        pytest.skip("GnuPG is not installed")
    home = tmp_path_factory.mktemp("gpg", numbered=True)
    home.chmod(0o700)
    environment = {**os.environ, "GNUPGHOME": str(home)}
    make = ["gpg", "--batch", "--passphrase", "", "--quick-generate-key", "test@localhost", "ed25519", "sign", "1d"]
    subprocess.run(make, env=environment, check=True, capture_output=True, timeout=60)
    yield home
    subprocess.run(["gpgconf", "--kill", "gpg-agent"], env=environment, check=False, timeout=60)


def run(root: Path, *more: str) -> int:
    words = ["--version", "1.2.3", "--epoch", str(EPOCH), "--root", str(root), "--dist", str(root / "dist"), *more]
    return int(release.main(words))


def test_a_release_is_laid_out_as_the_registries_take_it(
    checkout: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GNUPGHOME", str(key))
    assert run(checkout, "--key", "test@localhost") == 0
    folder = checkout / "target" / "release"
    with ZipFile(folder / "central-bundle-1.2.3.zip") as archive:
        names = set(archive.namelist())
    for line, scala in release.SCALA_OF_LINE.items():
        artifact = f"sparkdl-bench-spark-{line}_{scala}"
        for ending in (".jar", ".pom", "-sources.jar", "-javadoc.jar"):
            name = f"io/github/sparkdl-bench/{artifact}/1.2.3/{artifact}-1.2.3{ending}"
            assert {name, f"{name}.asc", f"{name}.md5", f"{name}.sha1"} <= names
            content = (folder / "maven" / name).read_bytes()
            assert (folder / "maven" / f"{name}.sha1").read_text() == hashlib.sha1(content).hexdigest()
    assert len(names) == 2 * 4 * 6
    signed = release.signed_files(folder)
    assert len(signed) == 2 * 4 + 2
    for file in signed:
        subprocess.run(["gpg", "--verify", f"{file}.asc", str(file)], check=True, capture_output=True, timeout=60)
    first = (folder / "SHA256SUMS").read_text()
    assert len(first.splitlines()) == len(signed)

    # The same files, packed at another time by somebody else.
    (checkout / "dist" / "sparkdl_bench-1.2.3.tar.gz").write_bytes(source_distribution(["b", "a"], 1_700_000_555))
    assert run(checkout, "--key", "test@localhost") == 0
    assert (folder / "SHA256SUMS").read_text() == first


def test_nothing_is_released_but_a_commit(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "more.txt").write_text("not committed")
    assert run(checkout) == 1
    assert "more.txt for one, and a release is built from a commit alone" in capsys.readouterr().err
    assert not (checkout / "target" / "release").exists()


def test_a_key_that_is_not_there_is_named(
    checkout: Path, key: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GNUPGHOME", str(key))
    assert run(checkout, "--key", "nobody@localhost") == 1
    said = capsys.readouterr().err
    assert "with nobody@localhost" in said
    assert "make release KEY=FINGERPRINT" in said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("<name>d</name>", ""), "has no developers/developer/name, which Maven Central asks of every POM"),
        (("<connection>c</connection>", ""), "has no scm/connection"),
        (("<version>1.2.3", "<version>1.2.4"), "and must be of io.github.sparkdl-bench:"),
    ],
)
def test_an_incomplete_pom_is_refused(
    checkout: Path, change: tuple[str, str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (pom,) = checkout.glob("jvm/target/scala-2.13/*.pom")
    pom.write_text(pom.read_text().replace(*change))
    assert run(checkout) == 1
    assert said in capsys.readouterr().err


def test_a_file_that_was_not_built_is_named(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (javadoc,) = checkout.glob("jvm/target/scala-2.12/*-javadoc.jar")
    javadoc.unlink()
    assert run(checkout) == 1
    assert f"{javadoc.name} was not built" in capsys.readouterr().err


def test_the_version_stands_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "sparkdl_bench.version.__version__"}
    build = (ROOT / "build.sbt").read_text()
    assert "SharedVersion.read(" in build
    assert f'"{__version__}"' not in build
    # Documents and the projects that show how to depend on us cannot read it, so they are held to it.
    for path in (ROOT / "README.md", *(ROOT / "tests" / "consumers").glob("*/*.[xs][mb][lt]")):
        for stated in set(path.read_text().split("sparkdl-bench-spark-")[1:]):
            assert __version__ in stated or "0." not in stated[:80], f"{path}: {stated[:80]}"


def test_build_requirements_are_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    loose = [each for each in project["build-system"]["requires"] if "==" not in each]
    assert not loose, "builds of one commit would differ with the day: pin " + ", ".join(loose)


@pytest.mark.campaign
@pytest.mark.on_one_line
def test_two_builds_of_one_commit_give_the_same_bytes(
    tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two clones at different paths, built one after the other, each signed by a key that is thrown away."""
    sums = []
    origin = ROOT
    for name in ("first", "a-longer-name/second"):
        clone = tmp_path / name
        subprocess.run(["git", "clone", "--quiet", str(origin), str(clone)], check=True, timeout=BUILD_TIMEOUT_S)
        origin = clone  # the checkout may have another commit by the time of the second build
        subprocess.run(
            ["make", "release", "KEY=test@localhost", f"PYTHON={sys.executable}"],
            cwd=clone,
            env={**os.environ, "GNUPGHOME": str(key), "TZ": "UTC" if name == "first" else "Asia/Tokyo"},
            stdin=subprocess.DEVNULL,
            check=True,
            timeout=BUILD_TIMEOUT_S,
        )
        sums.append((clone / "target" / "release" / "SHA256SUMS").read_text())
        time.sleep(2)  # zip entries count in steps of two seconds
    assert sums[0] == sums[1]
    assert len(sums[0].splitlines()) == 10
