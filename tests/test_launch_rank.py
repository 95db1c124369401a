"""What runs in the Python worker of each rank, with an endpoint that is a list."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import subprocess
import sys
import textwrap
import threading
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparkdl_bench
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.launching import capture, rank, reporting, scripts, traces
from sparkdl_bench.launching.job import NONE, UNPICKLABLE, VALUE, Job, loads, pickled_call
from sparkdl_bench.launching.places import Place, places, variables, visible_devices
from sparkdl_bench.version import __version__

HERE = Place(rank=0, size=1, local_rank=0, local_size=1, node=0, nodes=1, host="h")


class FakeEndpoint:
    """Keeps what is told; of a launch of one rank."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Mapping[str, Any]]] = []
        self.closed = False
        self.flushed_after = 0

    def tell(self, kind: str, payload: Mapping[str, Any]) -> None:
        json.dumps(payload)  # what it cannot hold no endpoint takes
        self.told.append((kind, payload))

    def when_lost(self, action: Callable[[], None]) -> None: ...

    def flush(self) -> None:
        self.flushed_after = len(self.told)

    def meet(self, text: str) -> list[str]:
        return [text]

    def close(self) -> None:
        self.closed = True

    def of(self, kind: str) -> list[Mapping[str, Any]]:
        return [payload for each, payload in self.told if each == kind]

    @property
    def lines(self) -> list[str]:
        return [f"{stream}: {text}" for payload in self.of("log") for stream, text in payload["lines"]]


def job_of(train_fn: Callable[..., Any], *args: Any, **changes: Any) -> Job:
    call = pickled_call(train_fn, args, {})
    return Job(launch_id="one", size=1, sync=NONE, timeout_s=5.0, call=call, version=__version__, **changes)


def run(train_fn: Callable[..., Any], *args: Any, **changes: Any) -> tuple[rank.Answer, FakeEndpoint]:
    endpoint = FakeEndpoint()
    answer = rank.run(job_of(train_fn, *args, **changes), 0, ["h:1"], [], lambda *_: endpoint)
    return answer, endpoint


def test_a_rank_returns_what_the_function_returns_and_says_that_it_is_done() -> None:
    (number, kind, data), endpoint = run(lambda a, b: {"sum": a + b}, 2, 3)
    assert (number, kind, loads(data)) == (0, VALUE, {"sum": 5})
    assert [kind for kind, _ in endpoint.told] == ["place", "done"]
    assert endpoint.flushed_after == 2
    assert endpoint.closed


def test_a_result_that_cannot_be_pickled_is_named_by_its_type() -> None:
    (_, kind, data), _ = run(lambda: threading.Lock())
    assert kind == UNPICKLABLE
    assert loads(data)[0] == "_thread.lock"


def test_variables_are_there_and_everything_is_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "before")
    before = dict(os.environ), list(sys.argv), list(sys.path), Path.cwd()

    def change(folder: str) -> dict[str, str]:
        seen = dict(os.environ)
        os.environ["OF_THE_USER"] = "1"
        del os.environ["HOME"]
        sys.argv.append("more")
        sys.path.insert(0, folder)
        os.chdir(folder)
        return seen

    (_, _, data), _ = run(change, str(tmp_path), attempt=1, attempts=3)
    seen = loads(data)
    assert {name: seen[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RESTART_COUNT")} == {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "TORCHELASTIC_RESTART_COUNT": "1",
    }
    assert (dict(os.environ), list(sys.argv), list(sys.path), Path.cwd()) == before


def test_the_attempt_is_known_to_the_function() -> None:
    (_, _, data), _ = run(sparkdl_bench.launch_attempt, attempt=2, attempts=3)
    assert loads(data) == 2


def test_an_exception_ends_the_rank_with_the_users_own_traceback() -> None:
    def inner() -> None:
        raise ValueError("no rows")

    def outer() -> None:
        try:
            inner()
        except ValueError as error:
            raise RuntimeError("cannot train") from error

    endpoint = FakeEndpoint()
    with pytest.raises(rank.RankEndedError, match=r"rank 0 of 1 failed: RuntimeError: cannot train"):
        rank.run(job_of(outer), 0, ["h:1"], [], lambda *_: endpoint)
    (failure,) = endpoint.of("failed")
    assert failure["message"] == "RuntimeError: cannot train"
    shown = failure["traceback"]
    assert "ValueError: no rows" in shown
    assert shown.endswith("RuntimeError: cannot train")
    assert "in inner" in shown
    assert "launching" not in shown.replace("test_launch", "")
    assert not endpoint.of("done")
    assert endpoint.flushed_after == len(endpoint.told)


def test_lines_of_code_that_no_file_holds_are_shown() -> None:
    code = compile("def train():\n    raise KeyError('cell')\n", "<a notebook's cell>", "exec")
    space: dict[str, Any] = {}
    exec(code, space)
    endpoint = FakeEndpoint()
    job = job_of(space["train"], sources={"<a notebook's cell>": ["def train():\n", "    raise KeyError('cell')\n"]})
    with pytest.raises(rank.RankEndedError):
        rank.run(job, 0, ["h:1"], [], lambda *_: endpoint)
    assert "raise KeyError('cell')" in endpoint.of("failed")[0]["traceback"]


@pytest.mark.parametrize(("code", "is_good"), [(None, True), (0, True), (3, False), ("no data", False)])
def test_exit_statuses(code: object, is_good: bool) -> None:
    endpoint = FakeEndpoint()

    def leave() -> None:
        sys.exit(code)  # type: ignore[arg-type]

    if is_good:
        _, kind, data = rank.run(job_of(leave), 0, ["h:1"], [], lambda *_: endpoint)
        assert (kind, loads(data)) == (VALUE, None)
    else:
        with pytest.raises(rank.RankEndedError, match="exit status"):
            rank.run(job_of(leave), 0, ["h:1"], [], lambda *_: endpoint)
        assert repr(code) in endpoint.of("failed")[0]["message"]


def test_another_version_at_the_driver_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"The driver has sparkdl-bench 0\.0\.0"):
        rank.run(Job("one", 1, NONE, 5.0, b"", "0.0.0"), 0, ["h:1"], [], lambda *_: FakeEndpoint())


