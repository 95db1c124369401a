"""`sparkdl-bench bench`: one subcommand for each suite of `bench/suites`, loaded when it is asked for."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import click

from sparkdl_bench.lazy import SuggestingGroup

_SUITES = Path(__file__).resolve().parents[1] / "bench" / "suites"


class _Suites(SuggestingGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        return sorted(module.name for module in pkgutil.iter_modules([str(_SUITES)]))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"sparkdl_bench.bench.suites.{cmd_name}").command
        return command


@click.group(name="bench", cls=_Suites, short_help="Measure ours beside the peers, as `make bench` does.")
def command() -> None:
    """Measure ours beside the peers on this machine, and keep all samples."""
