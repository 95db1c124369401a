"""The entry points of a JVM team, each used for real: spark-submit with the assembled jar on a standalone cluster,
spark-submit --packages, and a Maven and an sbt project that depend on the artifact.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pyspark
import pytest

from programs import ROOT, assert_refused, execute
from sparkdl_bench.jarfiles import SCALA_OF_LINE, spark_line
from sparkdl_bench.version import __version__
from standalone import SPARK_HOME, spark_environment, standalone_cluster
from test_release import release

LINE = spark_line(pyspark.__version__)
SCALA = SCALA_OF_LINE[LINE]
ARTIFACT = f"sparkdl-bench-spark-{LINE}_{SCALA}"
SCALA_VERSIONS = {"2.12": "2.12.18", "2.13": "2.13.16"}
COMPILED_AGAINST = {"3.5": "3.5.8", "4": "4.1.0"}
RUN = ROOT / "conf" / "runs" / "digits-mlp.toml"


@dataclass(frozen=True)
class Published:
    """What the build made: the assembled jar, and a folder in Maven's layout that holds the thin jar and its POM."""

    assembly: Path
    repository: Path

    @property
    def artifact(self) -> Path:
        return self.repository / "io" / "github" / "sparkdl-bench" / ARTIFACT / __version__


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    repository = tmp_path_factory.mktemp("repository")
    command = [str(ROOT / "project" / "sbt"), f"++{SCALA_VERSIONS[SCALA]}", "jvm/assembly", "jvm/publish"]
    execute(command, {**os.environ, "SPARKDL_REPOSITORY": str(repository)})
    target = ROOT / "jvm" / "target" / f"scala-{SCALA}"
    return Published(target / f"{ARTIFACT}-assembly-{__version__}.jar", repository)


@pytest.fixture(scope="session")
def brought() -> Path:
    """The folder in Maven's layout where sbt keeps what it has brought, so that no test brings the same again."""
    (pom,) = sbt_cache().glob("https/*/maven2/org/bytedeco/pytorch/*/pytorch-*.pom")
    return pom.parents[4]


def sbt_cache() -> Path:
    if os.environ.get("COURSIER_CACHE"):
        return Path(os.environ["COURSIER_CACHE"])
    # A JVM's home is the password file's, whatever HOME says.
    homes = [Path(pwd.getpwuid(os.getuid()).pw_dir), Path.home()]
    caches = [Path(".cache", "coursier", "v1"), Path("Library", "Caches", "Coursier", "v1")]
    return next(folder for home in homes for cache in caches if (folder := home / cache).is_dir())


def submit(*arguments: str, environment: dict[str, str], cwd: Path, asked: dict[str, str] | None = None) -> str:
    settings = {"spark.ui.enabled": "false", **(asked or {})}
    options = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    return execute([str(SPARK_HOME / "bin" / "spark-submit"), *options, *arguments], environment, cwd)


def asked_by_block_stream(jar: Path) -> dict[str, str]:
    """Spark 3.5 makes its shuffle manager before it has the jar, so `block-stream` asks for these there (README)."""
    asked = {
        "spark.plugins": "sparkdlbench.SparkDLPlugin",
        "spark.shuffle.manager": "org.apache.spark.sparkdlbench.SparkDLShuffleManager",
        "spark.driver.extraClassPath": str(jar),
        "spark.executor.extraClassPath": str(jar),
    }
    return asked if LINE == "3.5" else {}


def only_summary(results: Path) -> dict[str, Any]:
    (path,) = results.glob("*/summary.json")
    summary = json.loads(path.read_text())
    assert summary["status"] == "success"
    return dict(summary)


def test_assembled_jar_holds_us_and_the_natives_but_neither_spark_nor_scala(published: Published) -> None:
    with ZipFile(published.assembly) as archive:
        names = archive.namelist()
    assert "sparkdlbench/Main.class" in names
    assert "org/bytedeco/pytorch/linux-x86_64/libtorch_cpu.so" in names
    assert "org/bytedeco/mkl/linux-x86_64/libmkl_core.so.2" in names
    ours = ("org/apache/spark/sql/", "org/apache/spark/sql/sparkdlbench/")  # what reaches Spark's private parts
    others = [name for name in names if name not in ours and not name.startswith(ours[1])]
    assert not [name for name in others if name.startswith(("scala/", "org/apache/spark/sql/", "org/apache/hadoop/"))]


def test_a_wrong_setting_ends_spark_submit_with_status_2(published: Published, tmp_path: Path) -> None:
    command = [SPARK_HOME / "bin" / "spark-submit", "--class", "sparkdlbench.Main", published.assembly]
    said = execute([*command, "run", RUN, "--set", "wrokers=2"], spark_environment(), tmp_path, status=2)
    assert_refused(said, "sparkdl-bench: Unknown configuration key 'wrokers'. Did you mean 'workers'?")


def test_thin_jar_needs_only_spark_and_the_natives(published: Published) -> None:
    jar = published.artifact / f"{ARTIFACT}-{__version__}.jar"
    with ZipFile(jar) as archive:
        names = archive.namelist()
        facts = dict(line.split("=", 1) for line in archive.read("sparkdlbench/build.properties").decode().split())
    assert facts["version"] == __version__
    assert facts["spark_line"] == LINE
    assert facts["scala"] == SCALA_VERSIONS[SCALA]
    assert re.fullmatch(r"[0-9a-f]{40}|unknown", facts["commit"])
    assert not [name for name in names if name.startswith("org/bytedeco/")]
    release.check_pom(published.artifact / f"{ARTIFACT}-{__version__}.pom", ARTIFACT, __version__)
    pom = ElementTree.parse(published.artifact / f"{ARTIFACT}-{__version__}.pom").getroot()
    needed = {
        dependency.findtext("{*}groupId")
        for dependency in pom.iterfind("{*}dependencies/{*}dependency")
        if dependency.findtext("{*}scope", "compile") == "compile"
    }
    assert needed == {"org.bytedeco"}


