"""The cells of a comparison (variant × point of the matrix × trial), and the order in which they run."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sparkdl_bench import catalogue, peers, preflight
from sparkdl_bench.comparison.plan import VARIANT, Plan, Variant
from sparkdl_bench.config import RunFile
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.nearest import suggestion

# What peers can be told, or keys that begin so; other keys of a matrix do not vary them.
PEER_KEYS = ("workers", "batch", "batch_per_worker", "epochs", "seed", "engine.threads")
PEER_GROUPS = ("model.", "optimizer.", "schedule.", "data.")
# Stands where a factor does not apply.
NOT_VARIED = "–"
_PLACE = re.compile(r"\{([a-z][a-z0-9_.]*)\}")


@dataclass(frozen=True)
class Cell:
    """One run of a comparison.

    Attributes:
        factors: what tells its group from others, in the plan's order.
        trial: 1, 2, … for measured runs; 0, -1, … for those that warm up.
        run: its complete run file.
        peer: who trains in place of Spark; empty for ours.
        tuned: whether a peer takes what its own guide recommends beyond its defaults.
    """

    factors: Mapping[str, str]
    trial: int
    run: RunFile = field(compare=False)
    peer: str = ""
    tuned: bool = field(default=False, compare=False)

    @property
    def is_warmup(self) -> bool:
        return self.trial < 1

    @property
    def group(self) -> str:
        return group_name(self.factors)

    @property
    def id(self) -> str:
        """Its file's name: readable, and different for different cells."""
        text = json.dumps([sorted(self.factors.items()), self.trial])
        slug = re.sub(r"[^a-z0-9]+", "-", self.group.lower()).strip("-")[:60]
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        trial = f"w{1 - self.trial}" if self.is_warmup else f"t{self.trial}"
        return f"{slug}-{trial}-{digest}"

    @property
    def application(self) -> str:
        """Cells with one value of this may share a Spark application."""
        return self.peer or json.dumps(sorted(self.run.session.items()))

    @property
    def workers(self) -> int:
        return int(self.run.settings.get("workers", "2"))


def global_batch(settings: Mapping[str, str]) -> int:
    """Rows of a step at all workers together."""
    workers = int(settings.get("workers", "2"))
    return workers * int(settings.get("batch_per_worker", "0")) or int(settings.get("batch", "128"))


def group_name(factors: Mapping[str, str]) -> str:
    """`block-stream, workers 2`."""
    named = [factors[VARIANT]] if VARIANT in factors else []
    others = [
        f"{key.removeprefix('spark.')} {value}"
        for key, value in factors.items()
        if key != VARIANT and value != NOT_VARIED
    ]
    return ", ".join([*named, *others]) or "all"


def cells_of(plan: Plan) -> list[Cell]:
    """Every cell of a plan, in no order to run them in."""
    found: list[Cell] = []
    for variant in plan.variants:
        for point in _points(plan, variant):
            named = {VARIANT: variant.name} if VARIANT in plan.factors else {}
            factors = {**named, **point}
            if any(_applies(entry, factors) for entry in plan.skip):
                continue
            run = _run(plan, variant, point)
            found += [
                Cell(factors, trial, _seeded(plan, run, trial), variant.peer, variant.tuned)
                for trial in range(1 - plan.warmup_trials, plan.trials + 1)
            ]
    if not found:
        raise ConfigurationError(f"The comparison '{plan.name}' has no cell left: 'skip' leaves all of them out.")
    return found


def only(cells: Sequence[Cell], wanted: Iterable[str]) -> list[Cell]:
    """The cells whose factors have the values that are named, `factor=value` each; of one factor any of these values.

    A factor that does not apply to a cell, as many do not to peers, leaves it in.

    Raises:
        ConfigurationError: a factor does not vary, no cell has that value, or none has all that is asked for.
    """
    asked: dict[str, set[str]] = {}
    for text in wanted:
        name, is_there, value = (part.strip() for part in text.partition("="))
        found = next((key for cell in cells for key in cell.factors if name in (key, key.rpartition(".")[2])), None)
        if not is_there or found is None:
            raise ConfigurationError(
                f"--only {text}: it must be FACTOR=VALUE, of a factor that varies: "
                f"{', '.join(dict.fromkeys(key for cell in cells for key in cell.factors))}."
            )
        values = dict.fromkeys(cell.factors[found] for cell in cells if cell.factors[found] != NOT_VARIED)
        if value not in values:
            raise ConfigurationError(
                f"--only {text}: {found} has no such value.{suggestion(value, values)} Valid: {', '.join(values)}."
            )
        asked.setdefault(found, set()).add(value)
    left = [
        cell for cell in cells if all(cell.factors[name] in {*values, NOT_VARIED} for name, values in asked.items())
    ]
    if not left:
        told = " and ".join(f"{name} {' or '.join(sorted(values))}" for name, values in asked.items())
        raise ConfigurationError(f"--only leaves no run: none has {told}.")
    return left


