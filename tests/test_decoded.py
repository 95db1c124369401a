from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sparkdl_bench import decoded


def write(base: Path, name: str, rows: int, made: int) -> Path:
    folder = base / name
    folder.mkdir(parents=True)
    (folder / "part-0").write_bytes(bytes(100))
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps({"source": name.split("-")[0], "parts": [{"rows": rows}, {"rows": 1}]}))
    os.utime(manifest, (made, made))
    return folder


def test_copies_are_listed_newest_first_and_removed(tmp_path: Path) -> None:
    old, new = write(tmp_path, "csv-1", 3, 1000), write(tmp_path, "table-2", 5, 2000)
    (tmp_path / "notes").mkdir()  # somebody else's
    cut_off = tmp_path / ".table-3-4"
    cut_off.mkdir()
    found = {copy.folder: copy for copy in decoded.copies(tmp_path)}
    assert [folder for folder in found if found[folder].whole] == [new, old]
    assert (found[old].source, found[old].rows, found[cut_off].whole) == ("csv", 4, False)
    assert found[old].bytes > 100
    assert decoded.remove([found[old], found[cut_off], found[old]]) == found[old].bytes
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes", "table-2"]


def test_without_a_folder_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert decoded.default_folder() == tmp_path / "sparkdl-bench" / "data"
    assert decoded.copies() == []
