"""The answer in words: two sentences, how sure they are, what it costs, what to do next, and what else to know."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sparkdl_bench import machine, peers, statistics
from sparkdl_bench.comparison import peer_run
from sparkdl_bench.comparison.plan import QUICK
from sparkdl_bench.report.analysis import EPOCHS, MARGIN, Analysis, Group
from sparkdl_bench.report.break_even import FEWEST_TRIALS, BreakEven
from sparkdl_bench.report.decision import Beside, Decision, decide
from sparkdl_bench.report.load import OF_A_TRIAL
from sparkdl_bench.report.numbers import between, counted, number
from sparkdl_bench.statistics import sequential

# So many names stand in a sentence; of more it says how many there are.
_MOST_NAMES = 4
# Core-seconds below this share of the chosen group's are worth a sentence.
_CHEAPER = 0.9


@dataclass(frozen=True)
class Answer:
    """What the first screen of a report says.

    Attributes:
        sentences: what to use, and why.
        sureness: one line.
        cost: core-seconds, and money where the plan has a price; the chosen group first.
        next_steps: what to do now.
        details: break-even, and what speaks against all of it.
    """

    sentences: tuple[str, str]
    sureness: str
    cost: list[str]
    next_steps: list[str]
    details: list[str]


def answer(analysis: Analysis) -> Answer:
    decision = decide(analysis)
    if decision.verdict == "nothing":
        sentences, sureness = _nothing(analysis, decision)
    elif decision.verdict == "recommended":
        sentences, sureness = _recommended(analysis, decision), _sure(analysis, decision)
    else:
        sentences, sureness = _open(analysis, decision), _not_sure(analysis, decision)
    return Answer(
        sentences, sureness, _cost(analysis, decision), _next_steps(analysis, decision), _details(analysis, decision)
    )


def clock(analysis: Analysis) -> str:
    """What the seconds count: `from the command to 95.0 % test accuracy`."""
    target = "" if analysis.target is None else f"{100 * analysis.target:.1f} % test accuracy"
    if analysis.is_from_command:
        return f"from the command to {target if analysis.is_to_target else 'its end'}"
    what = f"to {target}" if analysis.is_to_target else "of the whole training"
    return f"{what}, by the runs' own clocks"


def described(group: Group) -> str:
    """`block-stream, workers 2 (2 workers × 1 thread, global batch 128)`."""
    workers = "1 process" if group.is_one_machine else f"{group.workers} workers"
    batch = f", global batch {group.batch}" if group.batch else ""  # a launch has none that anybody knows
    return f"{group.name} ({workers} × {counted(group.threads, 'thread')}{batch})"


def price(analysis: Analysis, group: Group) -> str:
    """`3 s × 2 cores = 6 core-seconds, 0.0006 EUR`."""
    seconds, cores = group.centre(analysis.metric) or 0.0, analysis.cores_used(group)
    money = analysis.money(group)
    paid = "" if money is None else f", {money:.4f} {analysis.comparison.plan.get('currency', '')}"
    used = counted(cores, "core")
    if analysis.is_oversubscribed(group):
        used += f" (it asks for {group.cores}, and the host has {cores})"
    return f"{number(seconds)} s × {used} = {number(seconds * cores)} core-seconds{paid}"


def _recommended(analysis: Analysis, decision: Decision) -> tuple[str, str]:
    chosen = _chosen(decision)
    # "One machine" is an answer only where more than one was tried.
    alone = chosen.is_one_machine and not _is_alone(analysis)
    first = f"{'Use one machine: ' if alone else 'Use '}{described(chosen)}."
    takes = f"It takes {_seconds(analysis, chosen)} {clock(analysis)}"
    if not decision.others:
        return first, f"{takes}; nothing else reached the target."
    default = _default(decision)
    if default is not None:
        return first, f"{takes}, and is {_faster(analysis, chosen, default)}."
    nearest = decision.others[0]
    if nearest.state == "as-fast":
        names = _names([each.group for each in decision.ties] or [nearest.group])
        return first, f"{takes}; nothing that costs more is faster by a margin that matters ({MARGIN} times): {names}."
    return first, f"{takes}; the next is {_slower(analysis, chosen, nearest, 'slower')}."


def _open(analysis: Analysis, decision: Decision) -> tuple[str, str]:
    chosen = _chosen(decision)
    alone = "one machine, " if chosen.is_one_machine and not _is_alone(analysis) else ""
    default = _default(decision)
    why = "the cheapest, since nothing is proven to beat it"
    if default is not None:
        why = f"which is {_faster(analysis, chosen, default)}"
    elif chosen is not decision.cheapest or decision.doubtful:
        why = "the cheapest that reached the target in all its trials"
    first = f"{_how_open(decision)} use {alone}{described(chosen)}, {why}."
    takes = f"It takes {_seconds(analysis, chosen)} {clock(analysis)}"
    if decision.doubtful:
        names = _names(list(decision.doubtful))
        return first, f"{takes}; {names}, which cost less, reached the target in some of their trials only."
    rivals = decision.open
    fewest = min(len(group.records) for group in (chosen, *(each.group for each in rivals)))
    if fewest < sequential.FEWEST:
        return first, f"{takes}{_so_far(rivals)}; {_too_few(fewest)}."
    one = rivals[0]
    ratio = f"{number(one.speed_up)} times as fast so far ({_contrast_interval(analysis, chosen, one.group)})"
    rest = f"; open as well: {_names([each.group for each in rivals[1:]])}" if len(rivals) > 1 else ""
    return first, (
        f"{takes}; {one.group.name} is {ratio}, and the data cannot tell whether that is a margin that matters "
        f"({MARGIN} times){rest}."
    )


def _so_far(rivals: Sequence[Beside]) -> str:
    """`; so far two was 9 times faster and four 7.5 times faster`: what was seen, which may be chance."""
    if not rivals:
        return ""
    told = []
    for each in rivals[:_MOST_NAMES]:
        ratio = number(max(each.speed_up, 1 / each.speed_up))
        way = "faster" if each.speed_up >= 1 else "slower"
        told.append(f"{each.group.name} was as fast" if ratio == "1" else f"{each.group.name} was {ratio} times {way}")
    rest = [f"{len(rivals) - _MOST_NAMES} more were measured"] if len(rivals) > _MOST_NAMES else []
    return f"; so far {', '.join([*told, *rest])}"


def _too_few(fewest: int) -> str:
    few = "1 trial does" if fewest == 1 else f"{fewest} trials do"
    return (
        f"but {few} not show how much times vary, so a recommendation needs {sequential.FEWEST} of each at least, and "
        f"{sequential.ENOUGH_TRIALS} to know it well"
    )


def _default(decision: Decision) -> Beside | None:
    """The cheapest group, where the chosen one has beaten it; None where they are the same."""
    return next((each for each in decision.others if each.group is decision.cheapest), None)


def _nothing(analysis: Analysis, decision: Decision) -> tuple[tuple[str, str], str]:
    unsure = "Not sure of anything: there is nothing to compare."
    if decision.cheapest is None:
        return (
            "Nothing is recommended: no group has a finished trial.",
            "All runs, below, says what became of each.",
        ), unsure
    if not analysis.learnt_alike:
        first = "Nothing is recommended: the groups have not learnt alike, so the fastest may have learnt least."
        why = (
            "their test errors are further apart than a twentieth"
            if analysis.is_regression
            else "there is no target accuracy"
            if analysis.target is None
            else f"no group reached {100 * analysis.target:.1f} % test accuracy in all its trials"
        )
        second = f"Only times are left to compare, because {why}. {accuracies(analysis)}"
        return (first, second), "Not sure of anything: times alone say nothing here."
    only = decision.cheapest
    takes = f"It takes {_seconds(analysis, only)} {clock(analysis)}."
    return (f"There is nothing to choose between: only {described(only)} can be compared.", takes), unsure


def accuracies(analysis: Analysis) -> str:
    """How far apart the groups' accuracies are, or who has none; of regressions their errors."""
    if analysis.is_regression:
        errors = [f"{group.name} {number(group.rmse)}" for group in analysis.groups if group.rmse is not None]
        return f"The mean test RMSE: {', '.join(errors)}."
    without = [name for name, accuracy in analysis.accuracies.items() if accuracy is None]
    if without:
        return f"These have no test accuracy in all their trials: {', '.join(without)}."
    known = {name: accuracy for name, accuracy in analysis.accuracies.items() if accuracy is not None}
    least, most = min(known, key=lambda name: known[name]), max(known, key=lambda name: known[name])
    return (
        f"The mean test accuracies are {number(100 * (known[most] - known[least]))} percentage points apart: "
        f"{least} {known[least]:.1%}, {most} {known[most]:.1%}."
    )


