"""Lays out a release as Maven Central and PyPI take it, in one folder (`make release`). Uploads nothing.

    target/release/maven/io/github/sparkdl-bench/ARTIFACT/VERSION/   jars, POM, signatures, checksums: Maven's layout
    target/release/central-bundle-VERSION.zip                        the same as one file, for Central's upload
    target/release/pypi/                                             wheel and source distribution, with signatures
    target/release/SHA256SUMS                                        of everything but signatures

Two releases of one commit have the same SHA256SUMS: entry times are fixed, and signatures, which hold the time of
signing, are not counted.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path
from zipfile import ZIP_STORED, ZipFile, ZipInfo

ROOT = Path(__file__).resolve().parents[1]
GROUP = "io.github.sparkdl-bench"
SCALA_OF_LINE = {"4": "2.13", "3.5": "2.12"}
POM = "{http://maven.apache.org/POM/4.0.0}"
# What Central refuses a POM without.
NEEDED = [
    *("name", "description", "url", "licenses/license/name", "licenses/license/url"),
    *("developers/developer/name", "developers/developer/url", "scm/url", "scm/connection", "scm/developerConnection"),
]
CHECKSUMS = ("md5", "sha1", "sha256", "sha512")
GPG_TIMEOUT_S = 120


class ReleaseError(Exception):
    """What stands in the way of a release, and what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--version", required=True)
    parser.add_argument("--epoch", required=True, type=int, help="time of every entry that is written here, since 1970")
    parser.add_argument("--key", default="", help="which of GnuPG's secret keys signs [default: GnuPG's own choice]")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout that was built")
    parser.add_argument("--dist", type=Path, required=True, help="folder of the wheel and the source distribution")
    given = parser.parse_args(arguments)
    folder = given.root / "target" / "release"
    try:
        check_commit(given.root)
        stage(given.root, given.dist, folder, given.version, given.epoch)
        sign(signed_files(folder), given.key)
        bundle(folder, given.version, given.epoch)
    except ReleaseError as error:
        print(f"No release: {error}", file=sys.stderr)
        return 1
    print(f"The release of {given.version} lies in {folder}. Nothing was uploaded: docs/how-to/release.md says how.")
    return 0


def check_commit(root: Path) -> None:
    """Jars say the commit that they were built from, so there must be one."""
    asked = ["git", "status", "--porcelain"]
    done = subprocess.run(asked, cwd=root, capture_output=True, text=True, check=True)  # noqa: S603 (the command is ours)
    changed = done.stdout.splitlines()
    if changed:
        raise ReleaseError(
            f"{len(changed)} files of {root} differ from the commit, {changed[0].strip()} for one, and a release is "
            "built from a commit alone. Commit or stash them, and run `make release` again."
        )


def stage(root: Path, dist: Path, folder: Path, version: str, epoch: int) -> None:
    """Everything but signatures."""
    shutil.rmtree(folder, ignore_errors=True)
    for line, scala in SCALA_OF_LINE.items():
        artifact = f"sparkdl-bench-spark-{line}_{scala}"
        built = root / "jvm" / "target" / f"scala-{scala}"
        target = folder / "maven" / Path(*GROUP.split("."), artifact, version)
        target.mkdir(parents=True)
        for ending in (".jar", ".pom", "-sources.jar", "-javadoc.jar"):
            shutil.copyfile(found(built / f"{artifact}-{version}{ending}"), target / f"{artifact}-{version}{ending}")
        check_pom(target / f"{artifact}-{version}.pom", artifact, version)
    python = folder / "pypi"
    python.mkdir()
    name = f"sparkdl_bench-{version}"
    shutil.copyfile(found(dist / f"{name}-py3-none-any.whl"), python / f"{name}-py3-none-any.whl")
    (python / f"{name}.tar.gz").write_bytes(normalised(found(dist / f"{name}.tar.gz"), epoch))
    files = signed_files(folder)
    for file in files:
        if file.is_relative_to(folder / "maven"):
            for kind in CHECKSUMS:
                file.with_name(f"{file.name}.{kind}").write_text(hashlib.new(kind, file.read_bytes()).hexdigest())
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(folder)}\n" for file in files]
    (folder / "SHA256SUMS").write_text("".join(sums))


