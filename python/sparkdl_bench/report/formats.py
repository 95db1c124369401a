"""The other forms of a report: Markdown, CSV, JSON, PNG. The same numbers as the page."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.files import replace_text, replacing
from sparkdl_bench.report import findings, kept, machines, plots, tables, vega
from sparkdl_bench.report.analysis import (
    ACCURACY,
    DRIFT,
    EPOCHS,
    LABELS,
    RATE,
    STEP,
    TO_ACCURACY,
    TOTAL,
    WAITED,
    WAITED_TO_ACCURACY,
    Analysis,
    analyse,
)
from sparkdl_bench.report.answer import answer
from sparkdl_bench.report.decision import decide
from sparkdl_bench.report.load import Results
from sparkdl_bench.report.plots import Plot
from sparkdl_bench.report.tables import Table

BANDWIDTH = "bandwidth"
_METRICS = (
    WAITED_TO_ACCURACY,
    TO_ACCURACY,
    EPOCHS,
    WAITED,
    TOTAL,
    STEP,
    RATE,
    ACCURACY,
    "ms_per_step_p90",
    "best_accuracy",
    DRIFT,
)


def markdown(results: Results) -> str:
    """The answer, what was measured in sentences, and tables."""
    return _markdown(results, {})


def folder(results: Results, path: Path) -> list[Path]:
    """What is kept with a repository or sent on: `report.md` with its pictures, and beside it `machine.json` and
    `records.json.gz`.

    Pictures and tables are the page's; `machine.json` holds each comparison's plan, machine, commit and beginning; of
    the records every form of the report can be made again.
    """
    written = _pictures(results, path)
    files = [path / name for name in ("report.md", "machine.json", kept.RECORDS)]
    replace_text(files[0], _markdown(results, {name: (plot, file.name) for name, plot, file in written}))
    replace_text(files[1], circumstances(results))
    records(results, files[2])
    return [*files, *(file for _, _, file in written)]


def records(results: Results, path: Path) -> None:
    """Writes the file of which `report` makes every form again."""
    kept.write(path, [each.kept for each in results.comparisons if each.records], results.net)


def circumstances(results: Results) -> str:
    """The plan, the machine, the commit and the beginning of each comparison, as JSON (`machine.json`)."""
    facts = [{"title": each.title, **each.configuration} for each in results.comparisons if each.records]
    return json.dumps({"schema": 1, "comparisons": facts}, indent=1, ensure_ascii=False) + "\n"


def _markdown(results: Results, shown: Mapping[str, tuple[Plot, str]]) -> str:
    """`shown`: pictures and their files by the names that `_named_plots` gives."""
    parts: list[str] = []
    analyses = _analyses(results)
    if table := machines.beside(analyses):
        parts += [line for name in shown if name == machines.NAME for line in _picture(*shown[name])]
        parts += [_markdown_table(table), ""]
    for index, analysis in enumerate(analyses):
        before = _before(index, analyses)
        pictures = [_picture(*shown[name]) for name in shown if _is_of(name, before)]
        parts += [f"# {analysis.comparison.title}", "", *_answer(analysis, pictures[:1])]
        parts += ["## What was measured", "", " · ".join(findings.circumstances(analysis.comparison.content)), ""]
        parts += [*(f"- {line}" for line in findings.summary(analysis)), ""]
        parts += [line for picture in pictures[1:] for line in picture]
        for table in tables.all_tables(analysis):
            parts += [_markdown_table(table), ""]
    if results.net:
        parts += [line for name in shown if name == BANDWIDTH for line in _picture(*shown[name])]
        parts += [_markdown_table(tables.bandwidth(results.net)), ""]
    return "\n".join(parts)


def _answer(analysis: Analysis, pictures: Sequence[Sequence[str]]) -> list[str]:
    """The answer, one picture, the cost, and what to do next."""
    found = answer(analysis)
    lines = [f"**{found.sentences[0]}** {found.sentences[1]}", "", found.sureness, ""]
    lines += [line for picture in pictures for line in picture]
    for title, said in (("Cost", found.cost), ("What to do next", found.next_steps), ("Details", found.details)):
        if said:
            lines += [f"## {title}", "", *(f"- {line}" for line in said), ""]
    return lines


def _picture(plot: Plot, file: str) -> list[str]:
    return [f"![{plot.description}]({file})", ""]


def comma_separated(results: Results) -> str:
    """One line per run (its factors, numbers, phases, layers, bytes), or one line per row of `sparkdl-bench net`.

    Raises:
        ConfigurationError: the results hold both, which are two tables, and a CSV file is one.
    """
    records = [record for comparison in results.comparisons for record in comparison.records]
    if records and results.net:
        raise ConfigurationError(
            f"The results hold {len(records)} runs and {len(results.net)} rows of `sparkdl-bench net --json`, and a "
            "CSV file is one table. Make two reports, one of the folders of runs and one of net's files, or take "
            "--format json, which holds both."
        )
    return _runs_separated(records) if records else _net_separated(results.net)


def _runs_separated(records: Sequence[Mapping[str, Any]]) -> str:
    head = ["comparison", "group", "trial", "warmup", "status", "error", "workers", "threads", "cores", "batch"]
    # A factor that is among these already is no second column of that name.
    factors = [name for name in _names(records, "factors") if name not in head]
    phases, layers = _names(records, "phases_ms"), _names(records, "layers_s")
    channels, loads = _names(records, "bytes"), _names(records, "load")
    columns = [*head, *factors, *_METRICS, *(f"{name}_ms" for name in phases), *(f"{name}_s" for name in layers)]
    rows = []
    for record in records:
        row = [record.get(name, "") for name in head]
        row += [record["factors"].get(name, "") for name in factors]
        for part, names in (
            ("metrics", _METRICS),
            ("phases_ms", phases),
            ("layers_s", layers),
            ("bytes", channels),
            ("load", loads),
        ):
            row += [_blank(record.get(part, {}).get(name)) for name in names]
        rows.append(row)
    return _separated([*columns, *(f"{name}_bytes" for name in channels), *(f"load_{name}" for name in loads)], rows)


def _net_separated(rows: Sequence[Mapping[str, Any]]) -> str:
    """All that a row holds but its list of samples."""
    names = dict.fromkeys(name for row in rows for name, value in row.items() if not isinstance(value, list))
    return _separated(list(names), [[_blank(row.get(name)) for name in names] for row in rows])


def _separated(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return buffer.getvalue()


def as_json(results: Results) -> str:
    """Everything that the page says, for programs."""
    analyses = _analyses(results)
    table = machines.beside(analyses)
    content = {
        "schema": 1,
        "comparisons": [_described(analysis) for analysis in analyses],
        **({"machines": _rows(table)} if table else {}),
        "net": results.net,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def pictures(results: Results, path: Path) -> list[Path]:
    """A PNG file for each picture in the folder `path`, in light colours, 192 dots per inch."""
    return [file for _, _, file in _pictures(results, path)]


def _pictures(results: Results, path: Path) -> list[tuple[str, Plot, Path]]:
    path.mkdir(parents=True, exist_ok=True)
    written = []
    for name, plot in _named_plots(results):
        file = path / f"{name}.png"
        with replacing(file) as partial:
            partial.write_bytes(vega.png(plot))
        written.append((name, plot, file))
    return written


def _named_plots(results: Results) -> list[tuple[str, Plot]]:
    """Every picture; those of several comparisons are numbered."""
    analyses = _analyses(results)
    found = [
        (f"{_before(index, analyses)}{plot.name}", plot)
        for index, analysis in enumerate(analyses)
        for plot in plots.all_plots(analysis)
    ]
    of_all = ((machines.NAME, machines.plot(analyses)), (BANDWIDTH, plots.bus_bandwidth(results.net)))
    return [*found, *((name, plot) for name, plot in of_all if plot)]


def _is_of(name: str, before: str) -> bool:
    return name not in (machines.NAME, BANDWIDTH) and name.startswith(before)


def _before(index: int, analyses: Sequence[Analysis]) -> str:
    return f"{index + 1}-" if len(analyses) > 1 else ""


def _analyses(results: Results) -> list[Analysis]:
    return [analyse(comparison) for comparison in results.comparisons if comparison.records]


def _names(records: Sequence[Mapping[str, Any]], part: str) -> list[str]:
    return list(dict.fromkeys(name for record in records for name in record.get(part, {})))


def _blank(value: Any) -> Any:
    return "" if value is None else value


def _markdown_table(table: Table) -> str:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rows = [line([cell.text for cell in row]) for row in table.rows]
    note = [table.note, ""] if table.note else []
    return "\n".join(
        [f"## {table.title}", "", *note, line(list(table.headings)), line(["---"] * len(table.headings)), *rows]
    )


def _described(analysis: Analysis) -> dict[str, Any]:
    found = decide(analysis)
    return {
        "title": analysis.comparison.title,
        "commit": analysis.comparison.content.get("commit"),
        "machine": analysis.comparison.content.get("machine"),
        "metric": analysis.metric,
        "metric_label": LABELS[analysis.metric],
        "target_accuracy": analysis.target,
        "summary": findings.summary(analysis),
        "recommendation": findings.recommendation(analysis),
        "sureness": answer(analysis).sureness,
        "verdict": found.verdict,
        "chosen": found.chosen.name if found.chosen else None,
        "more_trials": found.more_trials,
        "tables": {table.name: _rows(table) for table in tables.all_tables(analysis)},
    }


def _rows(table: Table) -> list[dict[str, float | str | None]]:
    return [{heading: _key(cell.key) for heading, cell in zip(table.headings, row, strict=True)} for row in table.rows]


def _key(key: float | str) -> float | str | None:
    return key if isinstance(key, str) or math.isfinite(key) else None
