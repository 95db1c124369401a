"""Process groups of Python workers, over real executors."""

from __future__ import annotations

import re
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyspark import cloudpickle

from sparkdl_bench import _jvm, worker
from sparkdl_bench.worker import group as groups

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from conftest import CommandLine

# pyspark's RDD.collect leaves its socket to the garbage collector.
pytestmark = [
    pytest.mark.usefixtures("sockets_end_here"),
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"),
]
# Workers get the functions of this file with the task; they have no copy of it.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SIZE = 2
TIMEOUT_S = 60.0
Body = Callable[[worker.Endpoint], Any]


@pytest.fixture
def on_ranks(
    request: pytest.FixtureRequest, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Body], list[Any]]]:
    """Runs a function on each rank of one barrier stage; what it returns, by rank."""
    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)  # with the packages that tests have
    api = _jvm.Api(_jvm.jvm_of(spark))
    launch = request.node.name

    def run(body: Body) -> list[Any]:
        api.launch_open(launch)

        def task(_: Iterator[int]) -> Iterator[tuple[int, Any]]:
            from pyspark import BarrierTaskContext

            from sparkdl_bench import worker

            rank = BarrierTaskContext.get().partitionId()
            with worker.connect(launch, 0, rank, SIZE, TIMEOUT_S) as endpoint:
                yield rank, body(endpoint)

        found = spark.sparkContext.parallelize(range(SIZE), SIZE).barrier().mapPartitions(task).collect()
        return [result for _, result in sorted(found, key=lambda each: int(each[0]))]

    yield run
    api.launch_close(launch)


def operations(group: worker.Group) -> dict[str, Any]:
    """Every operation once, with values that tell ranks and places apart; as lists."""
    rank, size = group.rank, group.size
    found: dict[str, Any] = {}
    for dtype in ("float32", "float64", "float16", "int8", "uint8", "int16", "int32", "int64"):
        array = np.arange(6, dtype=dtype).reshape(2, 3) + rank
        group.all_reduce(array)
        found[dtype] = array.astype(float).ravel().tolist()
    for op in groups.REDUCTIONS:
        array = np.array([1, 2, 6], np.float32 if op == "average" else np.int32) + rank
        group.all_reduce(array, op)
        found[op] = array.tolist()
    flags = np.array([True, False, rank == 0])
    group.all_reduce(flags, "band")
    found["bool"] = flags.tolist()
    halves = (np.array([1.0, 3.5, -2.0], np.float32).view(np.uint32) >> 16).astype(np.uint16)
    group.all_reduce(halves, elements="bf16")
    found["bf16"] = (halves.astype(np.uint32) << 16).view(np.float32).tolist()
    output = np.empty(3)
    group.reduce_scatter([np.arange(3.0) + 10 * part + rank for part in range(size)], output)
    found["reduce_scatter"] = output.tolist()
    outputs = [np.empty(1 + part, np.int16) for part in range(size)]
    group.all_gather(np.arange(1 + rank, dtype=np.int16) + 10 * rank, outputs)
    found["all_gather"] = [each.tolist() for each in outputs]
    outputs = [np.empty(2 * part + rank) for part in range(size)]
    group.all_to_all([np.arange(2.0 * rank + part) + 100 * rank + 10 * part for part in range(size)], outputs)
    found["all_to_all"] = [each.tolist() for each in outputs]
    array = np.full((2, 2), rank, np.int64)
    group.broadcast(array, size - 1)
    found["broadcast"] = array.tolist()
    group.barrier()
    empty = np.empty(0, np.float32)
    group.all_reduce(empty)
    return found