def _sure(analysis: Analysis, decision: Decision) -> str:
    groups = 1 + len(decision.others)
    return (
        f"Sure: {_trials(analysis)} per group, and at most {1 - decision.confidence:.0%} of such comparisons recommend "
        f"wrongly, with {groups} groups compared and however many trials are added."
    )


def _not_sure(analysis: Analysis, decision: Decision) -> str:
    if decision.doubtful:
        return f"Not sure: whether {_names(list(decision.doubtful))} reach the target is a matter of chance."
    if not decision.open:
        return f"Not sure: {_trials(analysis)} of {_chosen(decision).name} say too little."
    said = f"Not sure: {_trials(analysis)} per group, and {counted(len(decision.open), 'group')} could be faster"
    if decision.more_trials is not None:
        return f"{said}; about {counted(decision.more_trials, 'more trial')} of each would tell."
    return f"{said}; {sequential.MOST_MORE} more trials of each would probably not tell, so close are they."


def _cost(analysis: Analysis, decision: Decision) -> list[str]:
    shown = [decision.chosen, decision.cheapest, decision.fastest]
    groups = list({group.name: group for group in shown if group is not None}.values())
    lines = [f"{group.name}: {price(analysis, group)}." for group in groups]
    if len(groups) > 1 and decision.chosen is not None:
        least = min(groups, key=lambda group: analysis.core_seconds(group) or 0.0)
        if (analysis.core_seconds(least) or 0.0) < _CHEAPER * (analysis.core_seconds(decision.chosen) or 0.0):
            lines.append(f"Take {least.name} where core-seconds count more than waiting.")
    return lines