def test_what_native_code_and_children_print_is_told_line_by_line() -> None:
    def talk() -> None:
        os.write(1, b"to the descriptor\nhalf")
        ctypes.CDLL(None).puts(b" a line of C")
        subprocess.run([sys.executable, "-c", "import sys; print('child', file=sys.stderr)"], check=True)

    _, endpoint = run(talk)
    assert endpoint.lines == ["stdout: to the descriptor", "stdout: half a line of C", "stderr: child"]


def test_prints_arrive_while_the_function_runs_and_in_their_order() -> None:
    """In a process of its own: pytest has taken this one's streams."""
    program = """
        import sys, threading
        from sparkdl_bench.launching import capture
        came = threading.Event()
        lines = []
        def send(new, left_out):
            lines.extend(new)
            came.set()
        with capture.captured(send):
            print("first")
            assert came.wait(60), "it came only at the end"
            print("second", end="")
            print("third", file=sys.stderr)
        print(lines)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120, check=True
    )
    first, *others = eval(done.stdout)
    assert first == ("stdout", "first")
    assert sorted(others) == [("stderr", "third"), ("stdout", "second")]


def test_a_progress_bar_is_told_by_its_newest_state() -> None:
    lines = capture.Lines("stderr")
    assert lines.feed(b"\r 10%\r 20%\r 30%") == []
    assert lines.overwritten(100.0) == [("stderr", " 20%")]
    lines.feed(b"\r 40%\r 50%")
    assert lines.overwritten(100.5) == []
    assert lines.feed(b"\r100%\ndone\n") == [("stderr", "100%"), ("stderr", "done")]


def test_a_line_without_end_is_cut() -> None:
    lines = capture.Lines("stdout")
    ((_, text),) = lines.feed(b"x" * (capture.LONGEST_LINE + 1))
    assert len(text) == capture.LONGEST_LINE + len(" […]")
    assert lines.end() == []


def test_the_newest_lines_stay_where_there_are_too_many() -> None:
    waiting = capture.Waiting(most_bytes=20)
    waiting.add([("stdout", f"line {number}") for number in range(10)])
    assert waiting.take() == ([("stdout", "line 8"), ("stdout", "line 9")], 8)
    assert waiting.take() == ([], 0)


def test_a_driver_that_is_gone_keeps_nobody_from_printing() -> None:
    told: list[int] = []

    def gone(lines: Sequence[capture.Line], left_out: int) -> None:
        told.append(len(lines) + left_out)
        raise OSError("closed")

    before = os.fstat(1)
    with capture.captured(gone):
        # Six times what the pipe holds: somebody reads on.
        written = sum(os.write(1, b"x" * 65536 + b"\n") for _ in range(100))
        assert not os.path.samestat(os.fstat(1), before)
    assert written == 100 * 65537
    assert sum(told) >= 100  # every line was tried, also after the first failure
    assert os.path.samestat(os.fstat(1), before)
    assert "sparkdl-output" not in [thread.name for thread in threading.enumerate()]


def test_reports_are_numbers_with_their_time() -> None:
    def train() -> None:
        sparkdl_bench.report(step=1, loss=np.float32(0.5), accuracy=np.array([0.25]))
        sparkdl_bench.report(loss=float("nan"))

    _, endpoint = run(train)
    reports = [report for payload in endpoint.of("report") for report in payload["reports"]]
    assert [{name: value for name, value in each.items() if name != "time_ms"} for each in reports] == [
        {"step": 1, "loss": 0.5, "accuracy": 0.25},
        {"loss": "nan"},
    ]
    assert reports[0]["time_ms"] <= reports[1]["time_ms"]


@pytest.mark.parametrize("value", ["text", True, np.zeros(2), [1]])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(ConfigurationError, match="loss="):
        reporting.report(loss=value)  # type: ignore[arg-type]


def test_outside_a_launch_a_report_does_nothing() -> None:
    sparkdl_bench.report(step=1, loss=0.1)
    assert sparkdl_bench.launch_attempt() == 0


def test_the_name_report_is_a_function_also_after_the_package_of_that_name_was_loaded() -> None:
    program = """
        import sparkdl_bench
        import sparkdl_bench.report
        from sparkdl_bench import report
        sparkdl_bench.report(step=1)
        report(step=1)
        from sparkdl_bench.report import numbers
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], timeout=60, check=True)