def expected(rank: int) -> dict[str, Any]:
    sums = {
        dtype: [1.0, 3.0, 5.0, 7.0, 9.0, 11.0]
        for dtype in ("float32", "float64", "float16", "int8", "uint8", "int16", "int32", "int64")
    }
    return {
        **sums,
        "sum": [3, 5, 13],
        "product": [2, 6, 42],
        "min": [1, 2, 6],
        "max": [2, 3, 7],
        "average": [1.5, 2.5, 6.5],
        "band": [0, 2, 6],
        "bor": [3, 3, 7],
        "bxor": [3, 1, 1],
        "bool": [True, False, False],
        "bf16": [2.0, 7.0, -4.0],
        "reduce_scatter": [20.0 * rank + 1, 20.0 * rank + 3, 20.0 * rank + 5],
        "all_gather": [[0], [10, 11]],
        "all_to_all": [[], [100.0, 101.0]] if rank == 0 else [[10.0], [110.0, 111.0, 112.0]],
        "broadcast": [[1, 1], [1, 1]],
    }


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_operations(on_ranks: Callable[[Body], list[Any]], transport: str) -> None:
    def body(endpoint: worker.Endpoint) -> Any:
        group = endpoint.group({"transport": transport})
        found = operations(group)
        group.close()
        return [found, group.transport, group.name]

    results = on_ranks(body)
    assert [found for found, _, _ in results] == [expected(rank) for rank in range(SIZE)]
    assert {name for _, name, _ in results} == {"block-stream" if transport == "auto" else "tcp"}
    assert len({name for _, _, name in results}) == 1


def test_what_is_longer_than_the_memory_goes_in_pieces(on_ranks: Callable[[Body], list[Any]]) -> None:
    """Also memory that grows, and lengths that are no multiple of a piece's."""

    def body(endpoint: worker.Endpoint) -> Any:
        from sparkdl_bench.worker import group as groups

        group, size = endpoint.group({}), endpoint.size
        length = (3 << 20) + 17
        array = np.arange(length, dtype=np.float32) % 1000
        group.all_reduce(array)
        ok = [bool((array == 2 * (np.arange(length) % 1000)).all())]
        groups.MOST_BYTES = 1 << 16
        try:
            array = np.arange(50_001, dtype=np.float64) + endpoint.rank
            group.all_reduce(array)
            ok.append(bool((array == 2 * np.arange(50_001) + 1).all()))
            outputs = [np.empty(40_000 * part + 3, np.int32) for part in range(size)]
            group.all_gather(np.arange(40_000 * endpoint.rank + 3, dtype=np.int32) + endpoint.rank, outputs)
            ok += [bool((each == np.arange(len(each)) + part).all()) for part, each in enumerate(outputs)]
            output = np.empty(33_333, np.int64)
            group.reduce_scatter([np.arange(33_333) * (part + 1) for part in range(size)], output)
            ok.append(bool((output == size * np.arange(33_333) * (endpoint.rank + 1)).all()))
            outputs = [np.empty(60_000 * part * endpoint.rank + 5, np.int16) for part in range(size)]
            group.all_to_all(
                [np.full(60_000 * part * endpoint.rank + 5, part, np.int16) for part in range(size)], outputs
            )
            ok += [bool((each == endpoint.rank).all()) for each in outputs]
            array = np.arange(99_999) * (endpoint.rank + 1)
            group.broadcast(array, 1)
            ok.append(bool((array == 2 * np.arange(99_999)).all()))
        finally:
            groups.MOST_BYTES = 1 << 28
        return ok

    for ok in on_ranks(body):
        assert len(ok) == 8
        assert all(ok), ok


@pytest.mark.parametrize("settings", [{}, {"topology": "ring", "transport": "tcp"}])
def test_vectors_that_come_again_are_reduced_in_memory_of_their_own(
    on_ranks: Callable[[Body], list[Any]], settings: dict[str, str]
) -> None:
    """Several lengths in turn, between other operations; also in a group of one."""

    def body(endpoint: worker.Endpoint) -> Any:
        group, alone = endpoint.group(settings), endpoint.group(settings, "alone", [endpoint.rank])
        wrong = []
        for number in range(4):
            for length in (20_000, 50_001):
                for op, share in (("sum", 1), ("average", SIZE), ("max", 0)):
                    array = np.arange(length, dtype=np.float32) % 1000 + endpoint.rank + number
                    group.all_reduce(array, op)
                    each = np.arange(length, dtype=np.float32) % 1000 + number
                    wanted = (2 * each + 1) / share if share else each + 1
                    if not (array == wanted).all():
                        wrong.append((number, length, op))
                    alone.all_reduce(array, op)
                    if not (array == wanted).all():
                        wrong.append((number, length, op, "alone"))
            group.barrier()
        bound = sorted(group._vectors.bound)
        group.close()
        return wrong, bound

    assert on_ranks(body) == [([], [80_000, 200_004])] * SIZE


