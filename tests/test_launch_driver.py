"""The driver's side of a launch, with ranks that are lists of messages."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from sparkdl_bench import errors
from sparkdl_bench.cli import cli
from sparkdl_bench.errors import ConfigurationError, RankFailedError, RunFailedError
from sparkdl_bench.launching import display, driver, follow, plan, record, stage
from sparkdl_bench.launching.job import VALUE, dumps
from sparkdl_bench.results import RunResults
from sparkdl_bench.runner import Interruption

TRANSPORTS = ("auto", "block-manager", "block-stream", "mpi", "shuffle", "tcp", "ucx")
ABORTED = (
    "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n: org.apache.spark."
    "SparkException: Job aborted due to stage failure: Could not recover from a failed barrier ResultStage. Most "
    "recent failure reason: Stage failed because barrier task ResultTask(0, 1) finished unsuccessfully.\n"
)
CRASHED = ABORTED + "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n\tat org.apache…"
RESET = ABORTED + "java.net.SocketException: Connection reset\n\tat org.apache.spark.api.python.PythonRunner…"
BROKEN = ABORTED + "java.io.IOException: Broken pipe\n\tat org.apache.spark.api.python.PythonRunner…"
# Of a connection of the user's own.
RAISED_RESET = ABORTED + (
    "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
    "ConnectionResetError: [Errno 104] Connection reset by peer\n\n\tat org.apache.spark"
)
LOST = ABORTED + (
    "ExecutorLostFailure (executor 1 exited unrelated to the running tasks) Reason: Command exited with code 137\n"
    "Driver stacktrace:\n\tat org.apache"
)
RAISED = ABORTED + (
    "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
    '  File "worker.py", line 1, in main\n'
    "sparkdl_bench.launching.rank.RankEndedError: rank 1 of 2 failed: ValueError: no rows\n\n\tat org.apache.spark"
)
REFUSED = ABORTED + (
    "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
    '  File "worker.py", line 1, in main\n'
    "sparkdl_bench.errors.ConfigurationError: The executor of this Python worker offers\nno way to it.\n\n\tat org"
)


class FakeCatalogue:
    def __init__(self) -> None:
        self.checked: list[Mapping[str, str]] = []

    def variants(self, axis: str) -> list[dict[str, Any]]:
        assert axis == "transport"
        return [{"name": name} for name in TRANSPORTS]

    def check(self, settings: Mapping[str, str]) -> None:
        self.checked.append(settings)


class FakeStage:
    """A job that ends when the messages are through: with answers, or with an exception."""

    def __init__(self, outcome: Sequence[Any] | BaseException) -> None:
        self.future: Future[list[Any]] = Future()
        self.outcome = outcome
        self.cancelled = False

    def start(self) -> None: ...

    def cancel(self) -> None:
        self.cancelled = True
        self.future.set_exception(RuntimeError("cancelled"))

    def end(self) -> None:
        if isinstance(self.outcome, BaseException):
            self.future.set_exception(self.outcome)
        else:
            self.future.set_result(list(self.outcome))


class FakeLaunches:
    """Hands out messages, and ends the job after those `during` it; `after` come when it has ended."""

    def __init__(self, job: FakeStage, during: Sequence[Any], after: Sequence[Any] = ()) -> None:
        self._job = job
        self._during = list(during)
        self._after = list(after)

    def launch_slots(self) -> int:
        return 2

    def launch_open(self, launch_id: str) -> None: ...

    def launch_close(self, launch_id: str) -> None: ...

    def launch_messages(self, launch_id: str, millis: int) -> list[dict[str, Any]]:
        if self._during:
            return [self._during.pop(0)]
        if not self._job.future.done():
            self._job.end()
            return []
        return [self._after.pop(0)] if self._after else []


def message(rank: int, kind: str, **payload: Any) -> dict[str, Any]:
    return {"rank": rank, "host": "h", "attempt": 0, "kind": kind, "payload": payload}


def placed(*ranks: int) -> list[dict[str, Any]]:
    return [message(rank, "place", host="h", pid=100 + rank) for rank in ranks]


def failed(rank: int, text: str, exchange: bool = False, configuration: bool = False) -> dict[str, Any]:
    trace = f"Traceback (most recent call last):\n{text}"
    return message(rank, "failed", message=text, traceback=trace, exchange=exchange, configuration=configuration)


@pytest.fixture
def spark() -> Any:
    """As much of a session as a record asks for."""
    conf = SimpleNamespace(getAll=lambda: [("spark.app.name", "x"), ("spark.my.password", "secret")])
    context = SimpleNamespace(getConf=lambda: conf, master="local-cluster[2,1,1024]")
    return SimpleNamespace(sparkContext=context, version="4.1.4")


@pytest.fixture
def kept(tmp_path: Path, spark: Any) -> Iterator[record.LaunchRecord]:
    made = record.LaunchRecord.create(tmp_path, "mine", "train", "gloo", {"name": "mine", "workers": "2"}, spark)
    yield made
    made.close("cancelled", None)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing more comes from ranks that are lists."""
    monkeypatch.setattr(follow, "_CAUSE_SECONDS", 0.01)
    monkeypatch.setattr(follow, "_LAST_WORDS_SECONDS", 0.01)
    monkeypatch.setattr(follow, "_FAILED_SECONDS", 0.01)