def _next_steps(analysis: Analysis, decision: Decision) -> list[str]:
    lines = []
    if decision.verdict == "nothing" and decision.cheapest is not None and not analysis.learnt_alike:
        if analysis.is_regression:
            return [
                "Train all groups until their test RMSE no longer falls (epochs), or leave those that learn less out: "
                "a regression has no target accuracy to measure times to."
            ]
        remedy = (
            "Say which accuracy is good enough"
            if analysis.target is None
            else "Train longer, or say which lower accuracy is good enough"
        )
        lines.append(
            f"{remedy}: sparkdl-bench report … --target-accuracy X, a share of the test rows such as 0.95. Then the "
            "time until it was reached counts, and who did not reach it is not recommended."
        )
    if decision.verdict == "recommended":
        lines.append(_train_so(analysis, _chosen(decision)))
    if decision.verdict == "not-decided" and decision.more_trials is not None:
        most = max(len(group.records) for group in analysis.groups) + decision.more_trials
        lines.append(_measure_more(analysis, most))
    if decision.doubtful:
        lines.append(
            f"Train longer, or ask for a lower target, so that {_names(list(decision.doubtful))} reach it always or "
            "never: sparkdl-bench report … --target-accuracy X."
        )
    elif decision.verdict == "not-decided" and decision.more_trials is None:
        lines.append(
            f"Take {_chosen(decision).name}: what could be gained beside it is about the margin that matters at most."
        )
    if any(group.failed for group in analysis.groups):
        lines.append("Find out why trials failed: the table of all runs has the errors.")
    over = [group for group in analysis.groups if analysis.is_oversubscribed(group)]
    if over and analysis.host_cores:
        lines.append(
            f"Measure {_names(over)} on more cores before deciding about them: they share the host's "
            f"{counted(analysis.host_cores, 'core')} here."
        )
    if _share_a_host(analysis):
        lines.append(
            "Repeat this on the cluster's own machines: all workers shared one machine here, and between machines the "
            "network counts too (sparkdl-bench net measures it)."
        )
    trained = [group for group in analysis.groups if group.records]
    if trained and not analysis.is_from_command and all(group.batch for group in analysis.groups):
        lines.append(
            "Compare again, with fresh = true, to have the time that a user waits: these records count by the runs' "
            "own clocks, without the start of Python, the JVM and the executors."
        )
    return lines


def _train_so(analysis: Analysis, chosen: Group) -> str:
    """How to train as the chosen group did: the settings in which it differs from the others."""
    if peer := chosen.first.get("variant", {}).get("peer"):
        # A record tells Spark's version, also one of a peer that is no longer there.
        if peers.is_on_spark(str(peer)) or chosen.first.get("facts", {}).get("spark"):
            return f"Train with {chosen.name}, which runs on Spark too."
        return f"Train with {chosen.name}, without Spark, while the rows fit on one machine."
    mine = chosen.first.get("settings", {})
    others = [group.first.get("settings", {}) for group in analysis.groups if group is not chosen]
    varied = {
        key: value
        for key, value in mine.items()
        if key not in OF_A_TRIAL and any(key in other and other[key] != value for other in others)
    }
    if not varied:
        return f"Train as {chosen.name} did: Configuration and machine, below, has its settings."
    return (
        f"Train like this: sparkdl-bench run CONF {' '.join(f'--set {key}={value}' for key, value in varied.items())}"
    )


