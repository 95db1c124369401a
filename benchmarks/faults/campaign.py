"""A campaign: which faults are drawn, doing one, and the table of what became of them."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from faults import law, left
from faults.kind import Kind, Scene
from faults.law import Ended, Verdict
from faults.records import Record, Records
from faults.training import EndedEarlyError, moved_to
from faults.ways import Way
from sparkdl_bench.console import default_console
from sparkdl_bench.errors import ConfigurationError, RunFailedError

# Short: the path of a socket lies below it.
_PREFIX = "sdf-"
_GRACE_S = 5.0  # beyond what `Training.end` has waited


@dataclass(frozen=True)
class Drawn:
    """One fault of a campaign, by its number."""

    number: int
    kind: str
    way: str


def draw(seed: int, count: int, ways: Mapping[str, Sequence[str]]) -> list[Drawn]:
    """The campaign's faults: every kind once a round, in an order of chance, and each through its ways by turns.

    Args:
        ways: that a kind suits, by the kind's name.
    """
    if not ways:
        raise ConfigurationError("No kind of fault is left to draw from; `--list` says which there are, and why not.")
    turns = {
        kind: random.Random(f"{seed}/{kind}").sample(sorted(suited), len(suited))  # noqa: S311 (no secrets)
        for kind, suited in ways.items()
    }
    drawn: list[Drawn] = []
    for turn in range(-(-count // len(ways))):
        order = random.Random(f"{seed}/round/{turn}").sample(sorted(ways), len(ways))  # noqa: S311 (no secrets)
        for kind in order:
            drawn.append(Drawn(len(drawn), kind, turns[kind][turn % len(turns[kind])]))
    return drawn[:count]


def suited(kinds: Mapping[str, Kind], ways: Mapping[str, Way]) -> dict[str, list[str]]:
    """By kind the ways that it suits; kinds without one are left out."""
    found = {name: [way.name for way in ways.values() if kind.suits(way)] for name, kind in kinds.items()}
    return {name: names for name, names in found.items() if names}


class Campaign:
    """Does faults, and records them.

    Args:
        keep: folder that the files of violations are copied to; None: they are removed as all are.
        limit_s: after which a training counts as hung.
    """

    def __init__(
        self,
        kinds: Mapping[str, Kind],
        ways: Mapping[str, Way],
        records: Records,
        seed: int,
        keep: Path | None,
        limit_s: float,
        say: Callable[[str], None],
    ) -> None:
        self._kinds, self._ways, self._records = kinds, ways, records
        self._seed, self._keep, self._limit_s, self._say = seed, keep, limit_s, say

    def run(self, faults: Sequence[Drawn], until: float) -> None:
        """Those that are not recorded yet, as long as `time.monotonic()` is below `until`."""
        done = self._records.numbers
        for fault in faults:
            if fault.number in done:
                continue
            if time.monotonic() >= until:
                return
            record = self._one(fault)
            self._records.add(record)
            self._say(
                f"fault {fault.number + 1}: {record.kind} on {record.way}, {record.moment}: {record.outcome}, "
                f"{record.seconds:.0f} s. {record.reason or record.error}".strip()
            )

    def _one(self, fault: Drawn) -> Record:
        kind, way = self._kinds[fault.kind], self._ways[fault.way]
        expected = self._undisturbed(way)
        began = time.monotonic()
        chance = random.Random(f"{self._seed}/{fault.number}")  # noqa: S311 (no secrets)
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        try:
            scene = Scene(folder, way, chance, self._limit_s)
            moment, verdict, behind = disturb(kind, scene, expected)
            if not verdict.held and self._keep:
                kept = self._keep / f"{fault.number}-{fault.kind}-{fault.way}"
                shutil.copytree(folder, kept, ignore=_natives, symlinks=True, dirs_exist_ok=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        seconds = round(time.monotonic() - began, 1)
        words = (moment, verdict.outcome, verdict.reason, verdict.error)
        return Record(fault.number, fault.kind, fault.way, self._seed, *words, seconds, behind)

    def _undisturbed(self, way: Way) -> str:
        """The weights of a run that nothing happens to; made once a way and campaign."""
        if way.name in self._records.undisturbed:
            return self._records.undisturbed[way.name]
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        try:
            training = Scene(folder, way, random.Random(0), self._limit_s).start()  # noqa: S311 (no secrets)
            try:
                ended = training.end()
            finally:
                training.stop()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if ended.status != 0 or not ended.weights:
            raise RunFailedError(
                f"The training {way.name} failed though nothing disturbed it, so nothing can be held against it. It "
                f"said: {ended.said[-1500:].strip()}"
            )
        self._records.add_undisturbed(way.name, ended.weights, ended.seconds)
        self._say(f"undisturbed {way.name}: {ended.seconds:.0f} s, {ended.weights[:12]}")
        return ended.weights


def disturb(kind: Kind, scene: Scene, weights: str) -> tuple[str, Verdict, list[str]]:
    """One fault from the first training's start to the last one's end: when it came, the verdict, what was left.

    Args:
        weights: of the undisturbed run.
    """
    try:
        with kind.around(scene):
            training = scene.start()
            came = True
            try:
                moment = kind.inflict(scene)
            except EndedEarlyError:
                moment, came = "after its end", False
            first = training.end()
            behind = left.processes(training.processes, _GRACE_S)
            kind.heal(scene)
            again = _again(scene, first)
            behind += _behind(scene, first if again is None else again)
            return moment, law.judge(first, again, kind.expectation(weights), behind, came), behind
    finally:
        for each in scene.trainings:
            each.stop()


def _again(scene: Scene, first: Ended) -> Ended | None:
    """Of a run that failed: how another one ends that goes on from its checkpoints."""
    if first.status in (0, None):
        return None
    resumed = scene.resume()
    return resumed.end() if resumed else None


def _behind(scene: Scene, last: Ended) -> list[str]:
    """What lies there when the last training has ended, which may remove what a killed one had left."""
    resumed = scene.trainings[1:]
    found = [each for training in resumed for each in left.processes(training.processes)]
    if last.status is None or last.status < 0:
        return found  # it was killed, and could tidy nothing away
    found += left.shared_memory(pid for training in scene.trainings for pid in training.pids)
    found += left.temporary(scene.temporary, moved_to(last.said))
    if last.status == 0:
        found += left.lock(scene.checkpoints)
        found += left.partial(scene.trainings[-1].results)
    return found


def _natives(folder: str, names: list[str]) -> list[str]:
    """What is not worth to keep: jars, and files that cannot be copied."""
    return [name for name in names if name.endswith((".jar", ".so")) or Path(folder, name).is_socket()]


def show(faults: Sequence[Record]) -> None:
    """A row a kind, and the violations one by one."""
    table = Table(title="Faults: same bits, or a named error")
    outcomes = (law.SAME, law.RESUMED, law.NAMED, law.VIOLATION)
    for heading in ("kind", "faults", *outcomes, "longest"):
        table.add_column(heading, justify="left" if heading == "kind" else "right")
    for kind in sorted({each.kind for each in faults}):
        own = [each for each in faults if each.kind == kind]
        counted = Counter(each.outcome for each in own)
        longest = f"{max(each.seconds for each in own):.0f} s"
        table.add_row(kind, str(len(own)), *(str(counted[each] or "") for each in outcomes), longest)
    total = Counter(each.outcome for each in faults)
    table.add_row("all", str(len(faults)), *(str(total[each] or "") for each in outcomes), "", style="bold")
    default_console().print(table)


def missed(faults: Sequence[Record]) -> str:
    """A sentence where the law was broken; empty where it held."""
    broken = [each for each in faults if each.outcome == law.VIOLATION]
    if not broken:
        return ""
    first = broken[0]
    return (
        f"{len(broken)} of {len(faults)} faults broke the law: same bits as the undisturbed run, or a named error. The "
        f"first is number {first.number + 1}, {first.kind} on {first.way}: {first.reason}."
    )
