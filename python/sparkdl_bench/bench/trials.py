"""Runs contestants in turn (A B A B …), so that what slows the machine slows all of them, and compares them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone

from sparkdl_bench import machine, statistics
from sparkdl_bench.bench.contestant import Contestant
from sparkdl_bench.bench.store import ResultFile, Trial

# A row whose samples drifted by more than this share, up or down, was not measured in a steady state.
DRIFT_LIMIT = 0.1
# Fewer trials than these are fewer than the rules ask for (docs/performance.md).
TRIALS = 5


@dataclass(frozen=True)
class Comparison:
    """Ours beside a peer on the same work; met where median(ours) / median(theirs) ≤ `target`, if there is one."""

    title: str
    ours: str
    theirs: str
    target: float | None


@dataclass(frozen=True)
class Outcome:
    """A comparison's numbers. Milliseconds per step; p90 over all blocks of all trials.

    Attributes:
        low, high: 95 % interval of the ratio over the trials, by `statistics.ratio_interval`: a bootstrap with five
            trials and more, Welch's on logarithms with fewer; None where a side has one trial alone.
        trials: of the side that has fewer.
        ours_drift, theirs_drift: median over the trials of each trial's drift.
    """

    title: str
    ours: str
    ours_ms: float
    ours_p90_ms: float
    theirs: str
    theirs_ms: float
    theirs_p90_ms: float
    ratio: float
    low: float | None
    high: float | None
    target: float | None
    trials: int
    ours_drift: float
    theirs_drift: float

    @property
    def met(self) -> bool | None:
        """None where there is no target."""
        return None if self.target is None else self.ratio <= self.target

    @property
    def steady(self) -> bool:
        return is_steady(self.ours_drift) and is_steady(self.theirs_drift)


def is_steady(drift: float) -> bool:
    """Whether the last third of the samples took as long as the first, give or take DRIFT_LIMIT."""
    return round(abs(drift - 1), 9) <= DRIFT_LIMIT


def run_trials(
    groups: Sequence[Sequence[Contestant]],
    trials: int,
    file: ResultFile,
    timeout_s: float,
    tell: Callable[[str], None],
) -> None:
    """Fill `file` with `trials` trials of every contestant; cells that it has already are kept.

    Args:
        groups: contestants that are compared with one another; they take turns within their group.
    """
    cells = [(each, number) for group in groups for number in range(1, trials + 1) for each in group]
    todo = [(each, number) for each, number in cells if file.trial(each.name, number) is None]
    if len(todo) < len(cells):
        tell(f"{len(cells) - len(todo)} of {len(cells)} trials are there already.")
    for each in {contestant.name: contestant for contestant, _ in todo}.values():
        tell(f"preparing {each.name} …")
        each.prepare()
    for index, (each, number) in enumerate(todo, start=1):
        trial = _timed(each, timeout_s)
        file.add(each.name, number, trial)
        tell(f"[{index}/{len(todo)}] {_line(each.name, number, trial)}")


def compare(comparison: Comparison, file: ResultFile) -> Outcome:
    """The numbers of a comparison whose trials are all there."""
    ours, theirs = file.trials(comparison.ours), file.trials(comparison.theirs)
    size = max(trial.steps for trial in [*ours, *theirs])
    ours_blocks, theirs_blocks = ([_blocks(trial, size) for trial in side] for side in (ours, theirs))
    ours_medians, theirs_medians = (
        [statistics.median(values) for values in side] for side in (ours_blocks, theirs_blocks)
    )
    ours_ms, theirs_ms = statistics.median(ours_medians), statistics.median(theirs_medians)
    trials = min(len(ours), len(theirs))
    interval = statistics.ratio_interval(ours_medians, theirs_medians)
    return Outcome(
        title=comparison.title,
        ours=comparison.ours,
        ours_ms=ours_ms,
        ours_p90_ms=statistics.percentile([value for values in ours_blocks for value in values], 90),
        theirs=comparison.theirs,
        theirs_ms=theirs_ms,
        theirs_p90_ms=statistics.percentile([value for values in theirs_blocks for value in values], 90),
        ratio=ours_ms / theirs_ms,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        target=comparison.target,
        trials=trials,
        ours_drift=_drift(ours),
        theirs_drift=_drift(theirs),
    )


def busy_trials(file: ResultFile, contestants: Sequence[str]) -> list[str]:
    """Trials before which the machine was not idle: their numbers are too high, and nobody knows by how much."""
    return [
        f"{name} {number}"
        for name in contestants
        for number, trial in enumerate(file.trials(name), start=1)
        if trial.load.get("busy", 0.0) > machine.BUSY_LIMIT
    ]


def _drift(trials: Sequence[Trial]) -> float:
    return statistics.median([statistics.drift(trial.samples_ms) for trial in trials])


def _blocks(trial: Trial, size: int) -> list[float]:
    return statistics.blocks(trial.samples_ms, max(1, size // trial.steps))


def _timed(contestant: Contestant, timeout_s: float) -> Trial:
    load = machine.load()
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    start = time.monotonic()
    trial = contestant.measure(timeout_s)
    return replace(trial, seconds=round(time.monotonic() - start, 1), load=asdict(load), started=started)


def _line(name: str, number: int, trial: Trial) -> str:
    parts = [
        f"{name}, trial {number}: median {statistics.median(trial.samples_ms):.3f} ms per step",
        f"p90 {statistics.percentile(trial.samples_ms, 90):.3f}",
        f"drift {statistics.drift(trial.samples_ms):.2f}",
        f"{trial.seconds:.0f} s",
    ]
    if trial.load.get("busy", 0.0) > machine.BUSY_LIMIT:
        parts.append(f"the machine was {trial.load['busy']:.0%} busy before")
    return ", ".join(parts)
