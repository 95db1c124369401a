"""`sparkdl-bench predict`: rows of files in, predictions out."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from conftest import CommandLine
from signalling import is_progress
from sparkdl_bench import models, saved, session
from sparkdl_bench.cli import cli
from sparkdl_bench.commands import predict
from sparkdl_bench.errors import ConfigurationError


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Says yes where b is larger than a."""
    layer = {"name": "fc", "kind": "linear", "options": {"in": 2, "out": 2}, "initializer": "zero"}
    specification = {"name": "larger", "input_shape": [2], "classes": 2, "layers": [layer]}
    weights = {place.name: np.zeros(place.shape, np.float32) for place in models.read(specification).parameters}
    weights["fc.weight"][:] = [[1, -1], [-1, 1]]
    about = {"shape": [2], "columns": ["a", "b"], "labels": ["no", "yes"]}
    saved.save(tmp_path / "model", specification, weights, about)
    return tmp_path / "model"


def test_csv_in_and_csv_out(command_line: CommandLine, model: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv.gz"
    rows.write_bytes(gzip.compress(b"b;id;a\n2;first;1\n-1;second;0.5\n"))
    out = tmp_path / "out.csv"
    done = command_line.run("predict", str(model), str(rows), "-o", str(out), "--master", "local[1]")
    assert (done.returncode, done.stdout) == (0, f"{out}  predictions, a folder of CSV files\n"), done.stderr
    told = [line.partition(" s  ")[2] for line in done.stderr.splitlines()]
    assert told[:2] == ["starting the driver's JVM", "starting Spark (local[1])"], done.stderr
    assert "predicting" in told
    (part,) = out.glob("part-*.csv")
    with part.open(encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    names = ["b", "id", "a", "prediction", "predicted_label", "probability_no", "probability_yes"]
    assert list(found[0]) == names
    assert [(row["id"], row["prediction"], row["predicted_label"]) for row in found] == [
        ("first", "1.0", "yes"),
        ("second", "0.0", "no"),
    ]
    assert float(found[0]["probability_yes"]) == pytest.approx(1 / (1 + np.exp(-2)), abs=1e-6)


@pytest.fixture
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a JVM was to be started")

    monkeypatch.setattr(session, "start_jvm", refuse)


@pytest.mark.usefixtures("no_jvm")
@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        (
            "A;id;b\n2;first;1\n",
            [],
            "has no column 'a', which is one of those that the model was trained on. Rename the data's columns as they "
            "were then, or name each feature's column, in the model's order, with --features. Its columns are A, id, "
            "b.",
        ),
        (
            "x,y\n2,1\n",
            [],
            "has no column 'a', which is one of those that the model was trained on (b is missing, too).",
        ),
        (
            "width,height\n2,1\n",
            ["--features", "widht", "--features", "height"],
            "has no column 'widht', which is named as a feature. Did you mean 'width'? Name others with --features. "
            "Its columns are width, height.",
        ),
        ("2,1\n", ["--no-header"], "Its columns are _c0, _c1."),
    ],
)
def test_a_missing_column_is_told_before_a_jvm_starts(
    text: str, words: list[str], said: str, model: Path, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text(text)
    done = CliRunner().invoke(cli, ["predict", str(model), str(rows), "-o", str(tmp_path / "out"), *words])
    assert done.exit_code == 2
    assert done.output.startswith(f"'{rows}' has no column '")
    assert said in done.output


@pytest.mark.usefixtures("no_jvm")
def test_a_missing_column_of_parquet_is_told_before_a_jvm_starts(model: Path, tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table({"b": [1.0], "c": [2.0]}), rows)
    done = CliRunner().invoke(cli, ["predict", str(model), str(rows), "-o", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert f"'{rows}' has no column 'a', which" in done.output
    assert "Its columns are b, c." in done.output


@pytest.mark.parametrize("text", ["b,a,A\n", "b,a,a\n", "b,,a\n", "\nb,a\n", '"b",a\n'])
def test_names_that_spark_may_change_are_spark_s_to_judge(
    text: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object, **__: object) -> None:
        raise ConfigurationError("so far it came")

    monkeypatch.setattr(session, "start_jvm", start)
    rows = tmp_path / "rows.csv"
    rows.write_text(f"{text}1,2,3\n")
    done = CliRunner().invoke(cli, ["predict", str(model), str(rows), "-o", str(tmp_path / "out")])
    assert "so far it came" in done.output


@pytest.mark.usefixtures("no_jvm")
@pytest.mark.parametrize("master", ["", "locl[2]"])
def test_no_jvm_starts_for_what_is_no_master(master: str, model: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("a,b\n1,2\n")
    done = CliRunner().invoke(cli, ["predict", str(model), str(rows), "-o", str(tmp_path / "out"), "--master", master])
    assert done.exit_code == 2
    assert "Masters look so: " in done.output


@pytest.mark.on_one_line
def test_what_it_cannot_do_is_2_and_one_paragraph(command_line: CommandLine, model: Path, tmp_path: Path) -> None:
    done = command_line.run("predict", str(tmp_path), "rows.csv", "-o", str(tmp_path / "out"))
    assert done.returncode == 2
    assert "holds no saved model" in done.stderr
    rows = tmp_path / "rows.csv"
    rows.write_text("b,id,a\n2,first,1\n,second,0.5\n")
    done = command_line.run("predict", str(model), str(tmp_path / "row.csv"), "-o", str(tmp_path / "out"))
    assert (done.returncode, done.stderr) == (
        2,
        f"There is no file or folder '{tmp_path / 'row.csv'}'. Did you mean 'rows.csv'? Name the rows to predict, or "
        "give the URI of another file system (hdfs://…).\n",
    )
    done = command_line.run("predict", str(model), str(rows), "-o", str(model))
    assert (done.returncode, done.stderr) == (
        2,
        f"The output '{model}' and the model, '{model}', are one place or lie in each other, so that the predictions "
        "would be written over what is read. Name an output folder outside it.\n",
    )
    csv_words = ("predict", str(model), str(rows), "-o", str(tmp_path / "kept.csv"), "--master", "local[1]")
    done = command_line.run(*csv_words)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "Row 1 of partition 0 has no prediction: column 'b' is null" in done.stderr
    # The same words serve a call of transform(handle_invalid=…).
    assert "set handle_invalid (on the command line --handle-invalid) to skip (they are left out) or" in done.stderr
    assert len([line for line in done.stderr.splitlines() if not is_progress(line)]) == 1, done.stderr
    # A folder's columns are known once Spark is there.
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "part.csv").write_text("b,id\n2,first\n")
    words = (str(tmp_path / "rows"), "--from", "csv", "-o", str(tmp_path / "out"), "--master", "local[1]")
    done = command_line.run("predict", str(model), *words)
    assert done.returncode == 2
    assert f"'{tmp_path / 'rows'}' has no column 'a', which is one of those" in done.stderr
    # As it advises, with the same output: what failed has left no folder in the way.
    done = command_line.run(*csv_words, "--handle-invalid", "keep")
    assert done.returncode == 0, done.stderr
    (part,) = (tmp_path / "kept.csv").glob("part-*.csv")
    with part.open(encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert [row["predicted_label"] for row in found] == ["yes", ""]
    assert [row["probability_yes"] == "" for row in found] == [False, True]


@pytest.mark.usefixtures("no_jvm")
@pytest.mark.parametrize(
    ("rows", "output", "what"),
    [
        ("rows", "rows", "the rows to predict"),
        ("rows", "link", "the rows to predict"),
        ("rows", "rows/../rows/", "the rows to predict"),
        ("rows", ".", "the rows to predict"),
        ("rows", "rows/out", "the rows to predict"),
        ("rows/*.csv", "rows", "the rows to predict"),
        ("r*", "rows/out", "the rows to predict"),
        ("{rows,more}/part.csv", "rows", "the rows to predict"),
        ("rows/part.csv", "model", "the model"),
        ("rows/part.csv", "model/out", "the model"),
        ("hdfs://host/rows", "HDFS://host//rows/./", "the rows to predict"),
        ("hdfs://host/rows/2026/*.csv", "hdfs:///rows", "the rows to predict"),
    ],
)
def test_nothing_is_written_over_what_is_read(
    rows: str, output: str, what: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "part.csv").write_text("a,b\n1,2\n")
    (tmp_path / "link").symlink_to("rows")
    done = CliRunner().invoke(cli, ["predict", str(model), rows, "-o", output, "--overwrite"])
    assert done.exit_code == 2
    assert done.output.startswith(f"The output '{output}' and {what}, '"), done.output
    assert "Name an output folder outside it." in done.output


@pytest.mark.parametrize(
    ("rows", "output"),
    [
        ("rows", "rows-out"),
        ("rows-*.csv", "out.csv"),
        ("hdfs://host/rows", "hdfs://other/rows"),
        ("s3a://rows/in", "hdfs://rows/in"),
        ("hdfs://host/rows", "rows"),
    ],
)
def test_other_places_may_be_written(rows: str, output: str) -> None:
    assert not predict._overlap(rows, output, is_pattern=True)
