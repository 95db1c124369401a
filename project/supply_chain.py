"""What the package is made of, and what is known against it (`make sbom`, `make audit`).

    target/sbom/sparkdl_bench-VERSION.cdx.json    the wheel in a fresh environment: all that pip brings with it
    target/sbom/ARTIFACT-VERSION.cdx.json         the jar of either Spark line and all that its POM names

CycloneDX, made by the field's own tools: cyclonedx-py, and CycloneDX's plugin for Maven. `audit` asks pip-audit (PyPI's
advisories) and OWASP dependency-check (NVD's). Exit status: 0 nothing known, 1 something is known or a tool failed,
3 no advisories could be read, so nothing is known either way. "Nothing found" is never said of what was not looked up.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from release import ROOT, SCALA_OF_LINE
from sparkdl_bench.jars import Coordinates, pinned

CYCLONEDX = "org.cyclonedx:cyclonedx-maven-plugin:2.9.1"
DEPENDENCY_CHECK = "org.owasp:dependency-check-maven:12.1.8"
# Of CVSS 3: from here on "high".
WORST_CVSS = 7
COMMAND_TIMEOUT_S = 3600
FOUND, UNKNOWN = 1, 3


class SupplyChainError(Exception):
    """A tool that did not do its work, and what it said."""


class NoAdvisoriesError(Exception):
    """Nobody could be asked what is known."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=("sbom", "audit"))
    parser.add_argument("--version", required=True)
    parser.add_argument("--spark", required=True, help="pip's requirement of the pyspark that stands beside the wheel")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout that was built")
    given = parser.parse_args(arguments)
    try:
        if given.what == "sbom":
            for file in sbom(given.root, given.version, given.spark):
                print(file)
            return 0
        return audit(given.root, given.version)
    except SupplyChainError as error:
        print(error, file=sys.stderr)
        return FOUND


def sbom(root: Path, version: str, spark: str) -> list[Path]:
    """Writes the three files; what they hold of native code must be what `natives.sha256` pins."""
    folder = root / "target" / "sbom"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    wheel = _built(root / "dist" / f"sparkdl_bench-{version}-py3-none-any.whl", "make wheel")
    python = environment(folder, wheel, spark)
    made = [folder / f"sparkdl_bench-{version}.cdx.json"]
    words = ["-m", "cyclonedx_py", "environment", str(python), "--output-reproducible", "--output-format", "JSON"]
    _run([sys.executable, *words, "--pyproject", str(root / "pyproject.toml"), "--output-file", str(made[0])])
    for line, scala in SCALA_OF_LINE.items():
        artifact = f"sparkdl-bench-spark-{line}_{scala}"
        target = folder / f"{artifact}-{version}.cdx.json"
        goal = [f"{CYCLONEDX}:makeBom", "-DoutputFormat=json", f"-DoutputDirectory={folder}"]
        _run([*_maven(root, line, version), *goal, f"-DoutputName={target.name.removesuffix('.json')}"])
        made.append(target)
    pins = pinned(root / "python" / "sparkdl_bench" / "natives.sha256")
    for file in made:
        _check(file, pins)
    return made


def environment(folder: Path, wheel: Path, spark: str) -> Path:
    """A fresh environment with the wheel and pyspark; returns its python."""
    _run([sys.executable, "-m", "venv", str(folder / "venv")])
    python = folder / "venv" / "bin" / "python"
    _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel), spark])
    return python


def _check(file: Path, pins: Mapping[str, str]) -> None:
    """Every component has a name, a version and a package URL; native code has the pinned hash."""
    components = json.loads(file.read_text())["components"]
    if not components:
        raise SupplyChainError(f"{file} names no component: the tool that wrote it did not see what it should list.")
    for each in components:
        if not all(each.get(key) for key in ("name", "version", "purl")):
            raise SupplyChainError(f"{file}: the component {each.get('name', each)} has no name, version or purl.")
        expected = pins.get(_jar_name(each))
        digests = {digest["content"] for digest in each.get("hashes", []) if digest["alg"] == "SHA-256"}
        if expected and digests != {expected}:
            raise SupplyChainError(
                f"{file}: {_jar_name(each)} has the SHA-256 {', '.join(digests) or 'none'}, and natives.sha256 pins "
                f"{expected}. Find out which of the two is the published file before anything is released."
            )


def _jar_name(component: Mapping[str, Any]) -> str:
    """The file of a Maven component."""
    _, _, query = str(component["purl"]).partition("?")
    words = dict(pair.partition("=")[::2] for pair in query.split("&"))
    return Coordinates("", component["name"], component["version"], words.get("classifier", "")).file_name


