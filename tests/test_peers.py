"""Peers: found by scanning, environments, processes that leave nothing behind, and real runs of what is installed."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from rich.console import Console

from sparkdl_bench import peers
from sparkdl_bench.commands.peers import command
from sparkdl_bench.errors import ConfigurationError, RunFailedError
from sparkdl_bench.peers import CollectiveCase, Measurement, TrainCase, _environment
from sparkdl_bench.peers._environment import Environment, find_python, tail
from sparkdl_bench.peers._process import measure, run_to_end
from sparkdl_bench.peers.programs.measure import _harness

QUICK = CollectiveCase(elements=1000, warmup=2, iterations=5)


class TestDiscovery:
    def test_every_peer_is_found_and_described(self) -> None:
        found = peers.discover()
        assert {"bigdl", "gloo", "memcpy", "mpi", "pytorch", "pytorch-ddp"} <= set(found)
        assert all(peer.doc and peer.kinds <= {"train", "fit", "predict", "allreduce"} for peer in found.values())

    def test_every_requirement_is_pinned(self) -> None:
        for peer in peers.discover().values():
            pinned = r"[A-Za-z0-9_.-]+==[0-9][^ ,]*|[a-z0-9.]+:[A-Za-z0-9_.-]+:[0-9][\w.-]*(:[\w-]+)?"  # pip's, Maven's
            assert all(re.fullmatch(pinned, each) for each in peer.requirements), peer.name

    @pytest.mark.parametrize("typed", ["glo", "golo"])
    def test_an_unknown_name_gets_the_nearest_and_the_valid_ones(self, typed: str) -> None:
        with pytest.raises(ConfigurationError, match=f"'{typed}'.*Did you mean 'gloo'.*Valid: bigdl,.* gloo,"):
            peers.find(typed)

    def test_torch_is_installed_once_for_all_that_use_it(self, tmp_path: Path) -> None:
        messages = {peers.find(name).missing(tmp_path) for name in ("pytorch", "pytorch-ddp", "gloo")}
        folders = {str(peers.find(name).environment.folder(tmp_path)) for name in ("pytorch", "pytorch-ddp", "gloo")}  # type: ignore[attr-defined]
        assert len(messages) == 3
        assert len(folders) == 1


class TestCases:
    @pytest.mark.parametrize("wrong", [{"batch": 0}, {"workers": 0}, {"steps": 0}, {"batch": 2, "workers": 3}])
    def test_a_senseless_training_case_is_refused(self, wrong: dict[str, int]) -> None:
        with pytest.raises(ConfigurationError):
            TrainCase(**wrong)  # type: ignore[arg-type]

    def test_a_negative_size_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="-1"):
            CollectiveCase(elements=-1)

    @pytest.mark.parametrize(
        ("name", "case"),
        [
            ("pytorch", TrainCase(workers=2)),
            ("pytorch", QUICK),
            ("pytorch-ddp", TrainCase(workers=1)),
            ("gloo", CollectiveCase(host_local=True)),
            ("mpi", TrainCase()),
            ("bigdl", TrainCase(workers=2, steps=5)),
            ("memcpy", TrainCase()),
        ],
    )
    def test_a_case_that_a_peer_cannot_run_is_refused_before_anything_starts(
        self, name: str, case: peers.Case, tmp_path: Path
    ) -> None:
        with pytest.raises(ConfigurationError, match=name):
            peers.find(name).run(case, 10, tmp_path)

    def test_each_rank_gets_its_share_of_every_batch(self) -> None:
        case = {"batch": 10}
        shares = [_harness.batches(case, 35, rank, 3) for rank in range(3)]
        assert [len(share) for share in shares] == [3, 3, 3]
        rows = sorted(row for share in shares for piece in share for row in range(piece.start, piece.stop))
        assert rows == list(range(30))


class TestEnvironment:
    def test_a_missing_one_is_an_error_with_the_command(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match=f"sparkdl-bench peers install mpi --dir {tmp_path}"):
            peers.find("mpi").run(QUICK, 10, tmp_path)

    def test_it_is_made_once_and_anew_when_the_versions_change(self, tmp_path: Path) -> None:
        first = Environment("tiny", requirements=(), imports=("json",))
        assert first.install(tmp_path)
        assert first.is_ready(tmp_path)
        assert not first.install(tmp_path)
        assert first.python(tmp_path).exists()
        assert not Environment("tiny", requirements=("numpy==0.0.1",)).is_ready(tmp_path)

    def test_one_whose_modules_do_not_import_does_not_count(self, tmp_path: Path) -> None:
        broken = Environment("broken", requirements=(), imports=("no_such_module",))
        with pytest.raises(RunFailedError, match="no_such_module"):
            broken.install(tmp_path)
        assert not broken.is_ready(tmp_path)

    def test_this_python_is_taken_where_it_will_do(self) -> None:
        assert find_python(sys.version_info[:2]) == sys.executable

    def test_no_python_that_is_old_enough_is_an_error(self) -> None:
        with pytest.raises(ConfigurationError, match=r"3\.10 to 3\.9"):
            find_python((3, 9))

    def test_no_python_that_is_new_enough_is_an_error(self) -> None:
        with pytest.raises(ConfigurationError, match=r"3\.98 to 3\.99.*none of python3\.99, python3\.98 is on"):
            find_python((3, 99), (3, 98))

    def test_credentials_in_what_an_installer_said_are_not_repeated(self) -> None:
        assert (
            tail("ERROR: https://user:secret@index.example/simple failed\n")
            == "ERROR: https://***@index.example/simple failed"
        )


class TestProcess:
    def test_nothing_is_left_after_success(self, tmp_path: Path) -> None:
        pid_file = tmp_path / "pid"
        run_to_end("leaver", [sys.executable, "-c", _LEAVES_A_DAEMON, str(pid_file)], 30)
        assert not _lives(int(pid_file.read_text()))

    def test_nothing_is_left_after_a_timeout(self, tmp_path: Path) -> None:
        pid_file = tmp_path / "pid"
        program = _LEAVES_A_DAEMON + "; print('waiting', flush=True); time.sleep(60)"
        with pytest.raises(RunFailedError, match=r"did not end within 10 s.*waiting.*--timeout"):
            run_to_end("sleeper", [sys.executable, "-c", program, str(pid_file)], 10)
        assert not _lives(int(pid_file.read_text()))

    def test_a_failure_says_what_the_program_said_last(self) -> None:
        with pytest.raises(RunFailedError, match=r"status 3.*no luck"):
            run_to_end("unlucky", [sys.executable, "-c", "print('no luck'); raise SystemExit(3)"], 30)

    def test_a_failure_s_reason_is_not_lost_among_the_lines_of_a_stack(self, tmp_path: Path) -> None:
        stack = [f"\tat org.apache.spark.Executor$Runner.run{line}(Executor.scala:{line})" for line in range(200)]
        said = ["java.lang.OutOfMemoryError: Java heap space", *stack, "\t... 12 more", "at least this is no stack"]
        program = f"print({chr(10).join(said)!r}); raise SystemExit(1)"
        with pytest.raises(RunFailedError) as failed:
            measure("deep", [sys.executable, "-c", program], QUICK, 30, out=tmp_path / "peer.jsonl")
        assert "It last said: java.lang.OutOfMemoryError: Java heap space | at least this is no stack" in str(
            failed.value
        )
        assert "Executor.scala" not in str(failed.value)
        assert f"All that it said is in {tmp_path.name}/peer.log." in str(failed.value)
        assert (tmp_path / "peer.log").read_text().splitlines() == said

    def test_temporary_files_are_gone_after_a_timeout(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
        program = (
            "import os, pathlib, sys, tempfile, time; folder = tempfile.mkdtemp(); "
            "shared = os.environ['SPARKDL_PEER_SHARED_MEMORY']; pathlib.Path(shared, 'segment').touch(); "
            f"pathlib.Path({str(tmp_path / 'where')!r}).write_text(' '.join("
            "[folder, os.environ['SPARK_LOCAL_DIRS'], shared])); time.sleep(60)"
        )
        with pytest.raises(RunFailedError, match="did not end within 3 s"):
            measure("sleeper", [sys.executable, "-c", program], QUICK, 3)
        left, local, shared = (tmp_path / "where").read_text().split()
        assert left.startswith(f"{local}/")
        assert shared != local
        assert not Path(local).exists()
        assert not Path(shared).exists()

    def test_a_program_that_measured_nothing_is_an_error(self) -> None:
        with pytest.raises(RunFailedError, match="measured nothing"):
            measure("silent", [sys.executable, "-c", "pass"], QUICK, 30)


def _lives(pid: int) -> bool:
    """A process that has ended but has not been collected by its parent does not count."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


