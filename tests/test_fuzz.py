"""Readers of files and messages: whatever is in them, what comes is a value or an error that users read."""

from __future__ import annotations

import gzip
import io
import json
import re
import socket
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkdl_bench import datafiles, decoded, redaction, saved
from sparkdl_bench.bench import store as bench_store
from sparkdl_bench.comparison import store
from sparkdl_bench.comparison.look import look
from sparkdl_bench.comparison.plan import load_plan
from sparkdl_bench.config import parse_run_file
from sparkdl_bench.errors import ConfigurationError, SparkDLError
from sparkdl_bench.report import kept
from sparkdl_bench.report.load import load
from sparkdl_bench.results import RunResults
from sparkdl_bench.worker import _wire

pytestmark = pytest.mark.on_one_line

# The same inputs each time, as many as are named, however long they take.
_FIXED = settings(
    derandomize=True,
    database=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["schema", "plan", "processes", "sampler_seconds", "sampler_cpu_seconds", "history", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
_TEXTS = st.one_of(
    st.binary(max_size=40),
    _JSON.map(lambda value: json.dumps(value).encode()),
    st.sampled_from([b"[" * 100_000, b'{"a":' * 100_000, b'{"schema": 1e999}', b"\xff"]),
)


def _is_lawful(read: Callable[[], object]) -> bool:
    """The law: a value, or an error of ours that says something. Any other error ends the test."""
    try:
        read()
    except SparkDLError as error:
        return bool(str(error))
    return True


@_FIXED
@given(_TEXTS)
def test_files_of_a_run(tmp_path: Path, content: bytes) -> None:
    for name in ("run.json", "summary.json", "events.jsonl", "resources.json"):
        (tmp_path / name).write_bytes(content)
    results = RunResults(tmp_path)
    for part in ("run", "summary", "history", "events", "sampler_share"):
        assert _is_lawful(lambda part=part: getattr(results, part))


@_FIXED
@given(_TEXTS)
def test_plans_of_comparisons_that_were_measured(tmp_path: Path, content: bytes) -> None:
    (tmp_path / store.PLAN_FILE).write_bytes(content)
    assert _is_lawful(lambda: store.open_folder(tmp_path))


_WORDS = """. = [ ] { } " ' \"\"\" # , a 1 1e9 inf 0x - ü spark base matrix variant set trials true workers skip"""
_TOML = st.lists(st.sampled_from([*_WORDS.split(), "1979-05-27", "\\", "\x00", "\n", " "]), max_size=30).map("".join)


@_FIXED
@given(_TOML)
def test_run_files_and_comparison_files(tmp_path: Path, text: str) -> None:
    assert _is_lawful(lambda: parse_run_file(text, "fuzz.toml"))
    (tmp_path / "plan.toml").write_text(text, encoding="utf-8")
    assert _is_lawful(lambda: load_plan(tmp_path / "plan.toml"))


@_FIXED
@given(st.text(max_size=200))
def test_redaction_takes_any_text(text: str) -> None:
    assert redaction.redacted_text(text + "?password=hunter22&x=1").find("hunter22") < 0


@_FIXED
@given(st.data())
def test_archives_of_models(tmp_path: Path, data: st.DataObject) -> None:
    saved.save(tmp_path, {"name": "mlp"}, {"w": np.ones((2, 3), np.float32)}, {"shape": [3]})
    good = (tmp_path / "weights.npz").read_bytes()
    if data.draw(st.booleans()):
        good = _packed(good)
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / "weights.npz").write_bytes(bytes(damaged[: data.draw(st.integers(0, len(good)))] or damaged))
    assert _is_lawful(lambda: saved.load(tmp_path))


def _packed(archive: bytes) -> bytes:
    """The same members, deflated: NumPy reads such archives as well."""
    memory = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(archive)) as members,
        zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in members.namelist():
            packed.writestr(name, members.read(name))
    return memory.getvalue()


@_FIXED
@given(_TEXTS)
def test_what_an_executor_announces(tmp_path: Path, content: bytes) -> None:
    (tmp_path / _wire.ANNOUNCEMENT).write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
        assert _is_lawful(_wire.announced)


