"""What several tests use."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


def shared_data(name: str) -> Path:
    """The folder of a data set outside the repository (in SPARKDL_DATA, or ../shared/data); skips without it."""
    base = Path(os.environ.get("SPARKDL_DATA", ROOT.parent / "shared" / "data"))
    folder = base / name
    if not folder.is_dir():
        pytest.skip(f"the data set '{name}' is not in '{base}'; set SPARKDL_DATA to the folder that holds it")
    return folder


class FakeApi:
    """`_jvm.Api` without a JVM: a run is a list of records that `poll` goes through."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self.records = records
        self.polls = 0
        self.cancelled: list[str] = []

    def poll(self, run_id: str) -> dict[str, Any]:
        self.polls += 1
        record = self.records[min(self.polls, len(self.records)) - 1]
        return {**record, "state": "cancelled"} if self.cancelled else record

    def cancel(self, run_id: str) -> None:
        self.cancelled.append(run_id)


@pytest.fixture
def make_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Fills the folder that SPARKDL_JARS names with jars of these names and classes."""
    folder = tmp_path / "jars"
    folder.mkdir()
    monkeypatch.setenv("SPARKDL_JARS", str(folder))

    def make(jars: Mapping[str, list[str]]) -> Path:
        for name, classes in jars.items():
            with zipfile.ZipFile(folder / name, "w") as archive:
                for each in classes:
                    archive.writestr(each.replace(".", "/") + ".class", b"")
        return folder

    return make


@pytest.fixture
def results_folder(tmp_path: Path) -> Path:
    """A finished run's folder, as small as it may be."""
    folder = tmp_path / "2026-01-02T030405-digits"
    folder.mkdir()
    history = [
        {"epoch": 1, "seconds": 1.0, "train_loss": 0.9, "test_loss": 1.0, "test_accuracy": 0.7},
        {"epoch": 2, "seconds": 2.0, "train_loss": 0.4, "test_loss": 0.5, "test_accuracy": 0.9},
    ]
    summary = {
        "status": "done",
        "final": {
            "test_accuracy": 0.9,
            "test_loss": 0.5,
            "train_loss": 0.4,
            "seconds_total": 2.5,
            "seconds_per_epoch_median": 1.0,
            "ms_per_step_median": 3.25,
        },
        "bytes": {"block-manager": 1_234_567},
        "history": history,
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "run.json").write_text(json.dumps({"configuration": {"name": "digits"}}))
    (folder / "events.jsonl").write_text('{"event": "run_start"}\n{"event": "run_stop"}\n')
    return folder
