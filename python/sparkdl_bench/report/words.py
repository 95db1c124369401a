"""The answer in sentences: what is faster, by how much, how sure, why, and what to use. Every number was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkdl_bench.report.analysis import (
    DRIFT,
    ENOUGH_STEPS,
    EPOCHS,
    MARGIN,
    RATE,
    STEP,
    TO_ACCURACY,
    TOTAL,
    Analysis,
    Contrast,
    Cost,
    Group,
    Recommendation,
)

# What a phase's milliseconds are, said after "a step spends 1.2 ms …".
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
    "prepare": "getting ready to train",
    "evaluation": "on evaluations",
    "checkpoint": "on checkpoints",
    "idle": "idle between steps",
    "finish": "at its end (weights to the driver, files)",
}
_MOST_PHASES = 2
_ENOUGH = 0.8
_SMALL = 0.1


def number(value: float, digits: int = 3) -> str:
    """Three significant digits, without powers of ten: 0.0123, 1.23, 12.3, 1,234."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    text = f"{value:.{digits}g}"
    return text if "e" not in text else f"{value:.6f}".rstrip("0")


def circumstances(content: Mapping[str, Any]) -> list[str]:
    """On which machine, with which commit, and when; `content` as in plan.json."""
    machine: Mapping[str, Any] = content.get("machine", {})
    memory = f", {machine['memory_gib']} GiB" if machine.get("memory_gib") else ""
    return [
        f"{machine.get('cpu', 'unknown processor')}, {machine.get('cores', '?')} cores{memory}",
        f"commit {content.get('commit', 'unknown')}",
        f"begun {content.get('started', 'unknown')}",
    ]


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
    lines += _spoilt(analysis)
    return lines


def contrast_sentence(analysis: Analysis, contrast: Contrast) -> str:
    """`A is 3.1 times faster than B (95 % CI 2.9 to 3.4) because …`."""
    ratio, interval = contrast.effect.ratio, contrast.effect.interval
    one, other = contrast.group.name, contrast.baseline.name
    if not contrast.differs:
        adjusted = "adjusted p" if len(analysis.contrasts) > 1 else "p"
        return (
            f"{one} cannot be told from {other}: {number(ratio)} times as fast, 95 % CI {number(interval.low)} to "
            f"{number(interval.high)} ({adjusted} = {contrast.p:.2f}){_how_far(contrast)}."
        )
    if ratio < 1:
        ratio, low, high = 1 / ratio, 1 / interval.high, 1 / interval.low
        reason = because(analysis, contrast.baseline, contrast.group, contrast.group)
        return f"{one} is {number(ratio)} times slower than {other} (95 % CI {number(low)} to {number(high)}){reason}."
    reason = because(analysis, contrast.group, contrast.baseline, contrast.group)
    return (
        f"{one} is {number(ratio)} times faster than {other} (95 % CI {number(interval.low)} to "
        f"{number(interval.high)}){reason}."
    )


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
    """What to use, why, and what it costs; the last section of a report."""
    if not analysis.learnt_alike:
        return _refusal(analysis)
    found = analysis.recommendation
    if found is None:
        return ["No group has a finished trial, so nothing can be recommended."]
    chosen, metric = found.chosen, analysis.metric
    # "One machine" is an answer only where more than one was tried.
    alone = chosen.is_one_machine and any(not group.is_one_machine for group in analysis.groups)
    lines = [("Use one machine: " if alone else "Use ") + f"{_described(chosen)}."]
    lines.append(f"It needs {_price(analysis, chosen)}{_to_target(analysis)}.")
    lines.append(_learnt(chosen))
    lines += _reservations(analysis, chosen)
    if found.ties:
        names = ", ".join(f"{group.name} ({_seconds(group, metric)})" for group in found.ties)
        lines.append(
            f"These cannot be told from the fastest with {_trials(chosen)}, and are less than {MARGIN} times slower "
            f"(95 %): {names}. {_why_of_ties(found)}"
        )
    else:
        told = [chosen, *(each.baseline for each in found.undecided)]
        others = [each.group for each in analysis.summaries(metric) if each.group not in told]
        runner_up = [group for group in others if analysis.reaches_target(group) or not analysis.reaches_target(chosen)]
        runner_up = runner_up[:1]
        for group in runner_up:
            contrast = analysis.contrast(chosen, group)
            if contrast is not None:
                lines.append(
                    f"The next, {group.name}, takes {number(contrast.effect.ratio)} times as long "
                    f"(95 % CI {number(contrast.effect.interval.low)} to {number(contrast.effect.interval.high)})."
                )
    if found.undecided:
        names = ", ".join(
            f"{each.baseline.name} (could be up to {number(each.effect.interval.high)} times slower)"
            for each in found.undecided
        )
        lines.append(
            f"Whether these are slower than the fastest cannot be told with {_trials(found.best)}, so they do not "
            f"count as equally fast: {names}. More trials would tell."
        )
    if found.fastest_one_machine is not None and not chosen.is_one_machine:
        one = found.fastest_one_machine
        slower = (one.median(metric) or 0.0) / (chosen.median(metric) or 1.0)
        line = f"One machine alone ({one.name}) needs {_price(analysis, one)}: {number(slower)} times as long."
        if (analysis.core_seconds(one) or 0.0) < (analysis.core_seconds(chosen) or 0.0):
            line += " Take it where core-seconds count more than waiting."
        lines.append(line)
    if min(len(summary.group.records) for summary in analysis.summaries(metric)) < 2:
        lines.append("Some groups have one trial only: how sure this is cannot be said.")
    if _shares_a_host(analysis):
        lines.append(
            "All workers shared one machine here. Between machines the network counts too: sparkdl-bench net "
            "measures it, and this comparison should be repeated there."
        )
    return lines


