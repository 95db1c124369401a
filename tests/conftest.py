"""What several tests use."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from sparkdl_bench import catalogue
from sparkdl_bench.jarfiles import spark_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[1]
DEFAULT_LINE = "4"

# Tests start hundreds of short-lived JVMs: the optimising compiler would take most of their time.
os.environ["JDK_JAVA_OPTIONS"] = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} -XX:TieredStopAtLevel=1".strip()

# How long an example takes says how busy the machine is, and nothing of what a test proves. In CI the examples are the
# same in every run: a new one that fails must not stop somebody else's change.
hypothesis.settings.register_profile(
    "tests",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("tests")

# The files that take longest, which begin first: so all processes of a whole run end at about the same time. The wheel
# and the entry points of a JVM team, of which each has sbt at work in this checkout, do not come at the same time.
LONGEST = [
    *("test_recovery.py", "test_wheel.py", "commands/test_compare.py", "comparison/test_files.py"),
    "test_entry_points.py",
    *("commands/test_run.py", "test_security.py", "test_peers.py", "test_out_of_band.py", "test_runs.py"),
    *("test_training.py", "test_data.py", "commands/test_doctor.py", "test_loss_curves.py"),
    *("commands/test_launch.py", "test_namespaces.py"),
]

# What we ship: files that `compare` takes name a base, files that `run` takes do not.
_SHIPPED = sorted((ROOT / "conf" / "runs").glob("*.toml"))
COMPARISON_FILES = [path for path in _SHIPPED if "\nbase = " in path.read_text(encoding="utf-8")]
RUN_FILES = [path for path in _SHIPPED if path not in COMPARISON_FILES]


def shared_data(name: str) -> Path:
    """The folder of a data set outside the repository (in SPARKDL_DATA, or ../shared/data); skips without it."""
    base = Path(os.environ.get("SPARKDL_DATA", ROOT.parent / "shared" / "data"))
    folder = base / name
    if not folder.is_dir():
        pytest.skip(f"the data set '{name}' is not in '{base}'; set SPARKDL_DATA to the folder that holds it")
    return folder


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", choices=("with", "without", "only"), default="with", help="tests marked as long")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest files first; tests marked `long` as --long says, `on_one_line` on the default Spark line alone."""
    import pyspark

    items.sort(key=_turn)
    if (which := config.getoption("long")) != "with":
        halves: dict[bool, list[pytest.Item]] = {True: [], False: []}
        for item in items:
            halves[bool(item.get_closest_marker("long"))].append(item)
        items[:] = halves[which == "only"]
        config.hook.pytest_deselected(items=halves[which != "only"])
    if spark_line(pyspark.__version__) == DEFAULT_LINE:
        return
    for item in items:
        if item.get_closest_marker("on_one_line"):
            item.add_marker(pytest.mark.skip(reason=f"it is the same on every Spark line: run on {DEFAULT_LINE}"))


def _turn(item: pytest.Item) -> int:
    name = item.path.relative_to(ROOT / "tests").as_posix()
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


class FakeApi:
    """`_jvm.Api` without a JVM: a run is a list of records that `poll` goes through."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self.records = records
        self.polls = 0
        self.cancelled: list[str] = []

    def poll(self, run_id: str) -> dict[str, Any]:
        self.polls += 1
        record = self.records[min(self.polls, len(self.records)) - 1]
        return {**record, "state": "cancelled"} if self.cancelled else record

    def wait(self, run_id: str, millis: int) -> dict[str, Any]:
        return self.poll(run_id)

    def cancel(self, run_id: str) -> None:
        self.cancelled.append(run_id)


@pytest.fixture(autouse=True)
def catalogue_is_found_again() -> Iterator[None]:
    """A test with other jars, or none, leaves no catalogue, which the tests after it need."""
    yield
    if catalogue.load.cache_info().currsize and catalogue.load() is None:
        catalogue.load.cache_clear()


@pytest.fixture
def make_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Fills the folder that SPARKDL_JARS names with jars of these names and classes."""
    folder = tmp_path / "jars"
    folder.mkdir()
    monkeypatch.setenv("SPARKDL_JARS", str(folder))

    def make(jars: Mapping[str, list[str]]) -> Path:
        for name, classes in jars.items():
            with zipfile.ZipFile(folder / name, "w") as archive:
                for each in classes:
                    archive.writestr(each.replace(".", "/") + ".class", b"")
        return folder

    return make


@pytest.fixture
def results_folder(tmp_path: Path) -> Path:
    """A finished run's folder, as small as it may be."""
    folder = tmp_path / "2026-01-02T030405-digits"
    folder.mkdir()
    history = [
        {"epoch": 1, "seconds": 1.0, "train_loss": 0.9, "test_loss": 1.0, "test_accuracy": 0.7},
        {"epoch": 2, "seconds": 1.0, "train_loss": 0.4, "test_loss": 0.5, "test_accuracy": 0.9},
    ]
    summary = {
        "status": "done",
        "final": {
            "test_accuracy": 0.9,
            "test_loss": 0.5,
            "train_loss": 0.4,
            "seconds_total": 2.5,
            "seconds_per_epoch_median": 1.0,
            "ms_per_step_median": 3.25,
        },
        "bytes": {"block-manager": 1_234_567},
        "history": history,
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "run.json").write_text(json.dumps({"configuration": {"name": "digits"}}))
    (folder / "events.jsonl").write_text('{"event": "run_start"}\n{"event": "run_stop"}\n')
    return folder


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of the test process: two executor processes with one core each."""
    from pyspark.sql import SparkSession

    import sparkdl_bench

    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("tests")
    session = sparkdl_bench.configure(builder).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def sockets_end_here() -> Iterator[None]:
    """pyspark leaves sockets to the garbage collector, which warns of each; in this test then, not in a later one."""
    yield
    gc.collect()


@pytest.fixture
def jobs(spark: SparkSession) -> Callable[[], int]:
    """Counts the Spark jobs that were ever started in the session."""
    context: Any = spark.sparkContext
    return lambda: int(context._jsc.sc().dagScheduler().numTotalJobs())


class CommandLine:
    """Runs Python in a process of its own, as a user does."""

    timeout_seconds = 300

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        """`sparkdl-bench` with these words."""
        return self._start(["-m", "sparkdl_bench", *words], environment)

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """`sparkdl-bench` with these words, to its end."""
        return self._finish(self.start(*words, **environment))

    def python(self, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A Python program, to its end."""
        return self._finish(self._start(["-c", program], environment))

    def _start(self, arguments: list[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
        variables = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "SPARK_LOCAL_IP": "127.0.0.1", **environment}
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _finish(self, process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
        try:
            stdout, stderr = process.communicate(timeout=self.timeout_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


@pytest.fixture
def command_line() -> CommandLine:
    return CommandLine()
