"""The packages of the Scala sources stand in an order, and what a file names of another package lies lower."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = "sparkdlbench"
SOURCES = Path(__file__).resolve().parents[1] / "jvm" / "src" / "main" / "scala" / ROOT
# From the bottom to the top. A nested package has its own place; so has each file of the root package.
LAYERS = (
    "common",
    "config",
    "vector",
    "metrics",
    "model",
    "loss",
    "data",
    "codec",
    "optimizer",
    "results",
    "engine",
    "engine.bigdl",
    "engine.libtorch",
    "engine.python",
    "transport",
    "transport.push",
    "transport.tcp",
    "transport.ucx",
    "transport.mpi",
    "rank",
    "topology",
    "collective",
    "algorithm",
    "job",
    "train",
    "predict",
    "ml",
    "worker",
    "SparkDLPlugin",
    "Trainer",
    "doctor",
    "bench",
    "CommandLine",
    "PythonApi",
)
NOT_CODE = re.compile(r'"""(?:.|\n)*?"""|"(?:\\.|[^"\\\n])*"|/\*(?:.|\n)*?\*/|//[^\n]*|^package\s[^\n]*', re.MULTILINE)
MODIFIERS = r"(?:(?:(?:private|protected)(?:\[\w+\])?|final|sealed|abstract|case|implicit)\s+)*"
DEFINED = re.compile(rf"^{MODIFIERS}(?:class|object|trait)\s+(\w+)", re.MULTILINE)
NAMED = re.compile(rf"(?<![\w.]){ROOT}((?:\.[a-z]\w*)*)\.(\{{[^}}]*\}}|[A-Z]\w*|_)")


class Source(NamedTuple):
    file: str
    package: str
    """Without the root's name, which alone is ''."""
    outer: tuple[str, ...]
    """The packages whose names it sees without an import, as `package a.b` above `package c` sees those of `a.b`."""
    code: str
    names: frozenset[str]


class Use(NamedTuple):
    file: str
    layer: str
    """Of what the file names."""
    name: str


def sources(folder: Path) -> list[Source]:
    return [_source(path, folder) for path in sorted(folder.rglob("*.scala"))]


def _source(path: Path, folder: Path) -> Source:
    text = path.read_text(encoding="utf-8")
    clauses = re.findall(r"^package\s+([\w.]+)$", text, re.MULTILINE)
    nested = [".".join(clauses[:length]).removeprefix(ROOT).removeprefix(".") for length in range(1, len(clauses) + 1)]
    file = path.relative_to(folder).as_posix()
    place = ".".join(path.relative_to(folder).parts[:-1])
    assert nested, f"{file} has no package clause"
    assert nested[-1] == place, f"{file} is in the package '{nested[-1]}', and its folder is '{place}'"
    code = NOT_CODE.sub("", text)
    return Source(file, place, tuple(nested[:-1]), code, frozenset(DEFINED.findall(code)))


def layer(source: Source) -> str:
    return source.package or Path(source.file).stem


def upward(files: Iterable[Source], layers: tuple[str, ...]) -> set[Use]:
    """What files name of a package that does not lie below their own."""
    known = list(files)
    unlisted = sorted({layer(source) for source in known} ^ set(layers))
    assert not unlisted, f"in tests/test_scala_layers.py or in the sources, but not in both: {', '.join(unlisted)}"
    homes: dict[str, dict[str, str]] = defaultdict(dict)
    for source in known:
        homes[source.package].update(dict.fromkeys(source.names, layer(source)))
    level = {name: number for number, name in enumerate(layers)}
    return {use for source in known for use in _uses(source, homes) if level[use.layer] > level[layer(source)]}


def _uses(source: Source, homes: Mapping[str, Mapping[str, str]]) -> Iterator[Use]:
    for package, name in _named(source, homes):
        yield Use(source.file, homes[package][name], name)