def check_without_jvm(cells: Sequence[Cell]) -> None:
    """Refuses the first cell that is known to be wrong without a JVM.

    Raises:
        ConfigurationError: which cell, and what is wrong with it.
    """
    for cell in cells:
        if ".." in (workers := cell.run.settings.get("workers", "")):
            raise ConfigurationError(
                f"{cell.group}: workers = {workers} lets the number of workers change while a run goes on, and a "
                "comparison is of runs with one number each. Name numbers in the matrix: workers = [2, 4]."
            )
    for cell in {each.group: each for each in cells if not each.peer}.values():
        try:
            preflight.check(cell.run)
        except ConfigurationError as error:
            raise ConfigurationError(f"{cell.group}: {error}") from error


def _seeded(plan: Plan, run: RunFile, trial: int) -> RunFile:
    if not plan.seed_per_trial:
        return run
    seed = int(run.settings.get("seed", "0")) + max(trial, 1) - 1
    return RunFile(run.spark, {**run.settings, "seed": str(seed)})


def in_order(plan: Plan, cells: Sequence[Cell]) -> list[Cell]:
    """Warm-up first, then in rounds: one trial of every group before the next one, shuffled within by the plan's seed.

    A randomised block design (Box, Hunter and Hunter, Statistics for Experimenters, 2nd ed., chapter 4): a machine that
    slows down while the comparison runs slows every group alike. Shuffled as a whole, two groups of five trials can run
    one after the other.

    Where cells share applications, the applications are shuffled, and the cells within each, warm-up first.
    """
    chance = random.Random(plan.seed)  # noqa: S311 (an order that can be repeated)
    if plan.fresh:
        return _in_rounds(cells, chance)
    applications: dict[str, list[Cell]] = {}
    for cell in cells:
        applications.setdefault(cell.application, []).append(cell)
    shuffled = list(applications.values())
    chance.shuffle(shuffled)
    ordered: list[Cell] = []
    for members in shuffled:
        ordered += _in_rounds(members, chance)
    return ordered


def _in_rounds(cells: Sequence[Cell], chance: random.Random) -> list[Cell]:
    """By trial (those of the warm-up are 0 and below), in random order within each."""
    ordered: list[Cell] = []
    for trial in sorted({cell.trial for cell in cells}):
        members = [cell for cell in cells if cell.trial == trial]
        chance.shuffle(members)
        ordered += members
    return ordered


def _points(plan: Plan, variant: Variant) -> list[dict[str, str]]:
    """The points of the matrix for a variant; what it sets itself, and what a peer does not know, is fixed."""

    def values(key: str) -> tuple[str, ...]:
        if key in variant.settings:
            return (variant.settings[key],)
        if variant.peer and not (key in PEER_KEYS or key.startswith(PEER_GROUPS)):
            return (NOT_VARIED,)
        if variant.peer and key in peers.find(variant.peer).fixed:
            return (NOT_VARIED,)
        return tuple(plan.matrix[key])

    keys = list(plan.matrix)
    return [dict(zip(keys, point, strict=True)) for point in itertools.product(*(values(key) for key in keys))]


def _run(plan: Plan, variant: Variant, point: Mapping[str, str]) -> RunFile:
    varied = {key: value for key, value in point.items() if value != NOT_VARIED}
    own = {**varied, **variant.settings, "name": plan.name}
    run = plan.base.with_settings(f"{key}={value}" for key, value in own.items()).with_profile()
    return RunFile(
        {key: _filled(key, value, run.settings) for key, value in run.spark.items()},
        {key: _filled(key, value, run.settings) for key, value in run.settings.items()},
    )


def _filled(key: str, value: str, settings: Mapping[str, str]) -> str:
    """`local-cluster[{workers},1,2048]` with the cell's own number of workers."""

    def replace(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in settings:
            catalogue.check(settings)  # perhaps it stands there with a typing error
            raise ConfigurationError(
                f"'{key}' is {value!r}, and the run has no key '{name}'. Valid in braces: "
                f"{', '.join(sorted(settings))}."
            )
        return settings[name]

    return _PLACE.sub(replace, value)


def _applies(entry: Mapping[str, str], factors: Mapping[str, str]) -> bool:
    return all(factors.get(key) == value for key, value in entry.items())
