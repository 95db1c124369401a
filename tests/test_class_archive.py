"""The archive of a run's classes: when it is taken, when not, and JVMs that start with it alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import CommandLine
from sparkdl_bench import class_archive, class_archive_build, session
from sparkdl_bench.errors import ConfigurationError, SparkDLError

MEMORY = "TrimNativeHeapInterval"

TRAINING = """
import json
from pyspark.sql import SparkSession
import sparkdl_bench
from sparkdl_bench import Trainer, class_archive

builder = SparkSession.builder.master("local-cluster[2,1,1024]")
for key in class_archive.JAVA_OPTIONS_KEYS:
    builder = builder.config(key, %r)
spark = sparkdl_bench.configure(builder).getOrCreate()
bean = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
result = Trainer(model="mlp", data="digits", workers=2, epochs=1).fit(spark)
print(json.dumps({"status": result.summary["status"], "options": list(bean.getInputArguments())}))
spark.stop()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the archive for any class path would lie."""
    monkeypatch.setattr(class_archive, "place", lambda class_path: tmp_path / "archives" / "one.jsa")
    return tmp_path / "archives" / "one.jsa"


def archived(place: Path, *jars: Path) -> None:
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(b"classes")
    described = class_archive.described([str(jar) for jar in jars])
    place.with_suffix(".json").write_text(json.dumps({"jars": described}), encoding="utf-8")


def test_an_archive_is_taken_while_its_jars_stay_as_they_were(place: Path, tmp_path: Path) -> None:
    jar, absent = tmp_path / "a.jar", tmp_path / "conf"
    jar.write_bytes(b"1")
    assert class_archive.find("a.jar") is None
    assert class_archive.java_option("a.jar") == ""
    archived(place, jar, absent)
    assert class_archive.find("a.jar") == place
    assert class_archive.java_option("a.jar").split() == [
        f"-XX:SharedArchiveFile={place}",
        "-Xshare:auto",
        "-Xlog:cds=off",
    ]
    jar.write_bytes(b"22")
    assert class_archive.find("a.jar") is None
    archived(place, jar, absent)
    absent.mkdir()  # a folder of configuration files, which was not there
    assert class_archive.find("a.jar") is None


@pytest.mark.parametrize("text", ["", "{", "{}", '{"jars": 1}', '{"jars": [["a"]]}'])
def test_a_stamp_that_says_nothing_is_no_archive(place: Path, text: str) -> None:
    archived(place)
    place.with_suffix(".json").write_text(text, encoding="utf-8")
    assert class_archive.find("a.jar") is None


def test_archives_of_changed_jars_are_removed(place: Path, tmp_path: Path) -> None:
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"1")
    archived(place, jar)
    (place.parent / "unknown.jsa").write_bytes(b"classes")
    class_archive.remove_stale(place.parent)
    assert sorted(path.name for path in place.parent.iterdir()) == ["one.jsa", "one.json"]
    jar.unlink()
    class_archive.remove_stale(place.parent)
    assert list(place.parent.iterdir()) == []


def test_a_folder_with_a_blank_is_held_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "with blank" / "one.jsa"
    monkeypatch.setattr(class_archive, "place", lambda class_path: place)
    archived(place)
    assert class_archive.java_option("").startswith(f'"-XX:SharedArchiveFile={place}" -Xshare:auto')


def test_local_sessions_take_it_and_others_do_not(make_jars: Any, place: Path) -> None:
    from sparkdl_bench.jarfiles import find_jars

    make_jars({"sparkdl-bench-spark-4_2.13-0.1.0.jar": ["sparkdlbench.SparkDLPlugin"], "pytorch-2-linux.jar": []})
    jars = find_jars("4.1.0")
    archived(place)
    local = {"spark.master": "local-cluster[2,1,2048]"}
    for key in class_archive.JAVA_OPTIONS_KEYS:
        options = session.session_settings(jars, local)[key]
        assert MEMORY in options
        assert f"-XX:SharedArchiveFile={place}" in options
        own = session.session_settings(jars, {**local, key: "-Dmine=1"})
        assert own[key] == "-Dmine=1"
    # Executors with another class path than the driver's: no one archive fits both.
    unlike = session.session_settings(jars, {**local, "spark.executor.extraClassPath": "/own.jar"})
    assert "SharedArchiveFile" not in unlike[class_archive.JAVA_OPTIONS_KEYS[0]]
    assert class_archive.JAVA_OPTIONS_KEYS[1] not in session.session_settings(jars, {"spark.master": "yarn"})


def test_every_class_path_spark_configuration_and_java_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {class_archive.place("a.jar"), class_archive.place("a.jar:b.jar")}
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    places.add(class_archive.place("a.jar"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    places.add(class_archive.place("a.jar"))
    assert len(places) == 4


def test_a_folder_of_configuration_files_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text("", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=f"'{tmp_path}', which comes before Spark's jars in the class path"):
        class_archive_build.create()


def test_a_driver_and_its_executors_start_from_the_archive(command_line: CommandLine) -> None:
    done = command_line.run("jars", "archive")
    assert done.returncode == 0, done.stderr
    archive = Path(done.stdout.rpartition(" (")[0])
    assert archive.stat().st_size > 50e6
    # `on`: a JVM that cannot take it does not start.
    option = f"-XX:SharedArchiveFile={archive} -Xshare:on"
    trained = command_line.python(TRAINING % option)
    assert trained.returncode == 0, trained.stderr
    said = json.loads(trained.stdout.splitlines()[-1])
    assert said["status"] == "success"
    assert "-Xshare:on" in said["options"]


def test_what_cannot_be_made_is_said(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text(f"#!{sys.executable}\nimport sys; print('no room', file=sys.stderr); sys.exit(1)\n")
    java.chmod(0o755)
    with pytest.raises(SparkDLError, match="could not make the archive of classes: no room"):
        class_archive_build._dump(java, "a.jar", tmp_path / "all.txt", tmp_path / "one.jsa")