def test_only_so_much_memory_is_kept_for_vectors(on_ranks: Callable[[Body], list[Any]]) -> None:
    def body(endpoint: worker.Endpoint) -> Any:
        from sparkdl_bench.worker import vectors

        group = endpoint.group({})
        before, vectors.MOST_BYTES = vectors.MOST_BYTES, 200_000
        try:
            for length in (20_000, 40_000, 30_000) * 2:
                array = np.ones(length, np.float32)
                group.all_reduce(array)
                assert (array == SIZE).all()
        finally:
            vectors.MOST_BYTES = before
        return group._vectors.bound

    assert on_ranks(body) == [[80_000, 120_000]] * SIZE


def test_an_all_reduce_that_was_begun_may_end_in_another_thread(on_ranks: Callable[[Body], list[Any]]) -> None:
    def body(endpoint: worker.Endpoint) -> Any:
        import threading

        group = endpoint.group({})
        found = []
        for length in (3, 20_000, 20_000):
            array = np.full(length, 1.0 + endpoint.rank, np.float32)
            if endpoint.rank == 1:
                endpoint.meet("the other one has begun, and waits")
            begun = group.begin_all_reduce(array)
            assert begun is not None
            if endpoint.rank == 0:
                found.append(begun.is_done(0.0))
                endpoint.meet("here")
            ending = threading.Thread(target=begun.end)
            ending.start()
            group.barrier()  # waits for its turn
            ending.join(60)
            found.append(bool((array == 3).all()))
        return found

    assert on_ranks(body) == [[False, True] * 3, [True] * 3]


def test_groups_of_some_ranks_in_any_order_and_side_by_side(on_ranks: Callable[[Body], list[Any]]) -> None:
    def body(endpoint: worker.Endpoint) -> Any:
        alone = endpoint.group({}, "alone", [endpoint.rank])
        turned = endpoint.group({}, ranks=[1, 0])
        world = endpoint.group({})
        outputs = [np.empty(1, np.int64) for _ in range(SIZE)]
        turned.all_gather(np.array([endpoint.rank]), outputs)
        single = np.array([7.0])
        alone.all_reduce(single)
        world.all_reduce(single)
        turned.close()
        world.barrier()
        return [turned.rank, [int(each[0]) for each in outputs], single.tolist(), alone.size]

    assert on_ranks(body) == [[1, [1, 0], [14.0], 1], [0, [1, 0], [14.0], 1]]


def test_messages_go_in_any_order_and_hold_nothing_up(on_ranks: Callable[[Body], list[Any]]) -> None:
    def body(endpoint: worker.Endpoint) -> Any:
        group, other = endpoint.group({}), 1 - endpoint.rank
        lengths = [0, 3, 200_000]  # the last is longer than the first memory
        targets = [np.full(length, -1.0) for length in lengths]
        waiting = [group.receive(target, other, tag) for tag, target in enumerate(targets)]
        anybody = np.zeros(1)
        last = group.receive(anybody, tag=9)
        total = np.ones(3)
        group.all_reduce(total)
        source = np.arange(200_000.0) + endpoint.rank
        sends = [group.send(source[:length], other, tag) for tag, length in reversed(list(enumerate(lengths)))]
        source[:] = 0  # sent values are the sender's to change
        sends.append(group.send(np.array([7.0 + endpoint.rank]), other, 9))
        sources = [future.result(60) for future in [*waiting, last, *sends]]
        right = [bool((target == np.arange(len(target)) + other).all()) for target in targets]
        group.close()
        return [set(sources) == {other}, right, anybody.tolist(), total.tolist()]

    assert on_ranks(body) == [[True, [True] * 3, [8.0 - rank], [2.0] * 3] for rank in range(SIZE)]


