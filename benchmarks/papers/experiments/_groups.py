"""How experiments pick what they compare out of a part's records."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from papers.experiment import Measured
from sparkdl_bench.comparison.cells import NOT_VARIED
from sparkdl_bench.report.analysis import TOTAL, Group


def pick(measured: Measured, part: str, variant: str = "", **factors: object) -> Group | None:
    """The group of a variant with these factors (`workers=2`, `blas="mkl"`: a key's last word); None: not measured."""
    analysis = measured.analyses.get(part)
    for group in analysis.groups if analysis else ():
        own = {key.rpartition(".")[2]: value for key, value in group.factors.items()}
        wanted = {name: str(value) for name, value in factors.items()}
        fits = all(own.get(name, NOT_VARIED) in (value, NOT_VARIED) for name, value in wanted.items())
        if group.records and fits and variant in ("", group.variant):
            return group
    return None


def values(group: Group | None, of: str | Callable[[Group], Sequence[float]]) -> list[float]:
    """A number a trial: a metric by its name, or what a function takes out; nothing where there is no group."""
    if group is None:
        return []
    return group.values(of) if isinstance(of, str) else list(of(group))


def training_seconds(group: Group) -> list[float]:
    """Of the run's own clock what is neither preparing nor evaluating, a number a trial."""
    found = []
    for record in group.records:
        facts, layers = record.get("facts", {}), record.get("layers_s", {})
        # A peer tells both itself.
        others = [float(facts.get(f"seconds_{each}", layers.get(each, 0.0))) for each in ("prepare", "evaluation")]
        found.append(max(0.0, float(record["metrics"][TOTAL]) - sum(others)))
    return found


def phase_share(group: Group | None, names: Sequence[str]) -> float | None:
    """The share of a step that these phases take, 0 to 1; None where the trials have no phases."""
    means = group.mean_of("phases_ms") if group else {}
    whole = sum(means.values())
    return sum(means.get(name, 0.0) for name in names) / whole if whole else None


def layer_share(group: Group | None, names: Sequence[str]) -> float | None:
    """The share of the whole wall clock that these layers take, 0 to 1; None where there are none."""
    means = group.mean_of("layers_s") if group else {}
    whole = sum(means.values())
    return sum(means.get(name, 0.0) for name in names) / whole if whole else None