def _refusal(analysis: Analysis) -> list[str]:
    """Why the fastest is not simply recommended, and what to do."""
    if analysis.target is None:
        why = "there is no target accuracy"
        remedy = "Say which accuracy is good enough"
    else:
        why = f"no group reached {analysis.target:.1%} test accuracy in all its trials"
        remedy = "Train longer, or say which lower accuracy is good enough"
    return [
        "Nothing is recommended: the groups have not learnt alike, so the fastest may be the one that learnt least.",
        f"Only times are left to compare, because {why}. {_accuracies(analysis)}",
        f"{remedy}: sparkdl-bench report … --target-accuracy X, a share of the test rows such as 0.95. Then the time "
        "until it was reached counts, and who did not reach it is not recommended.",
    ]


def _accuracies(analysis: Analysis) -> str:
    """How far apart the groups' accuracies are, or who has none."""
    without = [name for name, accuracy in analysis.accuracies.items() if accuracy is None]
    if without:
        return f"These have no test accuracy in all their trials: {', '.join(without)}."
    known = {name: accuracy for name, accuracy in analysis.accuracies.items() if accuracy is not None}
    least, most = min(known, key=lambda name: known[name]), max(known, key=lambda name: known[name])
    return (
        f"The median test accuracies are {number(100 * (known[most] - known[least]))} percentage points apart: "
        f"{least} {known[least]:.1%}, {most} {known[most]:.1%}."
    )


def _learnt(group: Group) -> str:
    if group.accuracy is None:
        return "No test accuracy is known for all its trials: whether it learns cannot be said."
    median = "" if len(group.records) == 1 else f" (median of {_trials(group)})"
    return f"Its test accuracy at the end is {group.accuracy:.1%}{median}."


def _reservations(analysis: Analysis, chosen: Group) -> list[str]:
    """What speaks against it, or against those that seem faster."""
    lines = []
    if not analysis.reaches_target(chosen):
        lines.append(
            f"No group reached {analysis.target:.1%} test accuracy in all its trials: this one is fast, "
            "and may not learn."
        )
    else:
        quicker = [
            group
            for group in analysis.groups
            if not analysis.reaches_target(group) and (group.median(TOTAL) or 0.0) < (chosen.median(TOTAL) or 0.0)
        ]
        if quicker and chosen.records:
            names = ", ".join(group.name for group in quicker if group.records)
            if names:
                lines.append(f"Faster ones did not reach {analysis.target:.1%} in all their trials: {names}.")
    if chosen.failures:
        lines.append(
            f"{len(chosen.failures)} of its {len(chosen.failures) + len(chosen.records)} trials failed: "
            "find out why first."
        )
    return lines


