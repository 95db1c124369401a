"""The modules of python/sparkdl_bench stand in layers, and every import points to a lower one."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

PACKAGE = "sparkdl_bench"
SOURCES = Path(__file__).resolve().parents[1] / "python" / PACKAGE
# From the bottom to the top. A package's modules stand in its layer and may import each other, but not in a circle;
# others of one layer may not. `cli` loads the commands by name, so it imports none of them.
LAYERS = (
    ("console", "errors", "machine", "nearest", "redaction", "submit", "version"),
    (
        "datafiles",
        "decoded",
        "files",
        "jarfiles",
        "outcomes",
        "rows",
        "signals",
        "statistics",
        "toml_depth",
        "worker",
    ),
    ("catalogue",),
    ("frames",),
    ("connect", "evaluation", "gateway", "jars", "spark_install", "spark_properties"),
    ("peers",),
    ("_jvm", "class_archive", "helper_process", "models", "profiles", "progress", "results"),
    ("checkpoint", "collective", "runfiles", "saved"),
    ("exports", "keras"),
    ("config", "engines", "lab", "lazy", "plot", "runner", "torch", "ucx"),
    ("preflight",),
    ("cli", "session", "transports"),
    ("doctor", "entry", "feeding", "prediction"),
    ("launching", "trainer"),
    ("module_training",),
    ("class_archive_build", "comparison", "ml", "mlflow"),
    ("bench", "report"),
    ("comparison_api",),
    ("commands",),
    ("__init__", "__main__"),
)
# Imports that point up, as (module, what it imports). This list may only shrink.
EXCEPTIONS: frozenset[tuple[str, str]] = frozenset()


def imports(sources: Path) -> dict[str, set[str]]:
    """By module the modules of the package that it imports, wherever in the file; names without the package's own."""
    files = {".".join(path.relative_to(sources).with_suffix("").parts): path for path in sources.rglob("*.py")}
    return {
        name: set(_imported(path, [PACKAGE, *path.parent.relative_to(sources).parts], files))
        for name, path in files.items()
    }


def _imported(path: Path, package: list[str], files: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            start = package[: len(package) + 1 - node.level] if node.level else []
            names = [".".join(filter(None, [*start, node.module, alias.name])) for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            if name == PACKAGE or name.startswith(f"{PACKAGE}."):
                yield _module(name, files)


def _module(name: str, files: Mapping[str, Path]) -> str:
    """The module of a dotted name, which may go on with what is defined in the module."""
    parts = name.split(".")[1:]
    for length in range(len(parts), -1, -1):
        for module in (".".join(parts[:length]), ".".join([*parts[:length], "__init__"])):
            if module in files:
                return module
    raise AssertionError(f"'{name}' is imported, and there is no such module")


def upward(modules: Mapping[str, set[str]], layers: tuple[tuple[str, ...], ...]) -> set[tuple[str, str]]:
    """The imports that do not point to a lower layer, those inside one package left out."""
    level = {unit: number for number, layer in enumerate(layers) for unit in layer}
    unlisted = sorted({_unit(module) for module in modules} ^ set(level))
    assert not unlisted, f"in tests/test_layers.py or in {PACKAGE}, but not in both: {', '.join(unlisted)}"
    return {
        (module, other)
        for module, others in modules.items()
        for other in others
        if _unit(module) != _unit(other) and level[_unit(other)] >= level[_unit(module)]
    }


def _unit(module: str) -> str:
    return module.partition(".")[0]


def circle(modules: Mapping[str, set[str]]) -> list[str]:
    """The modules that are left when those are taken away, again and again, which import none of the others."""
    left = {module: set(others) - {module} for module, others in modules.items()}
    while free := {module for module, others in left.items() if not others & left.keys()}:
        left = {module: others for module, others in left.items() if module not in free}
    return sorted(left)


def test_imports_point_to_lower_layers() -> None:
    found = upward(imports(SOURCES), LAYERS)
    up = [f"{module} imports {other}" for module, other in sorted(found - EXCEPTIONS)]
    assert not up, f"Imports that do not point to a lower layer: {'; '.join(up)}. Move what is shared further down."
    assert found >= EXCEPTIONS, f"No longer needed, take them off the list: {sorted(EXCEPTIONS - found)}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circle(imports(SOURCES)) == []


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A package of three layers: `low`, the package `middle`, `high`."""
    (tmp_path / "middle").mkdir()
    (tmp_path / "low.py").write_text("import json\n")
    (tmp_path / "middle" / "__init__.py").write_text("")
    (tmp_path / "middle" / "part.py").write_text(f"from {PACKAGE} import low\n")
    (tmp_path / "high.py").write_text(f"def late():\n    from {PACKAGE}.middle.part import name\n")
    return tmp_path


SMALL = (("low",), ("middle",), ("high",))


def test_an_import_inside_a_function_counts(small: Path) -> None:
    assert imports(small)["high"] == {"middle.part"}
    assert upward(imports(small), SMALL) == set()
    assert circle(imports(small)) == []


@pytest.mark.parametrize(
    "line",
    ["import {}.middle.part", "from {}.middle.part import name", "from {} import middle", "from .middle import part"],
)
def test_an_import_that_points_up_is_found(small: Path, line: str) -> None:
    (small / "low.py").write_text(line.format(PACKAGE) + "\n")
    ((module, other),) = upward(imports(small), SMALL)
    assert (module, _unit(other)) == ("low", "middle")


def test_a_circle_is_found(small: Path) -> None:
    (small / "low.py").write_text(f"from {PACKAGE}.high import late\n")
    assert circle(imports(small)) == ["high", "low", "middle.part"]


def test_a_module_without_a_layer_is_named(small: Path) -> None:
    (small / "new.py").write_text("")
    with pytest.raises(AssertionError, match="not in both: new"):
        upward(imports(small), SMALL)
