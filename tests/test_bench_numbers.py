"""The benchmarks' own numbers and words, each from values that stand here; nothing is measured."""

from __future__ import annotations

import dataclasses
import io
import json
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sparkdl_bench import machine
from sparkdl_bench.bench import (
    collective,
    congestion,
    contestant,
    net,
    spark_collective,
    store,
    suite,
    table,
    trials,
)
from sparkdl_bench.bench.collective import Taken, Way
from sparkdl_bench.bench.net import NetPlan
from sparkdl_bench.bench.store import ResultFile, Trial
from sparkdl_bench.errors import ConfigurationError, RunFailedError
from sparkdl_bench.peers import Measurement, Sample, TrainCase


@pytest.fixture
def result_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ResultFile:
    monkeypatch.setattr(machine, "_java_version", lambda: "17")  # which starts a JVM to ask
    return store.create(tmp_path, "short", {"trials": 3})


def printed(show: Any, *arguments: Any) -> list[list[str]]:
    """The cells of each row that a table has on a terminal."""
    written = io.StringIO()
    show(*arguments, Console(file=written, width=240))
    rows = [line.split("│")[1:-1] for line in written.getvalue().splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in row] for row in rows]


class TestCollective:
    @pytest.mark.parametrize(
        ("elements", "counts"),
        [
            *((0, (5000, 2000)), (100_000, (5000, 2000)), (100_001, (3000, 1000)), (1_000_000, (3000, 1000))),
            *((1_000_001, (500, 200)), (5_000_000, (500, 200)), (5_000_001, (200, 100))),
        ],
    )
    def test_short_ones_are_made_thousands_of_times(self, elements: int, counts: tuple[int, int]) -> None:
        assert collective.counts(elements) == counts
        plan = NetPlan((elements,), (2,), ("tcp",))
        assert plan.counts(elements) == counts
        assert dataclasses.replace(plan, warmup=7).counts(elements) == (7, counts[1])
        assert dataclasses.replace(plan, iterations=9).counts(elements) == (counts[0], 9)

    def test_a_row_s_bandwidths(self) -> None:
        # 4 bytes of each value, 8 bits of a byte: 1,000 values in 2 ms are 16 Mbit/s.
        assert collective.algbw_gbps(1000, 2.0) == pytest.approx(0.016)
        assert collective.algbw_gbps(1000, 0.0) == 0.0
        assert [collective.busbw_gbps(6.0, workers) for workers in (1, 2, 3)] == pytest.approx([6.0, 6.0, 8.0])
        row = collective.row(Way("tcp", 3, 1000), [Taken([2.0, 1.0], True, "b"), Taken([4.0], True, "a")], 0.0)
        assert (row.link_share, row.channel, row.trials, row.median_ms) == (0.0, "a, b", 2, 2.0)
        assert dataclasses.replace(row, link_gbps=row.busbw_gbps * 4).link_share == pytest.approx(0.25)
        assert dataclasses.replace(row, link_gbps=0.5).link_share == pytest.approx(2 * row.busbw_gbps)
        assert row.samples_ms == [2.0, 1.0, 4.0]

    def test_percentiles_are_over_all_samples(self) -> None:
        row = collective.row(Way("tcp", 2, 10), [Taken([float(at) for at in range(101)], True, "tcp")], 1.0)
        assert (row.median_ms, row.p90_ms, row.p99_ms) == (50.0, 90.0, 99.0)

    def test_the_table_has_the_link_s_share_over_sockets_alone(self) -> None:
        taken = [Taken([2.0, 2.0, 2.0], True, "tcp")]
        rows = [
            collective.row(dataclasses.replace(Way("tcp", 2, 1_000_000, "ring"), host_local=choice), taken, 64.0)
            for choice in (False, True, None)
        ]
        wrong = dataclasses.replace(rows[0], correct=False, drift=1.5, trials=5, encryption="tls", topology=None)
        first, local, peer, bad = printed(table.show_rows, [*rows, wrong], 64.0)
        assert first == [
            *("tcp", "ring", "fp32", "tcp", "–", "2", "1,000,000"),
            *("1", "2.000", "2.000", "2.000", "16.0", "16.0", "25%", "1.00", "yes"),
        ]
        assert (local[13], peer[13]) == ("–", "–")
        assert bad[-2:] == ["1.50 not steady", "NO"]
        assert (bad[1], bad[4], bad[7]) == ("–", "tls", "5")


