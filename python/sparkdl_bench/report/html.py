"""The page: one file, nothing loaded from elsewhere. Each comparison starts with its answer."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape as _escape
from pathlib import Path

from sparkdl_bench.report import findings, machines, plots, tables, vega
from sparkdl_bench.report.analysis import Analysis, analyse
from sparkdl_bench.report.answer import Answer, answer
from sparkdl_bench.report.decision import decide
from sparkdl_bench.report.load import Results
from sparkdl_bench.report.tables import Cell, Table
from sparkdl_bench.report.vega import Plot, Series

# A number and its unit stand on one line.
_WITH_UNIT = re.compile(r"(?<=\d) (?=(?:%|s|ms|GiB|MB|kB|cores?|steps?)(?![\w-]))")
_TEMPLATE = Path(__file__).with_name("page.html")
_OPEN = ("groups", machines.NAME)
# A table of so many rows has a field that filters them.
_MANY_ROWS = 8


class _Page:
    """What a page is put together from: its sections, and the links to them."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.links: list[tuple[str, str, bool]] = []

    def link(self, anchor: str, text: str, is_comparison: bool = False) -> None:
        self.links.append((anchor, text, is_comparison))

    @property
    def navigation(self) -> str:
        return "".join(
            f'<li{" class=top" if is_comparison else ""}><a href="#{anchor}">{escape(text)}</a></li>'
            for anchor, text, is_comparison in self.links
        )


def escape(text: str, quote: bool = False) -> str:
    """As HTML, with a number and its unit kept together."""
    return _escape(_WITH_UNIT.sub("\u00a0", text), quote=quote)


def page(results: Results) -> str:
    """The whole report as HTML."""
    analyses = [analyse(comparison) for comparison in results.comparisons if comparison.records]
    answers = [answer(analysis) for analysis in analyses]
    made = _Page()
    if len(analyses) > 1:
        _index(analyses, answers, made)
        _machines(analyses, made)
    for at, (analysis, found) in enumerate(zip(analyses, answers, strict=True), start=1):
        _comparison(analysis, found, f"c{at}", len(analyses) > 1, made)
    if results.net:
        _net(results, made)
    title = ", ".join(analysis.comparison.title for analysis in analyses) or "All-reduces"
    content = "\n".join(made.parts)
    text = _TEMPLATE.read_text(encoding="utf-8")
    for marker, value in (
        ("TITLE", escape(title)),
        ("NAVIGATION", made.navigation),
        ("CONTENT", content),
        ("CHARTS", f"<script>{vega.script()}</script>" if 'class="chart"' in content else ""),
    ):
        text = text.replace(f"<!--{marker}-->", value)
    return text


def _index(analyses: Sequence[Analysis], answers: Sequence[Answer], made: _Page) -> None:
    made.link("index", "All comparisons", is_comparison=True)
    lines = "".join(
        f'<li><a href="#c{at}-answer">{escape(analysis.comparison.title)}</a><p>{escape(found.sentences[0])}</p></li>'
        for at, (analysis, found) in enumerate(zip(analyses, answers, strict=True), start=1)
    )
    made.parts.append(f'<section><h2 id="index">All comparisons</h2><ul class="index">{lines}</ul></section>')


def _machines(analyses: Sequence[Analysis], made: _Page) -> None:
    table, plot = machines.beside(analyses), machines.plot(analyses)
    if table is None or plot is None:
        return
    made.link(machines.NAME, machines.TITLE, is_comparison=True)
    picture = f'<div class="plots">{_figure(plot, "all")}</div>'
    made.parts.append(f"<section>{_heading(2, machines.NAME, machines.TITLE)}{picture}</section>")
    made.parts.append(_table(table, "all"))


def _comparison(analysis: Analysis, found: Answer, prefix: str, several: bool, made: _Page) -> None:
    title = analysis.comparison.title
    made.link(f"{prefix}-answer", title if several else "Answer", is_comparison=several)
    heading = title if several else "Answer"
    made.parts.append(
        f"<section>{_heading(2, f'{prefix}-answer', heading)}{_facts(analysis)}{_answer(analysis, found)}</section>"
    )
    pictures = plots.all_plots(analysis)
    first, others = (pictures[0] if pictures else None), pictures[1:]
    if first is not None:
        made.parts.append(f'<section class="hero">{_figure(first, prefix)}</section>')
    _list("Cost", f"{prefix}-cost", found.cost, made)
    _list("What to do next", f"{prefix}-next", found.next_steps, made)
    _list("How this answer was found", f"{prefix}-details", found.details, made)
    every = tables.all_tables(analysis)
    for table in every:
        if table.name in _OPEN:
            made.link(f"{prefix}-{table.name}", table.title)
            made.parts.append(_table(table, prefix))
    if others:
        made.link(f"{prefix}-plots", "Charts")
        inside = "\n".join(_figure(plot, prefix) for plot in others if plot is not None)
        made.parts.append(
            f'<section>{_heading(3, f"{prefix}-plots", "Charts")}<div class="plots">{inside}</div></section>'
        )
    _list("Findings", f"{prefix}-summary", findings.summary(analysis), made)
    for table in every:
        if table.name not in _OPEN:
            made.link(f"{prefix}-{table.name}", table.title)
            made.parts.append(_table(table, prefix))
    made.link(f"{prefix}-configuration", "Configuration and machine")
    made.parts.append(_configuration(analysis, prefix))


