"""What was measured, in sentences: what is faster, by how much, how sure, and why. What to use: `answer`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from sparkdl_bench import machine
from sparkdl_bench.report.analysis import (
    DRIFT,
    ENOUGH_STEPS,
    EPOCHS,
    MARGIN,
    STEP,
    TO_ACCURACY,
    Analysis,
    Contrast,
    Cost,
    Group,
)
from sparkdl_bench.report.answer import accuracies, answer, clock, more_cores
from sparkdl_bench.report.numbers import between, counted, number
from sparkdl_bench.statistics import Interval

# What a phase's milliseconds are, said after "1.2 ms".
PHASES = {
    "data": "reading rows",
    "compute": "computing",
    "encode": "encoding",
    "send": "sending",
    "wait": "waiting for other ranks",
    "reduce": "adding up",
    "decode": "decoding",
    "update": "in the optimiser",
    "scheduler": "in Spark's scheduler",
}
# What a part of the clock is, said after "because it spends 1 s instead of 2 s".
_PARTS = {
    "start": "starting (Python, JVM, executors)",
    "prepare": "getting ready to train",
    "evaluation": "on evaluations",
    "checkpoint": "on checkpoints",
    "idle": "idle between steps",
    "finish": "at its end (weights to the driver, files)",
    "stop": "stopping",
}
_MOST_PHASES = 2
_ENOUGH = 0.8
_SMALL = 0.1


def machine_of(content: Mapping[str, Any]) -> str:
    """A machine in words; `content` as in plan.json."""
    host: Mapping[str, Any] = content.get("machine", {})
    memory = f", {host['memory_gib']} GiB" if host.get("memory_gib") else ""
    return f"{host.get('cpu', 'unknown processor')}, {host.get('cores', '?')} cores{memory}"


def circumstances(content: Mapping[str, Any]) -> list[str]:
    """On which machine, with which commit, and when; `content` as in plan.json."""
    return [
        machine_of(content),
        f"commit {content.get('commit', 'unknown')}",
        f"begun {_when(str(content.get('started', 'unknown')))}",
    ]


def _when(moment: str) -> str:
    """`2026-11-24 19:26 UTC` of a moment with its zone; what is none stays as it is."""
    try:
        return datetime.fromisoformat(moment).astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return moment


def summary(analysis: Analysis) -> list[str]:
    """One sentence a group against its baseline, the clearest difference first, then what else matters."""
    lines = [_about(analysis)]
    contrasts = sorted(analysis.contrasts.values(), key=lambda each: -each.effect.ratio)
    lines += [contrast_sentence(analysis, each) for each in contrasts]
    lines += _too_few(analysis)
    lines += _without_baseline(analysis)
    lines += _costs(analysis)
    lines += _not_reached(analysis)
    lines += _not_alike(analysis)
    lines += _warm_up(analysis)
    lines += _one_seed(analysis)
    lines += _failed(analysis)
    lines += _left_out(analysis)
    lines += more_cores(analysis)
    lines += _spoilt(analysis)
    return lines


def contrast_sentence(analysis: Analysis, contrast: Contrast) -> str:
    """`A is 3.1 times faster than B (95 % CI 2.9 to 3.4) because …`."""
    effect = contrast.effect
    one, other = contrast.group.name, contrast.baseline.name
    if not contrast.differs:
        adjusted = "adjusted p" if len(analysis.contrasts) > 1 else "p"
        return (
            f"{one} and {other} are about as fast; the data cannot tell: {number(effect.ratio)} times as fast, "
            f"{between(effect.interval)} ({adjusted} = {contrast.p:.2f}){_how_far(contrast)}."
        )
    if effect.ratio < 1:
        interval = Interval(1 / effect.interval.high, 1 / effect.interval.low)
        reason = because(analysis, contrast.baseline, contrast.group, contrast.group)
        return f"{one} is {number(1 / effect.ratio)} times slower than {other} ({between(interval)}){reason}."
    reason = because(analysis, contrast.group, contrast.baseline, contrast.group)
    return f"{one} is {number(effect.ratio)} times faster than {other} ({between(effect.interval)}){reason}."


def because(analysis: Analysis, fast: Group, slow: Group, subject: Group) -> str:
    """The reason from what was measured, said of `subject`; nothing where the records do not tell.

    The difference is cut into steps, preparation, the rest of the epochs and, for whole trainings, the end; the largest
    part is named, and for steps their number, their mean length, and the phases that make up most of it.
    """
    slow_s, fast_s = slow.clock(analysis.metric), fast.clock(analysis.metric)
    parts = {name: slow_s[name] - fast_s[name] for name in slow_s}
    name = max(parts, key=lambda each: parts[each])
    if parts[name] <= 0:
        return ""
    other = slow if subject is fast else fast
    if name != "steps":
        ours, theirs = (slow_s, fast_s) if subject is slow else (fast_s, slow_s)
        return f" because it spends {number(ours[name])} s instead of {number(theirs[name])} s {_PARTS[name]}"
    reasons = []
    if slow.steps(analysis.metric) > fast.steps(analysis.metric):
        reasons.append(_number_of_steps(analysis, subject, other))
    if (slow.mean_step_ms or 0.0) > (fast.mean_step_ms or 0.0):
        reasons.append(_length_of_step(subject, other))
    said = [reason for reason in reasons if reason]
    return f" because {', and '.join(said)}" if said else ""


def recommendation(analysis: Analysis) -> list[str]:
    """The answer as lines: the two sentences first, then how sure they are, the cost, what to do, and details."""
    found = answer(analysis)
    return [*found.sentences, found.sureness, *found.cost, *found.next_steps, *found.details]


def _about(analysis: Analysis) -> str:
    combinations = counted(len(analysis.groups), "combination")
    trials = [len(group.records) for group in analysis.groups]
    fewest, most = min(trials, default=0), max(trials, default=0)
    if most == 0:
        return f"{combinations}; no trial finished."
    measured = counted(most, "measured trial") if fewest == most else f"{fewest} to {most} measured trials"
    if len(analysis.groups) == 1:
        return f"{combinations}, {measured}: the time {clock(analysis)}{' (geometric mean)' if most > 1 else ''}."
    asked = len(analysis.contrasts)
    adjusted = f" Two differ where p < 0.05, adjusted by Holm for {asked} comparisons." if asked > 1 else ""
    return f"{combinations}, {measured} each, compared by the time {clock(analysis)} (geometric means).{adjusted}"


def _how_far(contrast: Contrast) -> str:
    """How much an untold difference could yet be; nothing where both ways it is less than MARGIN."""
    interval = contrast.effect.interval
    ways = [(1 / interval.low, "slower"), (interval.high, "faster")]
    said = [f"{number(factor)} times {way}" for factor, way in ways if factor >= MARGIN]
    return f"; it could be up to {' or '.join(said)}" if said else ""


def _number_of_steps(analysis: Analysis, subject: Group, other: Group) -> str:
    ours, theirs = subject.steps(analysis.metric), other.steps(analysis.metric)
    if not ours or not theirs or abs(ours / theirs - 1) < _SMALL:
        return ""
    return f"it needs {number(ours)} steps instead of {number(theirs)}"


def _length_of_step(subject: Group, other: Group) -> str:
    """Mean steps, because the phases are means of all steps: what comes after the warm-up are others."""
    ours, theirs = subject.mean_step_ms, other.mean_step_ms
    if ours is None or theirs is None or abs(ours / theirs - 1) < _SMALL:
        return ""
    same = subject.batch == other.batch
    mine, their = ("" if same else f" of {number(each.batch)} rows" for each in (subject, other))
    said = f"a step{mine} takes {number(ours)} ms instead of {number(theirs)} ms{their} on average, warm-up included"
    said += _after_warm_up(subject, other, ours > theirs)
    own, others = subject.mean_of("phases_ms"), other.mean_of("phases_ms")
    if not own or not others:
        without = subject if not own else other
        return f"{said} (the phases of {without.name} are not recorded)"
    if (sum(own.values()) > sum(others.values())) != (ours > theirs):
        return said  # Older runs took a step from its slowest rank and phases from all: they need not agree.
    phases = _largest_phases(own, others)
    return f"{said}: {' and '.join(phases)}" if phases else said


def _after_warm_up(subject: Group, other: Group, is_longer: bool) -> str:
    """The steps after the warm-up, where they do not say what all of them say."""
    ours, theirs = subject.centre(STEP), other.centre(STEP)
    if not ours or not theirs or ((ours > theirs) == is_longer and abs(ours / theirs - 1) >= _SMALL):
        return ""
    return f" (after it {number(ours)} ms and {number(theirs)} ms)"


def _largest_phases(ours: Mapping[str, float], theirs: Mapping[str, float]) -> list[str]:
    """The phases that make up most of the difference, largest first."""
    difference = sum(theirs.values()) - sum(ours.values())
    if difference == 0:
        return []
    shares = {name: (theirs.get(name, 0.0) - ours.get(name, 0.0)) / difference for name in PHASES}
    said: list[str] = []
    covered = 0.0
    for name, share in sorted(shares.items(), key=lambda item: -item[1]):
        if share < _SMALL or covered >= _ENOUGH or len(said) == _MOST_PHASES:
            break
        covered += share
        said.append(
            f"{number(ours.get(name, 0.0))} ms {PHASES[name]} instead of {number(theirs.get(name, 0.0))} ms "
            f"({_share(share)} of the difference)"
        )
    return said


def _share(share: float) -> str:
    """What others take back in part is no share above all of it."""
    return f"{share:.0%}" if share < 1 else "all"


def _too_few(analysis: Analysis) -> list[str]:
    """Times beside each other where there are too few trials for more."""
    lines = []
    for group in analysis.groups:
        baseline = analysis.baseline_of(group)
        if group.name in analysis.contrasts or baseline is None:
            continue
        if group.values(analysis.metric) and baseline.values(analysis.metric):
            lines.append(
                f"{group.name} took {_seconds(group, analysis.metric)} and {baseline.name} "
                f"{_seconds(baseline, analysis.metric)}: with {_trials(group)} and {_trials(baseline)} it is not "
                "known how sure that is."
            )
    return lines


def _without_baseline(analysis: Analysis) -> list[str]:
    names = [
        group.name
        for group in analysis.groups
        if group.records and not analysis.is_baseline(group) and analysis.baseline_of(group) is None
    ]
    if not names:
        return []
    factors = " and ".join(analysis.comparison.plan.get("baseline") or {})
    return [f"Nothing was measured that differs in {factors} alone, so these have no baseline: {', '.join(names)}."]


def _costs(analysis: Analysis) -> list[str]:
    lines = []
    slower: list[str] = []
    for cost in analysis.costs:
        single = f"the best process of one thread ({cost.single.name}, {_seconds(cost.single, analysis.metric)})"
        untold = _lower_by_chance(analysis, cost)
        if cost.beats is not None:
            also = f" It is faster on {untold} too, which may be chance." if untold else ""
            asked = _asks(analysis, cost.beats.group)
            used = f"{counted(analysis.cores_used(cost.beats.group), 'core')}{f' ({asked})' if asked else ''}"
            lines.append(f"COST of {cost.variant}: {used}; with these it beats {single}.{also}")
        elif untold:
            lines.append(
                f"COST of {cost.variant} is not known: on {untold} it is faster than {single}, which may be chance."
            )
        else:
            *fewer, most = cost.tried
            slower.append(f"{cost.variant} ({', '.join([*map(str, fewer), counted(most, 'core')])})")
    if slower:
        lines.append(f"COST: at no number of cores that was measured do these beat {single}: {'; '.join(slower)}.")
    return lines


def _lower_by_chance(analysis: Analysis, cost: Cost) -> str:
    """`2 cores (p = 0.29) and 3 cores (too few trials)`; on a host with 2 cores `2 cores (asks for 3, p = 0.29)`."""
    said = []
    for group, contrast in cost.untold:
        why = "too few trials" if contrast is None else f"p = {contrast.p:.2f}"
        inside = ", ".join(filter(None, [_asks(analysis, group), why]))
        said.append(f"{counted(analysis.cores_used(group), 'core')} ({inside})")
    return " and ".join(said)


def _asks(analysis: Analysis, group: Group) -> str:
    """`asks for 4`, as the table of groups has it; nothing where the host has as many cores."""
    return f"asks for {group.cores}" if analysis.is_oversubscribed(group) else ""


def _not_reached(analysis: Analysis) -> list[str]:
    if analysis.target is None:
        return []
    lines = []
    for group in analysis.groups:
        reached = sum(record["metrics"][TO_ACCURACY] is not None for record in group.records)
        if group.records and reached < len(group.records):
            lines.append(
                f"{group.name} reached {analysis.target:.1%} in {reached} of {len(group.records)} trials, so it has no "
                "time to that accuracy."
            )
    return lines


def _not_alike(analysis: Analysis) -> list[str]:
    if analysis.learnt_alike:
        return []
    return [f"{accuracies(analysis)} Their times are no answer to which is better."]


def _warm_up(analysis: Analysis) -> list[str]:
    """Whose milliseconds per step are not those of a long training."""
    lines = []
    count = analysis.warmup_steps
    drifts = [(group.name, group.centre(DRIFT) or 0.0) for group in analysis.unsteady]
    faster = [f"{name} (drift {drift:.2f})" for name, drift in drifts if drift < 1]
    slower = [f"{name} (drift {drift:.2f}{_growing(analysis, name)})" for name, drift in drifts if drift > 1]
    what = "Drift is the median of the last third of the steps over that of the first"
    if faster:
        remedy = f"Raise warmup_steps, now {count}" if count else "None is left out here; a comparison leaves some out"
        lines.append(
            f"Not steady: the warm-up was too short, steps became faster while they were measured: "
            f"{', '.join(faster)}. {what}. {remedy}."
        )
    if slower:
        lines.append(
            f"Not steady: steps became slower while they were measured: {', '.join(slower)}. {what}. A longer training "
            "may be slower still: find out what grows before deciding about one."
        )
    if grown := [each for group in analysis.groups if analysis.is_steady(group) for each in _grown(group)]:
        lines.append(f"These phases grew during the run, though steps as a whole are steady: {'; '.join(grown)}.")
    if analysis.hardly_measured:
        names = ", ".join(f"{group.name} ({analysis.measured_steps(group)})" for group in analysis.hardly_measured)
        after = f" after the {count} of the warm-up" if count else ""
        lines.append(
            f"Fewer than {ENOUGH_STEPS} steps were measured{after}, so the time per step is uncertain: {names}. Train "
            "more epochs."
        )
    return lines


def _growing(analysis: Analysis, name: str) -> str:
    """`; update 2.37`: the phases of an unsteady group that grew."""
    group = next(each for each in analysis.groups if each.name == name)
    return "".join(f"; {phase} {drift:.2f} times" for phase, drift in group.grown_phases.items())


def _grown(group: Group) -> list[str]:
    return [f"{group.name}: {phase}, {drift:.2f} times" for phase, drift in group.grown_phases.items()]


def _one_seed(analysis: Analysis) -> list[str]:
    """That a number of epochs may be one seed's luck, which no interval here holds."""
    if not analysis.one_seed_decides:
        return []
    found = [epochs for group in analysis.groups if (epochs := group.centre(EPOCHS)) is not None]
    return [
        f"The trials of each group trained with one seed, and the epochs to {analysis.target:.1%} differ between "
        f"groups ({number(min(found))} to {number(max(found))}): with another seed they may differ otherwise, and no "
        "interval here says by how much. Set seed_per_trial = true in the comparison."
    ]


