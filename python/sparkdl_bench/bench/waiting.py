"""How long a user waits until a net has learnt: from the command, or from `fit` in a session that is there already.

A sample is the time from that moment to the end of the first evaluation that reached the target accuracy, evaluations
included. A peer's clock starts at its command, too; its rows are in a file of their own by then, as ours are.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkdl_bench import peers
from sparkdl_bench.bench.contestant import only_run
from sparkdl_bench.bench.store import Trial
from sparkdl_bench.comparison import peer_case, peer_run
from sparkdl_bench.comparison.application import Application
from sparkdl_bench.comparison.execute import run_toml
from sparkdl_bench.errors import RunFailedError
from sparkdl_bench.peers._process import run_to_end
from sparkdl_bench.results import RunResults


@dataclass(frozen=True)
class Command:
    """`sparkdl-bench run` of a run file, from its start.

    Attributes:
        settings, spark: of the run file, as texts; `results` is added.
        target: accuracy on the test rows that ends the wait.
    """

    name: str
    settings: Mapping[str, str]
    spark: Mapping[str, str]
    target: float

    def prepare(self) -> None:
        return

    def measure(self, timeout_s: float) -> Trial:
        with tempfile.TemporaryDirectory(prefix="sparkdl-bench-waiting-") as folder:
            conf = Path(folder, "run.toml")
            results = Path(folder, "results")
            conf.write_text(run_toml({**self.settings, "results": str(results)}, self.spark), encoding="utf-8")
            began = time.time()
            run_to_end(self.name, [sys.executable, "-m", "sparkdl_bench", "run", str(conf)], timeout_s)
            return _of_run(self.name, only_run(results), began, self.target)


@dataclass(frozen=True)
class Fit:
    """A training in a session that has started, after `before` others like it.

    Attributes:
        session: Spark's properties of the session, `spark.master` among them.
    """

    name: str
    settings: Mapping[str, str]
    session: Mapping[str, str]
    target: float
    before: int

    def prepare(self) -> None:
        return

    def measure(self, timeout_s: float) -> Trial:
        application = Application(self.name, self.session, self.name)
        try:
            with tempfile.TemporaryDirectory(prefix="sparkdl-bench-waiting-") as folder:
                for number in range(self.before):
                    application.train({**self.settings, "results": f"{folder}/before-{number}"}, timeout_s)
                results = Path(folder, "results")
                began = time.time()
                application.train({**self.settings, "results": str(results)}, timeout_s)
                return _of_run(self.name, only_run(results), began, self.target)
        finally:
            application.close()


@dataclass(frozen=True)
class PeerCommand:
    """A peer's program, from its start."""

    name: str
    peer: str
    settings: Mapping[str, str]
    spark: Mapping[str, str]
    target: float
    directory: Path = field(default_factory=peers.default_directory)

    def prepare(self) -> None:
        peers.find(self.peer).install(self.directory)

    def measure(self, timeout_s: float) -> Trial:
        with tempfile.TemporaryDirectory(prefix="sparkdl-bench-waiting-") as name:
            place = Path(name, "run")
            place.mkdir()
            case = peer_case.prepare(self.settings, self.spark, Path(name, "data"))
            done = peer_run.train(peers.find(self.peer), case, place, timeout_s, self.directory)
        clock_s = float(done.facts["clock_started_ms"]) / 1e3
        ends = ((clock_s + float(each["seconds"]), each["accuracy"]) for each in done.facts["history"])
        at = reached(self.name, ends, self.target)
        steps_ms = done.steps_ms
        return Trial(
            [(at - done.begun_s) * 1e3],
            1,
            {
                "seconds_before_clock": round(clock_s - done.begun_s, 3),
                "seconds_prepare": done.facts["seconds_prepare"],
                "seconds_of_steps": round(sum(steps_ms) / 1e3, 3),
                "steps": len(steps_ms),
            },
        )


def reached(who: str, evaluations: Iterable[tuple[float, float | None]], target: float) -> float:
    """When (seconds since 1970) the first evaluation ended that had the target.

    Args:
        evaluations: when each ended, and its accuracy.

    Raises:
        RunFailedError: none had it.
    """
    best = 0.0
    for at, accuracy in evaluations:
        best = max(best, accuracy or 0.0)
        if best >= target:
            return at
    raise RunFailedError(
        f"'{who}' reached an accuracy of {best:.1%} at most, and {target:.0%} is what is waited for. Allow more "
        "epochs, or set another target."
    )


def _of_run(who: str, folder: Path, began_s: float, target: float) -> Trial:
    results = RunResults(folder)
    events = [each for each in results.events if each["key"] == "eval_accuracy"]
    at = reached(who, ((each["time_ms"] / 1e3, each["value"]) for each in events), target)
    started: dict[str, Any] = next(each for each in results.events if each["key"] == "run_start")["metadata"]
    summary = results.summary
    return Trial(
        [(at - began_s) * 1e3],
        1,
        {
            "seconds_before_clock": round(float(started["clock_started_ms"]) / 1e3 - began_s, 3),
            "seconds_prepare": summary["final"]["seconds_prepare"],
            "ms_per_step_median": summary["final"]["ms_per_step_median"],
            "variant": summary["variant"],
            "versions": results.run["versions"],
        },
    )
