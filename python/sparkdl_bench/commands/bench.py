"""`sparkdl-bench bench`: one subcommand for each suite in a checkout's `benchmarks/suites`."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import click

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.jarfiles import checkout
from sparkdl_bench.lazy import SuggestingGroup

_WITHOUT_CHECKOUT = (
    "The suites of benchmarks are files of a checkout (`benchmarks/suites`), and the installed package has none. In a "
    "checkout run `make bench`, or `.venv/bin/sparkdl-bench bench SUITE`. `sparkdl-bench net` and `sparkdl-bench "
    "compare` need none."
)


class _Suites(SuggestingGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        here = checkout()
        if here is None:
            return []
        return sorted(module.name for module in pkgutil.iter_modules([str(here / "benchmarks" / "suites")]))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        here = checkout()
        if here is None or cmd_name not in self.list_commands(ctx):
            return None
        folder = str(here / "benchmarks")
        if folder not in sys.path:
            sys.path.insert(0, folder)
        command: click.Command = importlib.import_module(f"suites.{cmd_name}").command
        if not any("--debug" in param.opts for param in command.params):
            # Here for all suites, whose options are those of what they measure.
            command.params.append(
                click.Option(["--debug"], is_flag=True, expose_value=False, help="Show stack traces.")
            )
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if checkout() is None:
            raise ConfigurationError(_WITHOUT_CHECKOUT)
        return super().resolve_command(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if checkout() is None:
            formatter.write_paragraph()
            formatter.write_text(_WITHOUT_CHECKOUT)
        super().format_epilog(ctx, formatter)


@click.group(
    name="bench",
    cls=_Suites,
    hidden=checkout() is None,
    short_help="Measure ours beside the peers, as `make bench` does.",
)
def command() -> None:
    """Measure ours beside the peers on this machine, in a checkout, and keep all samples."""
