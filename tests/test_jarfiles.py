from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.jarfiles import cache_folder, find_jars, spark_line

THIN_4 = "sparkdl-bench-spark-4_2.13-0.1.0.jar"
THIN_35 = "sparkdl-bench-spark-3.5_2.12-0.1.0.jar"
NATIVE = "pytorch-2.10.0-1.5.13-linux-x86_64.jar"


@pytest.mark.parametrize(
    ("version", "line"), [("3.5.0", "3.5"), ("3.5.9", "3.5"), ("4.0.1", "4"), ("4.1.0", "4"), ("4.3.0.dev1", "4")]
)
def test_lines(version: str, line: str) -> None:
    assert spark_line(version) == line


@pytest.mark.parametrize("version", ["2.4.8", "3.4.1", "3.50.0", "5.0.0", "40.1", ""])
def test_an_unsupported_spark_is_named(version: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Spark {version} is not supported"):
        spark_line(version)


def test_the_jar_of_the_line_and_all_that_lies_beside_it(make_jars: Any) -> None:
    folder = make_jars({THIN_4: ["sparkdlbench.PythonApi"], THIN_35: [], NATIVE: [], "javacpp-1.5.13.jar": []})
    jars = find_jars("4.1.0")
    assert jars.line == "4"
    assert jars.thin == folder / THIN_4
    assert [path.name for path in jars.dependencies] == ["javacpp-1.5.13.jar", NATIVE]
    assert find_jars("3.5.9").thin == folder / THIN_35
    assert jars.holds_class("sparkdlbench.PythonApi")
    assert not jars.holds_class("sparkdlbench.SparkDLPlugin")


def test_the_newest_build_wins_and_sources_are_no_jar_to_run(make_jars: Any) -> None:
    make_jars({THIN_4: [], "sparkdl-bench-spark-4_2.13-0.1.0-sources.jar": [], NATIVE: []})
    assert find_jars("4.1.0").thin.name == THIN_4


def test_a_folder_for_each_line_inside_the_folder_named(make_jars: Any) -> None:
    folder = make_jars({})
    (folder / "4").mkdir()
    for name in (THIN_4, NATIVE):
        source = make_jars({name: []}) / name
        source.rename(folder / "4" / name)
    assert find_jars("4.1.0").thin == folder / "4" / THIN_4


def test_a_jar_of_the_other_line_alone_is_named(make_jars: Any) -> None:
    make_jars({THIN_4: [], NATIVE: []})
    with pytest.raises(ConfigurationError, match=r"no jar of sparkdl-bench for Spark 3\.5") as caught:
        find_jars("3.5.9")
    # The wheel's own folder may hold the jar of the other line in a checkout where the wheel was built.
    assert THIN_4 in str(caught.value)


def test_without_natives_training_is_refused_and_listing_is_not(make_jars: Any) -> None:
    folder = make_jars({THIN_4: []})
    # Into that very folder: no other is looked into where SPARKDL_JARS is set.
    with pytest.raises(ConfigurationError, match=rf"`sparkdl-bench jars fetch {re.escape(str(folder))}`"):
        find_jars("4.1.0")
    assert find_jars("4.1.0", natives=False).dependencies == ()


def test_a_broken_jar_is_named(make_jars: Any) -> None:
    folder = make_jars({NATIVE: []})
    (folder / THIN_4).write_bytes(b"not a zip")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        find_jars("4.1.0")


def test_the_cache_follows_the_users_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder("4") == tmp_path / "sparkdl-bench" / "jars" / "4"


def test_the_jar_of_this_version_comes_before_others_and_ten_after_nine(make_jars: Any) -> None:
    others = [THIN_4.replace("0.1.0", version) for version in ("0.9.0", "0.10.0")]
    make_jars({THIN_4: [], NATIVE: [], **{name: [] for name in others}})
    assert find_jars("4.1.0").thin.name == THIN_4
    folder = make_jars({name: [] for name in [*others, NATIVE]})
    (folder / THIN_4).unlink(missing_ok=True)
    assert find_jars("4.1.0").thin.name == others[1]
