"""Tables on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from sparkdl_bench.bench.trials import Outcome


def show_outcomes(title: str, outcomes: Sequence[Outcome], console: Console | None = None) -> None:
    """Ours, the peer, their ratio with its interval, the target, and whether it is met."""
    table = Table(
        title=title, caption="ms a step: median over trials of each trial's median (p90 over all); ratio [95 %]"
    )
    for heading in ("comparison", "ours ms", "peer ms", "ratio", "target", "met"):
        table.add_column(heading, justify="left" if heading == "comparison" else "right")
    for outcome in outcomes:
        table.add_row(
            f"{outcome.title}: {outcome.ours} | {outcome.theirs}",
            f"{outcome.ours_ms:.2f} ({outcome.ours_p90_ms:.2f})",
            f"{outcome.theirs_ms:.2f} ({outcome.theirs_p90_ms:.2f})",
            f"{outcome.ratio:.3f} [{outcome.low:.3f}, {outcome.high:.3f}]",
            f"≤ {outcome.target:g}",
            "[green]yes[/green]" if outcome.met else "[red]no[/red]",
        )
    (console or Console()).print(table)