def _measure_more(analysis: Analysis, most: int) -> str:
    if str(analysis.comparison.plan.get("name", "")).startswith(QUICK):
        return (
            "Measure more: the same `sparkdl-bench try` once more, with --resume and more --minutes (from Python "
            "compare(…, resume=True, minutes=…))."
        )
    return f"Measure more: sparkdl-bench compare … --resume --trials {most}."


def _details(analysis: Analysis, decision: Decision) -> list[str]:
    lines = [break_even(each) for each in decision.break_even]
    if decision.ties and decision.chosen is not None:
        lines.append(
            f"Perhaps as fast as {decision.chosen.name}, but not faster by a margin that matters, and not cheaper: "
            f"{_names([each.group for each in decision.ties])}."
        )
    lines += _wider(decision)
    lines += _reservations(analysis, decision)
    return lines


def break_even(found: BreakEven) -> str:
    """`B wins after about 3,300 steps (about 7 passes, 422,400 rows): 5.8 s more to start, 1.8 ms less per step.`"""
    more, less = found.more_to_start_s, found.less_per_step_ms
    start = f"{number(abs(more))} s {'more' if more > 0 else 'less'} to start"
    step = f"{number(abs(less))} ms {'less' if less > 0 else 'more'} per step"
    one, other = found.group.name, found.other.name
    many = one.endswith((" workers", " hosts", " executors", " processes"))
    wins, overtakes, ahead = ("win", "overtake", "are") if many else ("wins", "overtakes", "is")
    its = "their" if many else "its"
    if found.kind == "never":
        return f"{one} never {overtakes} {other}: {start}, and {its} step is not shorter ({step})."
    if found.kind == "from the first step":
        return f"{one} {ahead} ahead of {other} from the first step: {start}, {step}."
    if found.kind == "unknown":
        return (
            f"When {one} {ahead} ahead of {other} is not known: {start}, {step}, and at least one of these two "
            "differences may be chance."
        )
    if found.kind == "one trial":
        return (
            f"When {one} {overtakes} {other} cannot be told from one trial: it was {start}, {step}, and nothing says "
            f"how far both vary. That takes {FEWEST_TRIALS} trials of each at least, and {sequential.ENOUGH_TRIALS} to "
            "know it well."
        )
    passes = "" if found.passes is None else f"about {number(found.passes, 2)} passes over the training set, "
    rows = "" if found.rows is None else f" ({passes}{_about(found.rows)} rows)"
    sure = "" if found.interval is None else f"; {between(found.interval)} steps"
    after = (
        f"{wins} over {other} after about" if found.kind == "after" else f"{ahead} ahead of {other} for about the first"
    )
    return f"{one} {after} {_about(found.steps or 0.0)} steps{rows}: {start}, {step}{sure}."


def _reservations(analysis: Analysis, decision: Decision) -> list[str]:
    """What speaks against the chosen one, or against what was measured."""
    lines = []
    chosen = decision.chosen
    if chosen is not None:
        lines.append(_learnt(chosen))
        if not analysis.reaches_target(chosen):
            lines.append(
                f"No group reached {analysis.target:.1%} test accuracy in all its trials: this one is fast, and may "
                "not learn."
            )
        if chosen.failed:
            count = len(chosen.failures) + len(chosen.records)
            lines.append(f"{len(chosen.failed)} of the {count} trials of {chosen.name} failed: find out why first.")
    if decision.out:
        lines.append(
            f"Left aside, since they did not reach {analysis.target or 0.0:.1%} in all their trials: "
            f"{', '.join(group.name for group in decision.out)}."
        )
    over = [group for group in analysis.groups if analysis.is_oversubscribed(group)]
    if over and analysis.host_cores:
        lines.append(
            f"The host has {counted(analysis.host_cores, 'core')}; these ask for more and share them: "
            f"{', '.join(f'{group.name} ({group.cores})' for group in over)}."
        )
    lines += more_cores(analysis)
    if analysis.unsteady:
        names = ", ".join(group.name for group in analysis.unsteady)
        lines.append(f"Not steady, steps became faster or slower by more than a tenth while measured: {names}.")
    busy = [
        record
        for group in analysis.groups
        for record in group.records
        if record.get("load", {}).get("busy", 0.0) > machine.BUSY_LIMIT
    ]
    if busy:
        lines.append(f"The machine was busy before {counted(len(busy), 'trial')}: do not trust small differences.")
    if analysis.one_seed_decides:
        found = [epochs for group in analysis.groups if (epochs := group.centre(EPOCHS)) is not None]
        lines.append(
            f"The epochs to the target ({number(min(found))} to {number(max(found))}) are those of one seed: set "
            "seed_per_trial = true to know how they vary."
        )
    return lines