def test_who_waits_in_an_aborted_group_hears_so(on_ranks: Callable[[Body], list[Any]]) -> None:
    def body(endpoint: worker.Endpoint) -> Any:
        from concurrent.futures import ThreadPoolExecutor

        group = endpoint.group({})
        heard = True
        if endpoint.rank == 0:  # the other one never comes
            with ThreadPoolExecutor() as pool:
                waiting = pool.submit(group.barrier)
                while not waiting.running():
                    pass
                group.abort()
                heard = waiting.exception(60) is not None
        endpoint.meet("")
        return heard

    assert on_ranks(body) == [True, True]


def test_what_cannot_be_is_refused_and_the_group_goes_on(on_ranks: Callable[[Body], list[Any]]) -> None:
    def body(endpoint: worker.Endpoint) -> Any:
        from sparkdl_bench.errors import ConfigurationError

        texts = []

        def refused(call: Callable[[], Any]) -> None:
            try:
                call()
            except ConfigurationError as error:
                texts.append(str(error))

        refused(lambda: endpoint.group({"transport": "shuffle"}))
        refused(lambda: endpoint.group({"transprot": "tcp"}))
        refused(lambda: endpoint.group({}, ranks=[endpoint.rank, 9]))
        group = endpoint.group({})
        refused(lambda: group.all_reduce(np.ones(3, np.int32), "average"))
        refused(lambda: group.all_reduce(np.ones(3, np.complex64)))
        refused(lambda: group.all_reduce(np.ones((3, 3)).T[1:]))
        refused(lambda: group.all_reduce(np.ones(3), "mean"))
        refused(lambda: group.broadcast(np.ones(3), 5))
        refused(lambda: group.all_gather(np.ones(3), [np.ones(3)]))
        refused(lambda: group.send(np.ones(3), endpoint.rank))
        array = np.ones(1)
        group.all_reduce(array)
        group.close()
        refused(lambda: group.all_reduce(array))
        return [texts, array.tolist()]

    for texts, array in on_ranks(body):
        assert array == [2.0]
        shuffle, typo, ranks, average, dtype, strided, mean, root, one, itself, closed = texts
        assert "shuffle exchanges by Spark jobs" in shuffle
        assert "block-stream" in shuffle
        assert "Did you mean 'transport'?" in typo
        assert "ranks from 0 to 1" in ranks
        assert "average is not defined for int32" in average
        assert "complex64" in dtype
        assert "C-contiguous" in strided
        assert "'mean'; valid are sum" in mean
        assert "rank 5" in root
        assert "1 arrays" in one
        assert "no messages with rank" in itself
        assert "is closed" in closed


def test_hostile_requests_end_their_own_group_alone(on_ranks: Callable[[Body], list[Any]]) -> None:
    """Memory that is none, parts outside of it, unknown numbers, requests too short and too long."""

    def body(endpoint: worker.Endpoint) -> Any:
        from sparkdl_bench.errors import RunFailedError
        from sparkdl_bench.worker._memory import Memory

        world, small, sum_of_fp32 = endpoint.group({}), Memory(4096), struct.pack("<ii", 0, 0)
        with tempfile.TemporaryFile() as file:
            file.truncate(4096)
            attacks = [
                (20, struct.pack("<iq", file.fileno(), 4096)),
                (20, struct.pack("<iq", 987, 4096)),
                (20, struct.pack("<iq", small.descriptor, 1 << 30)),
                (20, struct.pack("<iq", small.descriptor, -1)),
                (21, sum_of_fp32 + struct.pack("<qq", 0, 1 << 40)),
                (21, sum_of_fp32 + struct.pack("<qq", -8, 8)),
                (21, sum_of_fp32 + struct.pack("<qq", (1 << 63) - 1, 8)),
                (21, struct.pack("<ii", 99, 0) + struct.pack("<qq", 0, 8)),
                (21, struct.pack("<ii", 0, -1) + struct.pack("<qq", 0, 8)),
                (22, sum_of_fp32),
                (26, b"more"),
                (27, struct.pack("<iqi", small.descriptor, 4096, 1025)),
                (27, struct.pack("<iqi", small.descriptor, 1 << 30, 5)),
                (27, struct.pack("<iqi", 987, 4096, 5)),
                (27, struct.pack("<iqi", small.descriptor, 4096, -1)),
                (28, struct.pack("<iii", 0, 0, 0)),
                (29, struct.pack("<iiiqi", 0, 1, small.descriptor, 4096, 5)),
                (30, struct.pack("<ii", 0, 1)),
                (99, b""),
            ]
            ended = []
            for kind, request in attacks:
                group = endpoint.group({}, "hostile", [endpoint.rank])
                try:
                    group._wire.ask(kind, request)
                    ended.append(False)
                except RunFailedError as error:
                    ended.append("is closed" in str(error))
                group.close()
        small.close()
        total = np.ones(1)
        world.all_reduce(total)
        return [ended, total.tolist()]

    for ended, total in on_ranks(body):
        assert ended == [True] * 19
        assert total == [2.0]


