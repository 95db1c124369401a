from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparkdl_bench import catalogue, compare, frames
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.ml import SparkDLClassifier
from sparkdl_bench.trainer import FitResult, Trainer, data_to_settings, keywords_to_settings

KEYS = [
    "workers",
    "batch",
    "epochs",
    "seed",
    "transport",
    "model.name",
    "model.hidden",
    "optimizer.name",
    "optimizer.learning_rate",
    "optimizer.momentum",
    "engine.name",
    "engine.threads",
    "data.source",
    "data.path",
    "data.threads",
]
SOURCES = ["digits", "idx", "synthetic"]


@pytest.mark.parametrize(
    ("keywords", "settings"),
    [
        ({"seed": 7}, {"seed": "7"}),
        ({"transport": "shuffle"}, {"transport": "shuffle"}),
        ({"learning_rate": 0.5}, {"optimizer.learning_rate": "0.5"}),
        ({"hidden": (100, 50)}, {"model.hidden": "100,50"}),
        ({"model": "mlp"}, {"model.name": "mlp"}),
        ({"model": {"name": "mlp", "hidden": [8]}}, {"model.name": "mlp", "model.hidden": "8"}),
        ({"engine__threads": 2}, {"engine.threads": "2"}),
        ({"optimizer": {"momentum": 0.9}, "seed": None}, {"optimizer.momentum": "0.9"}),
        ({"optimizer": "sgd", "momentum": 0.5}, {"optimizer.name": "sgd", "optimizer.momentum": "0.5"}),
        ({"wrokers": 3}, {"wrokers": "3"}),  # the JVM names it, with the nearest key
    ],
)
def test_keywords_become_keys(keywords: dict[str, Any], settings: dict[str, str]) -> None:
    assert keywords_to_settings(keywords, KEYS) == settings


def test_an_ambiguous_keyword_says_what_to_write() -> None:
    with pytest.raises(ConfigurationError, match=r"data__threads=… or engine__threads=…"):
        keywords_to_settings({"threads": 2}, KEYS)


def test_a_key_set_twice() -> None:
    with pytest.raises(ConfigurationError, match=r"'optimizer\.learning_rate' is set twice"):
        keywords_to_settings({"learning_rate": 0.1, "optimizer": {"learning_rate": 0.2}}, KEYS)


@pytest.mark.parametrize(
    ("data", "keywords", "said"),
    [
        ({"source": "idx", "path": "a"}, {"data__path": "b"}, "'data.path' is set twice .* to 'a' by data, and to 'b'"),
        ({"source": "idx", "path": "a"}, {"path": "b"}, "'data.path' is set twice"),
        ("digits", {"data__source": "idx"}, "'data.source' is set twice .* to 'digits' by data, and to 'idx'"),
    ],
)
def test_a_keyword_that_contradicts_data(
    data: Any, keywords: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "load", lambda: None)
    with pytest.raises(ConfigurationError, match=said):
        Trainer(data=data, **keywords).settings(KEYS, SOURCES)
    same = Trainer(data={"source": "idx", "path": "a"}, path="a").settings(KEYS, SOURCES)
    assert same["data.path"] == "a"


def test_a_value_that_no_key_can_have() -> None:
    with pytest.raises(ConfigurationError, match="type object"):
        keywords_to_settings({"seed": object()}, KEYS)


@pytest.mark.parametrize(
    ("data", "settings"),
    [
        ("digits", {"data.source": "digits"}),
        ("synthetic", {"data.source": "synthetic"}),
        ("/data/mnist", {"data.source": "idx", "data.path": "/data/mnist"}),
        ("hdfs://host/mnist", {"data.source": "idx", "data.path": "hdfs://host/mnist"}),
        (Path("mnist"), {"data.source": "idx", "data.path": "mnist"}),
        ({"source": "synthetic", "rows": 10}, {"data.source": "synthetic", "data.rows": "10"}),
    ],
)
def test_data(data: Any, settings: dict[str, str]) -> None:
    assert data_to_settings(data, SOURCES) == settings


def test_data_that_is_neither_a_source_nor_a_folder() -> None:
    with pytest.raises(ConfigurationError, match=r"'digts' is neither.*digits, idx, synthetic"):
        data_to_settings("digts", SOURCES)


def test_a_folder_in_the_working_folder_needs_no_slash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mnist").mkdir()
    monkeypatch.chdir(tmp_path)
    assert data_to_settings("mnist", SOURCES) == {"data.source": "idx", "data.path": "mnist"}


def test_defaults_and_settings_together() -> None:
    assert Trainer(workers=3, batch=90, learning_rate=0.2).settings(KEYS, SOURCES) == {
        "model.name": "mlp",
        "data.source": "digits",
        "workers": "3",
        "batch": "90",
        "epochs": "5",
        "optimizer.learning_rate": "0.2",
    }


class Net:
    """A class of the user's own."""