def _failed(analysis: Analysis) -> list[str]:
    lines = []
    for group in analysis.groups:
        count = len(group.failures) + len(group.records)
        if group.failed:
            lines.append(f"{group.name}: {len(group.failed)} of {count} trials failed. {group.failed[0]['error']}")
        if group.cancelled:
            lines.append(f"{group.name}: {_of(len(group.cancelled), count)} cancelled, and does not count.")
    return lines


def _of(some: int, count: int) -> str:
    """`the only trial was`, `2 of 5 trials were`."""
    return "the only trial was" if count == 1 else f"{some} of {count} trials {'was' if some == 1 else 'were'}"


def _left_out(analysis: Analysis) -> list[str]:
    """What was asked for and not measured. Why is in plan.json, with paths of that machine."""
    measured = {group.name for group in analysis.groups}
    names = [name for name in analysis.comparison.content.get("skipped", {}) if name not in measured]
    return [f"Left out, since it was not installed there: {', '.join(names)}."] if names else []


def _spoilt(analysis: Analysis) -> list[str]:
    records = [record for group in analysis.groups for record in group.records]
    busy = [record for record in records if record.get("load", {}).get("busy", 0.0) > machine.BUSY_LIMIT]
    if not busy:
        return []
    return [
        f"The machine was busy before {len(busy)} of {len(records)} trials (more than 10 % of its cores' time): do not "
        "trust small differences."
    ]


def _seconds(group: Group, metric: str) -> str:
    return f"{number(group.centre(metric) or 0.0)} s"


def _trials(group: Group) -> str:
    return counted(len(group.records), "trial")