def outcome(
    kept: record.LaunchRecord, end: Sequence[Any] | BaseException, during: Sequence[Any], after: Sequence[Any] = ()
) -> list[Any]:
    job = FakeStage(end)
    watch = follow.Watch(2, kept, display.Display(2, numbers=False))
    return follow.follow(FakeLaunches(job, during, after), "one", job, watch, Interruption(), begin_s=60.0)


def test_the_ranks_answers_come_back(kept: record.LaunchRecord) -> None:
    told = [*placed(0, 1), message(0, "done"), message(1, "done")]
    assert outcome(kept, ["first", "second"], told[:3], told[3:]) == ["first", "second"]


def test_last_words_that_come_after_the_job_are_kept(kept: record.LaunchRecord) -> None:
    log = message(1, "log", lines=[["stdout", "late"]], left_out=3)
    outcome(kept, [], [message(0, "done")], [log, message(1, "done")])
    kept.close("success", None)
    assert (kept.folder / "logs" / "rank-1.log").read_text().splitlines() == [
        "[3 lines left out: they came faster than they could be sent]",
        "late",
    ]


def test_what_is_there_behind_the_last_ranks_end_is_kept(kept: record.LaunchRecord) -> None:
    log = message(1, "log", lines=[["stdout", "last"]], left_out=0)
    outcome(kept, [], placed(0, 1), [message(0, "done"), message(1, "done"), log])
    assert (kept.folder / "logs" / "rank-1.log").read_text() == "last\n"


def test_an_exception_is_told_with_rank_host_and_traceback(kept: record.LaunchRecord) -> None:
    with pytest.raises(RankFailedError) as raised:
        outcome(kept, RuntimeError(RAISED), [*placed(0, 1), failed(1, "ValueError: no rows")])
    error = raised.value
    assert (error.rank, error.host) == (1, "h")
    assert error.traceback == "Traceback (most recent call last):\nValueError: no rows"
    assert str(error) == f"Rank 1 of 2 on host h failed: ValueError: no rows.\n{error.traceback}"


def test_what_a_rank_printed_before_its_failure_is_kept(kept: record.LaunchRecord) -> None:
    log = message(1, "log", lines=[["stderr", "last words"]], left_out=0)
    with pytest.raises(RankFailedError):
        outcome(kept, RuntimeError(RAISED), [failed(1, "ValueError: no rows")], [log])
    assert (kept.folder / "logs" / "rank-1.log").read_text() == "last words\n"


def test_the_cause_is_told_and_not_its_consequence(kept: record.LaunchRecord) -> None:
    consequence = failed(0, "RuntimeError: Connection closed by peer", exchange=True)
    with pytest.raises(RankFailedError, match=r"Rank 1 of 2 on host h failed: KeyError"):
        outcome(kept, RuntimeError(RAISED), [consequence], [failed(1, "KeyError: 'x'")])