class TestTransports:
    @pytest.mark.parametrize(
        ("facts", "channel", "said"),
        [
            ({"bytes": {"tcp": 9, "shared memory": 0}}, "tcp", {}),
            (
                {"bytes": {"a": 1, "b": 2}, "facts": {"ucx.transports": "posix"}},
                "a + b (posix)",
                {"ucx.transports": "posix"},
            ),
            ({"bytes": {}}, "none", {}),
            ({"bytes": "old", "facts": "old"}, "none", {}),
            ({"bytes": {"a": 1}, "facts": {}}, "a", {}),
        ],
    )
    def test_the_channel_is_what_carried_bytes(
        self, monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any], channel: str, said: dict[str, str]
    ) -> None:
        asked: list[Any] = []

        def measured(*arguments: Any) -> Measurement:
            asked.append(arguments)
            return Measurement((Sample(1.5), Sample(2.5)), {"correct": 1, **facts})

        monkeypatch.setattr(spark_collective, "measure", measured)
        place = spark_collective.Place(("sudo",), {"spark.a": "b"}, {"C": "d"}, {"tcp.interface": "e"})
        way = Way("ours:tcp", 3, 10, "ring", "bf16", host_local=False)
        taken = spark_collective.run_spark_transport(way, 7, 2, 5.0, place)
        assert taken == Taken([1.5, 2.5], True, channel, said)
        ((name, command, case, timeout_s, variables),) = asked
        assert (name, timeout_s) == ("tcp", 5.0)
        assert (command[0], command[2:]) == ("sudo", ["-m", "sparkdl_bench.bench.spark_collective"])
        assert (case.elements, case.workers, case.host_local, case.warmup, case.iterations) == (10, 3, False, 7, 2)
        assert variables["C"] == "d"
        assert json.loads(variables["SPARKDL_NET_PROPERTIES"]) == {"spark.a": "b"}
        assert json.loads(variables["SPARKDL_NET_SETTINGS"]) == {
            "transport": "tcp",
            "topology": "ring",
            "codec": "bf16",
            "workers": "3",
            "tcp.interface": "e",
        }

    def test_a_jar_without_the_measuring_class_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        held = [True]
        jars = types.SimpleNamespace(thin=Path("thin.jar"), holds_class=lambda _: held[0])
        monkeypatch.setattr(spark_collective, "find_jars", lambda _: jars)
        monkeypatch.setattr(spark_collective.transports, "missing", lambda run: f"no {run.settings['transport']}")
        assert spark_collective.spark_transport_missing("ours:mpi") == "no mpi"
        held[0] = False
        assert "'thin.jar' has no class sparkdlbench.bench.NetBench" in str(
            spark_collective.spark_transport_missing("tcp")
        )

    def test_ways_are_told_apart_by_their_words(self) -> None:
        assert net.describe(Way("gloo", 2, 10)) == "gloo, 2 workers, 10 values"
        way = Way("tcp", 4, 100, "ring", "bf16", host_local=True, encryption="tls")
        assert net.describe(way) == "tcp, ring, bf16, 4 workers, host-local, tls, 100 values"
        assert net.describe(dataclasses.replace(way, host_local=False, encryption="off")) == (
            "tcp, ring, bf16, 4 workers, 100 values"
        )

    def test_one_rank_has_no_peer_but_the_copy(self) -> None:
        plan = NetPlan((10,), (1,), ("memcpy",))
        assert net.ways_of(plan, "memcpy", 1, 10) == [Way("memcpy", 1, 10)]
        assert net.ways_of(plan, "gloo", 1, 10) == []
        assert [way.workers for way in net.ways_of(plan, "gloo", 2, 10)] == [2]
        only = dataclasses.replace(plan, host_local="on")
        assert [way.host_local for way in net.ways_of(only, "mpi", 2, 10)] == [True]

    def test_no_size_is_a_size_and_no_rank_is_none(self) -> None:
        assert NetPlan((0,), (1,), ("tcp",)).sizes == (0,)
        for wrong in (((-1,), (1,)), ((1,), (0,)), ((5, -1), (1,))):
            with pytest.raises(ConfigurationError, match="0 or more; a number of workers is 1 or more"):
                NetPlan(*wrong, ("tcp",))


