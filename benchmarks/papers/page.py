"""The page of an experiment, in Markdown: the paper's numbers and ours, what agrees, what was scaled down and why."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from papers import beside, charts
from papers.beside import Beside
from papers.experiment import SMALLEST, Experiment, Job, Measured, Part, Story
from papers.published import Paper
from sparkdl_bench.report import findings
from sparkdl_bench.report.analysis import ACCURACY, STEP, WAITED, Analysis, Group
from sparkdl_bench.report.vega import Plot

_SAID = ("", "the paper", "where in the paper")


@dataclass(frozen=True)
class Page:
    """Text and the pictures that it names."""

    text: str
    plots: Sequence[Plot]


def make(experiment: Experiment, paper: Paper, measured: Measured) -> Page:
    """The same for the same records."""
    story = experiment.story(paper, measured)
    units = dict.fromkeys(line.unit for line in story.beside)
    plots = [plot for unit in units if (plot := charts.beside(story.beside, unit)) is not None]
    plots += story.plots
    parts = [
        f"# Experiment {experiment.letter}: {experiment.title}",
        f"{experiment.question} The paper: {paper.paper.citation}.",
        *_warning(measured),
        f"**{beside.summary(story.beside)}**",
        *(f"![{plot.description}]({plot.name}.png)" for plot in plots),
        "## The paper's numbers and ours",
        _beside_table(paper, story),
        "Ratios are of geometric means over the trials; in brackets the 95 % interval (Welch's, on logarithms).",
        "## What agrees and what does not",
        "\n".join(f"- {line.sentence}" for line in story.beside if line.ours and line.theirs)
        or "- Nothing was compared.",
        *story.sentences,
        *(text for title, table in story.tables for text in (f"## {title}", table)),
        "## What was scaled down, and why",
        "\n".join(f"- {line}" for line in [*experiment.scaled, *_absent(experiment, measured)]),
        *_not_measured(paper, story),
        "## The paper's experiment",
        _of_paper(paper),
        "## What was measured here",
        *_measured(experiment, measured),
    ]
    return Page("\n\n".join(part for part in parts if part) + "\n", plots)


def _warning(measured: Measured) -> list[str]:
    if measured.size != SMALLEST:
        return []
    return [
        "**These runs are the smallest ones, which only show that everything works. No number here is a measurement.**"
    ]


def _beside_table(paper: Paper, story: Story) -> str:
    says = _saying(paper)
    rows = [[*says(line), f"{line.ours} {line.unit}", line.verdict] for line in story.beside if line.ours]
    return table([*_SAID, "here", "agreement"], rows) if rows else "Nothing yet."


def _not_measured(paper: Paper, story: Story) -> list[str]:
    """Apart from what was compared, so that the paper's many numbers do not hide the few that are here too."""
    says = _saying(paper)
    rows = [says(line) for line in story.beside if line.theirs and not line.ours]
    return ["## The paper's numbers that were not measured here", table(_SAID, rows)] if rows else []


def _saying(paper: Paper) -> Callable[[Beside], list[str]]:
    """What fills the columns of _SAID: the line's label, the paper's number and where in the paper it stands."""
    where = {id(value): each.where for each in paper.published for value in each.values}
    return lambda line: [
        line.label,
        f"{line.theirs} {line.unit}" if line.theirs else "–",
        where.get(id(line.theirs), "–"),
    ]


def _absent(experiment: Experiment, measured: Measured) -> list[str]:
    what = {each.name: each.what for each in experiment.pieces}
    found = [f"Not measured: {what.get(name, name)}, because {reason}." for name, reason in measured.absent.items()]
    for part in experiment.parts:
        analysis = measured.analyses.get(part.name)
        if analysis is None:
            continue
        skipped = analysis.comparison.content.get("skipped", {})
        found += [f"Not measured in part {part.name}: {group}. {reason}" for group, reason in skipped.items()]
        left = len(analysis.comparison.content.get("order", ())) - len(analysis.comparison.records)
        if left > 0:
            found.append(f"Of part {part.name} {left} runs are not done yet.")
        failed = {group.name: group.failures[0]["error"] for group in analysis.groups if group.failures}
        found += [f"A run of part {part.name} failed: {group}. {error}" for group, error in failed.items()]
    return found


