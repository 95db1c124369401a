"""`sparkdl-bench init`: the file that it writes is a run that has no faults."""

from __future__ import annotations

import shlex
import struct
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparkdl_bench import catalogue, preflight
from sparkdl_bench.cli import cli
from sparkdl_bench.commands.init import _table
from sparkdl_bench.comparison import fits
from sparkdl_bench.config import load_run_file, parse_run_file


def idx_files(folder: Path) -> None:
    for part in ("train", "t10k"):
        (folder / f"{part}-images-idx3-ubyte").write_bytes(b"\x00\x00\x08\x03" + struct.pack(">III", 1, 28, 28))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(b"\x00\x00\x08\x01" + struct.pack(">I", 1) + b"\x05")


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


@pytest.mark.parametrize(
    "text",
    [
        *("2024", "-3", "0.05", "true", "digits", "", "007", "1.50", "1e5", "1_000", ".5", "5.", "+1", " 1", "inf"),
        *("-nan", "١", "0.00001", "-0", "9" * 5000, 'a"b'),
    ],
)
def test_values_come_back_as_they_were(text: str) -> None:
    settings = {"data.label": text, "data.rows": "1500"}
    made = parse_run_file(f"[data]\n{_table('data', settings)}\n", "a test")
    assert {key: made.settings[key] for key in settings} == settings
    assert _table("optimizer", {"optimizer.learning_rate": "0.05"}) == "learning_rate = 0.05"


def test_a_file_that_is_there_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text("mine", encoding="utf-8")
    status, told = run("mine")
    assert (status, (tmp_path / "mine.toml").read_text()) == (2, "mine")
    assert "'mine.toml' is there already" in told
    assert run("mine", "--force", "--model", "softmax")[0] == 0
    assert load_run_file(tmp_path / "mine.toml").settings["model.name"] == "softmax"


@pytest.mark.on_one_line
@pytest.mark.parametrize("rows", ["digits", "mnist", "rows.csv"])
def test_a_net_that_does_not_fit_the_rows_is_not_written(
    rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether init takes a family is whether a run would; the JVM says so, once for each kind of rows."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("a,b,kind\n1,2,yes\n3,4,no\n", encoding="utf-8")
    (tmp_path / "mnist").mkdir()
    idx_files(tmp_path / "mnist")
    status, told = run("mine", "--data", rows, "--model", "alexnet")
    assert status == 2
    assert not (tmp_path / "mine.toml").exists()
    shape, fitting = {
        "digits": ("1×8×8", "mlp, resnet-18, resnet-50, softmax"),
        "mnist": ("1×28×28", "cifar-quick, cnn, lenet, mlp, resnet-18, resnet-50, softmax, vgg-16"),
        "rows.csv": ("2", "mlp, softmax"),
    }[rows]
    assert told.startswith(f"The net 'alexnet' does not fit rows of {shape}. ")
    assert told.rstrip().endswith(f"Nets that fit these rows: {fitting}.")


@pytest.mark.on_one_line
def test_a_net_of_your_own_is_named_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("mine", "--model", "file") == (
        2,
        "A net of your own is named by its file: --model my-net.toml. docs/reference/models.md says what such a file "
        "holds.\n",
    )
    net = 'name = "my-net"\ninput_shape = [1, 8, 8]\nclasses = 10\n[[layers]]\nname = "fc"\nkind = "linear"\n'
    (tmp_path / "my-net.toml").write_text(net + "options = { in = 64, out = 10 }\n", encoding="utf-8")
    assert (
        "There is no file 'my-nett.toml' with a net. Did you mean 'my-net.toml'?"
        in run("m", "--model", "my-nett.toml")[1]
    )
    status, told = run("mine", "--model", "my-net.toml")
    assert status == 0, told
    made = load_run_file(tmp_path / "mine.toml")
    assert made.settings["model.name"] == "file"
    assert made.settings["model.spec"] == str(tmp_path / "my-net.toml")
    assert list(preflight.faults(made)) == []
    (tmp_path / "rows.csv").write_text("a,b,kind\n1,2,yes\n3,4,no\n", encoding="utf-8")
    status, told = run("other", "--data", "rows.csv", "--model", "my-net.toml")
    assert (status, "does not fit rows of 2." in told) == (2, True)


def test_without_a_jar_no_net_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fits.catalogue, "load", lambda: None)
    fits.check({"model.name": "alexnet"}, (1, 8, 8), 10)


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