_LEAVES_A_DAEMON = (
    "import subprocess, sys, time, pathlib; "
    "child = subprocess.Popen(['sleep', '60'], start_new_session=True); "
    "pathlib.Path(sys.argv[1]).write_text(str(child.pid))"
)


class TestCommand:
    def test_list_names_every_peer_on_a_narrow_terminal_too(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sparkdl_bench.commands.peers.default_console", lambda: Console(width=80))
        result = CliRunner().invoke(command, ["list", "--dir", str(tmp_path)])
        assert result.exit_code == 0, result.output
        assert all(name in result.output for name in peers.discover())

    def test_run_prints_the_median_and_keeps_all_samples(self, tmp_path: Path) -> None:
        out = tmp_path / "samples.jsonl"
        arguments = ["run", "memcpy", "--elements", "100", "--steps", "9", "--warmup", "1", "--json", str(out)]
        result = CliRunner().invoke(command, arguments)
        assert result.exit_code == 0, result.output
        assert "memcpy (allreduce, 2 workers): median" in result.output
        assert out.read_text().count("[") == 10  # nine samples in one list


def test_without_a_network_the_index_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing listens at port 9 of this host.
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(tmp_path), "click==8.1.8"]
    with pytest.raises(RunFailedError) as refused:
        _environment._run(command, "installing click==8.1.8")
    assert str(refused.value) == (
        "installing click==8.1.8 failed with status 1: the package index cannot be reached from this host. Check the "
        "network, and pip's settings of the index and the proxy (`pip config list`)."
    )