def _answer(analysis: Analysis, found: Answer) -> str:
    first, second = found.sentences
    more = f"<p>{escape(second)}</p>" if second else ""
    return (
        f'<div class="answer {decide(analysis).verdict}"><p class="first">{escape(first)}</p>{more}'
        f'<p class="sureness">{escape(found.sureness)}</p></div>'
    )


def _list(title: str, anchor: str, lines: Sequence[str], made: _Page) -> None:
    if not lines:
        return
    made.link(anchor, title)
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    made.parts.append(f'<section>{_heading(3, anchor, title)}<ul class="lines">{items}</ul></section>')


def _net(results: Results, made: _Page) -> None:
    made.link("net-answer", "All-reduces", is_comparison=True)
    plot = plots.bus_bandwidth(results.net)
    figure = f'<div class="plots">{_figure(plot, "net")}</div>' if plot is not None else ""
    made.parts.append(f"<section>{_heading(2, 'net-answer', 'All-reduces')}{figure}</section>")
    made.parts.append(_table(tables.bandwidth(results.net), "net"))


def _heading(level: int, anchor: str, text: str) -> str:
    return f'<h{level} id="{anchor}">{escape(text)}</h{level}>'


def _facts(analysis: Analysis) -> str:
    facts = findings.circumstances(analysis.comparison.content)
    return f'<p class="facts">{escape(" · ".join(facts))}</p>'


def _figure(plot: Plot, prefix: str) -> str:
    name = f"{prefix}-plot-{plot.name}"
    note = f'<p class="note">{escape(plot.note)}</p>' if plot.note else ""
    legend = f'<ul class="legend">{"".join(map(_legend, plot.series))}</ul>' if plot.series else ""
    return (
        f'<figure id="{name}" class="chart"><figcaption>{escape(plot.title)}</figcaption>{note}'
        f'<div class="picture" tabindex="0" role="group" aria-label="Picture: {escape(plot.title, quote=True)}">'
        f"{vega.svg(plot, name)}</div>{legend}"
        f'<script type="application/json">{vega.live(plot)}</script></figure>'
    )


def _legend(series: Series) -> str:
    kind = "dashed" if series.dash else "solid"
    return (
        f'<li data-series="{_escape(series.name, quote=True)}"><span class="swatch" '
        f'style="border-top: 4px {kind} {series.colour}"></span><span>{escape(series.name)}</span></li>'
    )


def _table(table: Table, prefix: str) -> str:
    anchor = f"{prefix}-{table.name}"
    numeric = [all(not isinstance(row[at].key, str) for row in table.rows) for at in range(len(table.headings))]
    head = "".join(
        f'<th scope="col"{" class=n" if is_number else ""}><button type="button">{escape(heading)}</button></th>'
        for heading, is_number in zip(table.headings, numeric, strict=True)
    )
    rows = "\n".join(f"<tr>{_row(row, numeric)}</tr>" for row in table.rows)
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    many = " data-filter" if len(table.rows) >= _MANY_ROWS else ""
    body = (
        f'{note}<p class="size">{_size(table)}</p><div class="scrolls">'
        f'<div class="wide" tabindex="0" role="group" aria-labelledby="{anchor}"><table class="sortable"{many}>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></div>"
    )
    if table.name in _OPEN:
        return f"<section>{_heading(3, anchor, table.title)}{body}</section>"
    return f"<details><summary>{_heading(3, anchor, table.title)}</summary>{body}</details>"


def _size(table: Table) -> str:
    rows = f"{len(table.rows)} row{'s' if len(table.rows) != 1 else ''}"
    return f'{rows}, {len(table.headings)} columns. <span class="hint">Scroll sideways for more columns.</span>'


def _row(row: Sequence[Cell], numeric: Sequence[bool]) -> str:
    cells = []
    for at, (cell, is_number) in enumerate(zip(row, numeric, strict=True)):
        if at == 0:
            key = f' class="n" data-key="{cell.key!r}"' if is_number and cell.key != float("inf") else ""
            cells.append(f'<th scope="row"{key}>{escape(cell.text)}</th>')
        elif not is_number:
            cells.append(f"<td>{escape(cell.text)}</td>")
        elif cell.key == float("inf"):
            cells.append(f'<td class="n">{escape(cell.text)}</td>')
        else:
            cells.append(f'<td class="n" data-key="{cell.key!r}">{escape(cell.text)}</td>')
    return "".join(cells)


def _configuration(analysis: Analysis, prefix: str) -> str:
    text = _escape(json.dumps(analysis.comparison.configuration, indent=2, ensure_ascii=False))
    anchor = f"{prefix}-configuration"
    return (
        f"<details><summary>{_heading(3, anchor, 'Configuration and machine')}</summary>"
        f'<pre tabindex="0" role="group" aria-labelledby="{anchor}">{text}</pre></details>'
    )
