from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.trainer import Trainer, data_to_settings, keywords_to_settings

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
