from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkdl_bench import _jvm, peers, session
from sparkdl_bench.errors import ConfigurationError, SparkDLError
from sparkdl_bench.jarfiles import Jars, find_jars

PLUGIN = "sparkdlbench.SparkDLPlugin"
SORTING = "org.apache.spark.sparkdlbench.SparkDLShuffleManager"
DELEGATING = "org.apache.spark.sparkdlbench.SparkDLDelegatingShuffleManager"
NATIVE = "pytorch-2.10.0.jar"


@pytest.fixture
def jars(make_jars: Any) -> Jars:
    make_jars({"sparkdl-bench-spark-4_2.13-0.1.0.jar": [], NATIVE: []})
    return find_jars("4.1.0")


@pytest.fixture
def jars_35(make_jars: Any) -> Jars:
    make_jars({"sparkdl-bench-spark-3.5_2.12-0.1.0.jar": [], NATIVE: []})
    return find_jars("3.5.9")


def _joined(jars: Jars, separator: str) -> str:
    return separator.join(str(path) for path in jars.all)


def test_a_cluster_is_sent_the_jars(jars: Jars) -> None:
    settings = session.session_settings(jars, {"spark.master": "spark://host:7077"})
    assert settings == {"spark.master": "spark://host:7077", "spark.jars": _joined(jars, ",")}


def test_spark_35_wants_them_on_the_executors_class_path_too(jars_35: Jars) -> None:
    settings = session.session_settings(jars_35, {"spark.master": "yarn"})
    assert settings["spark.jars"] == _joined(jars_35, ",")
    assert settings["spark.executor.extraClassPath"] == _joined(jars_35, os.pathsep)


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local-cluster[2,1,2048]"])
def test_a_local_master_takes_them_where_they_are_and_stays_on_loopback(jars: Jars, master: str) -> None:
    settings = session.session_settings(jars, {"spark.master": master})
    assert "spark.jars" not in settings
    assert (
        settings["spark.driver.extraClassPath"]
        == settings["spark.executor.extraClassPath"]
        == _joined(jars, os.pathsep)
    )
    assert settings["spark.driver.bindAddress"] == settings["spark.driver.host"] == "127.0.0.1"


def test_what_the_user_set_stays_first(jars: Jars) -> None:
    settings = session.session_settings(
        jars,
        {
            "spark.master": "spark://host:7077",
            "spark.jars": "/user/a.jar",
            "spark.executor.memory": "3g",
        },
    )
    assert settings["spark.jars"] == "/user/a.jar," + _joined(jars, ",")
    assert settings["spark.executor.memory"] == "3g"
    local = session.session_settings(
        jars, {"spark.master": "local", "spark.driver.host": "myhost", "spark.ui.enabled": "true"}
    )
    assert (local["spark.driver.host"], local["spark.ui.enabled"]) == ("myhost", "true")


def test_a_local_session_holds_its_memory_flat_unless_the_user_chose(jars: Jars) -> None:
    master = {"spark.master": "local-cluster[2,1,2048]"}
    settings = session.session_settings(jars, master)
    assert "G1HeapRegionSize" in settings["spark.driver.extraJavaOptions"]
    assert settings["spark.ui.retainedTasks"] == "1000"
    own = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC", "spark.broadcast.blockSize": "4m"}
    chosen = session.session_settings(jars, {**master, **own, "spark.ui.enabled": "true"})
    assert {name: chosen[name] for name in own} == own
    assert "spark.ui.retainedTasks" not in chosen
    assert "spark.broadcast.blockSize" not in session.session_settings(jars, {"spark.master": "yarn"})


