"""Python workers reach their executor's JVM, through it the driver and each other."""

from __future__ import annotations

import json
import math
import os
import re
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkdl_bench import _jvm, worker
from sparkdl_bench.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from conftest import CommandLine

# pyspark's RDD.collect leaves its socket to the garbage collector.
pytestmark = [
    pytest.mark.usefixtures("sockets_end_here"),
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"),
]
SIZE = 2
TIMEOUT_S = 60.0


@pytest.fixture
def api(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> _jvm.Api:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)  # with the packages that tests have
    return _jvm.Api(_jvm.jvm_of(spark))


@pytest.fixture
def launch(request: pytest.FixtureRequest, api: _jvm.Api) -> Iterator[str]:
    name = request.node.name
    api.launch_open(name)
    yield name
    api.launch_close(name)


def on_ranks(spark: SparkSession, launch: str, body: Callable[[worker.Endpoint], Any]) -> list[Any]:
    """What `body` returns on each rank of one barrier stage, by rank."""

    def task(_: Iterator[int]) -> Iterator[tuple[int, Any]]:
        from pyspark import BarrierTaskContext

        from sparkdl_bench import worker

        context = BarrierTaskContext.get()
        rank = context.partitionId()
        with worker.connect(launch, context.attemptNumber(), rank, SIZE, TIMEOUT_S) as endpoint:
            yield rank, body(endpoint)

    found = spark.sparkContext.parallelize(range(SIZE), SIZE).barrier().mapPartitions(task).collect()
    return [result for _, result in sorted(found)]


def drained(api: _jvm.Api, launch: str, count: int) -> list[dict[str, Any]]:
    """The next messages of a launch; each wait for more is bounded."""
    messages: list[dict[str, Any]] = []
    while len(messages) < count:
        more = api.launch_messages(launch, 120_000)  # Python may have to start first
        assert more, f"{len(messages)} of {count} messages have come"
        messages += more
    return messages


def test_ranks_meet_and_tell_the_driver(spark: SparkSession, api: _jvm.Api, launch: str) -> None:
    def body(endpoint: worker.Endpoint) -> Any:
        for step in range(3):
            endpoint.tell("step", {"step": step, "loss": math.nan if step else 0.5, "name": "ä"})
        first = endpoint.meet(f"rank {endpoint.rank}")
        second = endpoint.meet("x" * 100_000 if endpoint.rank else "")
        endpoint.flush()
        return [first, [len(text) for text in second], endpoint.host]

    results = on_ranks(spark, launch, body)
    assert results == [[["rank 0", "rank 1"], [0, 100_000], "127.0.0.1"]] * SIZE
    messages = drained(api, launch, 3 * SIZE)
    assert len(messages) == 3 * SIZE
    for rank in range(SIZE):
        own = [message for message in messages if message["rank"] == rank]
        assert [message["payload"]["step"] for message in own] == [0, 1, 2]
        assert own[1]["payload"] == {"step": 1, "loss": None, "name": "ä"}
        assert {(message["host"], message["attempt"], message["kind"]) for message in own} == {("127.0.0.1", 0, "step")}
    assert api.launch_messages(launch, 0) == []


def test_the_way_to_the_executor_is_its_users_alone(spark: SparkSession, launch: str) -> None:
    def body(_: worker.Endpoint) -> Any:
        file = Path(os.environ["SPARK_LOCAL_DIRS"].split(",")[0]) / "sparkdl-worker.json"
        socket = Path(json.loads(file.read_text())["socket"])
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (file, socket, socket.parent)]
        return [oct(mode) for mode in modes] + [len(str(socket)) < 108]

    assert on_ranks(spark, launch, body) == [["0o600", "0o600", "0o700", True]] * SIZE


def test_a_rank_that_ends_without_the_others_is_named(spark: SparkSession, launch: str) -> None:
    """Nobody meets a rank that has gone; who waits for it is told within its own time."""

    def task(_: Iterator[int]) -> Iterator[str]:
        from pyspark import BarrierTaskContext

        from sparkdl_bench import worker
        from sparkdl_bench.errors import RunFailedError

        rank = BarrierTaskContext.get().partitionId()
        with worker.connect(launch, 0, rank, SIZE, 2.0) as endpoint:
            try:
                yield "" if rank else str(endpoint.meet("alone"))
            except RunFailedError as error:
                yield str(error)

    first, second = spark.sparkContext.parallelize(range(SIZE), SIZE).barrier().mapPartitions(task).collect()
    assert "rank 0 on host 127.0.0.1" in first
    assert "2 s in vain for the 1 other ranks" in first
    assert second == ""