def _why_of_ties(found: Recommendation) -> str:
    cores = [group.cores for group in found.ties]
    if found.chosen.cores < min(cores):
        return f"Of all of them {found.chosen.name} takes the fewest cores."
    if found.chosen.cores < max(cores):
        return f"Of those with the fewest cores {found.chosen.name} has the lowest median."
    return f"All take as many cores; {found.chosen.name} has the lowest median."


def _about(analysis: Analysis) -> str:
    trials = sorted({len(group.records) for group in analysis.groups if group.records})
    count = f"{trials[0]}" if len(trials) == 1 else f"{trials[0]} to {trials[-1]}" if trials else "no"
    what = _metric_words(analysis)
    asked = len(analysis.contrasts)
    adjusted = f" Two differ where p < 0.05, adjusted by Holm for {asked} comparisons." if asked > 1 else ""
    return f"{len(analysis.groups)} combinations, {count} measured trials each, compared by {what}.{adjusted}"


def _metric_words(analysis: Analysis) -> str:
    if analysis.metric == TO_ACCURACY:
        return f"the time to {analysis.target:.1%} test accuracy"
    if analysis.metric == TOTAL:
        return "the time of the whole training"
    return {STEP: "the time a step", RATE: "rows a second"}[analysis.metric]


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
    """Mean steps, because the phases are means of all steps: medians after the warm-up are of others."""
    ours, theirs = subject.mean_step_ms, other.mean_step_ms
    if ours is None or theirs is None or abs(ours / theirs - 1) < _SMALL:
        return ""
    said = f"a step takes {number(ours)} ms instead of {number(theirs)} ms on average, warm-up included"
    said += _after_warm_up(subject, other, ours > theirs)
    mine, their = subject.mean_of("phases_ms"), other.mean_of("phases_ms")
    if not mine or not their:
        without = subject if not mine else other
        return f"{said} (the phases of {without.name} are not recorded)"
    if (sum(mine.values()) > sum(their.values())) != (ours > theirs):
        return said  # Older runs took a step from its slowest rank and phases from all: they need not agree.
    phases = _largest_phases(mine, their)
    return f"{said}: {' and '.join(phases)}" if phases else said


def _after_warm_up(subject: Group, other: Group, is_longer: bool) -> str:
    """The medians after the warm-up, where they do not say what the means say."""
    ours, theirs = subject.median(STEP), other.median(STEP)
    if not ours or not theirs or ((ours > theirs) == is_longer and abs(ours / theirs - 1) >= _SMALL):
        return ""
    return f" (the medians after it are {number(ours)} ms and {number(theirs)} ms)"


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
            f"({share:.0%} of the difference)"
        )
    return said