def test_a_local_session_of_spark_3_5_takes_native_epoll_where_it_loads(
    jars: Jars, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mode(line: str, master: str = "local-cluster[2,1,2048]", **options: str) -> str | None:
        settings = session.session_settings(replace(jars, line=line), {"spark.master": master, **options})
        return settings.get("spark.shuffle.io.mode")

    monkeypatch.setattr(session, "_has_native_epoll", lambda: True)
    assert (mode("3.5"), mode("4"), mode("3.5", "yarn")) == ("EPOLL", None, None)
    assert mode("3.5", **{"spark.shuffle.io.mode": "NIO"}) == "NIO"
    monkeypatch.setattr(session, "_has_native_epoll", lambda: False)
    assert mode("3.5") is None


def test_engines_that_are_python_processes_get_this_python_on_this_host(jars: Jars) -> None:
    python, path = "spark.sparkdl.engine.python", "spark.sparkdl.engine.pythonPath"
    settings = session.session_settings(jars, {"spark.master": "local-cluster[2,1,2048]"})
    assert settings[python] == sys.executable
    assert (Path(settings[path]) / "sparkdl_bench" / "session.py").is_file()  # the checkout, which nobody has installed
    own = session.session_settings(jars, {"spark.master": "local", python: "/own/python"})
    assert own[python] == "/own/python"
    assert python not in session.session_settings(jars, {"spark.master": "yarn"})


@pytest.mark.parametrize("master", ["local[2]", "yarn"])
def test_merging_twice_changes_nothing(jars: Jars, master: str) -> None:
    once = session.session_settings(jars, {"spark.master": master})
    assert session.session_settings(jars, once) == once


def test_the_plugin_is_added_where_the_jar_has_it(make_jars: Any) -> None:
    make_jars({"sparkdl-bench-spark-4_2.13-0.1.0.jar": [PLUGIN], NATIVE: []})
    settings = session.session_settings(find_jars("4.1.0"), {"spark.plugins": "com.example.Mine"})
    assert settings["spark.plugins"] == f"com.example.Mine,{PLUGIN}"


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (None, {"spark.shuffle.manager": SORTING}),
        ("sort", {"spark.shuffle.manager": SORTING}),
        (SORTING, {"spark.shuffle.manager": SORTING}),
        ("com.Mine", {"spark.shuffle.manager": DELEGATING, "spark.sparkdl.shuffle.delegate": "com.Mine"}),
    ],
)
def test_spark_35_gets_its_shuffle_manager_wrapped_on_this_host(
    make_jars: Any, own: str | None, expected: dict[str, str]
) -> None:
    make_jars({"sparkdl-bench-spark-3.5_2.12-0.1.0.jar": [SORTING], NATIVE: []})
    options = {"spark.shuffle.manager": own} if own else {}
    found = session.session_settings(find_jars("3.5.9"), {"spark.master": "local", **options})
    ours = ("spark.shuffle.manager", "spark.sparkdl.shuffle.")
    assert {name: value for name, value in found.items() if name.startswith(ours)} == expected
    elsewhere = session.session_settings(find_jars("3.5.9"), {"spark.master": "yarn", **options})
    assert elsewhere.get("spark.shuffle.manager") == own


def test_configure_leaves_sparks_page_on_and_the_command_line_off(jars: Jars) -> None:
    shown = session.session_settings(jars, {"spark.master": "local[2]"}, page=True)
    assert "spark.ui.enabled" not in shown
    assert "spark.ui.retainedTasks" not in shown
    hidden = session.session_settings(jars, {"spark.master": "local[2]", "spark.ui.enabled": "false"}, page=True)
    assert hidden["spark.ui.retainedTasks"] == "1000"
    assert session.session_settings(jars, {"spark.master": "local[2]"})["spark.ui.enabled"] == "false"


def test_configure_fills_a_builder(jars: Jars, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyspark
    from pyspark.sql import SparkSession

    monkeypatch.setattr(_jvm, "is_running", lambda: False)
    monkeypatch.setattr(pyspark, "__version__", "4.1.0")
    monkeypatch.setenv("SPARK_LOCAL_IP", "")  # so that it is put back at the end
    monkeypatch.delenv("SPARK_LOCAL_IP")
    builder = session.configure(SparkSession.builder.master("local[2]").config("spark.executor.memory", "3g"))
    options = builder._options
    assert options["spark.executor.memory"] == "3g"
    assert str(jars.thin) in options["spark.driver.extraClassPath"]
    assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"


@pytest.fixture
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_jvm, "is_running", lambda: False)


def test_what_stands_in_sparks_own_files_is_joined(
    make_jars: Any, no_jvm: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import pyspark
    from pyspark.sql import SparkSession

    make_jars({"sparkdl-bench-spark-4_2.13-0.1.0.jar": [PLUGIN], NATIVE: []})
    monkeypatch.setattr(pyspark, "__version__", "4.1.0")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    defaults = "# ours\nspark.plugins  com.example.Mine \nspark.jars=/user/a.jar,\\\n  /user/b.jar\nother.key x\n"
    (tmp_path / "spark-defaults.conf").write_text(defaults, encoding="utf-8")
    given = "--conf 'spark.executor.extraJavaOptions=-Da=b -Dc' --name x pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", given)
    assert session.standing_options() == {
        "spark.plugins": "com.example.Mine",
        "spark.jars": "/user/a.jar,/user/b.jar",
        "spark.executor.extraJavaOptions": "-Da=b -Dc",
    }
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    options = session.configure(SparkSession.builder.master("yarn"))._options
    assert options["spark.plugins"] == f"com.example.Mine,{PLUGIN}"
    assert options["spark.jars"].startswith("/user/a.jar,/user/b.jar,/")
    assert "spark.executor.extraJavaOptions" not in options  # Spark takes it by itself