def more_cores(analysis: Analysis) -> list[str]:
    """Peers that did not keep to the cores that they were given, by the trials in which that was seen."""
    lines = []
    for group in analysis.groups:
        told = [record.get("facts", {}).get("cores_in_use") for record in group.records]
        seen = [float(used) for used in told if used is not None]
        used = statistics.median(seen) if seen else 0.0
        if peer_run.takes_more_cores(used, group.cores):
            lines.append(
                f"{group.name} used {used:.1f} cores while it trained, and was given {counted(group.cores, 'core')}: "
                "its times are those of more cores than the others had."
            )
    return lines


def _learnt(group: Group) -> str:
    if group.rmse is not None:
        mean = "" if len(group.records) == 1 else f" (mean of {counted(len(group.records), 'trial')})"
        return f"The test RMSE of {group.name} at the end is {number(group.rmse)}{mean}, in the label's unit."
    if group.accuracy is None:
        return f"No test accuracy is known for all trials of {group.name}: whether it learns cannot be said."
    mean = "" if len(group.records) == 1 else f" (mean of {counted(len(group.records), 'trial')})"
    return f"The test accuracy of {group.name} at the end is {group.accuracy:.1%}{mean}."


def _wider(decision: Decision) -> list[str]:
    """The intervals that the decision is made by, of those that keep it open."""
    known = [each for each in decision.open if math.isfinite(each.interval.high)]
    if not known:
        return []
    each = ", ".join(f"{one.group.name} {number(one.interval.low)} to {number(one.interval.high)}" for one in known)
    return [
        f"For the decision these count as so many times as fast: {each}. That is wider than 95 %, since it has to hold "
        "for all groups, and for every trial that is added."
    ]


def _slower(analysis: Analysis, chosen: Group, each: Beside, how: str) -> str:
    """`1.3 times slower, B (95 % CI 1.2 to 1.4)`, above 1 whichever of the two is faster."""
    slow, fast = (chosen, each.group) if each.speed_up >= 1 else (each.group, chosen)
    ratio = number(max(each.speed_up, 1 / each.speed_up))
    return f"{ratio} times {how}, {each.group.name} ({_contrast_interval(analysis, slow, fast)})"


def _faster(analysis: Analysis, chosen: Group, default: Beside) -> str:
    """`2 times faster than the cheapest, B (95 % CI 1.9 to 2.1)`, where the chosen one does not cost as little."""
    same = analysis.cores_used(chosen) == analysis.cores_used(default.group)
    than = "another on as many cores" if same else "the cheapest"
    return _slower(analysis, chosen, default, f"faster than {than}")


def _contrast_interval(analysis: Analysis, slow: Group, fast: Group) -> str:
    """The 95 % interval of these two alone, as tables have it."""
    contrast = analysis.contrast(fast, slow)
    return "one trial, no interval" if contrast is None else between(contrast.effect.interval)


def _seconds(analysis: Analysis, group: Group) -> str:
    return f"{number(group.centre(analysis.metric) or 0.0)} s"


def _how_open(decision: Decision) -> str:
    if decision.doubtful:
        return "Not decided; until then"
    if decision.more_trials is None:
        return "Too close to call;"
    return f"Not decided: about {counted(decision.more_trials, 'more trial')} per group would tell; until then"


def _trials(analysis: Analysis) -> str:
    counts = sorted({len(group.records) for group in analysis.groups if group.records})
    return counted(counts[0], "trial") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} trials"


def _names(groups: list[Group]) -> str:
    names = [group.name for group in groups]
    if len(names) <= _MOST_NAMES:
        return " and ".join(names) if len(names) <= 2 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{', '.join(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES} more"


def _about(value: float) -> str:
    """Two significant digits: 3,300."""
    return f"{float(f'{value:.2g}'):,.0f}"


def _is_alone(analysis: Analysis) -> bool:
    return all(group.is_one_machine for group in analysis.groups)


def _share_a_host(analysis: Analysis) -> bool:
    return analysis.shares_a_host and not _is_alone(analysis)


def _chosen(decision: Decision) -> Group:
    if decision.chosen is None:
        raise AssertionError(f"The verdict '{decision.verdict}' has no chosen group.")
    return decision.chosen