@pytest.mark.usefixtures("quick")
def test_a_consequence_alone_names_the_rank_that_said_nothing(kept: record.LaunchRecord) -> None:
    consequence = failed(0, "RuntimeError: Connection closed by peer", exchange=True)
    with pytest.raises(RankFailedError, match=r"rank 1 on host h \(process 101\) told no reason"):
        outcome(kept, RuntimeError(RAISED), [*placed(0, 1), consequence])


def test_a_killed_process_is_named(kept: record.LaunchRecord) -> None:
    with pytest.raises(
        RankFailedError, match=r"Rank 1 of 2 on host h \(process 101\) lost its Python process"
    ) as raised:
        outcome(kept, RuntimeError(CRASHED), placed(0, 1))
    assert raised.value.rank == 1


def test_a_lost_executor_is_named(kept: record.LaunchRecord) -> None:
    with pytest.raises(follow.LostError, match=r"lost its executor \(executor 1: Command exited with code 137\)"):
        outcome(kept, RuntimeError(LOST), placed(0, 1))


@pytest.mark.usefixtures("quick")
def test_what_a_rank_could_not_tell_comes_from_spark(kept: record.LaunchRecord) -> None:
    with pytest.raises(ConfigurationError, match="offers no way to it"):
        outcome(kept, RuntimeError(REFUSED), [])
    with pytest.raises(RunFailedError, match="no slot"):
        outcome(kept, RuntimeError("org.apache.spark.SparkException: no slot"), [])


def test_what_the_user_can_fix_is_a_configuration_error(kept: record.LaunchRecord) -> None:
    text = "sparkdl_bench.errors.ConfigurationError: sync='gloo' needs PyTorch"
    with pytest.raises(ConfigurationError, match=r"^sync='gloo' needs PyTorch$"):
        outcome(kept, RuntimeError(RAISED), [failed(0, text, configuration=True)])


def test_an_interruption_cancels_the_job(kept: record.LaunchRecord) -> None:
    job = FakeStage([])
    interrupted = Interruption()
    interrupted.set()
    watch = follow.Watch(2, kept, display.Display(2, numbers=False))
    with pytest.raises(errors.Interrupted):
        follow.follow(FakeLaunches(job, []), "one", job, watch, interrupted, begin_s=60.0)
    assert job.cancelled


def test_ranks_that_never_begin_are_not_waited_for(kept: record.LaunchRecord) -> None:
    job = FakeStage([])
    watch = follow.Watch(2, kept, display.Display(2, numbers=False))
    with pytest.raises(RunFailedError, match=r"Of 2 ranks 0 began within 0 s. Other jobs of the session may hold"):
        follow.follow(FakeLaunches(job, []), "one", job, watch, Interruption(), begin_s=0.0)
    assert job.cancelled


@pytest.mark.parametrize(
    ("text", "rank", "kind"),
    [
        (CRASHED, 1, "python"),
        (RESET, 1, "python"),
        (BROKEN, 1, "python"),
        (RAISED_RESET, 1, "task"),
        (LOST, 1, "executor"),
        (RAISED, 1, "task"),
        ("nothing known", None, "task"),
    ],
)
def test_what_spark_says(text: str, rank: int | None, kind: str) -> None:
    ended = stage.why(RuntimeError(text))
    assert (ended.rank, ended.kind) == (rank, kind)


def asked(**changes: Any) -> plan.Plan:
    given = {"workers": 2, "sync": "none", "settings": {}, "timeout_s": 5, "attempts": 1, "name": None, **changes}
    train_fn = given.pop("train_fn", outcome)
    return plan.plan(FakeCatalogue(), train_fn, (), {}, **given)


def test_auto_is_block_stream_and_its_keys_are_checked() -> None:
    api = FakeCatalogue()
    found = plan.plan(
        api, outcome, (), {}, workers=2, sync="auto", settings={"bucket": 1}, timeout_s=5, attempts=1, name=None
    )
    assert found.sync == "block-stream"
    assert api.checked == [{"bucket": "1", "transport": "block-stream"}]
    assert (found.name, found.function) == ("launch-outcome", f"{__name__}.outcome")