def audit(root: Path, version: str) -> int:
    """Prints what is known against what the environment of `sbom` and the jars hold."""
    known: list[str] = []
    unasked: list[str] = []
    for ask in (lambda: audit_python(root), lambda: audit_jars(root, version)):
        try:
            known += ask()
        except NoAdvisoriesError as error:
            unasked.append(str(error))
    for line in (*known, *unasked):
        print(line)
    if known:
        print(
            f"{len(known)} known vulnerabilities; update what is named, or say in docs/reference why it does not apply."
        )
        return FOUND
    if unasked:
        print("Nothing can be said: a part was not looked up (see above). Run it where the advisories can be reached.")
        return UNKNOWN
    print("Nothing is known against any part.")
    return 0


def audit_python(root: Path) -> list[str]:
    """One line for each advisory on a Python package of the wheel's environment."""
    sites = list((root / "target" / "sbom" / "venv" / "lib").glob("python*/site-packages"))
    if not sites:
        raise SupplyChainError("There is no environment to look at in target/sbom. Run `make sbom` first.")
    words = ["-m", "pip_audit", "--format", "json", "--progress-spinner", "off", "--path", str(sites[0])]
    done = _run([sys.executable, *words], valid=(0, 1))
    try:
        found = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError) as error:
        raise NoAdvisoriesError(f"Python: pip-audit reached no advisories: {_last(done.stderr)}") from error
    others = [each for each in found if each["name"] != "sparkdl-bench"]  # ours is looked for in vain before a release
    skipped = [each["name"] for each in others if "vulns" not in each]
    if skipped or not others:
        raise NoAdvisoriesError(
            f"Python: no advisories could be had for {len(skipped)} of {len(others)} packages, {skipped[:1] or 'all'} "
            "for one (pip-audit asks the package index that pip is set to; a mirror may not have them)."
        )
    return [
        f"{each['name']} {each['version']}: {bug['id']}, fixed in {', '.join(bug['fix_versions']) or 'no version'}"
        for each in others
        for bug in each["vulns"]
    ]


def audit_jars(root: Path, version: str) -> list[str]:
    """One line for each advisory of at least `WORST_CVSS` on a jar that ours brings (Spark's own are Spark's)."""
    data = Path(os.environ.get("SPARKDL_ADVISORIES", Path.home() / ".cache" / "sparkdl-bench" / "advisories"))
    data.mkdir(parents=True, exist_ok=True)
    first = _maven(root, next(iter(SCALA_OF_LINE)), version)
    done = _run([*first, f"{DEPENDENCY_CHECK}:update-only", f"-DdataDirectory={data}"], valid=(0, 1))
    if done.returncode:
        reason = next(
            (line for line in done.stdout.splitlines() if "Failed to execute goal" in line), _last(done.stdout)
        )
        raise NoAdvisoriesError(f"Jars: OWASP dependency-check could not bring NVD's advisories: {reason[-300:]}")
    lines = []
    for line in SCALA_OF_LINE:
        folder = root / "target" / "sbom" / f"dependency-check-{line}"
        options = [f"-DdataDirectory={data}", "-DautoUpdate=false", "-Dformat=JSON", "-DskipProvidedScope=true"]
        _run([*_maven(root, line, version), f"{DEPENDENCY_CHECK}:check", *options, f"-Dodc.outputDirectory={folder}"])
        report = json.loads((folder / "dependency-check-report.json").read_text())
        lines += [
            f"{each['fileName']}: {bug['name']} (CVSS {score})"
            for each in report["dependencies"]
            for bug in each.get("vulnerabilities", [])
            if (score := bug.get("cvssv3", {}).get("baseScore", 10)) >= WORST_CVSS
        ]
    return list(dict.fromkeys(lines))


def _maven(root: Path, line: str, version: str) -> list[str]:
    scala = SCALA_OF_LINE[line]
    pom = root / "jvm" / "target" / f"scala-{scala}" / f"sparkdl-bench-spark-{line}_{scala}-{version}.pom"
    return [str(root / "project" / "mvn"), "--batch-mode", "-f", str(_built(pom, "project/sbt +jvm/makePom"))]


def _built(file: Path, by: str) -> Path:
    if not file.is_file():
        raise SupplyChainError(f"{file} was not built. Run `{by}`, or the whole by `make sbom`.")
    return file


def _run(command: Sequence[str], valid: Sequence[int] = (0,)) -> subprocess.CompletedProcess[str]:
    try:
        done = subprocess.run(  # noqa: S603 (the command is ours)
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SupplyChainError(f"`{' '.join(command)}` did not end within {COMMAND_TIMEOUT_S} s.") from error
    if done.returncode not in valid:
        said = (done.stdout + done.stderr)[-3000:]
        raise SupplyChainError(f"`{' '.join(command)}` failed with exit status {done.returncode}:\n{said}")
    return done


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][-300:] if lines else "it said nothing"


if __name__ == "__main__":
    sys.exit(main())