def test_spark_submit_on_a_standalone_cluster(published: Published, tmp_path: Path) -> None:
    with standalone_cluster(tmp_path, workers=2) as master:
        output = submit(
            *("--master", master, "--driver-memory", "1g", "--executor-memory", "1g"),
            *("--class", "sparkdlbench.Main", str(published.assembly)),
            *("run", str(RUN), "--set", f"results={tmp_path / 'results'}"),
            asked=asked_by_block_stream(published.assembly),
            environment=spark_environment(),
            cwd=tmp_path,
        )
    accuracy = only_summary(tmp_path / "results")["final"]["test_accuracy"]
    assert accuracy >= 0.95
    assert f"test accuracy {accuracy}" in output
    worked = {log.parent.parent.parent.name for log in tmp_path.glob("work-*/app-*/*/stderr")}
    assert worked == {"work-0", "work-1"}, "both workers of the cluster had an executor"


@pytest.mark.long
def test_spark_submit_with_packages(published: Published, brought: Path, tmp_path: Path) -> None:
    # Ivy looks into the Maven repository of the home before any registry: there lies what sbt has brought.
    home = tmp_path / "home"
    (home / ".m2").mkdir(parents=True)
    (home / ".m2" / "repository").symlink_to(brought)
    jar = published.artifact / f"{ARTIFACT}-{__version__}.jar"
    output = submit(
        *("--master", "local-cluster[2,1,1024]", "--conf", f"spark.jars.ivy={tmp_path / 'ivy'}"),
        *("--repositories", published.repository.as_uri()),
        *("--packages", f"io.github.sparkdl-bench:{ARTIFACT}:{__version__}"),
        *("--class", "sparkdlbench.Main", str(jar)),
        *("run", str(RUN), "--set", f"results={tmp_path / 'results'}", "--set", "epochs=5"),
        *(("--set", "transport=block-manager") if LINE == "3.5" else ()),
        environment=spark_environment(SPARK_SUBMIT_OPTS=f"-Duser.home={home}"),
        cwd=tmp_path,
    )
    assert only_summary(tmp_path / "results")["final"]["test_accuracy"] >= 0.9, output
    jars = {path.name for path in (tmp_path / "ivy" / "jars").iterdir()}
    assert len([name for name in jars if name.startswith("org.bytedeco_") and "linux-x86_64" in name]) == 5


@pytest.mark.long
def test_maven_project(published: Published, brought: Path, tmp_path: Path) -> None:
    project = copy_of("maven", tmp_path)
    settings = tmp_path / "settings.xml"
    settings.write_text(
        "<settings><profiles><profile><id>brought</id><repositories><repository><id>brought</id>"
        f"<url>{brought.as_uri()}</url></repository></repositories></profile></profiles>"
        "<activeProfiles><activeProfile>brought</activeProfile></activeProfiles></settings>"
    )
    # Maven keeps released versions for good, so it gets one of its own without what an earlier test left of us.
    repository = ROOT / "target" / "maven-repository"
    shutil.rmtree(repository / "io" / "github" / "sparkdl-bench", ignore_errors=True)
    output = execute(
        [
            *(str(ROOT / "project" / "mvn"), "-B", "-ntp", "-gs", str(settings), f"-Dmaven.repo.local={repository}"),
            *("-f", str(project / "pom.xml"), "compile", "exec:exec"),
            *(f"-Dsparkdl.repository={published.repository.as_uri()}", f"-Dresults={tmp_path / 'results'}"),
            *(f"-Dspark.line={LINE}", f"-Dscala.binary={SCALA}", f"-Dspark.version={COMPILED_AGAINST[LINE]}"),
        ],
        spark_environment(),
    )
    check_consumer(output, tmp_path / "results")


@pytest.mark.long
def test_sbt_project(published: Published, tmp_path: Path) -> None:
    project = copy_of("sbt", tmp_path)
    output = execute(
        [str(ROOT / "project" / "sbt"), f"run {tmp_path / 'results'}"],
        spark_environment(SBT_PROJECT=str(project), SPARKDL_REPOSITORY=str(published.repository), SPARK_LINE=LINE),
    )
    check_consumer(output, tmp_path / "results")


def copy_of(consumer: str, folder: Path) -> Path:
    """The project copied to a folder, so that what it builds is not left among the sources."""
    source = ROOT / "tests" / "consumers" / consumer
    return Path(shutil.copytree(source, folder / consumer, ignore=shutil.ignore_patterns("target")))


def check_consumer(output: str, results: Path) -> None:
    """What Digits.java and Digits.scala print agrees with the result that they left."""
    found = re.search(r"test accuracy (\S+) with (\d+) parameters", output)
    assert found, output[-3000:]
    accuracy = only_summary(results)["final"]["test_accuracy"]
    assert float(found.group(1)) == accuracy >= 0.9
    assert int(found.group(2)) == 4, "two layers, each with weight and bias"