def _too_few(analysis: Analysis) -> list[str]:
    """Medians beside each other where there are too few trials for more."""
    lines = []
    for group in analysis.groups:
        baseline = analysis.baseline_of(group)
        if group.name in analysis.contrasts or baseline is None:
            continue
        if group.values(analysis.metric) and baseline.values(analysis.metric):
            lines.append(
                f"{group.name} took {_seconds(group, analysis.metric)} and {baseline.name} "
                f"{_seconds(baseline, analysis.metric)}: with {_trials(group)} and {_trials(baseline)} nothing can be "
                "said about how sure that is."
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
        untold = _lower_by_chance(cost)
        if cost.cores is not None:
            also = f" Its median on {untold} is lower too, which may be chance." if untold else ""
            lines.append(f"COST of {cost.variant}: {cost.cores} cores; with these it beats {single}.{also}")
        elif untold:
            lines.append(
                f"COST of {cost.variant} is not known: its median on {untold} is lower than that of {single}, which "
                "may be chance."
            )
        else:
            slower.append(f"{cost.variant} ({', '.join(map(str, cost.tried))} cores)")
    if slower:
        lines.append(f"COST: at no number of cores that was measured do these beat {single}: {'; '.join(slower)}.")
    return lines


def _lower_by_chance(cost: Cost) -> str:
    """`2 cores (p = 0.29) and 3 cores (too few trials)`."""
    return " and ".join(
        f"{group.cores} cores ({'too few trials' if contrast is None else f'p = {contrast.p:.2f}'})"
        for group, contrast in cost.untold
    )


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
    return [f"{_accuracies(analysis)} Their times are no answer to which is better."]


def _warm_up(analysis: Analysis) -> list[str]:
    """Whose milliseconds a step are not yet those of a long training."""
    lines = []
    count = analysis.warmup_steps
    if analysis.unsettled:
        names = ", ".join(f"{group.name} (drift {group.median(DRIFT) or 0.0:.2f})" for group in analysis.unsettled)
        remedy = f"Raise warmup_steps, now {count}" if count else "None is left out here; a comparison leaves some out"
        lines.append(
            f"The warm-up was too short, steps still became faster while they were measured: {names}. Drift is the "
            f"median of the last third of the steps over that of the first. {remedy}."
        )
    if analysis.hardly_measured:
        names = ", ".join(f"{group.name} ({analysis.measured_steps(group)})" for group in analysis.hardly_measured)
        after = f" after the {count} of the warm-up" if count else ""
        lines.append(
            f"Fewer than {ENOUGH_STEPS} steps were measured{after}, so the time a step is uncertain: {names}. Train "
            "more epochs."
        )
    return lines


def _one_seed(analysis: Analysis) -> list[str]:
    """That a number of epochs may be one seed's luck, which no interval here holds."""
    if not analysis.one_seed_decides:
        return []
    found = [epochs for group in analysis.groups if (epochs := group.median(EPOCHS)) is not None]
    return [
        f"The trials of each group trained with one seed, and the epochs to {analysis.target:.1%} differ between "
        f"groups ({number(min(found))} to {number(max(found))}): with another seed they may differ otherwise, and no "
        "interval here says by how much. Set seed_per_trial = true in the comparison."
    ]


def _failed(analysis: Analysis) -> list[str]:
    return [
        f"{group.name}: {len(group.failures)} of {len(group.failures) + len(group.records)} trials failed. "
        f"{group.failures[0]['error']}"
        for group in analysis.groups
        if group.failures
    ]


def _left_out(analysis: Analysis) -> list[str]:
    """What was asked for and not measured. Why is in plan.json, with paths of that machine."""
    measured = {group.name for group in analysis.groups}
    names = [name for name in analysis.comparison.content.get("skipped", {}) if name not in measured]
    return [f"Left out, since it was not installed there: {', '.join(names)}."] if names else []


def _spoilt(analysis: Analysis) -> list[str]:
    records = [record for group in analysis.groups for record in group.records]
    busy = [record for record in records if record.get("load", {}).get("busy", 0.0) > 0.1]
    if not busy:
        return []
    return [
        f"The machine was busy before {len(busy)} of {len(records)} trials (more than 10 % of its cores' time): do not "
        "trust small differences."
    ]


def _described(group: Group) -> str:
    workers = "1 process" if group.is_one_machine else f"{group.workers} workers"
    threads = f"{group.threads} thread{'s' if group.threads > 1 else ''}"
    return f"{group.name} ({workers} × {threads}, global batch {group.batch})"


def _price(analysis: Analysis, group: Group) -> str:
    seconds = _seconds(group, analysis.metric)
    cores = analysis.core_seconds(group)
    money = analysis.money(group)
    paid = "" if money is None else f", {money:.4f} {analysis.comparison.plan.get('currency', '')}"
    return f"{seconds} on {group.cores} core{'s' if group.cores > 1 else ''}, {number(cores or 0.0)} core-seconds{paid}"


def _to_target(analysis: Analysis) -> str:
    return f" to {analysis.target:.1%} test accuracy" if analysis.metric == TO_ACCURACY else ""


def _seconds(group: Group, metric: str) -> str:
    return f"{number(group.median(metric) or 0.0)} s"


def _trials(group: Group) -> str:
    return f"{len(group.records)} trial{'s' if len(group.records) != 1 else ''}"


def _shares_a_host(analysis: Analysis) -> bool:
    masters = {_master(record) for group in analysis.groups if not group.is_one_machine for record in group.records}
    masters.discard("")
    return bool(masters) and all(master.startswith("local") for master in masters)


def _master(record: Mapping[str, Any]) -> str:
    return str(record.get("facts", {}).get("master") or record.get("spark", {}).get("spark.master", ""))
