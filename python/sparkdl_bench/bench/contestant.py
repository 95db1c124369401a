"""Those that are measured: ours through its command line, our engine alone in a JVM, and the peers."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

from sparkdl_bench import machine, peers
from sparkdl_bench.bench.store import Trial
from sparkdl_bench.errors import ConfigurationError, RunFailedError
from sparkdl_bench.jarfiles import find_jars
from sparkdl_bench.peers import Case, Measurement, TrainCase
from sparkdl_bench.peers._process import measure, run_to_end
from sparkdl_bench.peers.programs.measure import _harness
from sparkdl_bench.results import RunResults

ENGINE_MAIN = "sparkdlbench.bench.EngineBench"
_MEMORY_KEY = "spark.executor.memory"
_MEBIBYTES = {"m": 1, "g": 1024}


class Contestant(Protocol):
    """One way to do the same work; `measure` is one trial, in processes that end with it."""

    @property
    def name(self) -> str: ...

    def prepare(self) -> None:
        """Make ready what can be made ready before the measurement; raise what the user must fix."""
        ...

    def measure(self, timeout_s: float) -> Trial: ...


@dataclass(frozen=True)
class PeerContestant:
    """A peer, in its own environment, which `prepare` makes."""

    name: str
    peer: str
    case: Case
    directory: Path = field(default_factory=peers.default_directory)

    def prepare(self) -> None:
        peers.find(self.peer).install(self.directory)

    def measure(self, timeout_s: float) -> Trial:
        return _trial(self.name, self.case, peers.find(self.peer).run(self.case, timeout_s, self.directory))


@dataclass(frozen=True)
class OursContestant:
    """`sparkdl-bench run` on a local-cluster of `case.workers` executors with one core each.

    Attributes:
        settings: keys of the run on top of the case, such as `transport`.
        checkout: whose package and jars train; None: those of the package that measures.
    """

    name: str
    case: TrainCase
    settings: Mapping[str, str]
    checkout: Path | None = None

    def prepare(self) -> None:
        if self.checkout is None:
            _check_jars()

    def measure(self, timeout_s: float) -> Trial:
        with tempfile.TemporaryDirectory(prefix="sparkdl-bench-ours-") as folder:
            conf = Path(folder, "run.toml")
            conf.write_text(run_file(self.case, folder, self.settings), encoding="utf-8")
            run_to_end(
                self.name, [sys.executable, "-m", "sparkdl_bench", "run", str(conf)], timeout_s, self._environment()
            )
            return read_run(only_run(Path(folder, "results")), self.case.warmup_steps)

    def _environment(self) -> dict[str, str]:
        """Python looks for packages in PYTHONPATH first; the package finds its checkout's jars by itself."""
        return {} if self.checkout is None else {"PYTHONPATH": str(self.checkout / "python")}


@dataclass(frozen=True)
class EngineContestant:
    """Our engine alone, in one JVM without Spark: forward, backward and SGD update, on the rows that the peers have."""

    name: str
    case: TrainCase

    def prepare(self) -> None:
        _check_jars()

    def measure(self, timeout_s: float) -> Trial:
        with tempfile.TemporaryDirectory(prefix="sparkdl-bench-rows-") as folder:
            write_rows(self.case, Path(folder))
            command = [machine.java(), "-Xmx1g", "-cp", jvm_class_path(), ENGINE_MAIN, folder]
            return _trial(self.name, self.case, measure(self.name, command, self.case, timeout_s))


def write_rows(case: TrainCase, folder: Path) -> None:
    """The very rows that the peers' programs train on, as EngineBench reads them."""
    features, labels = _harness.training_rows(asdict(case))
    features.astype("<f4").tofile(folder / "features.f32")
    labels.astype("<i8").tofile(folder / "labels.i64")


