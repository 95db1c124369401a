"""State that a whole process shares stands in few objects, and docs/explanation/architecture.md says of each why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "jvm" / "src" / "main"
TEXT = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
DECLARED = re.compile(
    r"^ *(?:(?:private|protected)(?:\[\w+\])? |case |sealed |final |abstract )*(class|object|trait) (\w+)"
)
FIELD = re.compile(r"^ *(?:@volatile )?(?:(?:private|protected)(?:\[\w+\])? )?(?:@volatile )?(?:lazy )?(va[lr]) ")
CHANGES = re.compile(r"\b(?:Concurrent\w+|mutable\.\w+|Atomic\w+|(?:Fast)?ThreadLocal|LongAdder)\b")


def holders(text: str) -> Iterator[str]:
    """Objects, not within a class, that have a field which changes: a `var`, or a collection that is made to."""
    around: list[tuple[int, str, str]] = []
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        found, field = DECLARED.match(line), FIELD.match(line)
        if found or field or line.strip() == "}":
            while around and around[-1][0] >= indent:
                around.pop()
        if found:
            around.append((indent, found[1], found[2]))
            continue
        inside = around and all(kind == "object" for _, kind, _ in around) and indent == around[-1][0] + 2
        if field and inside and (field[1] == "var" or CHANGES.search(line) or "newKeySet" in line):
            yield around[-1][2]


def test_every_object_that_holds_state_is_listed_and_no_other() -> None:
    section = TEXT.split("## What a process holds")[1].split("\n## ")[0]
    listed = {
        name for row in re.findall(r"^\| (`.*?`) \|", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    held = {name for path in SOURCES.rglob("*.scala") for name in holders(path.read_text(encoding="utf-8"))}
    assert held == listed, (
        "docs/explanation/architecture.md, 'What a process holds', says which objects hold state for a whole process. "
        f"Not listed: {sorted(held - listed)}. Without any: {sorted(listed - held)}."
    )


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("object A {\n  private var runs = 0\n}", ["A"]),
        ("object A {\n  private val runs = new ConcurrentHashMap[String, Int]()\n}", ["A"]),
        ("private[x] object A {\n  object B {\n    @volatile private var runs = 0\n  }\n  val c = 1\n}", ["B"]),
        ("object A {\n  def f = {\n    var sum = 0\n  }\n  private val names = Seq(1)\n}", []),
        ("object A {\n  final class B {\n    var runs = 0\n  }\n}", []),
        ("object A {\n  final class B(val c: Int) { var d = 0 }\n  private var runs = 0\n}", ["A"]),
        ("final class A {\n  var runs = 0\n}\n\nobject B {\n  val c = 1\n}", []),
    ],
)
def test_what_holds_state_is_found(code: str, found: list[str]) -> None:
    assert list(holders(code)) == found