def test_too_many_reports_are_counted() -> None:
    reports = reporting.Reports()
    for step in range(6000):
        reports.add({"step": step})
    payloads = reports.take()
    assert sum(len(payload["reports"]) for payload in payloads) == 5000
    assert sum(payload["left_out"] for payload in payloads) == 1000
    assert max(len(json.dumps(payload)) for payload in payloads) < 1 << 20
    assert reports.take() == []


def test_places_by_host() -> None:
    found = places(["b:1", "a:2", "b:3", "[::1]:4"])
    assert [(each.rank, each.local_rank, each.local_size, each.node) for each in found] == [
        (0, 0, 2, 0),
        (1, 0, 1, 1),
        (2, 1, 2, 0),
        (3, 0, 1, 2),
    ]
    assert {(each.size, each.nodes) for each in found} == {(4, 3)}
    assert found[3].host == "[::1]"
    assert variables(found[2], "id", 0, 1)["GROUP_RANK"] == "0"


def test_a_gpu_of_each_rank_is_the_one_of_its_local_rank() -> None:
    ranks = [("a", ["3"]), ("b", ["0"]), ("a", ["1"])]
    assert visible_devices(["1"], ranks, "a") == {"CUDA_VISIBLE_DEVICES": "3,1"}
    assert visible_devices([], ranks, "a") == {}


def write_script(folder: Path) -> Path:
    (folder / "beside.py").write_text("def double(x): return 2 * x\n")
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text("NAME = 'package'\n")
    script = folder / "train.py"
    script.write_text(
        textwrap.dedent("""
            import os, sys
            import beside, package
            if __name__ == "__main__":
                os.write(1, f"{sys.argv[1:]} {beside.double(4)} {package.NAME} {sys.argv[0]}\\n".encode())
        """)
    )
    return script


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_script_runs_as_main_also_where_only_the_driver_has_it(tmp_path: Path, elsewhere: bool) -> None:
    script = write_script(tmp_path)
    program = scripts.read(script, ["--epochs", "3"])
    if elsewhere:
        script.write_text("raise SystemExit('another file of that name')")
    _, endpoint = run(program)
    (line,) = endpoint.lines
    assert line.startswith("stdout: ['--epochs', '3'] 8 package ")
    assert line.endswith("/train.py")
    assert (str(script) in line) != elsewhere
    assert "beside" not in sys.modules
    assert "package" not in sys.modules


def test_what_lies_beside_a_script_may_be_old_or_a_link_to_nowhere(tmp_path: Path) -> None:
    script = write_script(tmp_path)
    os.utime(script.parent / "beside.py", (0, 0))  # before any time that an archive can hold
    (script.parent / ".#train.py").symlink_to("somebody@here.1:2")  # of an editor with unsaved changes
    _, endpoint = run(scripts.read(script, []))
    assert "8 package" in endpoint.lines[0]


def test_what_cannot_be_read_beside_a_script_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = write_script(tmp_path)

    def refuse(self: zipfile.ZipFile, file: Path, name: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(file))

    monkeypatch.setattr(zipfile.ZipFile, "write", refuse)
    with pytest.raises(
        ConfigurationError, match=r"beside.py', which lies beside .* Permission denied\. Make it readable"
    ):
        scripts.read(script, [])


def test_a_script_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is not there"):
        scripts.read(tmp_path / "none.py", [])
    with pytest.raises(ConfigurationError, match="is a folder"):
        scripts.read(tmp_path, [])
    (tmp_path / "wrong.py").write_text("def f(:\n")
    with pytest.raises(ConfigurationError, match="is not Python: invalid syntax"):
        scripts.read(tmp_path / "wrong.py", [])


def test_a_long_traceback_keeps_its_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MOST_CHARS", 200)
    try:
        raise ValueError("x" * 1000)
    except ValueError as error:
        shown = traces.of_user(error)
    assert shown.startswith("Traceback (most recent call last):")
    assert "characters left out" in shown
    assert len(shown) < 300


def test_what_is_printed_while_the_reader_finds_nothing_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line comes, and the rank ends, between a look that found nothing and what the reader makes of it."""
    looks, is_looking = capture.select.select, threading.Event()

    def late(*arguments: Any) -> Any:
        pump: Any = threading.current_thread()
        if pump.name == "sparkdl-output" and pump._ends_s is None:
            is_looking.set()
            while pump._ends_s is None:
                time.sleep(0.001)
            return [], [], []
        return looks(*arguments)

    monkeypatch.setattr(capture.select, "select", late)
    seen: list[capture.Line] = []
    with capture.captured(lambda lines, _: seen.extend(lines)):
        assert is_looking.wait(60)
        os.write(1, b"last\n")
    assert seen == [("stdout", "last")]
