"""Data sets in which there is nothing to read: each is refused in words that say what to do, without Spark."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparkdl_bench import datafiles, helper_process, session
from sparkdl_bench.cli import cli

PARQUET = b"PAR1 rows and a footer PAR1"


@pytest.fixture(autouse=True)
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a JVM was to be started")

    for name in ("HADOOP_CONF_DIR", "HADOOP_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(session, "start_jvm", refuse)
    monkeypatch.setattr(helper_process, "ask", refuse)


def written(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


NOTHING: list[tuple[str, dict[str, bytes], str]] = [
    (
        "parquet",
        {},
        "The folder 'X' holds no file, and so no Parquet. Look at what should have written it, or name another folder.",
    ),
    (
        "parquet",
        {"_SUCCESS": b"", ".part.crc": b"x"},
        "The folder 'X' holds no file, and so no Parquet. Look at what should have written it, or name another folder.",
    ),
    (
        "parquet",
        {"a.csv": b"1,2", "year=2026/b.txt": b"b", "c.parquet": b"PAR1 cut short"},
        "The folder 'X' holds no Parquet file: a.csv, c.parquet, year=2026/b.txt. Name a folder whose files are "
        "Parquet.",
    ),
    ("csv", {}, "The folder 'X' holds no file. Name a file, or a folder that holds some."),
    (
        "csv",
        {"a.csv": b"", "b.csv.gz": gzip.compress(b"\n", mtime=0)},
        "The folder 'X' holds no file with rows: a.csv, b.csv.gz. Name one that does.",
    ),
    (
        "idx",
        {"t10k-images-idx3-ubyte": b"x"},
        "The folder 'X' has no file 'train-images-idx3-ubyte' (nor .gz), with which a set of idx begins. It holds "
        "t10k-images-idx3-ubyte.",
    ),
    (
        "cifar10",
        {},
        "The folder 'X' has no file 'data_batch_1.bin' (nor .gz), with which a set of cifar10 begins. It holds "
        "nothing.",
    ),
]


@pytest.mark.parametrize(("source", "files", "said"), NOTHING)
def test_a_folder_with_nothing_to_read(source: str, files: dict[str, bytes], said: str, tmp_path: Path) -> None:
    assert datafiles.fault(source, written(tmp_path / "set", files), "'X'") == said


EMPTY = "'X' is empty: no line of it holds anything. Name a file that holds rows."


@pytest.mark.parametrize(
    ("source", "content", "header", "said"),
    [
        ("csv", b"", True, EMPTY),
        ("csv", b"\xef\xbb\xbf\r\n \n", False, EMPTY),
        ("libsvm", lzma.compress(b"\n"), False, EMPTY),
        ("csv", b"a,b\n", True, "'X' has no row below the names of its columns. Name a file that holds rows."),
        ("csv", b"1,2\n", False, None),
        ("csv", b"a,b\r\n1,2", True, None),
        ("csv", gzip.compress(b"1,2\n" * 100_000, mtime=0), True, None),
        ("csv", gzip.compress(b"1,2\n", mtime=0)[:-9], False, None),  # the run names what is damaged
        (
            "parquet",
            b"",
            False,
            "'X' is an empty file (0 bytes). Name a Parquet file, or a folder that holds some.",
        ),
        (
            "parquet",
            b"a,b\n1,2\n",
            False,
            "'X' is no Parquet file: it does not begin with PAR1. Name a Parquet file, or a folder that holds some.",
        ),
        (
            "parquet",
            b"PAR1 cut short",
            False,
            "'X' is a Parquet file that was not written to its end. Name a Parquet file, or a folder that holds some.",
        ),
        ("parquet", PARQUET, False, None),
        ("images", b"", False, None),
    ],
)
def test_a_file_with_nothing_to_read(
    source: str, content: bytes, header: bool, said: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "rows"
    file.write_bytes(content)
    assert datafiles.fault(source, file, "'X'", header=header) == said


@pytest.mark.parametrize(
    ("source", "files"),
    [
        ("parquet", {"_SUCCESS": b"", "notes.txt": b"x", "year=2026/part.parquet": PARQUET}),
        ("csv", {"empty.csv": b"", "rows.csv": b"1,2"}),
        ("idx", {"train-images-idx3-ubyte.gz": b"x"}),
        ("lmdb", {}),
    ],
)
def test_a_folder_that_may_hold_rows(source: str, files: dict[str, bytes], tmp_path: Path) -> None:
    assert datafiles.fault(source, written(tmp_path / "set", files), "'X'") is None


def test_what_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    said = "'X' cannot be read: Permission denied. Check its name and your permissions."
    assert datafiles.fault("csv", tmp_path, "'X'") == said


def run(*words: str) -> str:
    done = CliRunner().invoke(cli, list(words))
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    return done.stderr.strip()


def test_run_and_try_start_no_jvm_for_nothing(tmp_path: Path) -> None:
    folder = written(tmp_path / "rows.parquet", {"a.parquet": b""})
    said = "holds no Parquet file: a.parquet. Name a folder whose files are Parquet."
    assert run("try", str(folder)) == f"The folder '{folder}' {said}"
    words = ["--set", "data.source=parquet", "--set", f"data.path={folder}", "--set", "data.label=y"]
    assert run("run", "digits-mlp", *words) == f"The folder '{folder}' (data.path) {said}"
    empty = tmp_path / "rows.csv"
    empty.write_bytes(b"")
    assert run("try", str(empty)) == f"'{empty}' is empty, or its first line is. The first line names the columns."
    words = ["--set", "data.source=csv", "--set", f"data.path={empty}"]
    empty_said = "is empty: no line of it holds anything. Name a file that holds rows."
    assert run("run", "digits-mlp", *words) == f"'{empty}' (data.path) {empty_said}"
    rows = tmp_path / "some.csv"
    rows.write_text("1,2\n", encoding="utf-8")
    words = ["--set", "data.source=csv", "--set", f"data.path={rows}", "--set", f"data.test_path={empty}"]
    assert run("run", "digits-mlp", *words) == f"'{empty}' (data.test_path) {empty_said}"