def run_file(case: TrainCase, folder: str, settings: Mapping[str, str] | None = None) -> str:
    """The TOML file of a run that makes the case's steps, and evaluates only at its end.

    Its workers have as much memory as an executor is to have, since Spark starts no executor on less.
    """
    memory = (settings or {}).get(_MEMORY_KEY, "2g")
    master = f"local-cluster[{case.workers},1,{mebibytes(memory)}]"
    steps = case.warmup_steps + case.steps
    data: dict[str, object] = {"source": "idx", "path": case.data_path} if case.data_path else _synthetic(case)
    tables: dict[str, dict[str, object]] = {
        "": {
            "name": "bench",
            "results": f"{folder}/results",
            "workers": case.workers,
            "batch": case.batch,
            "epochs": -(-steps * case.batch // case.rows) + 1,
            "max_steps": steps,
            "evaluate_every": 0,
            "seed": 1,
        },
        "model": {"name": "mlp", "hidden": list(case.hidden)} if case.model == "mlp" else {"name": case.model},
        "data": data,
        "engine": {"name": "libtorch", "threads": case.threads},
        "optimizer": {"name": "sgd", "learning_rate": case.learning_rate},
        "spark": {"master": master, _MEMORY_KEY: memory},
    }
    for key, value in (settings or {}).items():
        table, _, name = ("spark", "", key) if key.startswith("spark.") else key.rpartition(".")
        tables.setdefault(table, {})[name] = value
    return "\n".join(toml(table, values) for table, values in tables.items())


def mebibytes(memory: str) -> int:
    """A size of memory as Spark writes it, such as `3g`, in the MiB that a local-cluster's master counts in."""
    found = re.fullmatch(r"(\d+)([mg])", memory.strip().lower())
    if not found:
        raise ConfigurationError(
            f"{_MEMORY_KEY} is '{memory}'; a benchmark takes a whole number of mebibytes or gibibytes. Write it as "
            "1536m or 3g."
        )
    return int(found.group(1)) * _MEBIBYTES[found.group(2)]


def read_run(folder: Path, warmup_steps: int) -> Trial:
    """The samples after the warm-up, and the facts, of a run that succeeded."""
    results = RunResults(folder)
    summary, run = results.summary, results.run
    steps_ms = [float(step) for step in json.loads((folder / "steps.json").read_text(encoding="utf-8"))]
    facts = {
        "variant": summary["variant"],
        "versions": run["versions"],
        "engine": run.get("engine", {}),
        "phases_ms": summary["phases_ms"],
        "ms_per_step_median_with_warmup": summary["final"]["ms_per_step_median"],
        "last_loss": summary["final"]["train_loss"],
        "bytes": summary["bytes"],
    }
    share = results.sampler_share
    if share is not None:
        facts["sampler_share"] = share
    return Trial(steps_ms[warmup_steps:], 1, facts)


def only_run(results: Path) -> Path:
    found = [path for path in results.iterdir() if path.is_dir()]
    if len(found) != 1:
        raise ConfigurationError(f"One run was expected under '{results}', and there are {len(found)}.")
    return found[0]


def jvm_class_path() -> str:
    """Our classes, their native code, and Spark's own jars (Scala, JSON)."""
    import pyspark

    jars = find_jars(pyspark.__version__)
    return ":".join([*(str(jar) for jar in jars.all), str(Path(pyspark.__file__).parent / "jars" / "*")])


def _check_jars() -> None:
    import pyspark

    find_jars(pyspark.__version__)


def _synthetic(case: TrainCase) -> dict[str, object]:
    shape = list(case.shape or (case.features,))
    return {"source": "synthetic", "rows": case.rows, "shape": shape, "classes": case.classes}


def toml(table: str, values: Mapping[str, object]) -> str:
    """One table of a TOML file; of the top one the name is empty."""
    # JSON's scalars and lists are TOML's.
    lines = [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in values.items()]
    return "\n".join([f"[{table}]", *lines] if table else lines) + "\n"


def _trial(name: str, case: Case, measurement: Measurement) -> Trial:
    """The samples of a measurement, which must be the case's: as many steps, and threads where it tells them."""
    samples = measurement.samples
    steps, block = sum(sample.steps for sample in samples), samples[0].steps
    # Of means over blocks of steps the rest that makes no whole one is left out.
    rest = 0 if block == 1 else block
    if isinstance(case, TrainCase) and not case.steps - rest <= steps <= case.steps:
        raise RunFailedError(
            f"'{name}' measured {steps} steps where {case.steps} were asked for: it cannot be compared."
        )
    threads = measurement.facts.get("threads")
    if isinstance(case, TrainCase) and threads is not None and int(str(threads)) != case.threads:
        raise RunFailedError(
            f"'{name}' computed with {threads} threads where {case.threads} were asked for: it cannot be compared."
        )
    return Trial([sample.ms for sample in samples], samples[0].steps, dict(measurement.facts))
