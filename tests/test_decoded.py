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


PART = "part-00000-7"


def copy(where: Path, name: str, days: float, rows: int | None) -> Path:
    folder = where / name
    folder.mkdir(parents=True)
    (folder / PART).write_bytes(b"x" * 1_000_000)
    (folder / f".{PART}.crc").write_bytes(b"")  # of Hadoop's local file system
    if rows is not None:
        content = {"schema": 1, "source": "csv", "parts": [{"file": PART, "rows": rows, "test": False}]}
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
    left = f"Left: '{YOUNG[:60]}…' (less than 5 days old)\n"
    assert run("clean", "--older-than", "5", "--dry-run") == (
        f"1 decoded copy, 1.0 MB, would be deleted in {where}\n{left}"
    )
    assert old.is_dir()
    assert run("clean", "--older-than", "5") == f"1 decoded copy, 1.0 MB, deleted in {where}\n{left}"
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
    (tmp_path / "notes").mkdir()
    (tmp_path / "list.txt").write_text("mine", encoding="utf-8")
    renamed = "a decoded copy under a name that no run gave it"
    left = [
        *((".git", renamed), ("elsewhere", "no decoded copy"), ("list.txt", "a file"), ("notes", "no decoded copy")),
        *((elsewhere.name, "a link"), (f"{OLD}-old", renamed), ("photos", renamed), ("run-1", renamed)),
    ]
    told = "".join(f"Left: '{name}' ({why})\n" for name, why in left)
    assert run("clean", "--dir", str(tmp_path)) == f"2 decoded copies, 2.0 MB, deleted in {tmp_path}\n{told}"
    assert not ours.exists()
    assert not of_a_frame.exists()
    assert all((path / PART).is_file() for path in (*others, elsewhere))


def test_a_name_alone_is_not_enough(tmp_path: Path) -> None:
    """What bears a copy's name and holds anything else is somebody's."""
    names = [f"csv-{number:024x}" for number in range(6)]
    folders = [copy(tmp_path, name, 1, rows) for name, rows in zip(names, (1, 1, None, None, 1, None), strict=True)]
    (folders[0] / "thesis.tex").write_text("mine", encoding="utf-8")
    (folders[1] / "sub").mkdir()
    (folders[2] / "manifest.json").write_text('{"name": "a web application"}', encoding="utf-8")
    (folders[3] / "IMG_1.jpg").write_bytes(b"mine")
    (folders[4] / "part-00001-8").write_bytes(b"which the manifest does not list")
    (folders[5] / "part-00001-8").symlink_to(tmp_path)
    why = [
        "it holds 'thesis.tex', which no run wrote",
        "it holds 'sub', which no run wrote",
        "its manifest.json is none of ours",
        "it holds 'IMG_1.jpg', which no run wrote",
        "it holds 'part-00001-8', which no run wrote",
        "it holds 'part-00001-8', which no run wrote",
    ]
    assert decoded.others(tmp_path) == list(zip(names, why, strict=True))
    assert run("clean", "--dir", str(tmp_path)).startswith("0 decoded copies, 0.0 MB, deleted in ")
    assert all((folder / PART).is_file() for folder in folders)
    listed = run("list", "--dir", str(tmp_path))
    assert f"Not a decoded copy, so `clean` leaves it: '{names[0]}' ({why[0]})" in listed


def test_what_a_run_may_be_writing_stays(tmp_path: Path) -> None:
    filling, given_up = copy(tmp_path, YOUNG, 0.01, None), copy(tmp_path, OLD, 0.1, None)
    told = run("clean", "--dir", str(tmp_path))
    assert told == (
        f"1 decoded copy, 1.0 MB, deleted in {tmp_path}\n"
        f"Left: '{YOUNG[:60]}…' (not complete, and so young that a run may be writing it)\n"
    )
    assert filling.is_dir()
    assert not given_up.exists()


def test_of_many_others_some_are_listed(tmp_path: Path) -> None:
    for number in range(25):
        (tmp_path / f"mine-{number:02}").mkdir()
    lines = run("clean", "--dir", str(tmp_path)).splitlines()
    assert lines[-2:] == ["Left: 'mine-19' (no decoded copy)", "Left: 5 more"]


@pytest.mark.parametrize("words", [["list"], ["clean"], ["clean", "--dry-run"]])
def test_a_folder_that_is_not_there_is_no_empty_one(tmp_path: Path, words: list[str]) -> None:
    done = CliRunner().invoke(cli, ["data", *words, "--dir", str(tmp_path / "none")])
    assert done.exit_code == 2
    assert f"'{tmp_path / 'none'}' does not exist" in done.output
