"""Which changes make which optional suites due (project/optional_tests.py), and that what it names is there."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def optional(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "project"))
    for name in ("run_tests", "optional_tests"):
        sys.modules.pop(name, None)
    return importlib.import_module("optional_tests")


@pytest.mark.parametrize(
    ("file", "parts"),
    [
        ("jvm/src/main/scala/sparkdlbench/transport/ucx/UcxWorker.scala", ["ucx"]),
        ("python/sparkdl_bench/ucx.py", ["ucx"]),
        ("jvm/src/main/scala/sparkdlbench/transport/mpi/MpiJob.scala", ["mpi"]),
        ("jvm/src/main/scala/sparkdlbench/transport/push/PushWait.scala", ["ucx", "mpi"]),
        ("python/sparkdl_bench/peers/mpi.py", ["mpi"]),
        ("python/sparkdl_bench/peers/programs/measure/torch_fit.py", ["torch"]),
        ("python/sparkdl_bench/torch/group.py", ["torch"]),
        ("jvm/src/main/scala/sparkdlbench/engine/bigdl/BigDlEngine.scala", ["bigdl"]),
        ("jvm/src/main/scala/sparkdlbench/engine/Engine.scala", ["bigdl"]),
        ("docs/performance.md", []),
        ("python/sparkdl_bench/report/answer.py", []),
        ("jvm/src/main/scala/sparkdlbench/optimizer/Sgd.scala", []),
    ],
)
def test_a_change_of_a_part_makes_its_tests_due(optional: Any, file: str, parts: list[str]) -> None:
    assert [part.name for part in optional.due([file])] == parts


def test_what_the_parts_name_is_there(optional: Any) -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=60)
    files = tracked.stdout.splitlines()
    suites = {Path(file).stem for file in files if file.startswith("jvm/src/test") and file.endswith(".scala")}
    packages = {Path(file).parent.name for file in files if file.startswith("jvm/src/test")}
    for part in optional.PARTS:
        for pattern in part.sources:
            assert any(re.search(pattern, file) for file in files), f"{part.name}: nothing is like {pattern}"
        for suite in part.scala:
            *_, package, name = suite.split(".")
            assert (package in packages) if name == "*" else name in suites, suite
        for words in part.python:
            assert all((ROOT / word).is_file() for word in words if word.endswith(".py")), words
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {target for part in optional.PARTS for target in part.targets}
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_tests_that_were_all_skipped_are_a_failure(
    optional: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def ran(tests: int, skipped: int, status: int = 0) -> bool:
        def run(*_: object) -> int:
            (tmp_path / "reports" / "one.xml").write_text(f'<testsuite tests="{tests}" skipped="{skipped}"/>')
            return status

        monkeypatch.setattr(optional, "run", run)
        return bool(optional.judged("ucx", ["pytest"], tmp_path / "reports", {}))

    assert [ran(3, 1), ran(3, 3), ran(0, 0), ran(3, 1, status=1)] == [True, False, False, False]


def test_a_revision_that_is_none_says_so(optional: Any) -> None:
    with pytest.raises(SystemExit, match=r"no revision 'nowhere'.*--since.*--parts"):
        optional.changed("nowhere")
