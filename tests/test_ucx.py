"""What `jars fetch --ucx` brings, without a registry: the packing of the wheel, and where sessions find the jars."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from sparkdl_bench import jarfiles, ucx
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.jars import FetchFailedError

LIBRARIES = ("libucm.so.0", "libucs.so.0", "libuct.so.0", "libucp.so.0", "ucx/libuct_cma.so.0")


def wheel(folder: Path, names: tuple[str, ...]) -> Path:
    path = folder / "libucx_cu12-1.18.1-py3-none-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(path, "w") as made:
        for name in (*names, "libucp.a", "ucx/libuct_cuda.so.0"):
            made.writestr(f"libucx/lib/{name}", name.encode())
    return path


def test_the_jar_holds_the_libraries_and_a_list_of_them_and_nothing_of_cuda(tmp_path: Path) -> None:
    jar = tmp_path / "made.jar"
    ucx._pack(wheel(tmp_path, LIBRARIES), jar)
    with zipfile.ZipFile(jar) as made:
        room = "sparkdlbench/native/ucx/linux-x86_64/"
        assert set(made.namelist()) == {room + name for name in (*LIBRARIES, "files.txt")}
        listed = made.read(room + "files.txt").decode().split("\n")
    assert listed[:-1] == [f"{len(name)} {name}" for name in LIBRARIES]


def test_a_wheel_without_a_library_is_named(tmp_path: Path) -> None:
    with pytest.raises(FetchFailedError, match=r"holds no libucp\.so\.0"):
        ucx._pack(wheel(tmp_path, tuple(name for name in LIBRARIES if name != "libucp.so.0")), tmp_path / "made.jar")


def test_other_platforms_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="for linux-x86_64 alone, not for 'linux-arm64'"):
        ucx.fetch(tmp_path, "linux-arm64")


def test_what_is_there_is_not_brought_again(tmp_path: Path) -> None:
    for name in (ucx.JUCX.file_name, ucx.LIBRARIES_JAR):
        (tmp_path / name).write_bytes(b"here")
    assert ucx.fetch(tmp_path, "linux-x86_64") == [tmp_path / ucx.JUCX.file_name, tmp_path / ucx.LIBRARIES_JAR]


def test_sessions_find_them_beside_the_cache_and_not_beside_a_folder_of_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_jars: Any
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = jarfiles.optional_folder()
    folder.mkdir(parents=True)
    (folder / ucx.LIBRARIES_JAR).write_bytes(b"")
    assert jarfiles._optional(tmp_path) == []  # SPARKDL_JARS is set
    monkeypatch.delenv("SPARKDL_JARS")
    assert jarfiles._optional(tmp_path) == [folder / ucx.LIBRARIES_JAR]
