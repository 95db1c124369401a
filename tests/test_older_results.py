"""Results that earlier versions have written are read: those kept in the repository, and a run's folder of schema 1."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from sparkdl_bench import results
from sparkdl_bench.bench import store
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.report import load
from sparkdl_bench.results import RunResults

ROOT = Path(__file__).resolve().parents[1]
# Two epochs of the digits, as version 0.1.0 wrote them at commit 486a953; `run.json` without paths and most properties.
RUN = ROOT / "tests" / "kept" / "schema-1-run"
KEPT = sorted((ROOT / "benchmarks" / "results").glob("*/*.json"))


def test_a_run_of_schema_1_becomes_a_report() -> None:
    (comparison,) = load.load([RUN]).comparisons
    (record,) = comparison.records
    assert record["status"] == "success"
    assert record["metrics"]["test_accuracy"] == pytest.approx(0.908, abs=0.001)
    assert record["metrics"]["ms_per_step"] == pytest.approx(24.86, abs=0.01)
    assert record["factors"]["workers"] == "2"
    assert len(RunResults(RUN).history) == 2
    assert RunResults(RUN).events[0]["key"] == "run_start"


@pytest.mark.parametrize("name", ["summary.json", "run.json"])
def test_a_run_of_a_newer_version_is_refused_by_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(RUN, folder)
    content = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps({**content, "schema": results.SCHEMA + 1}))
    with pytest.raises(ConfigurationError, match=f"{name}' has schema {results.SCHEMA + 1}, and this sparkdl-bench"):
        load.load([folder])


def test_the_schema_is_the_one_that_runs_write() -> None:
    source = ROOT / "jvm" / "src" / "main" / "scala" / "sparkdlbench" / "results" / "RunFolder.scala"
    written = re.search(r"val Schema = (\d+)", source.read_text(encoding="utf-8"))
    assert written
    assert int(written[1]) == results.SCHEMA


def test_every_kept_measurement_is_read() -> None:
    assert len(KEPT) >= 39
    for path in KEPT:
        content = store.load(path)
        assert content["schema"] == store.SCHEMA
        assert content["machine"]["cpu"], path
