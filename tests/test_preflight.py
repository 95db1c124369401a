"""What is known of a session before it starts: each fault's exact words, without Spark."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkdl_bench import catalogue, preflight
from sparkdl_bench.config import RunFile
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.session import check_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def faults(*assignments: str) -> list[tuple[str, str]]:
    return list(preflight.faults(RunFile().with_settings(assignments)))


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port at which nobody listens: held, and never listened at."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.mark.parametrize(
    ("assignments", "check", "message"),
    [
        (
            ["data.label=class"],
            "settings",
            "Configuration key 'data.label' is 'class', and the data source 'digits' does not read it: the run would "
            "have other rows than that asks for. Leave the key out, or set data.source to one that reads it: csv, "
            "parquet, table.",
        ),
        (
            ["master=local-cluster[2,1,2048]", "workers=3"],
            "slots",
            "workers = 3 must all run at once, and the master local-cluster[2,1,2048] has 2 task slots. Set "
            "workers=2, or master=local-cluster[3,1,2048].",
        ),
        (
            ["master=local[4]", "workers=3", "spark.task.cpus=2"],
            "slots",
            "workers = 3 must all run at once, and the master local[4] has 2 task slots of 2 cores. Set workers=2, or "
            "master=local[3].",
        ),
        (
            ["batch=2", "workers=4"],
            "batch",
            "batch = 2 is the global batch and less than workers = 4, so some workers would never see a row. Set "
            "batch to 4 or more, or use fewer workers.",
        ),
        (
            ["spark.executor.memory=100m", "master=yarn"],
            "memory",
            "spark.executor.memory is 100m, and Spark starts with at least 450m. Set spark.executor.memory=1g or more.",
        ),
        (
            ["spark.executor.memory=lots", "master=yarn"],
            "memory",
            "spark.executor.memory is 'lots', which is no size. Write a whole number and a unit, such as 2g or 1500m.",
        ),
        (
            ["master=local-cluster[2,1,512]"],
            "memory",
            "The master local-cluster[2,1,512] gives each worker 512 MiB, and spark.executor.memory is 1g, Spark's "
            "default: no executor fits. Set the master's last number to 1024 or more, or lower spark.executor.memory.",
        ),
        (
            ["master=lab:lab1"],
            "master",
            "'lab:lab1' is no Spark master. A lab is named on the command line: --master lab:lab1. Masters look so: "
            "local[4], local-cluster[2,1,2048], spark://HOST:7077, yarn, k8s://https://HOST:6443. Set it with "
            "--master.",
        ),
        (
            ["master=localhost:7077"],
            "master",
            "'localhost:7077' is no Spark master. Did you mean 'spark://localhost:7077'? Masters look so: local[4], "
            "local-cluster[2,1,2048], spark://HOST:7077, yarn, k8s://https://HOST:6443. Set it with --master.",
        ),
        (
            ["master=spark://localhost"],
            "master",
            "'spark://localhost' is no Spark master. Did you mean 'spark://localhost:7077'? Masters look so: local[4], "
            "local-cluster[2,1,2048], spark://HOST:7077, yarn, k8s://https://HOST:6443. Set it with --master.",
        ),
        *(
            (
                [f"master={wrong}"],
                "master",
                f"'{wrong}' is no Spark master. Masters look so: local[4], local-cluster[2,1,2048], spark://HOST:7077, "
                "yarn, k8s://https://HOST:6443. Set it with --master.",
            )
            for wrong in ("local[x]", "local[0]", "local[]", "local-cluster[0,1,1024]", "spark://:7077", "spark://a:b")
        ),
        (
            ["master="],
            "master",
            "The master is empty. Masters look so: local[4], local-cluster[2,1,2048], spark://HOST:7077, yarn, "
            "k8s://https://HOST:6443. Set it with --master.",
        ),
        (
            ["resume=/no/such/checkpoints"],
            "settings",
            "There is no complete checkpoint in '/no/such/checkpoints' to resume from: there is no such folder on this "
            "host. Name the folder that checkpoint.dir had in the run to continue, or the URI of another file system "
            "(hdfs://…).",
        ),
        (
            ["data.source=csv", "data.path=/no/such/rows.csv"],
            "data",
            "data.path is '/no/such/rows.csv', and there is no such file or folder on this host. Set it with --set "
            "data.path=PATH, or give the URI of another file system (hdfs://…).",
        ),
    ],
)
def test_each_fault_says_what_to_do(
    assignments: list[str], check: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HADOOP_CONF_DIR", "HADOOP_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert (check, message) in faults(*assignments)
    with pytest.raises(ConfigurationError):
        preflight.check(RunFile().with_settings(assignments))


@pytest.mark.parametrize(
    "assignments",
    [
        ["data.label=0"],
        ["data.classes=+10"],
        ["data.cache_dir=/cache", "data.on_error=skip"],
        ["data.source=synthetic", "data.classes=3"],
        ["data.source=none", "data.label=class"],
    ],
)
def test_what_a_source_reads_or_what_changes_no_rows_may_stand(assignments: list[str]) -> None:
    assert not [said for _, said in faults(*assignments) if "does not read it" in said]


@pytest.mark.on_one_line
def test_the_jvm_refuses_the_same_keys_in_the_same_words(spark: SparkSession) -> None:
    api, known = check_session(spark), catalogue.load()
    assert known is not None
    differ = []
    for source in (str(each["name"]) for each in known.variants["data"]):
        for key in (name for name in known.keys if name.startswith("data.") and name != "data.source"):
            value = next(each for each in (*known.keys[key].get("values", ()), *VALUES) if is_another(known, key, each))
            settings = {"data.source": source, key: value}
            ours = [said for _, said in preflight.faults(RunFile({}, settings)) if "does not read it" in said]
            try:
                api.check(settings)
                theirs = []
            except ConfigurationError as error:
                theirs = [str(error)]
            if ours != [said for said in theirs if "does not read it" in said] and not (ours and theirs):
                differ.append((settings, ours, theirs))
    assert differ == []


VALUES = ("x", "3", "0.5", "true", "false", "1,2", "4096")


def is_another(known: catalogue.Catalogue, key: str, value: str) -> bool:
    return known.faults({key: value}) == {} and value != known.default(key)


@pytest.mark.parametrize(
    "master", ["spark://one:7077,two:7077", "spark://[::1]:7077", "local[*]", "local[2, 4]", "k8s://https://host:6443"]
)
def test_other_masters_are_spark_s_to_judge(master: str) -> None:
    assert not [said for _, said in faults(f"master={master}", "workers=1") if "is no Spark master" in said]


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ([], "it holds no folder step-…."),
        (
            ["events.jsonl", "checkpoints/step-000000000004/manifest.json"],
            "it holds no folder step-…. Its sub-folder 'checkpoints' does.",
        ),
        (
            ["step-000000000004/rank-0-of-2.run-0", "step-000000000002/rank-1-of-2.run-0"],
            "no rank has written the last file of a step (step-000000000004).",
        ),
        (["step-000000000004/manifest.json", "step-000000000008/rank-0-of-2.run-0"], None),
        (["step-000000000004/rank-0-of-2"], None),  # of an earlier version, which the JVM can tell
    ],
)
def test_a_folder_without_a_checkpoint(
    files: list[str], why: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HADOOP_CONF_DIR", "HADOOP_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x", encoding="utf-8")
    said = (
        f"There is no complete checkpoint in '{tmp_path}' to resume from: {why} Name the folder that checkpoint.dir "
        "had in the run to continue, or the URI of another file system (hdfs://…)."
    )
    assert faults(f"resume={tmp_path}") == ([("settings", said)] if why else [])


def test_more_memory_than_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "_host_memory", lambda: 8 * 1024**3)
    assert faults("master=local[2]", "spark.driver.memory=12g") == [
        ("memory", "spark.driver.memory is 12g, and this machine has 8192 MiB. Set spark.driver.memory=2048m or less.")
    ]
    found = faults("master=local-cluster[2,1,6144]", "spark.executor.memory=6g")
    assert found == [
        (
            "memory",
            "2 executors of 6144 MiB are more than this machine's 8192 MiB. Use fewer executors, or a lower "
            "spark.executor.memory.",
        )
    ]
    # Executors elsewhere may have more.
    monkeypatch.setenv("YARN_CONF_DIR", "/etc/hadoop")
    assert faults("master=yarn", "spark.executor.memory=12g") == []


def test_a_results_folder_that_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "taken"
    file.write_text("x", encoding="utf-8")
    for text in (file, file / "below" / "deeper"):
        said = f"results is '{text}', and '{file}' is a file. Name a folder with --set results=DIR."
        assert faults(f"results={text}") == [("settings", said)]
    assert faults(f"results={tmp_path / 'new' / 'folder ü'}") == []


def test_a_results_folder_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write everywhere
    said = (
        f"results is '{tmp_path}', and this user may not write to '{tmp_path}'. Name another folder with --set "
        "results=DIR."
    )
    assert faults(f"results={tmp_path}") == [("settings", said)]
    # The default is a folder below this one.
    monkeypatch.chdir(tmp_path)
    assert faults() == [
        (
            "settings",
            f"results is 'results', and this user may not write to '{tmp_path}'. Name another folder with --set "
            "results=DIR.",
        )
    ]


def test_yarn_without_the_cluster_s_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    said = (
        "The master is yarn, and neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set, so Spark would not find the "
        "cluster. Set one to the folder that holds yarn-site.xml and core-site.xml."
    )
    assert faults("master=yarn") == [("master", said)]
    (tmp_path / "spark-env.sh").write_text("export YARN_CONF_DIR=/etc/hadoop\n", encoding="utf-8")
    assert faults("master=yarn") == []


def test_a_master_that_nobody_answers_for(closed_port: int) -> None:
    assert faults(f"master=spark://127.0.0.1:{closed_port}") == [
        (
            "master",
            f"The master spark://127.0.0.1:{closed_port} cannot be reached: 127.0.0.1:{closed_port} (nothing listens "
            "there). Start it, or correct its host and port (--master); a firewall may be in between.",
        )
    ]
    [(_, message)] = faults("master=spark://no-such-host.invalid:7077")
    assert "no-such-host.invalid:7077 (no host has this name)" in message


def test_one_master_of_several_is_enough(closed_port: int) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        there = listening.getsockname()[1]
        assert faults(f"master=spark://127.0.0.1:{closed_port},127.0.0.1:{there}") == []


@pytest.mark.parametrize(
    "assignments",
    [
        [],
        ["master=local[*]", "workers=64"],
        ["master=local[2,4]", "workers=2"],
        ["master=yarn", "workers=64"],
        ["master=local-cluster[2,2,2048]", "workers=4", "spark.executor.memory=2g"],
        ["workers=4", "batch=1", "batch_per_worker=8"],
        ["data.source=csv", "data.path=hdfs://there/rows.csv"],
        ["data.source=csv", "data.path=rows-{a,b}*.csv"],
    ],
)
def test_what_may_work_is_left_alone(assignments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YARN_CONF_DIR", "/etc/hadoop")
    assert faults(*assignments) == []


@pytest.mark.parametrize(
    ("assignments", "results", "said"),
    [
        (
            ["workers=3", "master=local-cluster[2,1,2048]"],
            "results",
            "workers = 3 must all run at once, and the master local-cluster[2,1,2048] has 2 task slots. Set --workers "
            "2, or --master local-cluster[3,1,2048].",
        ),
        (["workers=2", "master=locl[2]"], "results", "'locl[2]' is no Spark master. Masters look so: local[4], "),
        (["workers=2"], "{file}", "--results is '{file}', and '{file}' is a file. Name a folder with --results DIR."),
        (["workers=2", "wrokers=3"], "results", "Unknown configuration key 'wrokers'. Did you mean 'workers'?"),
        # It has no batch, and no data.
        (["workers=200", "master=local[200]"], "results", ""),
        (["workers=2", "data.source=csv", "data.path=/no/such/rows.csv"], "results", ""),
    ],
)
def test_a_launch_is_told_in_its_own_options(assignments: list[str], results: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    run = RunFile().with_settings(assignments)
    if not said:
        preflight.check_launch(run, results)
        return
    with pytest.raises(ConfigurationError) as refused:
        preflight.check_launch(run, results.format(file=file))
    assert str(refused.value).startswith(said.format(file=file))


def test_all_faults_are_told_not_the_first_alone() -> None:
    found = faults("master=local-cluster[1,1,512]", "workers=4", "batch=2", "spark.driver.memory=1m")
    assert [check for check, _ in found] == ["batch", "slots", "memory", "memory"]
