"""`sparkdl-bench init`: a run file with comments, to begin with."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.nearest import near_file

if TYPE_CHECKING:
    pass

_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")

_TEMPLATE = """# {told}.
#   sparkdl-bench run {file}
#   sparkdl-bench run {file} --set epochs=20 --master 'local-cluster[4,1,2048]'
# `sparkdl-bench list` shows what there is to choose from, `sparkdl-bench list keys` every key.
name = {name}

# Each worker is one Spark task. The batch is global: its rows are shared out to the workers, so that more workers
# change how fast a step is, and not what is learnt.
workers = 2
batch = {batch}
epochs = 10
seed = 1

# How the workers exchange: the best transport that the session supports. `sparkdl-bench list transport` shows all.
transport = "auto"

[model]
{model}

[optimizer]
{optimizer}

[data]
{data}

# Two executors of one core on this machine. A cluster: spark://HOST:7077, yarn, k8s://https://HOST:6443.
[spark]
master = "local-cluster[2,1,2048]"
"""


@click.command("init", short_help="Write a run file with comments for your data.")
@click.argument("name", required=False)
@click.option("--data", default="digits", show_default=True, help="digits, or a path, as of `try`.")
@click.option("--label", metavar="COLUMN", help="The label's column. [default: the one with a usual name]")
@click.option(
    "--model",
    metavar="NAME|FILE",
    help="A model family (`sparkdl-bench list model`), or the .toml or .json file of a net of yours. [default: one "
    "that fits the data]",
)
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show stack traces.")
def command(name: str | None, data: str, label: str | None, model: str | None, force: bool) -> None:
    """Write the run file NAME.toml, with comments, for a data set and a net that fits it.

    Where NAME is a folder, as in `init .`, the file in it has the data set's name.
    """
    from sparkdl_bench.comparison import fits, look, nets
    from sparkdl_bench.progress import tell

    named = _net(model) if model else {}
    found = look.look(data, label)
    settings = nets.fitting(found)
    if named:
        tell("asking whether the net fits the rows")
        fits.check(named, found.shape, found.classes)
        settings = {**{key: value for key, value in settings.items() if not key.startswith("model.")}, **named}
    file = _file(name, Path(found.settings.get("data.path", data)).stem or "run")
    if file.exists() and not force:
        raise ConfigurationError(f"'{file}' is there already. Choose another name, or write over it with --force.")
    if not file.parent.is_dir():
        raise ConfigurationError(f"There is no folder '{file.parent}' for '{file.name}'. Make it, or choose another.")
    written = shlex.quote(str(file))
    text = _TEMPLATE.format(
        told=found.told,
        file=written,
        name=json.dumps(file.stem),
        batch=settings["batch"],
        model=_table("model", settings),
        optimizer=_table("optimizer", settings),
        data=_table("data", dict(found.settings)),
    )
    file.write_text(text, encoding="utf-8")
    click.echo(f"{file}: {found.told}; net: {nets.described(settings)}.")
    click.echo(f"sparkdl-bench run {written} trains it.")


def _net(model: str) -> dict[str, str]:
    """The `model` keys of a family, or of the file of a net."""
    from sparkdl_bench import catalogue

    if model.endswith((".toml", ".json")):
        spec = Path(model)
        if not spec.is_file():
            raise ConfigurationError(
                f"There is no file '{model}' with a net.{near_file(spec)} Give the path of a model specification, or a "
                "model family: `sparkdl-bench list model` shows them."
            )
        return {"model.name": "file", "model.spec": str(spec.resolve())}
    chosen = catalogue.canonical("model.name", model)[1]
    catalogue.check({"model.name": chosen})
    if chosen == "file":
        raise ConfigurationError(
            "A net of your own is named by its file: --model my-net.toml. docs/reference/models.md says what such a "
            "file holds."
        )
    return {"model.name": chosen}


def _file(name: str | None, of_data: str) -> Path:
    """The file that a name stands for: itself with `.toml`, or, in a folder, the data set's name."""
    if name is None:
        return Path(f"{of_data}.toml")
    is_folder = name.endswith(("/", os.sep)) or Path(name).is_dir()
    return Path(name, f"{of_data}.toml") if is_folder else Path(f"{name.removesuffix('.toml')}.toml")


def _table(group: str, settings: dict[str, str]) -> str:
    lines = []
    for key, value in settings.items():
        head, _, name = key.partition(".")
        if head == group:
            lines.append(f"{name} = {_value(value)}")
    return "\n".join(lines)


def _value(text: str) -> str:
    """Numbers and flags as TOML has them; all else as a text. JSON's texts are TOML's.

    A number is one whose text TOML gives back: of columns named `007`, `1.50`, `1e5` and `1_000` the first is no TOML,
    and the others would come back as 1.5, 100000.0 and 1000.
    """
    is_number = _NUMBER.fullmatch(text) and text == (repr(float(text)) if "." in text else str(int(text)))
    return text if is_number or text in ("true", "false") else json.dumps(text, ensure_ascii=False)