@pytest.mark.parametrize(
    ("model", "kind"), [(Net(), r"test_trainer\.Net"), (object(), r"builtins\.object"), (3, "int")]
)
def test_a_model_that_is_no_name(model: Any, kind: str) -> None:
    with pytest.raises(
        ConfigurationError, match=rf"^model is of type .*{kind}, and must be the name of a model family"
    ):
        Trainer(model=model).settings(KEYS, SOURCES)


def test_rows_of_another_library_are_to_be_made_sparks() -> None:
    with pytest.raises(ConfigurationError, match=r"data is a numpy ndarray\. .* spark\.createDataFrame\(data\)"):
        data_to_settings(np.zeros(3), SOURCES)  # type: ignore[arg-type]


def test_a_file_is_told_with_its_source() -> None:
    with pytest.raises(ConfigurationError, match=r'data=\{"source": "csv", "path": \'/a/rows\.csv\', "label": …\}'):
        data_to_settings("/a/rows.csv", [*SOURCES, "csv"])


class Frame:
    """What is asked of a DataFrame."""

    sparkSession = None

    def __init__(self, *columns: str) -> None:
        self.columns = list(columns)

    def createOrReplaceGlobalTempView(self, name: str) -> None: ...


def test_the_label_of_a_frame() -> None:
    assert frames.labelled({}, Frame("a", "label")) == {"data.label": "label"}
    assert frames.labelled({"data.label": "a"}, Frame("a", "b")) == {"data.label": "a"}
    assert frames.standardised({}, Frame("a", "label")) == {"data.normalize": "standard"}
    assert frames.standardised({"data.normalize": "none"}, Frame("a", "label")) == {"data.normalize": "none"}
    assert frames.standardised({}, {"table": Frame("a", "label")}) == frames.standardised({}, "digits") == {}
    assert frames.labelled({}, "digits") == frames.labelled({}, {"source": "csv"}) == {}
    with pytest.raises(ConfigurationError) as refused:
        frames.labelled({"data.label": "clas"}, Frame("a", "class"))
    assert str(refused.value) == (
        "The DataFrame has no column 'clas', which label='clas' names. Did you mean 'class'? Its columns are a, class."
    )
    with pytest.raises(ConfigurationError, match=r"has no column 'label', .* Add label='…'\. Its columns are a, b\."):
        frames.labelled({}, {"table": Frame("a", "b")})


def fitted(tmp_path: Path, status: str = "success") -> FitResult:
    summary = {
        "status": status,
        "final": {"test_accuracy": 0.9722, "seconds_total": 4.21},
        "variant": {"transport": "block-stream"},
        "workers": 2,
    }
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    return FitResult(tmp_path, {}, {"fc1.bias": np.ones(2, np.float32)}, {"fc1.bias": np.zeros(2, np.float32)})


def test_a_result_shows_itself_in_two_lines(tmp_path: Path) -> None:
    result = fitted(tmp_path)
    assert repr(result) == (f"FitResult(test accuracy 97.22%, seconds 4.2, block-stream, workers 2)\n  {tmp_path}")
    assert '<td style="text-align:left">97.22%</td>' in result._repr_html_()
    assert repr(fitted(tmp_path, "diverged")).startswith("FitResult(status diverged, test accuracy")
    (tmp_path / "summary.json").unlink()
    assert repr(result) == f"FitResult(results not kept)\n  {tmp_path}"


def test_the_folder_of_the_decoded_rows(tmp_path: Path) -> None:
    result = fitted(tmp_path)
    with pytest.raises(ConfigurationError, match=r"run\.json"):
        _ = result.decoded_dir
    (tmp_path / "run.json").write_text(json.dumps({"schema": 1}))
    with pytest.raises(ConfigurationError, match=r"run\.json' has no configuration, which names the folder"):
        _ = result.decoded_dir
    (tmp_path / "run.json").write_text(json.dumps({"schema": 1, "configuration": {"data.decoded_dir": "/rows"}}))
    assert result.decoded_dir == "/rows"


