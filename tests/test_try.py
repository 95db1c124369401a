"""`sparkdl-bench try` and `sparkdl_bench.compare`: what is refused before anything is measured."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import sparkdl_bench
from sparkdl_bench import catalogue, comparison_api, nearest
from sparkdl_bench.cli import cli
from sparkdl_bench.comparison import quick
from sparkdl_bench.errors import ConfigurationError


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("workers=3", "--set workers is not for `sparkdl-bench try`, which compares numbers of workers itself"),
        ("results=DIR", "name it with -o DIR"),
        ("resume=DIR", "goes on with an earlier call by --resume"),
        ("spark.executor.memory=9t", "takes no Spark properties but the master, and --set names spark.executor.memory"),
    ],
)
def test_what_try_decides_itself_is_no_setting(assignment: str, said: str) -> None:
    done = CliRunner().invoke(cli, ["try", "digits", "--set", assignment])
    assert done.exit_code == 2
    assert said in done.output


def test_epochs_and_master_reach_the_comparison(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: dict[str, Any] = {}

    class Found:
        folder = tmp_path
        answer = "Use one process."
        sureness = ""

        def report(self, page: Path) -> Path:
            return page

    def compare(_: str, **keywords: Any) -> Found:
        asked.update(keywords)
        return Found()

    monkeypatch.setattr(comparison_api, "compare", compare)
    words = ["--set", "epochs=3", "--set", "master=spark://host:7077", "--set", "batch=64"]
    done = CliRunner().invoke(cli, ["try", "digits", *words])
    assert done.exit_code == 0, done.output
    assert (asked["epochs"], asked["master"], asked["batch"]) == (3, "spark://host:7077", "64")


@pytest.mark.parametrize(
    ("master", "said"),
    [
        ("", "The master is empty. Masters look so: local[4]"),
        ("loal[2]", "'loal[2]' is no Spark master. Masters look so: "),
        ("local-cluster[2,1,1024]", "a comparison gives each number of workers a local-cluster of its own"),
        (
            "spark://127.0.0.1:1",
            "The master spark://127.0.0.1:1 cannot be reached: 127.0.0.1:1 (nothing listens there)",
        ),
    ],
)
@pytest.mark.parametrize("by_option", [True, False])
def test_a_master_that_cannot_be_is_refused_before_anything_is_measured(
    master: str, said: str, by_option: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick, "measure", None)
    done = CliRunner().invoke(
        cli, ["try", "digits", *(["--master", master] if by_option else ["--set", f"master={master}"])]
    )
    assert done.exit_code == 2
    assert said in done.output


def test_of_a_session_only_a_cluster_s_master_counts() -> None:
    def session(master: str) -> Any:
        return SimpleNamespace(sparkContext=SimpleNamespace(master=master))

    assert comparison_api._master(None, session("local-cluster[2,1,2048]")) is None
    assert comparison_api._master(None, session("spark://host:7077")) == "spark://host:7077"
    assert comparison_api._master("local[2]", session("spark://host:7077")) == "local[2]"


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"minutes": "3"}, "minutes = '3' is not valid; it is a number above 0"),
        ({"trials": "3"}, "trials = '3' is not valid; it is a whole number"),
        ({"trials": 2.5}, r"trials = 2\.5 is not valid"),
        ({"trials": 1, "epochs": "3"}, "epochs = '3' is not valid"),
        ({"trials": 1, "epochs": 0}, "epochs = 0 is not valid"),
        ({"workers": 3}, "workers = 3 is not valid; it is a list of different whole numbers"),
        ({"workers": "12"}, "workers = '12' is not valid"),
        ({"workers": [1, "2"]}, "is not valid; it is a list of different whole numbers"),
    ],
)
def test_arguments_of_other_types_are_refused_by_name(keywords: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        sparkdl_bench.compare("digits", **keywords)


def test_of_ten_thousand_unknown_keys_only_those_that_are_shown_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each suggestion takes a comparison with every key: all of them took two minutes."""
    asked: list[str] = []

    def suggestion(typed: str, *_: object, **__: object) -> str:
        asked.append(typed)
        return "Did you mean 'batch'?"

    monkeypatch.setattr(catalogue, "suggestion", suggestion)
    with pytest.raises(ConfigurationError, match="And 9997 more keys are wrong") as refused:
        catalogue.check({f"no_such_key_{number}": "1" for number in range(10_000)})
    assert asked == ["no_such_key_0", "no_such_key_1", "no_such_key_2"]
    assert len(str(refused.value)) < 1000


def test_a_word_of_a_book_s_length_is_cut_and_compared_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "SequenceMatcher", None)
    with pytest.raises(ConfigurationError) as refused:
        catalogue.check({"k" * 100_000: "1"})
    assert str(refused.value).startswith(f"Unknown configuration key '{'k' * 60}…'.")
    assert len(str(refused.value)) < 300


def test_what_a_terminal_would_obey_is_shown_instead() -> None:
    with pytest.raises(ConfigurationError) as refused:
        catalogue.check({"epochs": "1\n2", "\x1b[31mbatch": "3"})
    assert "'1\\n2'" in str(refused.value)
    assert "'\\x1b[31mbatch'" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "\x1b" not in str(refused.value)
