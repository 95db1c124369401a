"""What data are taken for, without Spark."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest

from sparkdl_bench.comparison import labels, look, nets
from sparkdl_bench.errors import ConfigurationError


def test_csv_with_words_as_labels(tmp_path: Path) -> None:
    file = tmp_path / "flowers.csv"
    file.write_text("sepal,petal,Species\n1.5,2,rose\n3,4,daisy\n5,6,rose\n", encoding="utf-8")
    found = look.look(str(file))
    assert dict(found.settings) == {
        "data.source": "csv",
        "data.path": str(file),
        "data.header": "true",
        "data.label": "Species",
        "data.delimiter": ",",
        "data.normalize": "standard",
        "data.label_names": "daisy,rose",
    }
    assert (found.shape, found.classes, found.rows) == ((2,), 2, 3)
    assert found.told == f"CSV file {file}: 3 rows of 2 values; label: column 'Species', 2 classes"


def test_csv_without_a_header_ends_in_its_label(tmp_path: Path) -> None:
    file = tmp_path / "rows.tsv"
    file.write_text("1\t2\t0\n3\t4\t1\n5\t6\t2\n", encoding="utf-8")
    found = look.look(str(file))
    assert found.settings["data.header"] == "false"
    assert found.settings["data.label"] == "2"
    assert found.settings["data.delimiter"] == "tab"
    assert found.settings["data.classes"] == "3"
    assert look.look(str(file), "0").settings["data.label_names"] == "1,3,5"


def test_a_label_that_is_not_there_is_told_what_is(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("width,height,kind\n1,2,a\n", encoding="utf-8")
    with pytest.raises(
        ConfigurationError, match=r"no column 'knd'\. Did you mean 'kind'\? Columns: width, height, kind\."
    ):
        look.look(str(file), "knd")


def test_a_continuous_label_is_no_class(tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text("a,label\n" + "".join(f"1,{number / 7}\n" for number in range(1200)), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"more than 1000 different values.*numbers are predicted by a run"):
        look.look(str(file))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "'{file}' is empty, or its first line is. The first line names the columns."),
        (b"a,b,label\n", "'{file}' has no rows below the names of its columns."),
        (
            b"label\n1\n0\n",
            "'{file}' has one column, 'label', and a row needs a label and at least one number beside it, divided by a "
            "comma, a semicolon, a tab or |.",
        ),
        (
            b"a,b,label\n1,2,x\n3,4,x\n",
            "The label's column 'label' of '{file}' holds one value only, 'x', so there is nothing to tell apart. Name "
            "the label's column with --label (label= from Python), or bring rows of another class.",
        ),
        (
            b"a,b,label\n1,2,0.25\n3,4,0.75\n",
            "The label's column 'label' of '{file}' holds fractional numbers such as 0.25, so it is no class. Name the "
            "label's column with --label (label= from Python). This command trains nets that tell classes "
            "apart; numbers are predicted by a run whose file has loss.name=mean-squared, or by "
            "Trainer(loss='mean-squared').",
        ),
        (
            b"name,label\nAda,0\nBob,1\n",
            "Beside the label's column 'label' no column of '{file}' holds numbers: 'name' ('Ada', …). Words become "
            "numbers with StringIndexer and OneHotEncoder of pyspark.ml.feature; give the DataFrame to "
            "sparkdl_bench.compare or Trainer. If one of these is the label, name it with --label.",
        ),
        (
            "a,label\n1,0\n".encode("utf-16"),
            "'{file}' is no text in UTF-8 (byte 0 is 0xff). Convert it, for example with iconv -f UTF-16 -t UTF-8 "
            "'{file}'.",
        ),
        (
            b"a,b,label\n1,2,\n3,4,x\n",
            "The label's column 'label' of '{file}' holds '', which cannot be a class: names of classes are not empty "
            "and hold no comma. Rename it in the data.",
        ),
    ],
    ids=["empty", "header alone", "one column", "one class", "fractions", "words", "UTF-16", "no label"],
)
def test_text_that_no_net_can_learn_from(content: bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / "rows ü.csv"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError) as refused:
        look.look(str(file))
    assert str(refused.value) == said.format(file=file)


def test_columns_of_words_are_left_out_and_named(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    rows = "Ada,36,paid,2.5,0\n,41,free,?,1\nBob,5,free,3,0\n"
    file.write_text("name,age,plan,score,label\n" + rows, encoding="utf-8")
    found = look.look(str(file))
    # One ? among numbers makes no column of words: the run says how such rows are left out.
    assert found.settings["data.columns"] == "age,score"
    assert found.shape == (2,)
    assert found.told == (
        f"CSV file {file}: 3 rows of 2 values; label: column 'label', 2 classes; left out, because they hold words: "
        "'name' ('Ada', …), 'plan' ('paid', …)"
    )


@pytest.mark.parametrize(
    ("head", "label"), [("", "4"), (",age,plan,score,label\n", "label"), ("a,a,plan,score,label\n", "label")]
)
def test_columns_without_names_of_their_own_are_told_by_number(head: str, label: str, tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_text(head + "7,36,paid,2.5,0\n8,41,free,3,1\n", encoding="utf-8")
    found = look.look(str(file))
    assert (found.settings["data.columns"], found.settings["data.label"]) == ("0,1,3", label)
    column = "'plan'" if head else "number 2"
    assert found.told.endswith(f"left out, because they hold words: {column} ('paid', …)")


def test_missing_values_are_left_to_the_run(tmp_path: Path) -> None:
    # Such rows can be left out there (data.on_error), so they are no reason to refuse the file.
    file = tmp_path / "rows.csv"
    file.write_text("a,b,label\n1,,0\n3,NaN,1\n", encoding="utf-8")
    assert look.look(str(file)).rows == 2


def test_libsvm(tmp_path: Path) -> None:
    file = tmp_path / "rows.libsvm"
    file.write_text("+1 1:0.5 7:2\n-1 3:1 # a comment\n\n", encoding="utf-8")
    found = look.look(str(file))
    assert (found.shape, found.classes, found.rows) == ((7,), 2, 2)
    assert found.settings["data.label_names"] == "-1,+1"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            "1 1:2\n0 0:1 2:3\n",
            "Line 2 of 'X' holds '0:1', which is no index:value with an index from 1 on, and a run ",
        ),
        (
            "1 qid:1 1:2\n",
            "holds 'qid:1', which is no index:value with an index from 1 on, and a run would end at it. ",
        ),
        ("1 1:2 many\n", "holds 'many', which is no index:value"),
    ],
)
def test_a_line_at_which_a_run_would_end_is_told(lines: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.svm"
    file.write_text(lines, encoding="utf-8")
    with pytest.raises(ConfigurationError) as refused:
        look.look(str(file))
    assert said in str(refused.value).replace(str(file), "X")


def idx_files(folder: Path, highest: int = 9, without: str = "") -> Path:
    """A set of 28×28 that says it has 60,000 images, all of its labels `highest` but two."""
    with gzip.open(folder / "train-images-idx3-ubyte.gz", "wb") as file:
        file.write(b"\x00\x00\x08\x03" + struct.pack(">III", 60000, 28, 28))
    (folder / "t10k-images-idx3-ubyte").touch()
    for name in ("train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte"):
        (folder / name).write_bytes(b"\x00\x00\x08\x01" + struct.pack(">I", 3) + bytes([0, 1, highest]))
    if without:
        (folder / without).unlink()
    return folder


def test_idx(tmp_path: Path) -> None:
    found = look.look(str(idx_files(tmp_path)))
    assert (found.shape, found.rows, found.settings["data.source"]) == ((1, 28, 28), 60000, "idx")
    assert (found.classes, "data.classes" in found.settings) == (10, False)
    assert nets.fitting(found)["model.name"] == "lenet"


def test_idx_with_more_classes_than_digits(tmp_path: Path) -> None:
    found = look.look(str(idx_files(tmp_path, highest=26)))
    assert (found.classes, found.settings["data.classes"]) == (27, "27")
    assert found.told.endswith("27 classes")


@pytest.mark.parametrize("name", ["train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"])
def test_idx_that_is_not_whole(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=rf"has no file '{name}' \(nor \.gz\)\. An IDX data set is train-images"
    ):
        look.look(str(idx_files(tmp_path, without=name)))


def test_images_by_folder(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        head = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", 20, 10)
        (tmp_path / name / "1.png").write_bytes(head)
    found = look.look(str(tmp_path))
    assert (found.shape, found.classes, found.settings["data.shape"]) == ((3, 10, 20), 2, "3,10,20")
    (tmp_path / "cat" / ".hidden").write_text("x")
    (tmp_path / "cat" / "2").write_bytes(head)
    assert look.look(str(tmp_path)) == found
    (tmp_path / "dog" / "notes.txt").write_text("x")
    with pytest.raises(
        ConfigurationError, match=r"notes\.txt' is neither a JPEG nor a PNG image, and a run would end at"
    ):
        look.look(str(tmp_path))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("digist", r"There is no file or folder 'digist'\. Did you mean 'digits'\?"),
        ("rows.cvs", r"Did you mean 'rows\.csv'\?"),
        ("empty", r"^The folder 'empty' is empty\. Valid: a folder of IDX files"),
        ("other", r"^The folder 'other' holds no files whose names show what they are\. Valid: a folder of IDX files"),
        ("rows.txt", r"^What 'rows\.txt' holds cannot be told by its name\. Valid: a folder of IDX files"),
    ],
)
def test_nothing_to_read(path: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    for name in ("rows.txt", "other/rows.txt"):
        (tmp_path / name).write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=message):
        look.look(path)


def test_labels_of_tables() -> None:
    assert labels.of_table([0, 1, 2], "x") == {"data.classes": "3"}
    assert labels.of_table([1.0, 0.0], "x") == {"data.classes": "2"}
    assert labels.of_table(["no", "yes"], "x") == {"data.label_names": "no,yes"}
    assert labels.of_table([10, 9], "x") == {"data.label_names": "9,10"}
    with pytest.raises(
        ConfigurationError,
        match=r"fractional numbers such as 0\.5, so it is no class\. .*numbers are predicted by a run",
    ):
        labels.of_table([0.5, 1.0], "The label's column 'y'")
    with pytest.raises(ConfigurationError, match=r"holds nulls. Leave those rows out"):
        labels.of_table([None, 1], "The label's column 'y'")


@pytest.mark.parametrize(("rows", "batch"), [(0, "128"), (60000, "128"), (1797, "32"), (100, "8")])
def test_batches_fit_the_rows(rows: int, batch: str) -> None:
    assert nets.fitting(look.Look({}, (4,), 2, rows, ""))["batch"] == batch
