"""Whole trainings by peers: prepared, started, looked at from outside, kept as runs are; by stand-ins alone."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import fakes
import numpy as np
import pytest
from click.testing import CliRunner

import idx
from sparkdl_bench import engines, helper_process, models, peers
from sparkdl_bench.commands.peers import command
from sparkdl_bench.comparison import check, peer_case, peer_data, peer_run, record
from sparkdl_bench.comparison.cells import NOT_VARIED, cells_of
from sparkdl_bench.comparison.peer_run import Trained
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.peers import FitCase, Measurement, Sample, _process, _sampler
from sparkdl_bench.peers._abilities import PERCEPTRON, SGD, Abilities
from sparkdl_bench.peers._base import EnvironmentPeer, Launch
from sparkdl_bench.peers._environment import Environment
from sparkdl_bench.peers._java import Java, release_of
from sparkdl_bench.peers._process import run_to_end
from sparkdl_bench.peers.programs.measure import _fit
from sparkdl_bench.report.load import load
from sparkdl_bench.results import RunResults

SETTINGS = {
    "workers": "1",
    "batch": "50",
    "epochs": "2",
    "seed": "3",
    "model.name": "mlp",
    "model.hidden": "16",
    "optimizer.learning_rate": "0.1",
    "optimizer.momentum": "0.9",
    "optimizer.weight_decay": "0.001",
    "optimizer.nesterov": "true",
    "schedule.name": "step",
    "schedule.every": "10",
    "data.source": "idx",
    "data.share": "0.5",
}


def perceptron(*widths: int) -> dict[str, Any]:
    """As the JVM describes it."""
    layers: list[dict[str, Any]] = []
    for number, (wide, narrow) in enumerate(pairwise(widths), start=1):
        layers.append(
            {
                "name": f"fc{number}",
                "kind": "linear",
                "options": {"in": wide, "out": narrow},
                "initializer": "he-uniform",
            }
        )
        layers.append({"name": f"relu{number}", "kind": "relu"})
    described: dict[str, Any] = {
        "name": "mlp",
        "input_shape": [widths[0]],
        "classes": widths[-1],
        "layers": layers[:-1],
    }
    described["parameters"] = [
        {"name": each.name, "shape": list(each.shape), "offset": each.offset, "initializer": each.initializer}
        for each in models.read(described).parameters
    ]
    return described


@dataclass(frozen=True)
class StandIn(EnvironmentPeer):
    """The peer `numpy` in this Python, whose NumPy will do."""

    def missing(self, directory: Path) -> str | None:
        return None

    def command(self, launch: Any) -> list[str]:
        return [sys.executable, *list(super().command(launch))[1:]]


STAND_IN = StandIn(**{**peers.find("numpy").__dict__, "name": "stand-in"})


@pytest.fixture(autouse=True)
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper_process, "ask", lambda *_, **__: perceptron(64, 16, 10))


def settings_of(folder: Path) -> dict[str, str]:
    """With 560 rows of 8 × 8 pixels, whose class is where they are bright."""
    random = np.random.default_rng(0)
    for names, count in ((idx.TRAIN, 560), (idx.TEST, 100)):
        labels = (np.arange(count) % 10).astype(np.uint8)
        rows = random.integers(0, 80, (count, 64), dtype=np.uint8)
        rows[np.arange(count)[:, None], labels[:, None] * 6 + np.arange(6)] += 150
        idx.write(folder / "idx", names, idx.Set(rows.reshape(-1, 8, 8), labels))
    return {**SETTINGS, "data.path": str(folder / "idx")}


def trained(folder: Path) -> tuple[FitCase, Trained]:
    case, place = peer_case.prepare(settings_of(folder), {}, folder / "data"), folder / "run"
    place.mkdir()
    return case, peer_run.train(STAND_IN, case, place, 120, folder)


def own_losses(case: FitCase) -> list[float]:
    """Of our engine of the same name, with the optimiser's formula written out (docs/reference/variants.md)."""
    spec = models.read(case.specification)
    engine = engines.find("numpy").load(spec, case.seed, False)
    with np.load(case.data_path) as data, np.load(case.start_path) as start:
        x, y, orders = data["x_train"], data["y_train"], start["orders"]
        assert np.array_equal(start["parameters"], engine.parameters)
    velocity, losses, step = np.zeros_like(engine.parameters), [], 0
    for order in orders:
        total = 0.0
        for first in range(0, len(order), case.batch):
            rows = order[first : first + case.batch]
            total += engine.step(engines.Batch(x[rows], y[rows]), 1 / len(rows))
            direction = engine.gradients + np.float32(0.001) * engine.parameters
            velocity = np.float32(0.9) * velocity + direction
            rate = np.float32(0.1 * 0.1 ** (step // 10))
            engine.parameters[:] -= rate * (direction + np.float32(0.9) * velocity)
            step += 1
        losses.append(total / len(order))
    return losses


def test_a_peer_starts_where_we_do_and_goes_as_we_do(tmp_path: Path) -> None:
    case, done = trained(tmp_path)
    history = done.facts["history"]
    assert [each["train_loss"] for each in history] == pytest.approx(own_losses(case), rel=1e-4)
    assert len(done.steps_ms) == 2 * -(-done.facts["train_rows"] // 50)
    assert sum(done.facts["phases_ms"].values()) == pytest.approx(np.mean(done.steps_ms), rel=0.01)
    assert 0 < done.facts["seconds_prepare"] < history[0]["seconds"] < done.facts["seconds_total"] < done.seconds


def test_it_leaves_what_a_run_leaves_and_reports_read_it(tmp_path: Path) -> None:
    case, done = trained(tmp_path)
    peer_run.write(tmp_path / "run", STAND_IN, case, SETTINGS, done)
    results = RunResults(tmp_path / "run")
    assert results.summary["final"]["test_accuracy"] == done.facts["history"][-1]["accuracy"]
    assert [event["key"] for event in results.events] == [
        *("run_start", "global_batch_size", "seed"),
        *("eval_accuracy", "epoch_stop") * 2,
        "run_stop",
    ]
    [comparison] = load([tmp_path / "run"]).comparisons
    [found] = comparison.records
    assert found["group"].startswith("stand-in")
    assert found["in_band"] is False
    assert [each["accuracy"] for each in found["history"]] == [each["accuracy"] for each in done.facts["history"]]
    assert found["metrics"]["seconds_total"] == done.facts["seconds_total"]


def test_its_record_in_a_comparison_counts_from_the_command_and_adds_up(tmp_path: Path) -> None:
    plan = fakes.plan_of(tmp_path, fakes.CONF + '\n[[variant]]\nname = "np"\npeer = "numpy"\n')
    cell = next(cell for cell in cells_of(plan) if cell.peer)
    _, done = trained(tmp_path)
    made = record.of_peer(plan, cell, done, tmp_path / "run")
    assert sum(made["layers_s"].values()) == pytest.approx(done.seconds, abs=0.01)
    assert made["metrics"]["seconds_waited"] == pytest.approx(done.seconds, abs=0.001)
    assert made["layers_s"]["start"] > 0
    assert made["resources"] is None or made["resources"]["processes"]


def test_a_peer_that_cannot_be_told_a_key_does_not_vary_over_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = replace(STAND_IN, fixed={"batch": "it has all rows in each step"})
    monkeypatch.setattr(peers, "find", lambda _: whole)
    plan = fakes.plan_of(tmp_path, fakes.CONF + '\n[[variant]]\nname = "np"\npeer = "numpy"\n')
    assert {cell.factors["batch"] for cell in cells_of(plan) if cell.peer} == {NOT_VARIED}


@pytest.mark.parametrize("name", ["elephas_fit", "dl4j_fit"])
def test_a_record_counts_the_steps_of_peers_that_tell_an_epoch_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Its program trains with stand-ins for Spark and the library: three epochs of 560 rows, 0.7 s each."""
    plan = fakes.plan_of(tmp_path, fakes.CONF + '\n[[variant]]\nname = "np"\npeer = "numpy"\n')
    cell = next(cell for cell in cells_of(plan) if cell.peer)
    case = peer_case.prepare(settings_of(tmp_path) | {"epochs": "3", "data.share": "1"}, {}, tmp_path / "data")
    program = importlib.import_module(f"{_fit.__package__}.{name}")
    clock, out, rows = [0.0], tmp_path / "out.jsonl", 560

    def fit(*_: Any, **__: Any) -> None:
        clock[0] += 0.7

    def predicted(*_: Any, **__: Any) -> Any:
        clock[0] += 0.1
        return np.eye(10)[np.zeros(100, int)]

    network, modules = MagicMock(fit=fit, predict=predicted), ("tensorflow", "elephas", "elephas.spark_model")
    network.master_network = network.getNetwork.return_value = network
    for each in (*modules, "elephas.utils", "elephas.utils.rdd_utils"):
        monkeypatch.setitem(sys.modules, each, MagicMock(SparkModel=lambda *_, **__: network, __version__="2"))
    made = MagicMock(network=lambda *_: network, read=predicted)
    told = {"pin_threads": MagicMock(), "images": lambda x, _: x, "model": MagicMock(), "_Dl4j": lambda *_: made}
    for each, stand_in in {**told, "compiled": lambda *_: network}.items():
        monkeypatch.setattr(program, each, stand_in, raising=False)
    session = contextmanager(lambda *_: iter([MagicMock(version="4", sparkContext=MagicMock(version="4"))]))
    monkeypatch.setattr(program, "session", session)
    monkeypatch.setattr(program, "read_arguments", lambda: ({**peers.case_to_dict(case), "workers": 2}, out))
    monkeypatch.setattr(_fit.time, "perf_counter", lambda: clock[0])
    for variable in ("SPARKDL_ELEPHAS", "SPARKDL_DL4J", "SPARKDL_DL4J_CLASSES", _process.SHARED_MEMORY):
        monkeypatch.setenv(variable, "synchronous")
    program.main()

    measured = _process._read(name, out)
    done = Trained(measured, 100.0, 100.0 + float(measured.facts["seconds_total"]), 0.0)  # type: ignore[arg-type]
    made_record = record.of_peer(plan, cell, done, tmp_path)
    steps = -(-rows // 50)
    assert made_record["steps_ms"] == pytest.approx([700 / steps] * 3 * steps, rel=1e-4)
    assert made_record["metrics"]["ms_per_step"] == pytest.approx(700 / steps)
    layers = made_record["layers_s"]
    assert (layers[record.UNCUT], layers["evaluation"]) == (pytest.approx(2.1), pytest.approx(0.3))
    assert abs(layers["other"]) < 0.001
    assert made_record["metrics"]["rows_per_second"] == pytest.approx(rows / 0.7)


@pytest.mark.parametrize("tuned", ["1", '"yes"'])
def test_tuned_is_of_a_peer_and_true_or_false(tmp_path: Path, tuned: str) -> None:
    conf = fakes.CONF + f'\n[[variant]]\nname = "np"\npeer = "numpy"\ntuned = {tuned}\n'
    with pytest.raises(ConfigurationError, match="true or false"):
        fakes.plan_of(tmp_path, conf)
    with pytest.raises(ConfigurationError, match="of a peer"):
        fakes.plan_of(tmp_path, fakes.CONF + '\n[[variant]]\nname = "ours"\ntuned = true\n')


class TestAbilities:
    CASE = FitCase("rows.npz", specification=json.dumps(perceptron(4, 3, 2)))
    ABLE = Abilities({"sgd": SGD, "adam": frozenset()}, PERCEPTRON, chain=True, divides=True, most_threads=1)

    @pytest.mark.parametrize(
        ("changed", "said"),
        [
            ({"optimizer": {"name": "lars"}}, "optimizer.name = lars; it has sgd, adam"),
            ({"optimizer": {"name": "adam", "weight_decay": "0.1"}}, "optimizer.weight_decay = 0, and the run has 0.1"),
            ({"schedule": {"name": "cosine"}}, "schedule.name = cosine"),
            ({"schedule": {"name": "constant", "warmup_steps": "5"}}, "5 steps of warm-up"),
            ({"workers": 2}, "one process, but the case has 2 workers"),
            ({"threads": 2}, "at most 1 thread"),
            ({"tuned": True}, "leave out 'tuned'"),
        ],
    )
    def test_a_training_of_another_way_is_refused_by_name(self, changed: dict[str, Any], said: str) -> None:
        peer = replace(STAND_IN, abilities=self.ABLE)
        peer.check(self.CASE)
        with pytest.raises(ConfigurationError, match=f"'stand-in'.*{said}"):
            peer.check(replace(self.CASE, **changed))

    def test_batches_that_do_not_divide_are_refused_where_a_peer_cannot(self) -> None:
        able = replace(self.ABLE, most_workers=None)
        with pytest.raises(ConfigurationError, match="128 is no multiple of 3 workers"):
            able.check("peer", replace(self.CASE, workers=3))
        replace(able, divides=False).check("peer", replace(self.CASE, workers=3))
        with pytest.raises(ConfigurationError, match="at least 2 workers"):
            replace(able, least_workers=2).check("peer", self.CASE)

    def test_layers_that_it_has_not_are_refused_by_name(self) -> None:
        model = perceptron(4, 3, 2)
        model["layers"][1]["kind"] = "tanh"
        with pytest.raises(ConfigurationError, match=r"chains of flatten, linear, relu.*'relu1'.*'tanh'"):
            self.ABLE.check("peer", replace(self.CASE, specification=json.dumps(model)))
        model["layers"][1] = {"name": "relu1", "kind": "relu", "inputs": ["input"]}
        with pytest.raises(ConfigurationError, match="reads input"):
            self.ABLE.check("peer", replace(self.CASE, specification=json.dumps(model)))


class TestNeeds:
    @staticmethod
    def java(folder: Path, version: str) -> Path:
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "java").touch(mode=0o755)
        (folder / "release").write_text(f'JAVA_VERSION="{version}"\n')
        return folder

    def test_the_java_that_will_do_is_found_or_all_are_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        old, new = self.java(tmp_path / "old", "1.8.0_401"), self.java(tmp_path / "new", "17.0.15")
        monkeypatch.setattr("sparkdl_bench.peers._java._PLACES", (f"{tmp_path}/*",))
        monkeypatch.setenv("JAVA_HOME", str(old))
        monkeypatch.setenv("PATH", str(tmp_path))
        assert (release_of(old), release_of(new)) == (8, 17)
        assert Java(17, 17).home() == new.resolve()
        assert Java(8, 17).home() == old.resolve()
        with pytest.raises(ConfigurationError, match=r"needs Java 21 to 25.*8 \(.*old\), 17 \(.*new\)"):
            Java(21, 25).home()
        home = EnvironmentPeer(
            "peer", "doc", frozenset(), Environment("none", (), java=Java(17, 17)), "program"
        ).variables(_launch(tmp_path, Environment("none", (), java=Java(17, 17))))
        assert home["JAVA_HOME"] == str(new.resolve())
        assert home["PATH"].startswith(f"{new.resolve()}/bin:")

    def test_a_peer_that_no_python_here_can_run_is_left_out_and_the_comparison_goes_on(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        never = replace(STAND_IN.environment, oldest_python=(3, 98), newest_python=(3, 99))
        monkeypatch.setattr(peers, "find", lambda _: EnvironmentPeer(**{**STAND_IN.__dict__, "environment": never}))
        plan = fakes.plan_of(tmp_path, fakes.CONF + '\n[[variant]]\nname = "np"\npeer = "numpy"\n')
        found = check.unable(cells_of(plan))
        assert set(found) == {"np, batch 32", "np, batch 64"}
        assert "cannot run on this host. This peer's pinned packages need Python 3.98 to 3.99" in found["np, batch 32"]
        assert check.missing(cells_of(plan), tmp_path) == found


def _launch(folder: Path, environment: Environment) -> Any:
    return Launch(FitCase("rows.npz"), environment, folder)


BUSY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) if len(sys.argv) < 2 else None
end = time.monotonic() + 1.5
while time.monotonic() < end: pass
if child: child.kill(); child.wait()
"""


class TestSampler:
    def test_what_its_processes_use_is_kept_beside_its_measurements(self, tmp_path: Path) -> None:
        run_to_end("busy", [sys.executable, "-c", BUSY], 60, sampled=tmp_path)
        content = json.loads((tmp_path / "resources.json").read_text())
        assert len(content["processes"]) >= 2  # the child's child, too
        assert max(core for each in content["processes"] for core in each["cpu_cores"]) > 0.05
        assert all(len(each["seconds"]) == len(each["resident_bytes"]) for each in content["processes"])
        assert all("lo" in each["network"] for each in content["processes"])
        results = RunResults(tmp_path).sampler_share
        assert results is not None
        assert results >= 0

    def test_a_long_run_keeps_every_second_sample(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sparkdl_bench.peers._sampler._MOST_SAMPLES", 8)
        own = _sampler._Process(_sampler.psutil.Process())
        for second in range(40):
            own.sample(float(second), {"lo": (second, 2 * second)})
        content = own.content()
        assert 4 <= len(content["seconds"]) <= 9
        assert content["network"]["lo"]["sent_bytes"][-1] * 2 == content["network"]["lo"]["received_bytes"][-1]
        assert content["seconds"] == sorted(content["seconds"])

    def test_one_that_has_ended_is_looked_at_no_more(self) -> None:
        child = subprocess.Popen([sys.executable, "-c", "pass"])
        process = _sampler._Process(_sampler.psutil.Process(child.pid))
        child.wait()
        process.sample(0.0, {})
        assert not process.seconds

    @pytest.mark.parametrize(("cores", "warns"), [(1.0, False), (1.2, False), (1.9, True)])
    def test_a_peer_that_takes_more_cores_than_it_was_given_is_told_of(
        self, tmp_path: Path, cores: float, warns: bool
    ) -> None:
        begun = time.time()
        # Idle before the clock, all cores in the middle.
        lists = {"seconds": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "cpu_cores": [2.0, 2.0, *[cores] * 5]}
        other = {name: [1] * 7 for name in ("resident_bytes", "heap_bytes", "direct_bytes", "gc_ms")}
        process = {"process": "p", "host": "h", **lists, **other, "network": {}}
        (tmp_path / "resources.json").write_text(json.dumps({"processes": [process]}))
        facts = {"clock_started_ms": (begun + 1.5) * 1e3, "seconds_prepare": 0.1, "seconds_total": 5.0}
        used = peer_run.cores_in_use(tmp_path, facts, begun)
        assert used == pytest.approx(cores)
        said = peer_run.too_many_cores(FitCase("rows.npz"), used)
        assert (said is not None) == warns
        assert said is None or "It used 1.90 cores" in said
        assert peer_run.cores_in_use(tmp_path, {**facts, "seconds_total": 0.2}, begun) is None


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        ({"name": "constant"}, [1, 1, 1]),
        ({"name": "constant", "warmup_steps": "4"}, [0.25, 0.75, 1]),
        ({"name": "step", "gamma": "0.5", "every": "2"}, [1, 0.5, 0.5**50]),
        ({"name": "multistep", "gamma": "0.5", "milestones": "2,50"}, [1, 0.5, 0.25]),
        ({"name": "inv", "gamma": "0.1", "power": "2"}, [1, 1.2**-2, 11.0**-2]),
        ({"name": "cosine", "steps": "4"}, [1, 0.5, 0]),
    ],
)
def test_learning_rates_are_ours(schedule: dict[str, str], factors: list[float]) -> None:
    case = {"schedule": schedule, "optimizer": {"learning_rate": "0.5"}}
    assert [_fit.learning_rate(case, step) for step in (0, 2, 100)] == pytest.approx([0.5 * each for each in factors])


@pytest.mark.parametrize("mode", ["mean", "standard", "minmax", "channel"])
def test_rows_are_changed_as_a_run_s(mode: str) -> None:
    x = (np.random.default_rng(0).random((100, 8)) * 3 + 1000).astype(np.float32)
    x[:, 2] = 7
    subtract, factor = peer_data.normalization(mode, x, (2, 2, 2))
    changed = (x.astype(np.float64) - subtract) * factor
    if mode == "minmax":
        assert changed[:, 0].min() == 0
        assert changed[:, 0].max() == pytest.approx(1)
        assert factor[2] == 1
    elif mode == "channel":
        assert changed.reshape(100, 2, 4)[:, 1].std() == pytest.approx(1, abs=1e-3)
    else:
        assert changed.mean(axis=0) == pytest.approx(np.zeros(8), abs=1e-3)
        assert changed[:, 0].std() == pytest.approx(1 if mode == "standard" else x[:, 0].std(), abs=1e-3)


def test_the_command_trains_a_run_file_and_removes_an_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "find", lambda _: STAND_IN)
    conf = tmp_path / "run.toml"
    fields = [f'"{key}" = "{value}"' for key, value in settings_of(tmp_path).items()]
    conf.write_text("\n".join(fields))
    arguments = ["run", "stand-in", str(conf), "--results", str(tmp_path / "out"), "--set", "epochs=1"]
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 0, done.output
    [folder] = (tmp_path / "out").iterdir()
    assert len(RunResults(folder).history) == 1
    assert "seconds from the command to the end" in done.output
    monkeypatch.setattr(peers, "find", lambda _: replace(STAND_IN, fit_program="no_such_program"))
    failed = CliRunner().invoke(command, arguments)
    assert "no_such_program" in str(failed.exception)
    [other] = set((tmp_path / "out").iterdir()) - {folder}
    assert RunResults(other).summary["status"] == "failed"
    monkeypatch.setattr(peers, "find", lambda _: STAND_IN)
    refused = CliRunner().invoke(command, ["run", "stand-in", "--tuned"])
    assert isinstance(refused.exception, ConfigurationError)
    environment = Environment("tiny", requirements=())
    environment.install(tmp_path)
    assert environment.remove(tmp_path)
    assert not environment.folder(tmp_path).exists()
    assert not environment.remove(tmp_path)
    assert "nothing was there" in CliRunner().invoke(command, ["remove", "stand-in", "--dir", str(tmp_path)]).output


def test_steps_of_several_are_as_many(tmp_path: Path) -> None:
    done = Trained(Measurement((Sample(2.0, 3), Sample(1.0)), {}), 10.0, 12.5, 0.5)
    assert done.steps_ms == [2.0, 2.0, 2.0, 1.0]
    assert done.seconds == 2.5
