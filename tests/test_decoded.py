"""`sparkdl-bench data list` and `data clean`: decoded copies with their size and age."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparkdl_bench import decoded
from sparkdl_bench.cli import cli
from sparkdl_bench.errors import ConfigurationError

# As a run names them, and while it writes them.
OLD = "parquet-e11c58e3187d3b822653e300"
YOUNG = ".csv-e11c58e3187d3b822653e300-0b8f5a3e-52a0-4a3b-9c3d-1f2e3d4c5b6a"


def copy(where: Path, name: str, days: float, rows: int | None) -> Path:
    folder = where / name
    folder.mkdir(parents=True)
    (folder / "part-0").write_bytes(b"x" * 1_000_000)
    if rows is not None:
        content = {"schema": 1, "parts": [{"file": "part-0", "rows": rows, "test": False}]}
        (folder / "manifest.json").write_text(json.dumps(content), encoding="utf-8")
    then = time.time() - days * 86400
    for path in [*folder.iterdir(), folder]:
        os.utime(path, (then, then))
    return folder


def run(*words: str) -> str:
    done = CliRunner().invoke(cli, ["data", *words])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_copies_are_listed_and_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    where = tmp_path / "sparkdl-bench" / "data"
    assert decoded.folder() == where
    old, young = copy(where, OLD, 10, 1500), copy(where, YOUNG, 0.5, None)
    listed = run("list")
    assert f"{OLD}     1.0 MB        1,500 rows    10 days old" in listed
    assert f"{YOUNG}     1.0 MB      not complete     12.0 h old" in listed
    assert f"2 decoded copies, 2.0 MB in {where}" in listed
    assert run("clean", "--older-than", "5", "--dry-run") == f"1 decoded copy, 1.0 MB, would be deleted in {where}\n"
    assert old.is_dir()
    assert run("clean", "--older-than", "5") == f"1 decoded copy, 1.0 MB, deleted in {where}\n"
    assert not old.exists()
    assert young.is_dir()
    run("clean")
    assert run("list") == f"0 decoded copies, 0.0 MB in {where}\n"


def test_nothing_outside_of_the_folder_is_deleted(tmp_path: Path) -> None:
    inside = copy(tmp_path / "data", OLD, 1, 1)
    with pytest.raises(ConfigurationError, match="so it is not deleted"):
        decoded.clean(decoded.copies(tmp_path / "data"), tmp_path)
    assert inside.is_dir()


def test_what_runs_have_not_left_stays(tmp_path: Path) -> None:
    """`data.cache_dir` may be a folder with other things in it."""
    ours = copy(tmp_path, OLD, 1, 1)
    of_a_frame = copy(tmp_path, "table-0b8f5a3e-52a0-4a3b-9c3d-1f2e3d4c5b6a", 1, 1)
    elsewhere = copy(tmp_path / "elsewhere", "parquet-000000000000000000000000", 1, 1)
    (tmp_path / elsewhere.name).symlink_to(elsewhere)
    others = [copy(tmp_path, name, 1, 1) for name in ("photos", ".git", "run-1", f"{OLD}-old")]
    assert run("clean", "--dir", str(tmp_path)) == f"2 decoded copies, 2.0 MB, deleted in {tmp_path}\n"
    assert not ours.exists()
    assert not of_a_frame.exists()
    assert all((path / "part-0").is_file() for path in (*others, elsewhere))


@pytest.mark.parametrize("words", [["list"], ["clean"], ["clean", "--dry-run"]])
def test_a_folder_that_is_not_there_is_no_empty_one(tmp_path: Path, words: list[str]) -> None:
    done = CliRunner().invoke(cli, ["data", *words, "--dir", str(tmp_path / "none")])
    assert done.exit_code == 2
    assert f"'{tmp_path / 'none'}' does not exist" in done.output
