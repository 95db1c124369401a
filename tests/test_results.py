from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.results import RunResults, describe_bytes


def test_reads_what_a_run_left(results_folder: Path) -> None:
    results = RunResults(results_folder)
    assert results.summary["status"] == "done"
    assert [record["epoch"] for record in results.history] == [1, 2]
    assert [event["event"] for event in results.events] == ["run_start", "run_stop"]
    assert results.run["configuration"]["name"] == "digits"


def test_a_last_line_cut_short_is_left_out(results_folder: Path) -> None:
    with (results_folder / "events.jsonl").open("a") as events:
        events.write('{"event": "epo')
    assert len(RunResults(results_folder).events) == 2


def test_a_broken_line_amid_the_events_is_named(results_folder: Path) -> None:
    (results_folder / "events.jsonl").write_text('{"event": 1}\n{"eve\n{"event": 2}\n')
    with pytest.raises(ConfigurationError, match=r"Line 2 of .*events\.jsonl"):
        RunResults(results_folder).events  # noqa: B018


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        RunResults(tmp_path).summary  # noqa: B018


def test_the_share_of_the_sampler_is_that_of_the_process_where_it_took_most(results_folder: Path) -> None:
    assert RunResults(results_folder).sampler_share is None
    took = [(0.002, 1.0), (0.01, 2.0), (-1, 2.0), (0.0, 0.0)]
    processes = [{"sampler_cpu_seconds": cpu, "sampler_seconds": seconds} for cpu, seconds in took]
    file = results_folder / "resources.json"
    file.write_text(json.dumps({"processes": processes}))
    assert RunResults(results_folder).sampler_share == 0.005
    file.write_text(json.dumps({"processes": [{"process": "driver"}]}))  # of a version that did not tell
    assert RunResults(results_folder).sampler_share is None


@pytest.mark.parametrize("text", ["{", "[1]", "3"])
def test_a_summary_that_is_no_object(results_folder: Path, text: str) -> None:
    (results_folder / "summary.json").write_text(text)
    with pytest.raises(ConfigurationError, match=r"summary\.json"):
        RunResults(results_folder).summary  # noqa: B018


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (1_234_567, "1.23 MB"), (5e9, "5.00 GB"), (7e12, "7.00 TB")],
)
def test_bytes_in_words(count: float, text: str) -> None:
    assert describe_bytes(count) == text


def test_a_run_without_a_summary_gets_one_and_a_summary_stays(results_folder: Path, tmp_path: Path) -> None:
    results = RunResults(results_folder)
    before = results.summary
    results.close("failed", "killed")
    assert results.summary == before
    (results_folder / "summary.json").unlink()
    results.close("failed", "The driver's JVM was killed by signal 9.")
    assert results.summary["status"] == "failed"
    assert results.summary["error"] == "The driver's JVM was killed by signal 9."
    assert results.summary["final"]["test_accuracy"] is None
    assert results.history == []
    RunResults(tmp_path / "no-such").close("failed", "killed")
    assert not (tmp_path / "no-such").exists()
