"""Groups of commands that load a command when it is asked for, and know what somebody meant who mistypes one."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Sequence
from typing import Any

import click

from sparkdl_bench.nearest import suggestion

# click's own words for what is no number.
_NO_NUMBER = re.compile(r"is not a valid (float|integer)(?: range)?\b")
_NUMBERS = {"float": "is no number", "integer": "is no whole number"}
# Of a command's first sentence: more than any has, so that none is cut.
_WHOLE_SENTENCE = 300

# What other programs call a command of ours.
_MEANT = {
    "train": "run",
    "fit": "run",
    "start": "run",
    "check": "doctor",
    "diagnose": "doctor",
    "benchmark": "bench",
    "plot": "report",
    "show": "list",
    "ls": "list",
    "new": "init",
}


class SuggestingGroup(click.Group):
    """A group of commands that lists each with its whole first sentence, and says what somebody meant."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, each.get_short_help_str(_WHOLE_SENTENCE)) for name, each in commands if each and not each.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise click.UsageError(no_command(args[0], self.list_commands(ctx)), ctx)
        return super().resolve_command(ctx, args)


class LazyGroup(SuggestingGroup):
    """A group whose commands are the modules of a package, each with a `command`; a trailing `_` of a module is no part
    of the command's name.

    Args:
        package: dotted name.
    """

    def __init__(self, *args: Any, package: str = "sparkdl_bench.commands", **rest: Any) -> None:
        super().__init__(*args, **rest)
        self._package = package

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        return sorted({*self._modules(), *self.commands})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        modules = self._modules()
        if cmd_name not in self.commands and cmd_name in modules:
            self.add_command(importlib.import_module(f"{self._package}.{modules[cmd_name]}").command, cmd_name)
        return self.commands.get(cmd_name)

    def _modules(self) -> dict[str, str]:
        path = importlib.import_module(self._package).__path__
        return {module.name.rstrip("_"): module.name for module in pkgutil.iter_modules(path)}


def no_command(typed: str, commands: Sequence[str]) -> str:
    meant = _MEANT.get(typed)
    near = f" Did you mean '{meant}'?" if meant in commands else suggestion(typed, commands)
    return f"There is no command '{typed}'.{near} Commands: {', '.join(commands)}."


def usage(error: click.ClickException) -> str:
    """One paragraph of a wrong use of options and arguments, with what was most likely meant."""
    if isinstance(error, click.NoSuchOption):
        return _no_option(error)
    if isinstance(error, click.BadParameter) and isinstance(getattr(error.param, "type", None), click.Choice):
        choices = [str(each) for each in error.param.type.choices]  # type: ignore[union-attr]
        typed = error.message.partition("'")[2].partition("'")[0]
        return f"{error.format_message()}{suggestion(typed, choices)}"
    return _NO_NUMBER.sub(lambda found: _NUMBERS[found.group(1)], error.format_message())


def _no_option(error: click.NoSuchOption) -> str:
    known = [name for each in (error.ctx.command.params if error.ctx else []) for name in each.opts]
    typed = error.option_name
    key = _key(typed.lstrip("-").replace("-", "_"))
    if key and "--set" in known:
        return f"There is no option '{typed}'. `--set {key}=VALUE` sets that key of the run."
    long = [name for name in [*known, "--help"] if name.startswith("--")]
    near = suggestion(typed, long) or f" Options: {', '.join(long)}."
    return f"There is no option '{typed}'.{near}"


def _key(written: str) -> str | None:
    """The key that somebody wrote as an option, where it is one."""
    from sparkdl_bench import catalogue
    from sparkdl_bench.errors import ConfigurationError

    known = catalogue.load()
    if known is None:
        return None
    try:
        name = known.key(written)
    except ConfigurationError:
        return None
    return name if name in known.keys else None