def test_settings_without_a_process_group_are_those_of_collective() -> None:
    found = asked(sync="none", settings={"transport": "tcp"})
    assert (found.sync, found.settings) == ("none", {"transport": "tcp"})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sync": "glo"}, "sync is 'glo'. Did you mean 'gloo'?"),
        ({"sync": 3}, "sync is 3. Valid: auto, block-stream, mpi, tcp, ucx, gloo, none."),
        ({"sync": "shuffle"}, "one or two Spark jobs per step"),
        ({"workers": 0}, "workers is 0"),
        ({"workers": True}, "workers is True"),
        ({"attempts": 1.5}, "attempts is 1.5"),
        ({"timeout_s": 0}, "timeout is 0"),
        ({"timeout_s": float("nan")}, "timeout is nan"),
        ({"sync": "gloo", "settings": {"topology": "ring"}}, "settings are for the backend sparkdl"),
        ({"train_fn": "train"}, "train_fn is a str"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        asked(**changes)
    assert says in str(raised.value)


def test_a_function_that_cannot_be_pickled_is_refused() -> None:
    lock = threading.Lock()

    def train() -> None:
        lock.acquire()

    with pytest.raises(ConfigurationError, match=r"'.*train' cannot be sent to the workers.*lock"):
        asked(train_fn=train)


@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]", "local[2]", "spark://h:7077"])
def test_too_few_slots_are_refused(monkeypatch: pytest.MonkeyPatch, spark: Any, master: str) -> None:
    spark.sparkContext.master = master
    monkeypatch.setattr(plan, "_STABLE_SECONDS", -1.0 if master.startswith("spark:") else 1e9)
    two, none = SimpleNamespace(launch_slots=lambda: 2), SimpleNamespace(launch_slots=lambda: 0)
    plan.check_session_for(two, spark, 2)
    with pytest.raises(ConfigurationError, match=r"workers=3 must all run at once.* has 2 task slots. Set workers=2"):
        plan.check_session_for(two, spark, 3)
    with pytest.raises(ConfigurationError, match="No executor has registered"):
        plan.check_session_for(none, spark, 1, wait_s=0.0)


def test_slots_that_still_come_are_waited_for(spark: Any) -> None:
    slots = iter([0, 1, 2])
    plan.check_session_for(SimpleNamespace(launch_slots=lambda: next(slots)), spark, 2)
    assert next(slots, None) is None