def _of_paper(paper: Paper) -> str:
    lines = [f"- {each.name}: {each.what}" for each in paper.hardware]
    lines += [f"- {each.name}: {each.version}" for each in paper.software]
    lines += [f"- {each.name}: {each.value:,g} {each.unit}" for each in paper.setting]
    lines += [f"- It says, without a number ({each.where}): {each.what}." for each in paper.claim]
    lines += [f"- No numbers for: {each.what} ({each.where})." for each in paper.missing]
    return "\n".join(lines)


def _measured(experiment: Experiment, measured: Measured) -> list[str]:
    found: list[str] = []
    for part in experiment.parts:
        analysis = measured.analyses.get(part.name)
        if analysis is not None:
            found += [f"### {part.what}", _circumstances(analysis), _command(part, measured.size), _groups(analysis)]
    for job in experiment.jobs:
        if job.name in measured.jobs:
            found += [f"### {job.what}", _job(job, measured.jobs[job.name])]
    return found or ["Nothing yet."]


def _circumstances(analysis: Analysis) -> str:
    return " · ".join(findings.circumstances(analysis.comparison.content))


def _command(part: Part, size: str) -> str:
    lab = f"sparkdl-bench lab up {part.lab_name} {' '.join(part.lab)}\n" if part.lab else ""
    beside_it = "# a second Spark job computes on all cores meanwhile\n" if part.busy else ""
    return f"```bash\n{lab}{beside_it}sparkdl-bench {shlex.join(part.command(size, 'DATA', 'DECODED'))}\n```"


def _groups(analysis: Analysis) -> str:
    rows = [_group(group) for group in analysis.groups if group.records]
    headings = ["group", "cores", "trials", "s an epoch", "ms per step", "steps", "of them to warm up"]
    notes = {group.name: note for group in analysis.groups for each in group.records if (note := _warmup_note(each))}
    said = "".join(f"\n- {name}: {note}." for name, note in notes.items())
    return table([*headings, "test accuracy", "s from command to end"], rows) + (f"\n{said}" if said else "")


def _warmup_note(record: Any) -> str:
    return str(record.get("warmup_note", ""))


def _group(group: Group) -> list[str]:
    accuracy = group.centre(ACCURACY)
    return [
        group.name,
        str(group.cores),
        str(len(group.records)),
        _spread(epoch_seconds(group)),
        _spread(group.values(STEP)),
        f"{sum(len(record['steps_ms']) for record in group.records) / len(group.records):,.0f}",
        _left_out(group),
        "–" if accuracy is None else f"{100 * accuracy:.2f} %",
        _spread(group.values(WAITED)),
    ]


def _left_out(group: Group) -> str:
    """Of the steps those that count for no time a step; records from before that was kept do not say."""
    told = [record["warmup_left_out"] for record in group.records if "warmup_left_out" in record]
    return f"{sum(told) / len(told):,.0f}" if told else "–"


def epoch_seconds(group: Group) -> list[float]:
    """Seconds of a pass over the training rows, a number a trial: rows over the rows per second after the warm-up."""
    found = []
    for record in group.records:
        rows = train_rows(record)
        rate = record["metrics"].get("rows_per_second")
        if rows and rate:
            found.append(rows / float(rate))
    return found


def train_rows(record: Any) -> int:
    """Of a trial, as a run or a peer says; 0 where neither does."""
    facts = record.get("facts", {})
    return int(facts.get("train_rows") or facts.get("data", {}).get("train_rows") or 0)


def _job(job: Job, runs: Sequence[Any]) -> str:
    seconds = [float(each["seconds"]) for each in runs]
    said = "".join(f"\n- it says: {line}" for line in runs[-1]["said"])
    return f"- `sparkdl-bench {shlex.join(job.words).replace('{data}', 'DATA')}`\n- {_spread(seconds)} s{said}"


def _spread(values: Sequence[float]) -> str:
    estimate = beside.centre(values)
    if estimate is None:
        return "–"
    return str(estimate).removesuffix(" (one trial)")


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