def test_memcpy_copies_what_it_says() -> None:
    measurement = peers.find("memcpy").run(QUICK, 60, Path("unused"))
    assert measurement.facts["correct"] is True
    assert len(measurement.samples) == 5


@pytest.mark.on_one_line
@pytest.mark.parametrize("elements", [0, 1, 1009])
@pytest.mark.parametrize(("name", "host_local"), [("mpi", True), ("mpi", False), ("gloo", False)])
def test_an_installed_collective_sums_exactly(name: str, host_local: bool, elements: int) -> None:
    measurement = _run(name, CollectiveCase(elements, 3, host_local, warmup=2, iterations=5))
    assert measurement.facts["correct"] is True
    assert measurement.facts["channel"] == ("shared memory" if host_local else "tcp")
    assert len(measurement.samples) == 5


@pytest.mark.on_one_line
@pytest.mark.parametrize(("name", "workers"), [("pytorch", 1), ("pytorch-ddp", 2), ("bigdl", 2)])
def test_an_installed_trainer_lowers_the_loss(name: str, workers: int) -> None:
    case = TrainCase(
        batch=32,
        hidden=(64,),
        workers=workers,
        steps=400,
        warmup_steps=10,
        rows=320,
        learning_rate=0.5,
        features=20,
        classes=5,
    )
    measurement = _run(name, case)
    assert sum(sample.steps for sample in measurement.samples) == 400
    assert all(sample.ms > 0 for sample in measurement.samples)
    assert float(str(measurement.facts["last_loss"])) < float(str(measurement.facts["first_loss"]))


def _run(name: str, case: peers.Case) -> Measurement:
    """A run of a peer whose environment is there; skips where it is not (`sparkdl-bench peers install`)."""
    directory = Path(os.environ.get("SPARKDL_PEERS", peers.default_directory()))
    peer = peers.find(name)
    reason = peer.missing(directory)
    if reason:
        pytest.skip(reason)
    return peer.run(case, 600, directory)
