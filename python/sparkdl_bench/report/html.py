"""The page: one file, nothing loaded from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path

from sparkdl_bench.report import plots, svg, tables, words
from sparkdl_bench.report.analysis import Analysis, analyse
from sparkdl_bench.report.load import Results
from sparkdl_bench.report.tables import Cell, Table

_TEMPLATE = Path(__file__).with_name("page.html")
_OPEN = ("groups",)


def page(results: Results) -> str:
    """The whole report as HTML."""
    analyses = [analyse(comparison) for comparison in results.comparisons if comparison.records]
    parts: list[str] = []
    links: list[tuple[str, str]] = []
    for index, analysis in enumerate(analyses):
        _comparison(analysis, f"c{index + 1}", len(analyses) > 1, parts, links)
    if results.net:
        _net(results, parts, links)
    for index, analysis in enumerate(analyses):
        _recommendation(analysis, f"c{index + 1}", len(analyses) > 1, parts, links)
    title = ", ".join(analysis.comparison.title for analysis in analyses) or "All-reduces"
    navigation = "".join(f'<li><a href="#{anchor}">{escape(text)}</a></li>' for anchor, text in links)
    text = _TEMPLATE.read_text(encoding="utf-8")
    for marker, value in (("TITLE", escape(title)), ("NAVIGATION", navigation), ("CONTENT", "\n".join(parts))):
        text = text.replace(f"<!--{marker}-->", value)
    return text


def _comparison(analysis: Analysis, prefix: str, several: bool, parts: list[str], links: list[tuple[str, str]]) -> None:
    named = f"{analysis.comparison.title}: " if several else ""
    anchor = f"{prefix}-summary"
    links.append((anchor, f"{named}Summary"))
    sentences = "".join(f"<li>{escape(line)}</li>" for line in words.summary(analysis))
    parts.append(
        f'<section><h2 id="{anchor}">{escape(named)}Summary</h2>{_facts(analysis)}'
        f'<ul class="summary">{sentences}</ul></section>'
    )
    found = tables.all_tables(analysis)
    parts += [_table(table, prefix) for table in found if table.name in _OPEN]
    links.append((f"{prefix}-groups", f"{named}Groups"))
    pictures = plots.all_plots(analysis)
    if pictures:
        links.append((f"{prefix}-plots", f"{named}Plots"))
        inside = "\n".join(_figure(plot, prefix) for plot in pictures)
        parts.append(
            f'<section><h2 id="{prefix}-plots">{escape(named)}Plots</h2><div class="plots">{inside}</div></section>'
        )
    parts += [_table(table, prefix) for table in found if table.name not in _OPEN]
    links.append((f"{prefix}-runs", f"{named}All runs"))
    parts.append(_configuration(analysis, prefix))


def _net(results: Results, parts: list[str], links: list[tuple[str, str]]) -> None:
    links.append(("net-bandwidth", "All-reduces"))
    plot = plots.bus_bandwidth(results.net)
    if plot is not None:
        parts.append(f'<section><h2>All-reduces</h2><div class="plots">{_figure(plot, "net")}</div></section>')
    parts.append(_table(tables.bandwidth(results.net), "net"))


def _recommendation(
    analysis: Analysis, prefix: str, several: bool, parts: list[str], links: list[tuple[str, str]]
) -> None:
    named = f"{analysis.comparison.title}: " if several else ""
    anchor = f"{prefix}-recommendation"
    links.append((anchor, f"{named}Recommendation"))
    first, *rest = words.recommendation(analysis)
    lines = "".join(f"<p>{escape(line)}</p>" for line in rest)
    parts.append(
        f'<section class="recommendation"><h2 id="{anchor}">{escape(named)}Recommendation</h2>'
        f'<p class="first">{escape(first)}</p>{lines}</section>'
    )


def _facts(analysis: Analysis) -> str:
    facts = words.circumstances(analysis.comparison.content)
    return f'<p class="facts">{escape(" · ".join(facts))}</p>'


def _figure(plot: plots.Plot, prefix: str) -> str:
    name = f"{prefix}-plot-{plot.name}"
    return f'<figure id="{name}"><figcaption>{escape(plot.title)}</figcaption>{svg.inline(plot, name)}</figure>'


def _table(table: Table, prefix: str) -> str:
    anchor = f"{prefix}-{table.name}"
    numeric = [all(not isinstance(row[at].key, str) for row in table.rows) for at in range(len(table.headings))]
    head = "".join(
        f'<th scope="col"{" class=n" if is_number else ""}><button type="button">{escape(heading)}</button></th>'
        for heading, is_number in zip(table.headings, numeric, strict=True)
    )
    rows = "\n".join(f"<tr>{_row(row, numeric)}</tr>" for row in table.rows)
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    body = (
        f'{note}<div class="wide" tabindex="0" role="region" aria-labelledby="{anchor}"><table class="sortable">'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
    if table.name in _OPEN:
        return f'<section><h2 id="{anchor}">{escape(table.title)}</h2>{body}</section>'
    return f'<details><summary><h2 id="{anchor}">{escape(table.title)}</h2></summary>{body}</details>'


def _row(row: Sequence[Cell], numeric: Sequence[bool]) -> str:
    cells = []
    for cell, is_number in zip(row, numeric, strict=True):
        if not is_number:
            cells.append(f"<td>{escape(cell.text)}</td>")
        elif cell.key == float("inf"):
            cells.append(f'<td class="n">{escape(cell.text)}</td>')
        else:
            cells.append(f'<td class="n" data-key="{cell.key!r}">{escape(cell.text)}</td>')
    return "".join(cells)


def _configuration(analysis: Analysis, prefix: str) -> str:
    text = escape(json.dumps(analysis.comparison.configuration, indent=2, ensure_ascii=False))
    return (
        f'<details><summary><h2 id="{prefix}-configuration">Configuration and machine</h2></summary>'
        f'<pre tabindex="0">{text}</pre></details>'
    )
