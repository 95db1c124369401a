"""The package's names: loaded when first used, and all there."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import sparkdl_bench
from sparkdl_bench import comparison_api
from sparkdl_bench.cli import cli
from sparkdl_bench.comparison import quick

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def test_every_name_is_there() -> None:
    for name in sparkdl_bench.__all__:
        assert getattr(sparkdl_bench, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Trainr'"):
        _ = sparkdl_bench.Trainr  # type: ignore[attr-defined]


def test_the_package_alone_loads_nothing_heavy() -> None:
    program = "import sys, sparkdl_bench; print(sorted({'numpy', 'pyspark', 'rich', 'py4j'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_compare_is_a_plain_function(monkeypatch: pytest.MonkeyPatch) -> None:
    assert inspect.isfunction(sparkdl_bench.compare)
    asked: dict[str, object] = {}

    def measure(name: str, title: str, run: object, ways: object, *rest: object, **options: object) -> object:
        asked.update(run=run, ways=ways, effort=rest[0])
        raise InterruptedError

    monkeypatch.setattr(quick, "measure", measure)
    with pytest.raises(InterruptedError):
        sparkdl_bench.compare("digits", model={"name": "mlp", "hidden": [16]}, workers=[1, 2], trials=3, lr=0.2)
    run = asked["run"]
    assert run.settings["model.hidden"] == "16"  # type: ignore[attr-defined]
    assert run.settings["optimizer.learning_rate"] == "0.2"  # type: ignore[attr-defined]
    assert asked["effort"] == quick.Effort(None, 3, None)
    assert [way.name for way in asked["ways"]] == ["one process", "2 workers"]  # type: ignore[attr-defined]


def test_a_result_says_its_answer() -> None:
    found = comparison_api.ComparisonResult(Path("there"), "Use one process. It is <fastest>.", "Sure.")
    assert repr(found) == "ComparisonResult: Use one process. It is <fastest>. Sure.\nfolder there"
    assert "&lt;fastest&gt;" in found._repr_html_()


def test_report_names_the_extra_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("sparkdl_bench.report")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("scipy", "statsmodels"):
        for loaded in [each for each in sys.modules if each.split(".")[0] == name]:
            monkeypatch.delitem(sys.modules, loaded)
        monkeypatch.setitem(sys.modules, name, None)
    done = CliRunner().invoke(cli, ["report", "results"])
    assert done.exit_code == 2, done.output
    assert "pip install 'sparkdl-bench[report]'" in done.stderr


def test_the_extras_that_messages_and_pages_name_are_there_and_bring_what_is_missing() -> None:
    root = Path(__file__).resolve().parents[1]
    extras = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    files = [*(root / "python").rglob("*.py"), *(root / "docs").rglob("*.md"), root / "README.md"]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    named = set(re.findall(r"(?:sparkdl-bench|\.whl)\[([a-z-]+)\]", text))
    assert {"onnx", "report", "torch"} <= named <= set(extras)
    asked = re.findall(r'library\("([\w.]+)", "([a-z-]+)"', text)
    assert len(asked) >= 3
    for module, extra in asked:
        if module.startswith("google.protobuf"):
            continue  # comes with onnx
        assert any(each.startswith(module.partition(".")[0]) for each in extras[extra]), (module, extra)
