"""`make sbom` and `make audit`: what is refused, and that "nothing found" is never said of what was not looked up."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import supply_chain

ROOT = Path(__file__).resolve().parents[1]
VERSION = "9.8.7"


Answer = tuple[int, str]


class Tools:
    """In the place of the tools: answers each command by the first key that stands in it, and keeps the commands."""

    def __init__(self, answers: dict[str, Answer | Callable[[Sequence[str]], Answer]]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def run(self, command: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        line = " ".join(command)
        self.asked.append(line)
        for key, answer in self.answers.items():
            if key in line:
                status, said = answer(command) if callable(answer) else answer
                return subprocess.CompletedProcess(list(command), status, said, "")
        return subprocess.CompletedProcess(list(command), 0, "", "")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `make sbom` finds: a wheel, both POMs, the hashes."""
    for line, scala in supply_chain.SCALA_OF_LINE.items():
        folder = tmp_path / "jvm" / "target" / f"scala-{scala}"
        folder.mkdir(parents=True)
        (folder / f"sparkdl-bench-spark-{line}_{scala}-{VERSION}.pom").write_text("<project/>")
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / f"sparkdl_bench-{VERSION}-py3-none-any.whl").write_text("")
    package = tmp_path / "python" / "sparkdl_bench"
    package.mkdir(parents=True)
    (package / "natives.sha256").write_text(f"# by name\n{'a' * 64}  mkl-1-linux-x86_64-redist.jar\n")
    (tmp_path / "target" / "sbom" / "venv" / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    monkeypatch.setenv("SPARKDL_ADVISORIES", str(tmp_path / "advisories"))
    return tmp_path


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tools]:
    def make(answers: dict[str, Any]) -> Tools:
        made = Tools(answers)
        monkeypatch.setattr(supply_chain.subprocess, "run", made.run)
        return made

    return make


def run(checkout: Path, what: str) -> int:
    words = [what, "--version", VERSION, "--spark", "pyspark==1", "--root", str(checkout)]
    return int(supply_chain.main(words))


def component(name: str, purl: str, digest: str = "") -> dict[str, Any]:
    hashes = [{"alg": "SHA-256", "content": digest}] if digest else []
    return {"name": name, "version": "1", "purl": purl, "hashes": hashes}


MKL = "pkg:maven/org.bytedeco/mkl@1?classifier=linux-x86_64-redist&type=jar"


def bills(components: list[dict[str, Any]]) -> dict[str, Any]:
    def write(file: Path) -> Answer:
        file.write_text(json.dumps({"components": components}))
        return 0, ""

    def python(command: Sequence[str]) -> Answer:
        return write(Path(command[command.index("--output-file") + 1]))

    def maven(command: Sequence[str]) -> Answer:
        options = dict(word[2:].partition("=")[::2] for word in command if word.startswith("-D"))
        return write(Path(options["outputDirectory"]) / f"{options['outputName']}.json")

    return {"cyclonedx_py": python, "makeBom": maven}


def test_a_bill_for_the_wheel_and_for_either_jar(
    checkout: Path, tools: Callable[..., Tools], capsys: pytest.CaptureFixture[str]
) -> None:
    made = tools(bills([component("mkl", MKL, "a" * 64)]))
    assert run(checkout, "sbom") == 0
    names = [Path(line).name for line in capsys.readouterr().out.splitlines()]
    assert names == [
        f"sparkdl_bench-{VERSION}.cdx.json",
        f"sparkdl-bench-spark-4_2.13-{VERSION}.cdx.json",
        f"sparkdl-bench-spark-3.5_2.12-{VERSION}.cdx.json",
    ]
    assert any("pip install" in line and line.endswith("none-any.whl pyspark==1") for line in made.asked)


@pytest.mark.parametrize(
    ("components", "words"),
    [
        ([], "names no component"),
        ([component("mkl", MKL, "b" * 64)], f"mkl-1-linux-x86_64-redist.jar has the SHA-256 {'b' * 64}"),
        ([component("mkl", MKL)], "has the SHA-256 none"),
        ([component("mkl", "")], "has no name, version or purl"),
    ],
)
def test_a_bill_that_lacks_something_is_refused(
    checkout: Path,
    tools: Callable[..., Tools],
    capsys: pytest.CaptureFixture[str],
    components: list[dict[str, Any]],
    words: str,
) -> None:
    tools(bills(components))
    assert run(checkout, "sbom") == supply_chain.FOUND
    assert words in capsys.readouterr().err


def test_a_tool_that_fails_is_quoted(
    checkout: Path, tools: Callable[..., Tools], capsys: pytest.CaptureFixture[str]
) -> None:
    tools({**bills([component("mkl", MKL, "a" * 64)]), "makeBom": (1, "no such goal")})
    assert run(checkout, "sbom") == supply_chain.FOUND
    assert "no such goal" in capsys.readouterr().err


CLEAN = json.dumps(
    {
        "dependencies": [
            {"name": "sparkdl-bench", "skip_reason": "not there"},
            {"name": "numpy", "version": "1", "vulns": []},
        ]
    }
)
BUG = {"id": "PYSEC-1", "fix_versions": ["2"]}
HURT = json.dumps({"dependencies": [{"name": "numpy", "version": "1", "vulns": [BUG]}]})
SKIPPED = json.dumps({"dependencies": [{"name": "numpy", "skip_reason": "not found"}]})


def report(scores: Sequence[float]) -> Callable[[Sequence[str]], Answer]:
    def check(command: Sequence[str]) -> Answer:
        folder = next(Path(word.partition("=")[2]) for word in command if word.startswith("-Dodc.outputDirectory="))
        folder.mkdir(parents=True)
        bugs = [{"name": f"CVE-{score}", "cvssv3": {"baseScore": score}} for score in scores]
        content = {"dependencies": [{"fileName": "some.jar", "vulnerabilities": bugs}, {"fileName": "other.jar"}]}
        (folder / "dependency-check-report.json").write_text(json.dumps(content))
        return 0, ""

    return check


@pytest.mark.parametrize(
    ("answers", "status", "words"),
    [
        ({"pip_audit": (0, CLEAN), ":check": report([6.9])}, 0, "Nothing is known against any part."),
        ({"pip_audit": (1, HURT), ":check": report([])}, 1, "numpy 1: PYSEC-1, fixed in 2"),
        ({"pip_audit": (0, CLEAN), ":check": report([7.0])}, 1, "some.jar: CVE-7.0 (CVSS 7.0)"),
        ({"pip_audit": (0, SKIPPED), ":check": report([])}, 3, "no advisories could be had for 1 of 1 packages"),
        ({"pip_audit": (1, "no JSON"), ":check": report([])}, 3, "pip-audit reached no advisories"),
        ({"pip_audit": (0, CLEAN), "update-only": (1, "UnknownHostException")}, 3, "UnknownHostException"),
        # What is known counts, also where the other half could not be asked.
        ({"pip_audit": (1, HURT), "update-only": (1, "UnknownHostException")}, 1, "1 known vulnerabilities"),
    ],
)
def test_an_audit_says_what_is_known_and_what_was_not_asked(
    checkout: Path,
    tools: Callable[..., Tools],
    capsys: pytest.CaptureFixture[str],
    answers: dict[str, Any],
    status: int,
    words: str,
) -> None:
    tools(answers)
    assert run(checkout, "audit") == status
    said = capsys.readouterr().out
    assert words in said
    assert ("Nothing is known" in said) == (status == 0)