class TestMachine:
    @pytest.mark.parametrize(
        ("cpu", "memory", "name"),
        [
            ("Intel(R) Xeon(R) CPU @ 2.20GHz", 23.5, "intel-xeon-8c-24g"),
            ("AMD EPYC 7B13 Processor", 2.4, "amd-epyc-7b13-8c-2g"),
            ("", 1, "unknown-8c-1g"),
        ],
    )
    def test_a_machine_s_folder_is_named_by_its_processor(self, cpu: str, memory: float, name: str) -> None:
        assert machine.slug({"cpu": cpu, "cores": 8, "memory_gib": memory}) == name

    def test_facts_are_of_the_first_processor_and_the_flags_that_matter(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        info = tmp_path / "cpuinfo"
        info.write_text("model name : One: fast\nflags : avx2 sse2 fma sse4_1 amx_tile asimd sve\n\nmodel name : Two\n")
        monkeypatch.setattr(machine, "Path", lambda *_: info)
        monkeypatch.setattr(machine, "_java_version", lambda: "17")
        monkeypatch.setattr(machine.os, "getloadavg", lambda: (1.234, 2.346, 3.0))
        found = machine.facts()
        assert found["cpu"] == "One: fast"
        assert found["cpu_flags"] == ["avx2", "fma", "sse4_1", "amx_tile", "asimd", "sve"]
        assert found["load_average"] == [1.23, 2.35, 3.0]
        assert set(found["packages"]) == {"sparkdl-bench", "pyspark", "numpy"}  # type: ignore[call-overload]
        info.unlink()
        monkeypatch.setattr(machine.platform, "processor", lambda: "")
        assert (machine.facts()["cpu"], machine.facts()["cpu_flags"]) == ("unknown", [])

    @pytest.mark.parametrize(
        ("said", "version"),
        [
            (
                'openjdk version "17"\nOpenJDK Runtime Environment (17)\nOpenJDK Server VM',
                "OpenJDK Runtime Environment (17)",
            ),
            ("Picked up JAVA_TOOL_OPTIONS: x\nopenjdk\n  OpenJDK Runtime  \n", "OpenJDK Runtime"),
            ("one line", "unknown"),
            ("", "unknown"),
        ],
    )
    def test_java_says_its_version_in_the_second_line(
        self, monkeypatch: pytest.MonkeyPatch, said: str, version: str
    ) -> None:
        monkeypatch.setattr(machine, "_output", lambda _: said)
        assert machine._java_version() == version

    @pytest.mark.parametrize(
        ("head", "changes", "commit"),
        [
            ("0123456789ab", "", "0123456789ab"),
            ("0123456789ab", " M file", "0123456789ab+changes"),
            ("", "", "unknown"),
        ],
    )
    def test_a_commit_says_whether_files_differ(
        self, monkeypatch: pytest.MonkeyPatch, head: str, changes: str, commit: str
    ) -> None:
        monkeypatch.setattr(machine.shutil, "which", lambda _: "/usr/bin/git")
        monkeypatch.setattr(machine, "_output", lambda command: head if "rev-parse" in command else changes)
        assert machine.commit_of(Path("/some")) == commit
        monkeypatch.setattr(machine.shutil, "which", lambda _: None)
        assert machine.commit_of(Path("/some")) == "unknown"

    def test_a_program_that_fails_has_said_nothing(self) -> None:
        assert machine._output(["sh", "-c", "echo out; echo err >&2"]) == "out\nerr"
        assert machine._output(["sh", "-c", "echo out; exit 1"]) == ""
        assert machine._output(["/no/such/program"]) == ""

    def test_java_is_that_of_java_home(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("JAVA_HOME", "/jdk")
        assert machine.java() == "/jdk/bin/java"
        monkeypatch.delenv("JAVA_HOME")
        assert machine.java() == "java"
        assert machine._package_version("no-such-package-at-all") == "not installed"


class TestFiles:
    def test_each_cell_has_a_line_and_the_newest_of_the_same_plan_goes_on(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, result_file: ResultFile
    ) -> None:
        result_file.add("a", 1, Trial([1.25, 0.000014], 1, {"x": 1}))
        result_file.add("a", 3, Trial([2.0], 1, {}))
        lines = result_file.path.read_text().splitlines()
        cells = [line for line in lines if '"samples_ms"' in line]
        assert [json.loads("{" + line.rstrip(",") + "}").keys() for line in cells] == [{"a/1"}, {"a/3"}]
        # To 10 ns; of the second trial there is nothing.
        assert [trial.samples_ms for trial in result_file.trials("a")] == [[1.25, 1e-05], [2.0]]
        assert result_file.trial("a", 2) is None
        folder, name = result_file.path.parent, "20200101-000000-short.json"
        (folder / name).write_text(result_file.path.read_text().replace('"x": 1', '"x": 2'))
        found = store.resume(tmp_path, "short", {"trials": 3})
        assert found is not None
        assert found.path == result_file.path
        result_file.path.unlink()
        found = store.resume(tmp_path, "short", {"trials": 3})
        assert found is not None
        assert found.path.name == name

    def test_trials_are_asked_for_as_often_as_planned(self, result_file: ResultFile) -> None:
        for number in (1, 2, 3, 4):
            result_file.add("a", number, Trial([float(number)], 1, {}))
        assert [trial.samples_ms for trial in result_file.trials("a")] == [[1.0], [2.0], [3.0]]

    def test_a_trial_s_line_says_what_it_took_and_how_busy_it_was(self) -> None:
        samples = [float(at) for at in range(1, 12)]
        trial = Trial(samples, 1, {}, seconds=61.4, load={"busy": 0.1})
        assert trials._line("a", 2, trial) == "a, trial 2: median 6.000 ms per step, p90 10.000, drift 5.00, 61 s"
        busy = dataclasses.replace(trial, load={"busy": 0.11})
        assert trials._line("a", 2, busy).endswith(", the machine was 11% busy before")
        assert not trials._line("a", 2, dataclasses.replace(trial, load={})).endswith("before")

    def test_a_trial_is_kept_with_its_length_and_the_load_before_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        order: list[str] = []
        clock = iter([5.0, 7.26])
        monkeypatch.setattr(trials.time, "monotonic", lambda: next(clock))
        monkeypatch.setattr(machine, "load", lambda: order.append("load") or machine.Load(0.2, 3.0))
        made: Any = types.SimpleNamespace(
            measure=lambda timeout_s: order.append(f"measure {timeout_s}") or Trial([1.0], 1, {})
        )
        trial = trials._timed(made, 9.0)
        assert order == ["load", "measure 9.0"]
        assert (trial.seconds, trial.load) == (2.3, {"busy": 0.2, "average_1min": 3.0})
        assert trial.started.endswith("+00:00")

    def test_blocks_are_as_long_as_the_longer_side_s(self) -> None:
        assert trials._blocks(Trial([1.0, 3.0, 5.0, 7.0, 9.0], 1, {}), 2) == [2.0, 6.0]
        assert trials._blocks(Trial([1.0, 3.0], 10, {}), 10) == [1.0, 3.0]
        assert trials._blocks(Trial([1.0, 3.0], 10, {}), 20) == [2.0]

    @pytest.mark.parametrize(("ratio", "met"), [(0.5, True), (0.50001, False)])
    def test_a_target_is_met_at_its_value(self, result_file: ResultFile, ratio: float, met: bool) -> None:
        result_file.add("ours", 1, Trial([ratio * 10], 1, {}))
        result_file.add("theirs", 1, Trial([10.0], 1, {}))
        outcome = trials.compare(trials.Comparison("x", "ours", "theirs", 0.5), result_file)
        assert outcome.met == met
        (row,) = printed(lambda *words: table.show_outcomes("A table", *words), [outcome])
        assert row == [
            *("x: ours | theirs", f"{ratio * 10:.2f} ({ratio * 10:.2f})", "10.00 (10.00)", f"{ratio:.3f}", "1"),
            *("1.00, 1.00", "≤ 0.5", "yes" if met else "no"),
        ]


class TestContestant:
    @pytest.mark.parametrize(
        ("steps", "rows", "epochs"), [(10, 80, 2), (11, 80, 3), (10, 81, 2), (20, 80, 3), (1, 8000, 2)]
    )
    def test_a_run_has_rows_enough_for_its_steps(self, steps: int, rows: int, epochs: int) -> None:
        text = contestant.run_file(TrainCase(batch=8, warmup_steps=1, steps=steps - 1 or 1, rows=rows), "/f")
        steps = max(steps, 2)
        assert f'"max_steps" = {steps}\n' in text
        assert f'"epochs" = {epochs}\n' in text
        # Evaluated at its end alone, and always the same rows in the same order.
        assert '"evaluate_every" = 0\n' in text
        assert '"seed" = 1\n' in text

    def test_rows_are_mnist_s_where_a_folder_is_given(self) -> None:
        text = contestant.run_file(
            TrainCase(data_path="/mnist"), "/f", {"data.share": "1", "spark.x": "y", "name": "z"}
        )
        assert '[data]\n"source" = "idx"\n"path" = "/mnist"\n"share" = "1"\n' in text
        assert '"spark.executor.memory" = "2g"\n"spark.x" = "y"\n' in text
        assert '"name" = "z"\n' in text
        made = contestant.run_file(TrainCase(shape=(3, 2, 2), classes=4, rows=99, model="cnn"), "/f")
        assert '"source" = "synthetic"\n"rows" = 99\n"shape" = [3, 2, 2]\n"classes" = 4\n' in made
        assert '[model]\n"name" = "cnn"\n' in made

    @pytest.mark.parametrize(
        ("memory", "size"), [("1536m", 1536), (" 3G ", 3072), ("1k", None), ("g", None), ("2gb", None)]
    )
    def test_memory_is_whole_mebibytes(self, memory: str, size: int | None) -> None:
        if size is None:
            with pytest.raises(ConfigurationError, match="a whole number of mebibytes or gibibytes"):
                contestant.mebibytes(memory)
        else:
            assert contestant.mebibytes(memory) == size

    @pytest.mark.parametrize("count", [0, 1, 2])
    def test_one_run_is_expected(self, tmp_path: Path, count: int) -> None:
        (tmp_path / "file").touch()
        for at in range(count):
            (tmp_path / str(at)).mkdir()
        if count == 1:
            assert contestant.only_run(tmp_path) == tmp_path / "0"
        else:
            with pytest.raises(ConfigurationError, match=f"there are {count}"):
                contestant.only_run(tmp_path)

    @pytest.mark.parametrize(("blocks", "is_taken"), [(2, False), (3, True), (4, True), (5, False)])
    def test_of_blocks_the_rest_may_lack(self, blocks: int, is_taken: bool) -> None:
        """Of 40 steps the last block of ten may be left out, and no more."""
        measured = Measurement((Sample(1.0, 10),) * blocks, {})
        if is_taken:
            assert contestant._trial("x", TrainCase(steps=40), measured).samples_ms == [1.0] * blocks
        else:
            with pytest.raises(RunFailedError, match=f"measured {10 * blocks} steps where 40"):
                contestant._trial("x", TrainCase(steps=40), measured)


class TestSuite:
    def test_mnist_is_where_it_is_said_or_where_all_data_are(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        def found(given: str | None) -> str:
            return suite.find_mnist(None, None, given)  # type: ignore[arg-type]

        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("SPARKDL_DATA", raising=False)
        assert (found("some"), found(None)) == (str(tmp_path / "some"), "")
        monkeypatch.setenv("SPARKDL_DATA", str(tmp_path))
        assert found(None) == ""
        (tmp_path / "mnist").mkdir()
        assert (found(None), found("some")) == (str(tmp_path / "mnist"), str(tmp_path / "some"))

    @pytest.mark.parametrize(("busy", "is_told"), [(0.1, False), (0.25, True)])
    def test_a_busy_machine_is_told(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], busy: float, is_told: bool
    ) -> None:
        monkeypatch.setattr(machine, "load", lambda: machine.Load(busy, 3.5))
        suite.warn_if_busy()
        told = capsys.readouterr().err
        assert ("25% of its cores' time is in use, load average 3.5." in told) == is_told

    def test_the_system_s_congestion_control_needs_root_to_change(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        assert congestion.current(tmp_path) == ""
        (tmp_path / "tcp_available_congestion_control").write_text("reno cubic\n")
        (tmp_path / "tcp_congestion_control").write_text("cubic\n")
        monkeypatch.setattr(congestion.os, "access", lambda path, mode: False)
        assert "which needs root" in str(congestion.missing("reno", tmp_path))


def test_a_net_s_rows_say_which_trial_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: list[str] = []
    asked: list[Any] = []

    def run_way(way: Way, counts: tuple[int, int], timeout_s: float, directory: Path) -> Taken:
        asked.append((way.transport, counts, timeout_s, directory))
        return Taken([1.0], True, "here")

    monkeypatch.setattr(net, "run_way", run_way)
    plan = NetPlan((10,), (2,), ("a",), warmup=3, iterations=4, trials=2, timeout_s=6.0)
    rows = list(net.measure(plan, net.Sweep(((Way("a", 2, 10),),), ()), 8.0, tmp_path, told.append))
    assert told == ["a, 2 workers, 10 values, trial 1 of 2 …", "a, 2 workers, 10 values, trial 2 of 2 …"]
    assert asked == [("a", (3, 4), 6.0, tmp_path)] * 2
    assert [getattr(row, "link_gbps", None) for row in rows] == [8.0]


def test_further_keys_go_to_ways_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Any] = []

    def run(way: Way, *arguments: Any) -> Taken:
        asked.append(arguments)
        return Taken([1.0], True, "tcp")

    monkeypatch.setattr(net, "run_spark_transport", run)
    given: Mapping[str, str] = {"congestion": "reno"}
    for settings in (given, None):
        net.run_way(Way("tcp", 2, 10), (30, 2), 5.0, tmp_path, settings)
    assert [(each[:3], each[3].settings) for each in asked] == [((30, 2, 5.0), given), ((30, 2, 5.0), {})]
    names: Sequence[str] = [field.name for field in dataclasses.fields(spark_collective.Place)]
    assert names == ["prefix", "properties", "variables", "settings"]