def found(file: Path) -> Path:
    if not file.is_file():
        raise ReleaseError(f"{file} was not built. Run `make release`, which builds all that belongs to one.")
    return file


def check_pom(file: Path, artifact: str, version: str) -> None:
    project = ElementTree.parse(file).getroot()  # noqa: S314 (our own build wrote it)

    def text(path: str) -> str:
        return (project.findtext("/".join(POM + part for part in path.split("/"))) or "").strip()

    missing = [path for path in NEEDED if not text(path)]
    if missing:
        raise ReleaseError(
            f"{file.name} has no {', '.join(missing)}, which Maven Central asks of every POM. Set it in build.sbt."
        )
    stated = (text("groupId"), text("artifactId"), text("version"))
    if stated != (GROUP, artifact, version):
        raise ReleaseError(
            f"{file.name} is of {':'.join(stated)}, and must be of {GROUP}:{artifact}:{version}. The version stands in "
            "python/sparkdl_bench/version.py; build again with `make release`."
        )


def normalised(archive: Path, epoch: int) -> bytes:
    """A source distribution with fixed times, owners and order, so that the same files give the same bytes."""
    raw = io.BytesIO()
    with (
        tarfile.open(archive, "r:gz") as read,
        gzip.GzipFile(fileobj=raw, mode="wb", mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as written,
    ):
        for member in sorted(read.getmembers(), key=lambda each: each.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            written.addfile(member, read.extractfile(member) if member.isfile() else None)
    return raw.getvalue()


def signed_files(folder: Path) -> list[Path]:
    """What gets a signature: jars, POMs, wheel and source distribution, in a fixed order."""
    endings = (".jar", ".pom", ".whl", ".tar.gz")
    return sorted(path for path in folder.rglob("*") if path.name.endswith(endings))


def sign(files: Sequence[Path], key: str) -> None:
    who = ["--local-user", key] if key else []
    for file in files:
        command = ["gpg", "--batch", "--yes", "--armor", "--detach-sign", *who, str(file)]
        try:
            done = subprocess.run(  # noqa: S603 (the command is ours)
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=GPG_TIMEOUT_S, check=False
            )
        except FileNotFoundError:
            raise ReleaseError(
                "GnuPG (`gpg`) is not on the PATH, and Maven Central takes signed files alone."
            ) from None
        except subprocess.TimeoutExpired:
            raise ReleaseError(
                f"GnuPG did not sign {file.name} within {GPG_TIMEOUT_S} s; it may wait for a passphrase. Unlock the "
                "key beforehand (`gpg --sign` on any file), and run `make release` again."
            ) from None
        if done.returncode != 0:
            raise ReleaseError(
                f"GnuPG does not sign {file.name} with {key or 'its default key'}: {' '.join(done.stderr.split())} "
                "Name a secret key of yours: make release KEY=FINGERPRINT."
            )


def bundle(folder: Path, version: str, epoch: int) -> Path:
    """One zip in Maven's layout, which is what Central's upload takes."""
    maven = folder / "maven"
    target = folder / f"central-bundle-{version}.zip"
    with ZipFile(target, "w") as archive:
        for file in sorted(path for path in maven.rglob("*") if path.is_file()):
            entry = ZipInfo(file.relative_to(maven).as_posix(), date_time=zip_time(epoch))
            entry.compress_type = ZIP_STORED
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, file.read_bytes())
    return target


def zip_time(epoch: int) -> tuple[int, int, int, int, int, int]:
    moment = time.gmtime(max(epoch, 315532800))
    return (moment.tm_year, moment.tm_mon, moment.tm_mday, moment.tm_hour, moment.tm_min, moment.tm_sec)


if __name__ == "__main__":
    sys.exit(main())