def _named(source: Source, homes: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    words = set(re.findall(r"\w+", source.code))
    for package in source.outer:
        yield from ((package, name) for name in homes[package] if name in words)
    for scope in (*source.outer, source.package):
        yield from _named_within(scope, source, homes)
    for dotted, members in NAMED.findall(source.code):
        package = dotted.removeprefix(".")
        assert package in homes, f"{source.file} names the package '{package}', and there is none"
        for member in re.findall(r"(\w+)(?:\s*=>\s*\w+)?", members):
            if member == "_":
                yield from ((package, name) for name in homes[package] if name in words)
            else:
                assert member in homes[package], f"{source.file} names {member} of '{package}', which has none"
                yield package, member


def _named_within(scope: str, source: Source, homes: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    """Of the packages inside one whose names the file sees, as `inner.Part` within `low`."""
    for package, names in homes.items():
        if package.startswith(f"{scope}.") if scope else package:
            inner = re.escape(package.removeprefix(scope).removeprefix("."))
            found = re.findall(rf"(?<![\w.]){inner}\.([A-Z]\w*)", source.code)
            yield from ((package, name) for name in found if name in names)


def test_names_of_other_packages_lie_lower() -> None:
    found = [f"{use.file} uses {use.name} of {use.layer}" for use in sorted(upward(sources(SOURCES), LAYERS))]
    assert not found, f"These lie higher: {'; '.join(found)}. Move what is shared further down, or pass it in."


def test_nothing_else_names_the_engine_bigdl() -> None:
    """It is found through the ServiceLoader, and BigDL by reflection: all else compiles without both."""
    known = sources(SOURCES)
    homes: dict[str, dict[str, str]] = defaultdict(dict)
    for source in known:
        homes[source.package].update(dict.fromkeys(source.names, layer(source)))
    assert homes["engine.bigdl"]
    outside = [source for source in known if source.package != "engine.bigdl"]
    assert [each.file for each in outside if "engine.bigdl" in {package for package, _ in _named(each, homes)}] == []
    assert "bigdl" not in (SOURCES.parents[4] / "build.sbt").read_text(encoding="utf-8").lower()


# Files that need each other in a circle are understood, and changed, together alone.
MOST_IN_A_CIRCLE = 6


def circles(files: Iterable[Source]) -> set[frozenset[str]]:
    """Files that all name each other, be it through others."""
    known = list(files)
    homes: dict[str, dict[str, str]] = defaultdict(dict)
    for source in known:
        homes[source.package].update(dict.fromkeys(source.names, source.file))
    named = {source.file: {homes[package][name] for package, name in _all_named(source, homes)} for source in known}
    reached = {file: _reached(file, named) for file in named}
    return {frozenset(other for other in reached[file] if file in reached[other]) for file in named} - {frozenset()}


def _all_named(source: Source, homes: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    own = set(re.findall(r"\b(?:class|object|trait|type)\s+(\w+)", source.code))
    words = set(re.findall(r"(?<![\w.])[A-Z]\w*", source.code)) - own
    yield from ((source.package, name) for name in homes[source.package] if name in words)
    yield from _named(source, homes)


def _reached(file: str, named: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    left = set(named[file])
    while left:
        reached |= left
        left = {other for each in left for other in named[each]} - reached
    return reached


def test_few_files_need_each_other_in_a_circle() -> None:
    large = [", ".join(sorted(circle)) for circle in circles(sources(SOURCES)) if len(circle) > MOST_IN_A_CIRCLE]
    assert not large, f"More than {MOST_IN_A_CIRCLE} files need each other in a circle: {'; '.join(large)}"


SMALL = ("Entry", "low", "low.inner", "high")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """`high` uses `low`, and so does the package inside it, which needs no import for that."""
    write(tmp_path, "Entry", "package sparkdlbench\n\nfinal class Failure\n")
    write(tmp_path, "low/Base", "package sparkdlbench.low\n\nimport sparkdlbench.Failure\n\ntrait Base\n")
    write(
        tmp_path, "low/inner/Part", "package sparkdlbench.low\npackage inner\n\nprivate[low] class Part extends Base\n"
    )
    write(tmp_path, "high/Top", "package sparkdlbench.high\n\nimport sparkdlbench.low._\n\nobject Top extends Base\n")
    return tmp_path


def write(folder: Path, name: str, text: str) -> None:
    file = folder / f"{name}.scala"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def low(folder: Path, code: str) -> set[Use]:
    """What is found where a file of the lowest package holds this code."""
    write(folder, "low/New", f"package sparkdlbench.low\n\n{code}\n")
    return upward(sources(folder), SMALL)


def test_what_lies_lower_may_be_named(small: Path) -> None:
    assert upward(sources(small), SMALL) == set()


@pytest.mark.parametrize(
    "code",
    [
        "import sparkdlbench.high.Top",
        "import sparkdlbench.high.{Top => Other}",
        "import sparkdlbench.high.Top._",
        "import sparkdlbench.high._\nclass New(top: Top.type)",
        "class New { def top = sparkdlbench.high.Top }",
    ],
)
def test_a_name_that_lies_higher_is_found(small: Path, code: str) -> None:
    assert low(small, code) == {Use("low/New.scala", "high", "Top")}


@pytest.mark.parametrize(
    "code", ["// import sparkdlbench.high.Top", 'object New { val name = "sparkdlbench.high.Top" }']
)
def test_comments_and_texts_are_not_code(small: Path, code: str) -> None:
    assert low(small, code) == set()


def test_a_name_seen_without_an_import_is_found(small: Path) -> None:
    (use,) = upward(sources(small), ("Entry", "low.inner", "low", "high"))
    assert use == Use("low/inner/Part.scala", "low", "Base")


def test_a_name_in_a_package_inside_the_own_one_is_found(small: Path) -> None:
    write(small, "low/New", "package sparkdlbench.low\n\nobject New { def part = new inner.Part }\n")
    (use,) = upward(sources(small), ("Entry", "low", "low.inner", "high"))
    assert use == Use("low/New.scala", "low.inner", "Part")


def test_a_package_without_a_place_and_an_unknown_name_are_refused(small: Path) -> None:
    with pytest.raises(AssertionError, match="not in both: high"):
        upward(sources(small), ("Entry", "low", "low.inner"))
    with pytest.raises(AssertionError, match=r"low/New\.scala names Gone of 'high'"):
        low(small, "import sparkdlbench.high.Gone")


def test_a_circle_is_found(small: Path) -> None:
    assert circles(sources(small)) == set()
    write(
        small, "low/New", "package sparkdlbench.low\n\nimport sparkdlbench.high.Top\n\nobject New { def top = Top }\n"
    )
    write(small, "low/Base", "package sparkdlbench.low\n\ntrait Base { def made = New }\n")
    (circle,) = circles(sources(small))
    assert circle == {"low/New.scala", "low/Base.scala", "high/Top.scala"}