def test_a_launch_that_is_over_meets_nobody_and_a_second_of_its_name_is_refused(
    spark: SparkSession, api: _jvm.Api, launch: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"There is a launch '{launch}' already"):
        api.launch_open(launch)

    def task(_: Iterator[int]) -> Iterator[str]:
        from pyspark import BarrierTaskContext

        from sparkdl_bench import worker
        from sparkdl_bench.errors import RunFailedError

        try:
            with worker.connect("never opened", 0, BarrierTaskContext.get().partitionId(), SIZE, TIMEOUT_S) as endpoint:
                endpoint.tell("lost", {})
                endpoint.flush()
                endpoint.meet("late")
        except RunFailedError as error:
            yield str(error)
        else:
            yield "met"

    texts = spark.sparkContext.parallelize(range(SIZE), SIZE).barrier().mapPartitions(task).collect()
    # Whichever comes first: the driver's answer, or the end of the connection, which a launch that is over has.
    assert all(re.search("was over|is closed|has ended|was lost|broke", text) for text in texts)
    assert api.launch_messages("never opened", 0) == []


def test_a_rank_hears_of_the_end_of_its_launch_whatever_it_does(
    spark: SparkSession, api: _jvm.Api, launch: str
) -> None:
    def body(endpoint: worker.Endpoint) -> Any:
        heard = threading.Event()
        endpoint.when_lost(heard.set)
        endpoint.tell("ready", {})
        return heard.wait(200)

    def end() -> None:
        drained(api, launch, SIZE)
        api.launch_close(launch)

    ending = threading.Thread(target=end)
    ending.start()
    assert on_ranks(spark, launch, body) == [True] * SIZE
    ending.join(60)
    assert not ending.is_alive()


def test_what_cannot_be_told_is_refused_before_it_is_sent(spark: SparkSession, launch: str) -> None:
    def body(endpoint: worker.Endpoint) -> Any:
        refusals = []
        for payload in ({"a": object()}, {"a": "x" * (1 << 20)}):
            try:
                endpoint.tell("bad", payload)
            except ConfigurationError as error:
                refusals.append(str(error))
        return [*refusals, endpoint.meet("still here")]

    for json_cannot, too_long, met in on_ranks(spark, launch, body):
        assert "JSON cannot" in json_cannot
        assert "valid are up to 1048576" in too_long
        assert met == ["still here"] * SIZE


def test_outside_a_worker_the_error_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    with pytest.raises(ConfigurationError, match=r"no Python worker of Spark.*sparkdl_bench\.launch"):
        worker.connect("launch", 0, 0, 1, 10)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    with pytest.raises(ConfigurationError, match=r"sparkdl-worker\.json is not there.*spark\.plugins"):
        worker.connect("launch", 0, 0, 1, 10)
    (tmp_path / "sparkdl-worker.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        worker.connect("launch", 0, 0, 1, 10)
    with pytest.raises(ConfigurationError, match="rank = 1 of size = 1"):
        worker.connect("launch", 0, 1, 1, 10)
    assert worker.current() is None


IN_THE_DRIVER = """
import tempfile
from pathlib import Path
from pyspark.sql import SparkSession
import sparkdl_bench
from sparkdl_bench import _jvm

spark = sparkdl_bench.configure(SparkSession.builder.master("local[3]")).getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
api = _jvm.Api(_jvm.jvm_of(spark))
api.launch_open("local")

def task(_):
    import json, os
    from pyspark import BarrierTaskContext
    from sparkdl_bench import worker
    rank = BarrierTaskContext.get().partitionId()
    with worker.connect("local", 0, rank, 3, 60) as endpoint:
        endpoint.tell("here", {"rank": rank})
        endpoint.flush()
        folder = os.environ["SPARK_LOCAL_DIRS"].split(",")[0]
        yield endpoint.meet(str(rank)), json.load(open(folder + "/sparkdl-worker.json"))["socket"]

found = spark.sparkContext.parallelize(range(3), 3).barrier().mapPartitions(task).collect()
print([texts for texts, _ in found])
print(sorted(message["rank"] for message in api.launch_messages("local", 1000)))
sockets = {Path(path) for _, path in found}
print(len(sockets), [path.exists() for path in sockets])
spark.stop()
print([path.parent.exists() for path in sockets])
"""


def test_ranks_of_a_local_master_are_several_to_a_process_and_nothing_is_left(command_line: CommandLine) -> None:
    done = command_line.python(IN_THE_DRIVER, PYSPARK_PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "[['0', '1', '2'], ['0', '1', '2'], ['0', '1', '2']]",
        "[0, 1, 2]",
        "1 [True]",
        "[False]",
    ]