KILLED = """
import os, signal, sys, time
from pyspark.sql import SparkSession
import sparkdl_bench
from sparkdl_bench import _jvm

which = sys.argv[1] if len(sys.argv) > 1 else WHICH
builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.task.maxFailures", "1")
# Spark ends the other rank's Python, too, once it knows of the loss; this rank tells what it saw first.
builder = builder.config("spark.python.task.killTimeout", "60s")
spark = sparkdl_bench.configure(builder.config("spark.stage.maxConsecutiveAttempts", "1")).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
api = _jvm.Api(_jvm.jvm_of(spark))
api.launch_open("killed")

def task(_):
    import numpy as np
    from pyspark import BarrierTaskContext
    from sparkdl_bench import worker
    from sparkdl_bench.errors import RunFailedError
    rank = BarrierTaskContext.get().partitionId()
    endpoint = worker.connect("killed", 0, rank, 2, 60)
    group = endpoint.group({"host_local": HOST_LOCAL})
    array = np.ones(100_000, np.float32)
    group.all_reduce(array)
    jvm = int(open(f"/proc/{os.getppid()}/stat").read().rsplit(")", 1)[1].split()[1])
    group.barrier()
    if rank == 1:
        endpoint.tell("dies", {"at": time.time()})
        endpoint.flush()
        os.kill(jvm if which == "jvm" else os.getpid(), signal.SIGKILL)
        time.sleep(60)
    try:
        while True:
            group.all_reduce(array)
    except RunFailedError as error:
        endpoint.tell("saw", {"at": time.time(), "text": str(error)})
        endpoint.flush()
    yield rank

try:
    spark.sparkContext.parallelize(range(2), 2).barrier().mapPartitions(task).collect()
except Exception as error:
    print("failed", type(error).__name__)
messages = {}
while not {"saw", "dies"} <= messages.keys():
    more = api.launch_messages("killed", 60_000)
    assert more, f"no more than {messages.keys()} came"
    messages.update({each["kind"]: each["payload"] for each in more})
print(messages["saw"]["text"])
print(messages["saw"]["at"] - messages["dies"]["at"])
spark.stop()
"""


@pytest.mark.parametrize(("which", "host_local"), [("python", "auto"), ("jvm", "off")])
def test_a_killed_rank_is_noticed_and_named(command_line: CommandLine, which: str, host_local: str) -> None:
    program = KILLED.replace("WHICH", repr(which)).replace("HOST_LOCAL", repr(host_local))
    done = command_line.python(program, PYSPARK_PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    failed, text, seconds = done.stdout.splitlines()
    assert failed.startswith("failed")
    # Whichever end of the connection breaks first: only one of them knows the other's host.
    assert re.search(r"\brank 1\b", text.lower()), text
    assert float(seconds) < 20  # within a second where the machine has nothing else to do
