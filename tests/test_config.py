from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import COMPARISON_FILES, RUN_FILES
from sparkdl_bench.config import RunFile, as_text, flatten, load_run_file, parse_run_file, snake_case
from sparkdl_bench.errors import ConfigurationError

COMPLETE = """
name = "one"
workers = 3
batch = 100
[model]
name = "mlp"
hidden = [100, 50]
[optimizer]
learning_rate = 1e-2
[data]
shuffle = true
[spark]
master = "local[3]"
spark.executor.memory = "2g"
"spark.task.cpus" = 1
spark.sparkdl.engine.blasThreads = 2
"""


def test_tables_become_dotted_keys_and_spark_stays_apart() -> None:
    run = parse_run_file(COMPLETE, "conf/one.toml")
    assert run.name == "one"
    assert run.settings == {
        "name": "one",
        "workers": "3",
        "batch": "100",
        "model.name": "mlp",
        "model.hidden": "100,50",
        "optimizer.learning_rate": "0.01",
        "data.shuffle": "true",
        "engine.blas_threads": "2",
    }
    assert run.spark == {"spark.master": "local[3]", "spark.executor.memory": "2g", "spark.task.cpus": "1"}


def test_a_run_without_a_name_has_its_files() -> None:
    assert parse_run_file("workers = 1", "conf/runs/small.toml").name == "small"


def test_assignments_win_and_go_where_they_belong() -> None:
    run = parse_run_file(COMPLETE, "one.toml").with_settings(
        [
            "workers=2",
            "master=local[2]",
            "spark.executor.memory=3g",
            "data.path=/a=b",
            "spark.sparkdl.engine.blas=openblas",
        ]
    )
    assert run.settings["workers"] == "2"
    assert run.settings["data.path"] == "/a=b"
    assert run.settings["engine.blas"] == "openblas"
    assert run.spark["spark.master"] == "local[2]"
    assert run.spark["spark.executor.memory"] == "3g"
    assert "spark.sparkdl.engine.blas" not in run.spark


def test_an_assignment_leaves_the_original_as_it_was() -> None:
    run = RunFile({}, {"workers": "1"})
    run.with_settings(["workers=2"])
    assert run.settings["workers"] == "1"


@pytest.mark.parametrize("assignment", ["workers", "=3", ""])
def test_an_assignment_without_key_or_value_is_refused(assignment: str) -> None:
    with pytest.raises(ConfigurationError, match="not of the form key=value"):
        RunFile().with_settings([assignment])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workers = ", "not valid TOML"),
        ("workers = 2\nworkers = 3", "not valid TOML"),
        ("transport = block-manager", "not valid TOML"),
        ("spark = 3", "must be a table"),
        ("[spark]\nexecutor.memory = '2g'", "did you mean 'spark.executor.memory'"),
        ("started = 2026-01-01", "key 'started'.*type date"),
        ("[[model]]\nname = 'a'", "key 'model'.*type list"),
        ("hidden = [[1], [2]]", "key 'hidden'.*type list"),
    ],
)
def test_bad_files_get_one_paragraph(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        parse_run_file(text, "bad.toml")
    assert "\n" not in str(caught.value)
    assert "bad.toml" in str(caught.value)


def test_a_missing_file_names_those_beside_it(tmp_path: Path) -> None:
    (tmp_path / "digits.toml").write_text("")
    with pytest.raises(ConfigurationError, match=r"No such file.*holds digits\.toml"):
        load_run_file(tmp_path / "digit.toml")


@pytest.mark.parametrize("typed", ["mine.tml", "min", "mine", "mien.tolm"])
def test_a_bare_name_near_a_file_of_this_folder_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text("")
    with pytest.raises(ConfigurationError, match=r"No such file or directory\. Did you mean 'mine\.toml'\? A run file"):
        load_run_file(Path(typed))


def test_a_folder_or_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is a folder"):
        load_run_file(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        load_run_file(tmp_path / "binary.toml")


@pytest.mark.parametrize("path", RUN_FILES, ids=lambda path: path.stem)
def test_the_runs_that_we_ship_parse_and_are_named_as_their_files(path: Path) -> None:
    run = load_run_file(path)
    assert run.name == path.stem
    assert run.spark["spark.master"]


@pytest.mark.parametrize("path", COMPARISON_FILES, ids=lambda path: path.stem)
def test_a_comparison_is_no_run(path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"describes a comparison .* `sparkdl-bench compare "):
        load_run_file(path)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (3, "3"),
        (0.5, "0.5"),
        ("x", "x"),
        ([], ""),
        ((1, 2), "1,2"),
        (Path("a/b"), "a/b"),
        (np.int64(7), "7"),
        ([np.int64(7), np.float32(0.5), np.bool_(True), "x"], "7,0.5,true,x"),
    ],
)
def test_values_as_text(value: object, text: str) -> None:
    assert as_text("key", value, "a test") == text