_RUN = {
    "run.json": {"configuration": {"batch": 64}, "threads_per_worker": 1, "data": {"rows": 9}, "host": {"cpu": "x"}},
    "summary.json": {
        "status": "success",
        "variant": {"transport": "tcp", "topology": "ring", "codec": "none", "algorithm": "sync-sgd"},
        "workers": 2,
        "batch": 64,
        "final": {"test_accuracy": 0.9, "test_loss": 0.1, "train_loss": 0.1, "seconds_total": 1.0},
        "history": [{"epoch": 1, "seconds": 0.5, "train_loss": 1, "test_loss": 1, "test_accuracy": 0.9}],
        "bytes": {},
        "counts": {},
        "phases_ms": {"compute": 1.0},
    },
    "events.jsonl": [{"time_ms": 1000, "key": "started"}, {"time_ms": 2000, "key": "finished"}],
    "steps.json": [1.0, 2.0],
    "resources.json": {"processes": [{"seconds": [1], "cpu_cores": [1], "resident_bytes": [1], "name": "driver"}]},
}
_NET = {"transport": "tcp", "elements": 10, "busbw_gbps": 1.0, "median_ms": 1.0, "workers": 2}


def _changed(data: st.DataObject, value: object) -> object:
    """The same with up to three of its values, at any depth, left out or in place of them something else."""
    copied = json.loads(json.dumps(value))
    for _ in range(data.draw(st.integers(0, 3))):
        inner, key = copied, None
        while isinstance(inner, (dict, list)) and inner:
            holder = inner
            key = data.draw(st.sampled_from(sorted(inner) if isinstance(inner, dict) else range(len(inner))))
            inner = holder[key]
            if data.draw(st.booleans()):
                break
        if key is None:
            return data.draw(_JSON)
        if data.draw(st.booleans()):
            del holder[key]
        else:
            holder[key] = data.draw(_JSON)
    return copied


@_FIXED
@given(st.data())
def test_reports_of_runs(tmp_path: Path, data: st.DataObject) -> None:
    for name, content in _RUN.items():
        changed = _changed(data, content)
        lines = changed if name.endswith("l") and isinstance(changed, list) else [changed]
        (tmp_path / name).write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert _is_lawful(lambda: load([tmp_path], data.draw(st.sampled_from([None, 0.5]))))


@_FIXED
@given(st.data())
def test_reports_of_measured_collectives(tmp_path: Path, data: st.DataObject) -> None:
    lines = [json.dumps(_changed(data, _NET)).encode(), data.draw(_TEXTS)]
    (tmp_path / "net.jsonl").write_bytes(b"\n".join(lines[: data.draw(st.integers(0, 2))]))
    assert _is_lawful(lambda: load([tmp_path / "net.jsonl"]))


@_FIXED
@given(st.data())
def test_records_of_kept_reports(tmp_path: Path, data: st.DataObject) -> None:
    record = {"schema": 1, "status": "success", "history": [], "metrics": {}}
    content = {"content": {"schema": 1, "plan": {"title": "x"}}, "asked": None, "records": [record]}
    text = json.dumps(_changed(data, {"schema": 1, "comparisons": [content], "net": [_NET]})).encode()
    packed = bytearray(gzip.compress(text, mtime=0))
    if data.draw(st.booleans()):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / kept.RECORDS).write_bytes(bytes(packed))
    assert _is_lawful(lambda: kept.read(tmp_path / kept.RECORDS))


@_FIXED
@given(_TEXTS)
def test_results_of_benchmarks(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "20260101-000000-net.json").write_bytes(content)
    assert _is_lawful(lambda: bench_store.load(tmp_path / "20260101-000000-net.json"))


_ROWS = {"schema": 2, "source": "csv", "parts": [{"file": "part-0-0", "rows": 3}]}


@_FIXED
@given(st.data())
def test_decoded_rows_are_ours_or_are_left_alone(tmp_path: Path, data: st.DataObject) -> None:
    folder = tmp_path / f"csv-{'0' * 24}"
    folder.mkdir(exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps(_changed(data, _ROWS)), encoding="utf-8")
    found = decoded.copies(tmp_path)
    assert len(found) + len(decoded.others(tmp_path)) == 1
    assert all(copy.rows is None or copy.rows >= 0 for copy in found)


_CELLS = ["0", "1", "1e999", "nan", "-0.5", "²", "9" * 5000, "word", "", '"', "'", ",", ";", "\t", "|", "label", "#"]
_LINES = st.lists(st.sampled_from([*_CELLS, ":", " ", "\n", "\n", "\r", "\x00", "\ufeff"]), max_size=40).map("".join)


