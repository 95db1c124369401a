"""Tables on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from sparkdl_bench.bench.collective import Row
from sparkdl_bench.bench.trials import TRIALS, Outcome, is_steady
from sparkdl_bench.console import default_console

_MET: dict[bool | None, str] = {True: "[green]yes[/green]", False: "[red]no[/red]", None: "–"}


def show_outcomes(title: str, outcomes: Sequence[Outcome], console: Console | None = None) -> None:
    """Ours, the peer, their ratio with its interval, trials and drift, the target, and whether it is met."""
    table = Table(
        title=title,
        caption="ms per step: median over trials of each trial's median (p90 over all); ratio [95 %], no interval for "
        f"one trial; fewer than {TRIALS} trials in bold; drift: ours, peer",
    )
    for heading in ("comparison", "ours ms", "peer ms", "ratio", "trials", "drift", "target", "met"):
        table.add_column(heading, justify="left" if heading == "comparison" else "right")
    for outcome in outcomes:
        table.add_row(
            f"{outcome.title}: {outcome.ours} | {outcome.theirs}",
            f"{outcome.ours_ms:.2f} ({outcome.ours_p90_ms:.2f})",
            f"{outcome.theirs_ms:.2f} ({outcome.theirs_p90_ms:.2f})",
            ratio_text(outcome),
            trials_text(outcome.trials),
            _drift_text(outcome.ours_drift, outcome.theirs_drift),
            "–" if outcome.target is None else f"≤ {outcome.target:g}",
            _MET[outcome.met],
        )
    (console or default_console()).print(table)


def ratio_text(outcome: Outcome) -> str:
    """The ratio, with its interval where there is one."""
    if outcome.low is None or outcome.high is None:
        return f"{outcome.ratio:.3f}"
    return rf"{outcome.ratio:.3f} \[{outcome.low:.3f}, {outcome.high:.3f}]"


def trials_text(count: int) -> str:
    """Fewer than the rules ask for stand out."""
    return str(count) if count >= TRIALS else f"[bold]{count}[/bold]"


def _drift_text(*drifts: float) -> str:
    text = ", ".join(f"{drift:.2f}" for drift in drifts)
    return text if all(map(is_steady, drifts)) else f"[red]{text} not steady[/red]"


def show_rows(rows: Sequence[Row], link_gbps: float, console: Console | None = None) -> None:
    """The collective microbenchmark: one line a way, size and number of ranks."""
    table = Table(
        title=f"All-reduce of fp32 values; a plain TCP stream on loopback: {link_gbps:.1f} Gbit/s",
        caption="ms: mean over the ranks; bandwidths in Gbit/s at the median; link: busbw's share of the TCP stream; "
        f"fewer than {TRIALS} trials in bold",
    )
    for heading in ("transport", "topology", "codec", "channel", "encryption", "workers", "values"):
        table.add_column(heading, justify="right" if heading in ("workers", "values") else "left")
    for heading in ("trials", "median ms", "p90", "p99", "algbw", "busbw", "link", "drift", "correct"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            row.transport,
            row.topology or "–",
            row.codec,
            row.channel,
            row.encryption or "–",
            str(row.workers),
            f"{row.elements:,}",
            trials_text(row.trials),
            *(f"{value:.3f}" for value in (row.median_ms, row.p90_ms, row.p99_ms)),
            *(f"{value:.1f}" for value in (row.algbw_gbps, row.busbw_gbps)),
            # A copy or shared memory uses no link.
            f"{row.link_share:.0%}" if row.host_local is False else "–",
            _drift_text(row.drift),
            "[green]yes[/green]" if row.correct else "[red]NO[/red]",
        )
    (console or default_console()).print(table)
