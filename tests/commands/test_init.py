"""`sparkdl-bench init`: the file that it writes is a run that has no faults."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparkdl_bench import catalogue, preflight
from sparkdl_bench.cli import cli
from sparkdl_bench.config import load_run_file


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["init", *words])
    return done.exit_code, done.output


@pytest.mark.parametrize("data", ["digits", "rows.csv", "words.csv"])
def test_what_is_written_can_be_run(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("a,b,kind\n1,2,yes\n3,4,no\n", encoding="utf-8")
    (tmp_path / "words.csv").write_text("name,b,kind\nAda,2,yes\nBob,4,no\n", encoding="utf-8")
    status, told = run("mine", "--data", data)
    assert status == 0, told
    assert "sparkdl-bench run mine.toml trains it." in told
    made = load_run_file(tmp_path / "mine.toml")
    assert made.name == "mine"
    assert made.settings["workers"] == "2"
    assert made.spark == {"spark.master": "local-cluster[2,1,2048]"}
    assert ("left out, because they hold words: 'name' ('Ada', …)" in told) == (data == "words.csv")
    assert made.settings.get("data.columns") == ("b" if data == "words.csv" else None)
    known = catalogue.load()
    assert known is not None
    assert known.faults(made.settings) == {}
    assert list(preflight.faults(made)) == []


def test_a_file_that_is_there_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text("mine", encoding="utf-8")
    status, told = run("mine")
    assert (status, (tmp_path / "mine.toml").read_text()) == (2, "mine")
    assert "'mine.toml' is there already" in told
    assert run("mine", "--force", "--model", "softmax")[0] == 0
    assert load_run_file(tmp_path / "mine.toml").settings["model.name"] == "softmax"


def test_a_folder_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    status, told = run("sub/mine")
    assert status == 2
    assert told.strip() == "There is no folder 'sub' for 'mine.toml'. Make it, or choose another."


@pytest.mark.parametrize("name", [".", "./", "{}", "deep er", "../deep er/.."])
def test_a_folder_gets_a_file_of_the_data_set_s_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep er").mkdir()
    if ".." in name:
        monkeypatch.chdir(tmp_path / "deep er")
    file = Path(name.format(tmp_path), "digits.toml")
    status, told = run(name.format(tmp_path))
    assert status == 0, told
    assert told.startswith(f"{file}: digits: 1,797 embedded images")
    assert told.rstrip().endswith(f"sparkdl-bench run {shlex.quote(str(file))} trains it.")
    assert load_run_file(file).name == "digits"
    assert run(name.format(tmp_path)) == (
        2,
        f"'{file}' is there already. Choose another name, or write over it with --force.\n",
    )


def test_a_folder_that_is_to_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("none/") == (2, "There is no folder 'none' for 'digits.toml'. Make it, or choose another.\n")
    (tmp_path / "mine").mkdir()
    assert run("mine.toml")[0] == 0  # a file beside the folder of that name
    assert (tmp_path / "mine.toml").is_file()


def test_a_model_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    status, told = run("mine", "--model", "lent")
    assert status == 2
    assert "Did you mean 'lenet'?" in told


@pytest.mark.parametrize(
    ("model", "why"), [("lenet", "its window is larger than what it slides over"), ("file", "needs model.spec")]
)
def test_a_model_that_does_not_fit_the_rows(
    model: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, told = run("mine", "--data", "digits", "--model", model)
    assert status == 2
    assert why in told
    assert not (tmp_path / "mine.toml").exists()