def test_last_and_best_weights(tmp_path: Path) -> None:
    result = fitted(tmp_path)
    assert result.weights()["fc1.bias"].tolist() == [1, 1]
    assert result.weights("best")["fc1.bias"].tolist() == [0, 0]
    with pytest.raises(ConfigurationError, match="which is 'first'; valid are 'last' and 'best'"):
        result.weights("first")
    with pytest.raises(ConfigurationError, match=r"did not keep its best weights\. Train with keep_best='accuracy'"):
        FitResult(tmp_path, {}, {}).weights("best")


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        (
            {"wrokers": 3},
            "Unknown configuration key 'wrokers'. Did you mean 'workers'? `sparkdl-bench list keys` describes all "
            "keys.",
        ),
        (
            {"epochs": "many"},
            "Configuration key 'epochs' has the value 'many', which is not valid. Valid: a whole number, at least 0.",
        ),
        (
            {"transport": "block-straem", "learnin_rate": 0.1},
            "There is no transport called 'block-straem'. Did you mean 'block-stream'?",
        ),
        (
            {"model": {"name": "mlp", "hiden": 3}},
            "Unknown configuration key 'model.hiden'. Did you mean 'model.hidden'?",
        ),
        ({"model": "lent"}, "There is no model called 'lent'. Did you mean 'lenet'? Valid: "),
        ({"data": "digts"}, "data='digts' is neither a data source nor a folder. Data sources: "),
        ({"data": {"source": "csv", "pth": "x"}}, "Unknown configuration key 'data.pth'. Did you mean 'data.path'?"),
        ({"data": Frame("a", "label"), "wrokers": 3}, "Unknown configuration key 'wrokers'. Did you mean 'workers'?"),
        (
            {"batch": 64, "batch_size": 32},
            "The key 'batch' is set twice in the call of Trainer: to '64', and by 'batch_size' to '32'. Set it once.",
        ),
        (
            {"steps": 3},
            "steps=… in the call of Trainer may mean max_steps or schedule.steps. Write max_steps=… or "
            "schedule__steps=….",
        ),
        (
            {"activation": Net},
            "The key 'activation' in the call of Trainer has the class Net as its value, and training runs in the "
            "executors' JVMs, which cannot call Python. Valid are texts, numbers, true and false, and lists of numbers "
            "or texts. `sparkdl-bench list keys` shows what 'activation' may be; a training function of your own is "
            "run by sparkdl_bench.launch(train, spark).",
        ),
        ({"activation": fitted}, "The key 'activation' in the call of Trainer has the function fitted as its value"),
        (
            {"hidden": np.array([3, 4])},
            "The key 'hidden' in the call of Trainer has the value array([3, 4]) of type numpy.ndarray. Valid are "
            "texts, numbers, true and false, and lists of numbers or texts. Give hidden=value.tolist().",
        ),
        (
            {"data": {"table": np.zeros(3)}},
            "'data.table' in the call of Trainer is a numpy ndarray. Make it a DataFrame of Spark's first: "
            "spark.createDataFrame(data).",
        ),
    ],
)
def test_names_and_values_are_checked_when_it_is_made(keywords: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Trainer(**keywords)
    assert str(refused.value).startswith(said)


def test_another_word_takes_the_place_of_a_default() -> None:
    settings = Trainer(batch_size=64, n_epochs=3).settings(KEYS, SOURCES)
    assert {key: settings.get(key) for key in ("batch", "batch_size", "epochs", "n_epochs", "workers")} == {
        "batch": None,
        "batch_size": "64",
        "epochs": None,
        "n_epochs": "3",
        "workers": "2",
    }


def test_without_a_catalogue_the_jvm_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "load", lambda: None)
    assert Trainer(wrokers=3).settings(KEYS, SOURCES)["wrokers"] == "3"


def test_a_trainer_shows_itself_in_one_line() -> None:
    assert repr(Trainer()) == "Trainer(model='mlp', data='digits', workers=2, batch=128, epochs=5)"
    shown = repr(
        Trainer(
            {"name": "mlp", "hidden": [100, 50]},
            {"table": Frame("a", "label"), "label": "label"},
            workers=3,
            seed=None,
            mlflow__uri="https://me:secret@host/",
            name="n" * 100,
        )
    )
    assert shown == (
        "Trainer(model={'name': 'mlp', 'hidden': [100, 50]}, data={'table': DataFrame of 2 columns, 'label': 'label'}, "
        f"workers=3, batch=128, epochs=5, mlflow__uri='https://(redacted)@host/', name='{'n' * 59}…)"
    )


@pytest.mark.parametrize(
    ("library", "kind", "made"),
    [
        ("pandas.core.frame", "DataFrame", "spark.createDataFrame(data)"),
        ("pandas.core.series", "Series", "spark.createDataFrame(data.to_frame())"),
        ("polars.dataframe.frame", "DataFrame", "spark.createDataFrame(data.to_pandas())"),
        ("pyarrow.lib", "Table", "spark.createDataFrame(data.to_pandas())"),
    ],
)
def test_rows_of_other_libraries_are_told_what_to_do_wherever_they_are_given(
    library: str, kind: str, made: str
) -> None:
    rows = type(kind, (), {"__module__": library})()
    first = f"a {library.partition('.')[0]} {kind}. Make it a DataFrame of Spark's first: {made}."
    for call in (lambda: Trainer(data=rows), lambda: compare(rows)):
        with pytest.raises(ConfigurationError) as refused:
            call()
        assert str(refused.value) == f"data is {first} Name the label's column with label=…."
    with pytest.raises(ConfigurationError) as refused:
        SparkDLClassifier().fit(rows)
    assert str(refused.value) == f"fit takes a DataFrame of a classic Spark session, and this is {first}"