@_FIXED
@given(_LINES.map(str.encode) | st.binary(max_size=60), st.sampled_from(["", ".gz"]), st.data())
def test_a_look_at_tables(tmp_path: Path, content: bytes, ending: str, data: st.DataObject) -> None:
    packed = bytearray(gzip.compress(content, mtime=0) if ending else content)
    if ending and data.draw(st.booleans()):
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    for kind in ("csv", "tsv", "libsvm"):
        file = tmp_path / f"rows.{kind}{ending}"
        file.write_bytes(bytes(packed))
        label = data.draw(st.none() | st.sampled_from(["0", "-1", "²", "label", ""]))
        assert _is_lawful(lambda file=file, label=label: look(str(file), label))
        assert isinstance(datafiles.fault("csv", file, "it", header=True), (str, type(None)))


@_FIXED
@given(st.binary(max_size=40), st.sampled_from(["", ".gz", ".xz"]), st.data())
def test_a_look_at_images(tmp_path: Path, content: bytes, ending: str, data: st.DataObject) -> None:
    head = data.draw(st.sampled_from([b"", b"\x00\x00\x08\x03", b"\x89PNG\r\n\x1a\n" + bytes(8)]))
    folder = tmp_path / f"idx{ending}"
    for name in (f"idx{ending}/train-images-idx3-ubyte{ending}", "classes/a/1.png", "classes/b/1.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        packed = gzip.compress(head + content, mtime=0) if name.endswith(".gz") else head + content
        (tmp_path / name).write_bytes(packed[: data.draw(st.integers(0, len(packed)))])
    assert _is_lawful(lambda: look(str(folder)))
    assert _is_lawful(lambda: look(str(tmp_path / "classes")))


@_FIXED
@given(st.data())
def test_answers_of_an_executor(tmp_path: Path, data: st.DataObject) -> None:
    head = _wire._HEAD.pack(data.draw(st.sampled_from([0, 3, -1, 1 << 30])), data.draw(st.integers(0, 3)), 1)
    said = bytearray(head + data.draw(st.binary(max_size=8)))
    if data.draw(st.booleans()):
        said[data.draw(st.integers(0, len(said) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "s"
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(20)
                connection.recv(4 + 32)
                connection.sendall(bytes(said))

        speaker = threading.Thread(target=answer, daemon=True)
        speaker.start()
        wire = _wire.Wire(str(path), bytes(32), 5)
        try:
            assert _is_lawful(wire.receive)
        finally:
            wire.close()
            speaker.join(20)


def test_what_a_report_cannot_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "net.jsonl").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match=r"Line 1 of '.*net\.jsonl' is not JSON"):
        load([tmp_path / "net.jsonl"])
    for name, content in _RUN.items():
        lines = content if name.endswith("l") and isinstance(content, list) else [content]
        (tmp_path / name).write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    (tmp_path / "summary.json").write_text('{"status": "success"}', encoding="utf-8")
    with pytest.raises(ConfigurationError, match=f"'{re.escape(str(tmp_path))}' is no whole run's folder"):
        load([tmp_path])


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\xff", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"1" * 5000, "is not JSON"),
    ],
)
def test_a_run_that_is_no_text_or_nested_too_deeply(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(ConfigurationError, match=told):
        _ = RunResults(tmp_path).run


def test_a_last_event_that_is_cut_inside_a_character_is_left_out(tmp_path: Path) -> None:
    whole = json.dumps({"key": "ä"}, ensure_ascii=False).encode()
    (tmp_path / "events.jsonl").write_bytes(whole + b"\n" + whole[:-3])
    assert RunResults(tmp_path).events == [{"key": "ä"}]
    (tmp_path / "events.jsonl").write_bytes(whole[:-3] + b"\n" + whole)
    with pytest.raises(ConfigurationError, match=r"Line 1 of .* is not JSON"):
        _ = RunResults(tmp_path).events


@pytest.mark.parametrize("content", [b'{"schema": 0}', b'{"schema": 1e999}', b"[" * 100_000])
def test_a_plan_of_no_schema_that_was_ever_written(tmp_path: Path, content: bytes) -> None:
    (tmp_path / store.PLAN_FILE).write_bytes(content)
    with pytest.raises(ConfigurationError, match="is not the plan of a comparison"):
        store.open_folder(tmp_path)
