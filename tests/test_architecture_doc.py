"""docs/explanation/architecture.md names every room of the sources, and nothing that is not there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from test_scala_layers import LAYERS

ROOT = Path(__file__).resolve().parents[1]
JVM = ROOT / "jvm" / "src" / "main"
PYTHON = ROOT / "python" / "sparkdl_bench"
TEXT = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
# Names of Java's own, and of what programs write.
OTHERS = {"ServiceLoader"}


def rooms() -> Iterator[str]:
    scala = JVM / "scala" / "sparkdlbench"
    for folder in scala.rglob("*"):
        if folder.is_dir():
            yield folder.relative_to(scala).as_posix()
    for folder in PYTHON.iterdir():
        if (folder / "__init__.py").is_file():
            yield folder.name
    for folder in JVM.glob("scala-*"):
        yield folder.name


def test_every_room_is_named() -> None:
    missing = sorted(room for room in rooms() if f"{room}/`" not in TEXT)
    assert not missing, f"docs/explanation/architecture.md does not say what {', '.join(missing)} hold"


def test_what_is_named_is_there() -> None:
    files = [path for folder in (JVM, PYTHON, ROOT / "project") for path in folder.rglob("*") if path.is_file()]
    sources = "\n".join(path.read_text(encoding="utf-8") for path in files if path.suffix in (".scala", ".java"))
    declared = set(re.findall(r"\b(?:class|trait|object|type) (\w+)", sources)) | OTHERS
    for name in re.findall(r"`([^`\s]+)`", TEXT):
        if re.search(r"\.(scala|java|py)$", name):
            assert any(path.as_posix().endswith(f"/{name}") for path in files), name
        elif re.fullmatch(r"[A-Z][a-zA-Z]+(\.[a-z]\w*)?", name):
            owner, _, member = name.partition(".")
            assert owner in declared, name
            assert not member or re.search(rf"\b(?:def|val) {member}\b", sources), name


def test_the_picture_shows_the_order_of_the_packages() -> None:
    picture = (ROOT / "docs" / "explanation" / "architecture.svg").read_text(encoding="utf-8")
    assert tuple(re.findall(r'class="package">([^<]+)<', picture)) == tuple(reversed(LAYERS))


def test_the_files_of_a_gradient_are_counted() -> None:
    section = TEXT.split("### The way of one gradient")[1].split("\n## ")[0]
    rows = re.findall(r"^\| [a-z]* ?\| `([\w/]+\.scala)` \|", section, re.MULTILINE)
    after = section.rpartition("|")[2]
    others = set(re.findall(r"`([\w/]+\.scala)`", after))
    assert f"pass {len(rows)} files" in " ".join(section.split())
    assert f"there are {len(rows) + len(others)}." in after
