"""The wheel as `make wheel` makes it: what it holds, and that it trains away from the checkout."""

from __future__ import annotations

import itertools
import os
import re
import sys
from email.parser import Parser
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

import pyspark
import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import test_smoke
import test_unprepared
from conftest import CommandLine
from programs import ROOT, assert_refused, execute
from sparkdl_bench.config import tomllib
from sparkdl_bench.jarfiles import SCALA_OF_LINE, spark_line
from sparkdl_bench.version import __version__
from standalone import SPARK_HOME, spark_environment

LINE = spark_line(pyspark.__version__)
OTHER_LINE = "4" if LINE == "3.5" else "3.5"


@pytest.fixture(scope="session")
def wheel() -> Path:
    spark = "3.5" if LINE == "3.5" else "4.1"
    execute(["make", "wheel", f"SPARK={spark}"], os.environ)
    return ROOT / "dist" / f"sparkdl_bench-{__version__}-py3-none-any.whl"


def test_the_smoke_test_installs_what_the_package_needs() -> None:
    listed = re.search(r"(?ms)^dependencies = \[(.*?)\]", (ROOT / "pyproject.toml").read_text())[1]
    needed = set(re.findall(r'"([a-z]+)[^"]*"', listed)) - {"pyspark"}
    assert needed == set(test_smoke.BESIDE)


def test_pinned_versions_are_made_for_the_oldest_python() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = project["requires-python"].removeprefix(">=")
    for text in [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]:
        requirement = Requirement(text)
        if "==" not in text.partition(";")[0]:
            continue  # an installation takes the version for its Python
        if requirement.marker and not requirement.marker.evaluate({"python_version": oldest}):
            continue
        try:
            found = metadata.distribution(requirement.name)
        except metadata.PackageNotFoundError:
            continue  # an extra that no test needs
        assert found.version in requirement.specifier, text
        assert oldest in SpecifierSet(found.metadata["Requires-Python"] or ""), text


def test_holds_both_thin_jars_and_nothing_native(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    jars = {name for name in names if name.endswith(".jar")}
    assert jars == {
        f"sparkdl_bench/jars/sparkdl-bench-spark-{line}_{scala}-{__version__}.jar"
        for line, scala in SCALA_OF_LINE.items()
    }
    assert {"sparkdl_bench/natives.properties", "sparkdl_bench/report/counted.json"} <= set(names)
    shipped = {f"sparkdl_bench/conf/runs/{path.name}" for path in (ROOT / "conf" / "runs").glob("*.toml")}
    assert shipped
    assert shipped <= set(names)
    assert not [name for name in names if name.endswith((".so", ".pyc"))]
    assert wheel.stat().st_size < 20e6


def test_says_what_a_registry_shows(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        told = Parser().parsestr(archive.read(name).decode("utf-8"))
        moments = {entry.date_time for entry in archive.infolist()}
    assert (told["Version"], told["License-Expression"], told["License-File"]) == (__version__, "Apache-2.0", "LICENSE")
    assert told["Description-Content-Type"] == "text/markdown"
    assert told["Author"]
    assert {url.partition(",")[0] for url in told.get_all("Project-URL")} >= {"Homepage", "Source", "Changelog"}
    assert len(told.get_all("Classifier")) > 10
    # Nothing lies beside a registry's page: every link is a whole address.
    links = re.findall(r"\]\(([^)]+)\)", told.get_payload())
    assert len(links) > 5
    assert not [link for link in links if not link.startswith(("https://", "#"))]
    assert len(moments) == 1, "entries of other times than the commit's would make each build another file"


def test_trains_away_from_the_checkout(wheel: Path, tmp_path: Path) -> None:
    site, natives = tmp_path / "site", tmp_path / "natives"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    execute([*install, "--target", site, wheel], os.environ)
    natives.mkdir()
    for jar in (ROOT / "target" / f"jars-{LINE}").glob("*.jar"):
        if not jar.name.startswith("sparkdl-bench-"):
            (natives / jar.name).symlink_to(jar)
    environment = {**os.environ, "PYTHONPATH": str(site), "SPARKDL_JARS": str(natives)}
    where = "import pyspark, sparkdl_bench.jarfiles as j; print(j.find_jars(pyspark.__version__).thin)"
    thin = execute([sys.executable, "-c", where], environment, tmp_path)
    assert Path(thin.strip()).is_relative_to(site)
    execute([sys.executable, "-m", "sparkdl_bench", "run", "digits-mlp", "--set", "epochs=2"], environment, tmp_path)
    assert list((tmp_path / "results").glob("*/summary.json"))


def test_a_session_with_a_jar_made_for_the_other_line(wheel: Path, command_line: CommandLine) -> None:
    options = f".config('spark.jars', {test_unprepared.thin_jar(OTHER_LINE)!r})"
    done = command_line.python(test_unprepared.PROGRAM.format(options=options, results=""))
    assert "made for" in done.stdout, done.stdout + done.stderr
    assert "sparkdl_bench.configure(builder)" in done.stdout


def test_spark_submit_with_a_jar_made_for_the_other_line(wheel: Path, tmp_path: Path) -> None:
    jar = test_unprepared.thin_jar(OTHER_LINE)
    command = [SPARK_HOME / "bin" / "spark-submit", "--class", "sparkdlbench.Main", jar, "list"]
    said = execute(command, spark_environment(), tmp_path, status=2)
    assert_refused(said, f"built for Spark {OTHER_LINE}.x with Scala {SCALA_OF_LINE[OTHER_LINE]}")
