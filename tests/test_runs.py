"""Every run file under conf/runs trains a few steps, on a small set of its own data source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import cifar10
import idx
from conftest import COMPARISON_FILES, ROOT, RUN_FILES
from sparkdl_bench.config import load_run_file
from sparkdl_bench.runner import follow
from sparkdl_bench.session import check_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRAIN_ROWS, TEST_ROWS = 16, 4
# Large nets on smaller images, and fewer classes, so that two executors of 1 GB hold them.
SYNTHETIC = {
    "data.shape": "3,64,64",
    "data.classes": "10",
    "data.rows": str(TRAIN_ROWS),
    "data.test_rows": str(TEST_ROWS),
}
RESULTS_TABLE = ROOT / "docs" / "reference" / "models.md"


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """By data source: the keys that put a small set in the place of a run file's own. Nothing else of it changes."""
    folder = tmp_path_factory.mktemp("sets")
    for seed, (names, rows) in enumerate(((idx.TRAIN, TRAIN_ROWS), (idx.TEST, TEST_ROWS))):
        images = np.random.default_rng(seed).integers(0, 256, (rows, 28, 28), dtype=np.uint8)
        idx.write(folder / "idx", names, idx.Set(images, (np.arange(rows) % 10).astype(np.uint8)))
    cifar10.write(folder / "cifar10", TRAIN_ROWS, TEST_ROWS)
    decoded = {"data.cache_dir": (folder / "decoded").as_uri()}
    return {
        "idx": {"data.path": (folder / "idx").as_uri()},
        "cifar10": {"data.path": (folder / "cifar10").as_uri(), **decoded},
        "synthetic": SYNTHETIC,
        "digits": {},
    }


# What a file says is the same on every Spark line: there one of each kind of rows and of nets.
ON_EVERY_LINE = ("digits-mlp", "mnist-lenet", "cifar10-quick", "synthetic-googlenet")


# The largest nets: small ones have all that their files say.
LARGEST = ("synthetic-resnet-50", "synthetic-alexnet", "cifar10-vgg-16")


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    if name in ON_EVERY_LINE:
        return []
    return [pytest.mark.on_one_line, *([pytest.mark.campaign] if name in LARGEST else [])]


@pytest.mark.parametrize("path", [pytest.param(path, marks=marks_of(path.stem), id=path.stem) for path in RUN_FILES])
def test_a_run_file_trains(spark: SparkSession, tmp_path: Path, sets: dict[str, dict[str, str]], path: Path) -> None:
    settings: dict[str, Any] = dict(load_run_file(path).settings)
    source = settings["data.source"]
    shortened = {
        "results": str(tmp_path),
        "batch": "4",
        "max_steps": "3",
        "evaluate_every": "0",
        "memory_check": "off",
        "transport": "block-manager" if settings["transport"] == "block-manager" else "block-stream",
        **sets[source],
    }
    api = check_session(spark)
    run_id = api.start({**settings, **shortened})
    done = follow(api, run_id)
    api.forget(run_id)
    assert done.state == "done"
    assert done.step == 3
    (folder,) = tmp_path.iterdir()
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    # What it trained on is the file's own: where the rows come from, and what is done to them.
    own = {key: value for key, value in settings.items() if key.startswith("data.") and key not in sets[source]}
    assert {key: run["configuration"][key] for key in own} == own
    if source != "digits":
        assert (run["data"]["train_rows"], run["data"]["test_rows"]) == (TRAIN_ROWS, TEST_ROWS)


def test_the_run_files_have_every_source_and_every_change_of_rows_that_the_comparisons_need() -> None:
    files = [load_run_file(path).settings for path in RUN_FILES]
    assert {settings["data.source"] for settings in files} == {"digits", "idx", "cifar10", "synthetic"}
    assert {settings.get("data.normalize") for settings in files} == {None, "mean", "channel"}
    assert any({"data.padding", "data.crop", "data.flip"} <= set(settings) for settings in files)


def test_there_is_a_run_file_for_every_model() -> None:
    models = {load_run_file(path).settings["model.name"] for path in RUN_FILES}
    assert models >= {
        "softmax",
        "mlp",
        "lenet",
        "cnn",
        "cifar-quick",
        "resnet-18",
        "vgg-16",
        "alexnet",
        "googlenet",
        "resnet-50",
    }


def test_the_documentation_has_the_result_of_every_file() -> None:
    """A row of the table for each file, and no row for a file that is gone; an honest one says `not measured yet`."""
    lines = RESULTS_TABLE.read_text(encoding="utf-8").splitlines()
    rows = {}
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0].startswith("`") and cells[0].endswith(".toml`"):
            rows[cells[0].strip("`")] = cells[1:]
    assert sorted(rows) == sorted(path.name for path in [*RUN_FILES, *COMPARISON_FILES])
    assert all(len(cells) == 2 and all(cells) for cells in rows.values())
