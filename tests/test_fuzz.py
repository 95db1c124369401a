"""Readers of files and messages: whatever is in them, what comes is a value or an error that users read."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkdl_bench import redaction, saved
from sparkdl_bench.comparison import store
from sparkdl_bench.comparison.plan import load_plan
from sparkdl_bench.config import parse_run_file
from sparkdl_bench.errors import ConfigurationError, SparkDLError
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