@pytest.mark.parametrize(
    ("master", "said"),
    [
        ("locl[2]", "'locl[2]' is no Spark master. Masters look so: "),
        ("localhost:7077", "'localhost:7077' is no Spark master. Did you mean 'spark://localhost:7077'? "),
        ("", "The master is empty. "),
    ],
)
@pytest.mark.parametrize("held", [False, True])
def test_configure_refuses_what_is_no_master(
    master: str, said: str, held: bool, jars: Jars, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import SparkSession

    monkeypatch.setattr(_jvm, "is_running", lambda: held)
    with pytest.raises(ConfigurationError) as refused:
        session.configure(SparkSession.builder.master(master))
    assert str(refused.value).startswith(said)
    assert str(refused.value).endswith('Set it in the builder: SparkSession.builder.master("local[4]").')


def test_no_jvm_starts_for_what_is_no_master(no_jvm: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a JVM was to be started")

    monkeypatch.setattr(_jvm, "start", refuse)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.master=yran pyspark-shell")
    for options in ({}, {"spark.master": "locl[2]"}):
        with pytest.raises(ConfigurationError, match="is no Spark master") as refused:
            session.start_jvm(options)
        assert f"'{options.get('spark.master', 'yran')}'" in str(refused.value)


@pytest.mark.parametrize("words", ["", "--conf", "-c spark.a=1 pyspark-shell", "--conf=spark.a=1 pyspark-shell"])
def test_the_words_of_pyspark_submit_args(
    words: str, no_jvm: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", words)
    assert session.standing_options() == ({"spark.a": "1"} if "=" in words else {})


def test_a_spark_defaults_file_that_cannot_be_read(
    no_jvm: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text("spark.a \\u12\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"spark-defaults\.conf cannot be read: Invalid"):
        session.standing_options()


@pytest.mark.parametrize("line", ["4", "3.5"])
def test_under_packages_no_jar_of_this_host_is_needed(
    line: str, make_jars: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyspark
    from pyspark.sql import SparkSession

    thin = {"4": "sparkdl-bench-spark-4_2.13-0.1.0.jar", "3.5": "sparkdl-bench-spark-3.5_2.12-0.1.0.jar"}[line]
    make_jars({thin: [PLUGIN, SORTING]})
    monkeypatch.setattr(pyspark, "__version__", {"4": "4.1.0", "3.5": "3.5.9"}[line])
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    packages = {"spark.master": "local-cluster[2,1,1024]", "spark.jars": "/ivy/thin.jar,/ivy/pytorch.jar"}
    monkeypatch.setattr(_jvm, "is_running", lambda: True)
    monkeypatch.setattr(_jvm, "running", lambda: _Names(sparkdlbench=_Names(PythonApi=_Class(""))))
    monkeypatch.setattr(_jvm, "spark_properties", lambda jvm: packages)
    options = session.configure(SparkSession.builder)._options
    assert not {"spark.jars", "spark.driver.extraClassPath", "spark.executor.extraClassPath"} & set(options)
    # Spark 3.5 makes these before it fetches jars: executors would not start.
    assert "spark.shuffle.manager" not in options
    assert options.get("spark.plugins") == (PLUGIN if line == "4" else None)
    monkeypatch.setattr(_jvm, "is_running", lambda: False)
    with pytest.raises(ConfigurationError, match=r"jars of native code .* were not found"):
        session.configure(SparkSession.builder)


def test_configure_with_an_unsupported_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyspark
    from pyspark.sql import SparkSession

    monkeypatch.setattr(pyspark, "__version__", "3.4.4")
    with pytest.raises(ConfigurationError, match=r"Spark 3\.4\.4 is not supported"):
        session.configure(SparkSession.builder)


class _Class:
    """What py4j answers for a class that the JVM has; see `_jvm.has_api`."""

    def __init__(self, facts: str) -> None:
        self.buildFacts = lambda: facts


_Class.__name__ = "JavaClass"


class _Names:
    def __init__(self, **names: Any) -> None:
        self.__dict__.update(names)


def _spark(
    version: str = "4.1.0",
    api: Any = None,
    facts: str = '{"spark_line": "4", "scala": "2.13"}',
    stopped: bool = False,
) -> Any:
    jvm = _Names(sparkdlbench=_Names(PythonApi=_Class(facts) if api is None else api))
    java = _Names(sc=lambda: _Names(isStopped=lambda: stopped))
    return _Names(version=version, sparkContext=_Names(_jvm=jvm, _jsc=java))


def test_a_session_that_fits() -> None:
    assert isinstance(session.check_session(_spark()), _jvm.Api)


def test_an_application_that_no_master_took_is_told_what_may_differ() -> None:
    stopped = "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."
    told = session._not_taken(stopped, {"spark.authenticate": "true"})
    assert "did not take the application" in told
    assert "spark.authenticate (true here)" in told
    assert "(false (its default) here)" in session._not_taken(stopped, {})
    assert session._not_taken("no such class", {}) == "no such class"


@pytest.mark.parametrize("by", ["Python", "the JVM"])
def test_a_stopped_session_is_refused(by: str) -> None:
    spark = _spark(stopped=True)
    if by == "Python":
        spark.sparkContext._jsc = None  # as SparkContext.stop leaves it
    with pytest.raises(ConfigurationError, match=r"This Spark session is stopped \(spark\.stop\(\)\), so nothing can"):
        session.check_session(spark)


def test_what_is_no_session_is_refused() -> None:
    with pytest.raises(ConfigurationError) as refused:
        session.check_session(None)
    assert str(refused.value) == (
        "The session is a NoneType, and must be a SparkSession, such as "
        'sparkdl_bench.configure(SparkSession.builder.master("local-cluster[2,1,2048]")).getOrCreate().'
    )


def test_a_session_without_the_jar_gets_the_lines_to_add() -> None:
    with pytest.raises(ConfigurationError) as caught:
        session.check_session(_spark(api=_Names()))
    assert "spark = sparkdl_bench.configure(SparkSession.builder).getOrCreate()" in str(caught.value)
    assert "--packages io.github.sparkdl-bench:sparkdl-bench-spark-4_2.13:" in str(caught.value)


def test_a_jar_of_another_line() -> None:
    with pytest.raises(ConfigurationError, match=r"made for Spark 4 \(Scala 2.13\), and Spark is 3\.5\.9"):
        session.check_session(_spark("3.5.9"))


def test_a_jar_of_another_scala_does_not_even_link(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(_jvm.Api):
        def build_facts(self) -> dict[str, Any]:
            raise SparkDLError("NoClassDefFoundError: scala/Serializable")

    monkeypatch.setattr(_jvm, "Api", Failing)
    monkeypatch.setattr(_jvm, "is_linkage_error", lambda error: True)
    with pytest.raises(ConfigurationError, match="made for another Scala version"):
        session.check_session(_spark())


def test_an_unsupported_spark() -> None:
    with pytest.raises(ConfigurationError, match=r"Spark 3\.3\.0 is not supported"):
        session.check_session(_spark("3.3.0"))


def test_a_connect_session_by_its_class() -> None:
    connect = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session", "version": "4.1.0"})()
    with pytest.raises(ConfigurationError, match="Spark Connect session"):
        session.check_session(connect)


def test_a_connect_session_by_its_word() -> None:
    with pytest.raises(ConfigurationError, match="Spark Connect session"):
        session.check_session(_Names(version="4.1.0", is_remote=lambda: True))


def test_our_log_configuration_only_where_the_user_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    variable = "LOG4J_CONFIGURATION_FILE"
    for name in ("SPARK_CONF_DIR", "SPARK_HOME", variable):
        monkeypatch.delenv(name, raising=False)
    with session._quiet_logs():
        assert Path(os.environ[variable]).is_file()
        assert "SPARK_CONF_DIR" not in os.environ  # which would put a folder into the class path
    assert variable not in os.environ
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    with session._quiet_logs():
        assert variable not in os.environ
    monkeypatch.delenv("SPARK_CONF_DIR")
    monkeypatch.setenv(variable, "/own.properties")
    with session._quiet_logs():
        assert os.environ[variable] == "/own.properties"


def test_an_engines_jars_come_with_the_session(jars_35: Jars, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "engine_jars", lambda engine: [Path("/bigdl/one.jar")] if engine == "bigdl" else [])
    chosen = {"spark.master": "yarn", "spark.sparkdl.engine.name": "bigdl"}
    settings = session.session_settings(jars_35, chosen)
    assert settings["spark.jars"] == _joined(jars_35, ",") + ",/bigdl/one.jar"
    assert settings["spark.executor.extraClassPath"] == _joined(jars_35, os.pathsep) + ":/bigdl/one.jar"
    local = session.session_settings(jars_35, {**chosen, "spark.master": "local[2]"})
    assert local["spark.driver.extraClassPath"].endswith("/bigdl/one.jar")
    assert "bigdl" not in session.session_settings(jars_35, {"spark.master": "yarn"})["spark.jars"]


def test_most_engines_need_no_jars_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "default_directory", lambda: tmp_path)
    assert peers.engine_jars("libtorch") == peers.engine_jars("gloo") == peers.engine_jars("no such") == []
    with pytest.raises(ConfigurationError, match="sparkdl-bench peers install bigdl"):
        peers.engine_jars("bigdl")