def test_a_rank_whose_task_does_not_end_after_its_failure_is_not_waited_for(
    kept: record.LaunchRecord, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = FakeStage([])
    monkeypatch.setattr(job, "end", lambda: None)  # what it has begun with others holds it up
    launches = FakeLaunches(job, [*placed(0, 1), failed(1, "ValueError: no rows")])
    watch = follow.Watch(2, kept, display.Display(2, numbers=False))
    with pytest.raises(RankFailedError, match="Rank 1 of 2 on host h failed: ValueError: no rows") as raised:
        follow.follow(launches, "one", job, watch, Interruption(), begin_s=60.0)
    assert (raised.value.rank, job.cancelled) == (1, True)


def report(rank: int, *reports: Mapping[str, Any]) -> dict[str, Any]:
    return message(rank, "report", reports=list(reports), left_out=0)


def test_the_record_of_a_launch(kept: record.LaunchRecord) -> None:
    began = 1e12
    told = [
        *placed(0, 1),
        report(0, {"time_ms": began, "step": 1, "loss": 0.9}, {"time_ms": began + 20, "step": 3, "loss": 0.7}),
        report(1, {"time_ms": began, "step": 1, "loss": "nan"}),
        report(0, {"time_ms": began + 30, "epoch": 1, "test_accuracy": 0.5, "loss": 0.6}),
        message(0, "done"),
        message(1, "done"),
    ]
    outcome(kept, [], told)
    kept.close("success", None)
    results = RunResults(kept.folder)
    summary = results.summary
    assert summary["status"] == "success"
    assert json.loads((kept.folder / "steps.json").read_text()) == [10.0, 10.0]
    assert (summary["final"]["ms_per_step_median"], summary["final"]["steps"]) == (10.0, 3)
    assert [(each["epoch"], each["train_loss"], each["test_accuracy"]) for each in results.history] == [(1, 0.6, 0.5)]
    assert summary["reported"] == {"step": 3, "loss": 0.6, "epoch": 1, "test_accuracy": 0.5}
    assert [event["metadata"]["rank"] for event in results.events if event["key"] == "report"] == [0, 0, 1, 0]
    assert results.run["transport"] == "gloo"
    assert results.run["spark"]["spark.my.password"] == "*********(redacted)"
    for file in kept.folder.rglob("*"):
        assert file.is_dir() or file.stat().st_mode & 0o007 == 0, f"others can read {file}"


def test_a_report_page_can_be_made_of_launches(kept: record.LaunchRecord, tmp_path: Path, spark: Any) -> None:
    outcome(kept, [], [report(0, {"time_ms": 1.0, "step": 1}, {"time_ms": 9.0, "step": 2}), *ends()])
    kept.close("success", None)
    other = record.LaunchRecord.create(tmp_path, "other", "train", "block-stream", {"workers": "2"}, spark)
    outcome(other, [], ends())
    other.close("failed", "Rank 1 failed.")
    page = tmp_path / "page.md"
    done = CliRunner().invoke(cli, ["report", str(kept.folder), str(other.folder), "--format", "md", "-o", str(page)])
    assert done.exit_code == 0, done.output
    assert "launch, sync gloo" in page.read_text(encoding="utf-8")


def ends() -> list[dict[str, Any]]:
    return [message(0, "done"), message(1, "done")]


def test_a_log_has_a_largest_size(kept: record.LaunchRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "LARGEST_LOG", 10)
    kept.printed(0, ["123456", "7890123", "more"], 0)
    kept.close("success", None)
    assert (kept.folder / "logs" / "rank-0.log").read_text() == (
        "123456\n7890123\n[nothing more is kept: this file has 0 MiB]\n"
    )


def test_many_reports_are_thinned_out_in_the_events(kept: record.LaunchRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "_ALL_EVENTS", 3)
    kept.reported(0, [{"time_ms": 400.0 * number, "step": number} for number in range(1, 11)], 0)
    kept.close("success", None)
    results = RunResults(kept.folder)
    kept_steps = [event["metadata"]["numbers"]["step"] for event in results.events if event["key"] == "report"]
    assert kept_steps == [1, 2, 3, 6, 9]
    assert results.summary["final"]["steps"] == 10


def test_lines_are_shown_with_their_rank(capsys: pytest.CaptureFixture[str]) -> None:
    with display.shown(2, numbers=True) as shown:
        shown.printed(1, [("stdout", "out"), ("stderr", "err")], 0)
        shown.reported(1, {"step": 1, "loss": 0.5})
        shown.reported(0, {"step": 1234, "loss": 0.25, "lr": 0.1})
        shown.reported(1, {"step": 1300, "loss": 0.2})
    out, err = capsys.readouterr()
    assert out == "[rank 1] out\n"
    assert err.splitlines() == ["[rank 1] err", "step 1  loss 0.5", "step 1,234  loss 0.25  lr 0.1"]


def test_a_result_that_could_not_be_pickled_names_rank_and_type(kept: record.LaunchRecord) -> None:
    watch = follow.Watch(2, kept, display.Display(2, numbers=False))
    answers = [(0, VALUE, dumps(1)), (1, "unpicklable", dumps(("_thread.lock", "TypeError: cannot pickle")))]
    with pytest.raises(RunFailedError, match=r"Rank 1 of 2 .* returned a _thread.lock, which cannot be pickled"):
        driver._values(answers, watch)
    assert driver._values([(1, VALUE, dumps("b")), (0, VALUE, dumps("a"))], watch) == ["a", "b"]
