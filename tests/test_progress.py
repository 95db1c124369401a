from __future__ import annotations

import io

import pytest

from sparkdl_bench import progress
from sparkdl_bench.progress import Progress, shown


def test_a_record_of_the_jvm_may_lack_what_is_not_known_yet() -> None:
    moment = Progress.of({"state": "running", "epoch": 1, "epochs": 5, "loss": None, "something_new": 3})
    assert moment == Progress("running", epoch=1, epochs=5)
    assert moment.describe() == "epoch 1/5  step 0/0"


def test_a_line_says_everything() -> None:
    moment = Progress(
        "running",
        epoch=2,
        epochs=5,
        step=1200,
        steps=2345,
        loss=0.12345,
        test_accuracy=0.9653,
        rows_per_second=21000.4,
        seconds_left=75.2,
    )
    assert moment.describe() == (
        "epoch 2/5  step 1,200/2,345  loss 0.1235  test accuracy 96.53%  21,000 rows/s  1:15 min left"
    )


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s left"), (59.4, "59 s left"), (3599, "59:59 min left"), (7322, "2:02 h left")]
)
def test_time_left(seconds: float, text: str) -> None:
    assert Progress("running", seconds_left=seconds).measures() == [text]


def test_plain_lines_at_most_one_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    stream = io.StringIO()
    with shown(stream) as show:
        for step in range(1, 31):  # ten a second
            now = 100.0 + step / 10
            show(Progress("running", epoch=1, epochs=1, step=step, steps=30))
    steps = [line.split("step ")[1] for line in stream.getvalue().splitlines()]
    assert steps == ["1/30", "11/30", "21/30"]


def test_a_run_that_goes_back_goes_on_telling(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    stream = io.StringIO()
    with shown(stream) as show:
        for step in (20, 0, 1, 1, 2):  # an executor was lost, and there is no checkpoint
            now += 2
            show(Progress("running", epoch=1, epochs=1, step=step, steps=30))
    steps = [line.split("step ")[1] for line in stream.getvalue().splitlines()]
    assert steps == ["20/30", "1/30", "2/30"]


def test_no_line_without_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    with shown(stream) as show:
        show(Progress("running"))
    assert stream.getvalue() == ""


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with shown(stream) as show:
        show(
            Progress("running", epoch=1, epochs=2, step=5, steps=10, loss=0.5, rows_per_second=100.0, seconds_left=3.0)
        )
    assert "epoch 1/2" in stream.getvalue()
    assert "50 %" in stream.getvalue()
    assert "100 rows/s" in stream.getvalue()


def test_a_page_escapes_what_it_shows() -> None:
    page = progress.page_of(
        Progress("failed", step=1, steps=4, epochs=1, results="a<b", cores=1.94, resident_bytes=2**30)
    )
    assert 'max="4" value="1"' in page
    assert "a&lt;b" in page
    assert "failed: epoch 0/1" in page
    assert "1.9 cores" in page
    assert "1.00 GiB" in page


def test_a_page_says_what_a_run_waits_for_and_what_happened_to_it() -> None:
    assert "starting" in progress.page_of(Progress("running"))
    waiting = progress.page_of(Progress("running", doing="waiting for 5 slots, 2 registered"))
    assert "waiting for 5 slots, 2 registered" in waiting
    assert "starting" not in waiting
    page = progress.page_of(Progress("running", step=3, steps=4, doing="evaluating", notices=["executor <1> stopped"]))
    assert "(evaluating)" in page
    assert "<div>executor &lt;1&gt; stopped</div>" in page


def test_decoding_shows_lines_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    stream = io.StringIO()
    with progress.decoding(stream) as show:
        show({})
        for done in range(21):  # ten a second
            now = 100.0 + done / 10
            show({"source": "csv", "done": done, "parts": 20, "rows": 1000 * done})
    assert stream.getvalue().splitlines() == [
        "decodes csv: 0 of 20 parts, 0 rows",
        "decodes csv: 10 of 20 parts, 10,000 rows",
        "decodes csv: 20 of 20 parts, 20,000 rows",
    ]


def test_decoding_is_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = io.StringIO()
    with progress.decoding(stream) as show:
        show({})
        assert "decodes" not in stream.getvalue()
        show({"source": "csv", "done": 5, "parts": 20, "rows": 5000})
    assert "decodes csv" in stream.getvalue()
    assert "5,000 rows" in stream.getvalue()


def test_what_is_waited_for_is_told_when_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    stream = io.StringIO()
    waits = ["waiting for 5 slots, 2 registered"] * 3 + ["rank 1 of 5 connects to the other ranks", "training"]
    with shown(stream) as show:
        for what in waits:
            now += 2
            show(Progress("running", epochs=1, steps=30, doing=what))
        now += 2
        show(Progress("running", epochs=1, step=30, steps=30, loss=0.5, doing="evaluating"))
    assert stream.getvalue().splitlines() == [
        "waiting for 5 slots, 2 registered",
        "rank 1 of 5 connects to the other ranks",
        "epoch 0/1  step 30/30  loss 0.5000  (evaluating)",
    ]


def test_the_end_and_what_befalls_a_run_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress.time, "monotonic", lambda: 100.0)
    stream = io.StringIO()
    stopped = "executor stopped executor 1: it was killed"
    with shown(stream) as show:
        show(Progress("running", epochs=2, step=1, steps=30, loss=2.5))
        show(Progress("running", epochs=2, step=1, steps=30, loss=2.5, notices=[stopped]))
        show(Progress("done", epoch=2, epochs=2, step=30, steps=30, loss=0.25, notices=[stopped]))
    assert stream.getvalue().splitlines() == [
        "epoch 0/2  step 1/30  loss 2.5000",
        stopped,
        "epoch 2/2  step 30/30  loss 0.2500",
    ]


def test_the_start_of_a_run_says_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    stream = io.StringIO()
    with progress.decoding(stream) as show:
        for here in ({}, {"waiting": "starting executors: 1 of 2 registered"}, {}):
            now += 2
            show(here)
        show({"source": "csv", "done": 1, "parts": 3, "rows": 1000})
    assert stream.getvalue().splitlines() == [
        "starting executors: 1 of 2 registered",
        "decodes csv: 1 of 3 parts, 1,000 rows",
    ]