def test_an_item_with_a_comma_is_no_item() -> None:
    with pytest.raises(ConfigurationError, match=r"'data\.columns' in a test is a list with the item 'a,b', and items"):
        as_text("data.columns", ["c", "a,b"], "a test")
    assert as_text("data.columns", "a,b", "a test") == "a,b"


def test_names_as_spark_writes_them() -> None:
    assert snake_case("engine.blasThreads") == "engine.blas_threads"
    assert snake_case("batch_per_worker") == "batch_per_worker"


_keys = st.text("abc_", min_size=1, max_size=4)
_leaves = st.one_of(st.booleans(), st.integers(), st.text("xyz", max_size=3), st.lists(st.integers(), max_size=3))


@given(
    st.recursive(
        st.dictionaries(_keys, _leaves, max_size=4), lambda inner: st.dictionaries(_keys, inner | _leaves, max_size=4)
    )
)
def test_flatten_keeps_every_leaf(table: dict[str, object]) -> None:
    def leaves(value: object) -> int:
        return sum(map(leaves, value.values())) if isinstance(value, dict) else 1

    flat = flatten(table, "a test")
    assert len(flat) == leaves(table)
    assert all(isinstance(value, str) for value in flat.values())


def test_a_run_file_of_an_editor_that_marks_the_byte_order(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_bytes(b"\xef\xbb\xbfworkers = 3\n")
    assert load_run_file(file).settings["workers"] == "3"


@pytest.mark.parametrize(
    ("text", "name", "keys"),
    [
        ("batch = 32\nbatch_size = 64", "batch", ("batch", "batch_size")),
        ("batch_size = 64\nbatch = 32", "batch", ("batch_size", "batch")),
        ("bs = 64\nbatch_size = 32", "batch", ("bs", "batch_size")),
        (
            "[engine]\nthreads = 2\n[spark]\n'spark.sparkdl.engine.nThreads' = 3",
            "engine.threads",
            ("spark.sparkdl.engine.nThreads", "engine.threads"),
        ),
        ("[spark]\nmaster = 'local[2]'\n'spark.master' = 'local[3]'", "spark.master", ("master", "spark.master")),
    ],
)
def test_a_file_may_not_say_two_things_of_one_key(text: str, name: str, keys: tuple[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=rf"sets '{name}' twice: as '{keys[0]}' .*as '{keys[1]}'.*Set it once"):
        parse_run_file(text, "two.toml")


@pytest.mark.parametrize(
    "text",
    [
        "'model.name' = 'lenet'\n[model]\nname = 'mlp'",
        "[model]\nname = 'mlp'\n[engine]\n'blas.threads' = 1\nblas.threads = 2",
    ],
)
def test_a_key_with_dots_in_its_name_is_that_of_the_table(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"stands twice in .*once with dots in its name, .*Set it once"):
        parse_run_file(text, "run.toml")
    parse_run_file("'model.name' = 'mlp'\n[model]\nname = 'mlp'", "run.toml")


def test_a_file_may_say_one_thing_twice() -> None:
    assert parse_run_file("batch_size = 64\nbatch = 64", "two.toml").settings["batch"] == "64"
