"""`sparkdl-bench lab`: several hosts on one Linux machine, with a Spark cluster, for comparisons."""

from __future__ import annotations

import shlex

import click
from rich.console import Console
from rich.table import Table

from sparkdl_bench import lab
from sparkdl_bench.lab import entering, hadoop
from sparkdl_bench.lab.state import CLUSTERS, boot_id
from sparkdl_bench.lazy import SuggestingGroup

_name = click.argument("name", default="lab1")
_debug = click.option("--debug", is_flag=True, expose_value=False, help="Show stack traces.")
# Options are those before NAME: what follows it is the command's own, `--debug` and `--help` too.
_OF_ANOTHER = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@click.group("lab", cls=SuggestingGroup, short_help="Several hosts on one Linux machine, with a Spark cluster.")
def command() -> None:
    """Several hosts on one Linux machine: network namespaces on a switch, with a Spark cluster (needs root).

    Any command with `--master lab:NAME` then runs inside the lab, on its edge node. Nothing in a lab reaches outside,
    nor can be reached from there.
    """


@command.command(short_help="Make a lab.")
@_name
@click.option("--hosts", type=int, default=2, show_default=True, help="Besides the edge node.")
@click.option("--bandwidth", default="", metavar="RATE", help="Of each link, each way: 1gbit. [default: no limit]")
@click.option(
    "--cpus", default="", metavar="N,N…", help="Processors of each host, one number for all or one each: 1,0.5."
)
@click.option("--cores", type=int, default=1, show_default=True, help="Task slots of each host.")
@click.option("--memory", default="2g", show_default=True, help="For executors, of each host.")
@click.option("--cluster", type=click.Choice(CLUSTERS), default="standalone", show_default=True)
@click.option("--hdfs", is_flag=True, help="A name node on the edge node, a data node on each host.")
@_debug
def up(name: str, hosts: int, bandwidth: str, cpus: str, cores: int, memory: str, cluster: str, hdfs: bool) -> None:
    """Make the lab NAME [default: lab1]."""
    try:
        shares = tuple(float(each) for each in cpus.split(",")) if cpus else ()
    except ValueError:
        raise click.BadParameter(f"'{cpus}' are no numbers. Write 1 or 1,0.5.", param_hint="'--cpus'") from None
    plan = lab.Plan(name, hosts, bandwidth, shares, cores, memory, cluster, hdfs)
    made = lab.up(plan, lambda part: click.echo(f"lab {name}: {part} …", err=True))
    _describe(made)


@command.command(short_help="What labs are there, and whether they live.")
@click.argument("name", required=False)
@_debug
def status(name: str | None) -> None:
    """What labs are there, or the lab NAME, and whether all of their processes live."""
    there = [name] if name else lab.names()
    if not there:
        click.echo("No lab is up. `sparkdl-bench lab up` makes one.")
    for each in there:
        _describe(lab.find(each))


@command.command(short_help="Take a lab away, with all that runs in it.")
@_name
@_debug
def down(name: str) -> None:
    """Take the lab NAME [default: lab1] away, or what a crash has left of it, with all that runs in it."""
    click.echo(f"lab {name}: {', '.join(lab.down(name))} removed.")


@command.command("exec", short_help="Run a command on a lab's edge node.", context_settings=_OF_ANOTHER)
@click.argument("name")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND…")
@_debug
def execute(name: str, words: tuple[str, ...]) -> None:
    """Run COMMAND on the edge node of the lab NAME; `{master}` in it becomes the cluster's address, `{hdfs}` HDFS'."""
    there = entering.ready(name)
    meant = {"{master}": there.master, "{hdfs}": there.file_system}
    for text, value in meant.items():
        if not value and any(text in word for word in words):
            raise click.UsageError(f"The lab '{name}' has no {'cluster' if text == '{master}' else 'HDFS'} for {text}.")
        words = tuple(word.replace(text, value) for word in words)
    entering.run(there, words)


@command.command(short_help="Hadoop's file commands in a lab with HDFS.", context_settings=_OF_ANOTHER)
@click.argument("name")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="WORDS…")
@_debug
def hdfs(name: str, words: tuple[str, ...]) -> None:
    """`hdfs dfs` in the lab NAME: `sparkdl-bench lab hdfs lab1 -put mnist /mnist`."""
    there = entering.ready(name)
    if not there.file_system:
        raise click.UsageError(f"The lab '{name}' was made without HDFS. Make one with --hdfs.")
    entering.run(there, hadoop.file_system_words(there, *words))


def _describe(there: lab.Lab) -> None:
    plan = there.plan
    table = Table("host", "address", "processors", "runs", title=f"lab {plan.name}")
    for number in (0, *there.numbers):
        share = plan.cpus_of(number) if number else None
        running = [
            daemon.what if daemon.is_alive else f"{daemon.what} (has ended)"
            for daemon in there.daemons
            if daemon.host == number
        ]
        table.add_row(
            "edge node" if number == 0 else str(number),
            there.address(number),
            "all" if share is None else f"{share:g}",
            ", ".join(running) or "nothing of the lab's own",
        )
    Console().print(table)
    click.echo(f"links: {plan.bandwidth + ' each way' if plan.bandwidth else 'no limit'}")
    if not there.complete or there.boot != boot_id():
        click.echo(f"It is there in part only: take it away with `sparkdl-bench lab down {plan.name}`.")
    elif there.master:
        click.echo(f"use it: sparkdl-bench run digits-mlp --master lab:{plan.name}   ({there.master} inside)")
    if there.file_system:
        click.echo(f"HDFS: {there.file_system} (`sparkdl-bench lab hdfs {plan.name} -ls /`)")
    click.echo(f"logs: {shlex.quote(str(there.folder / 'logs'))}")
