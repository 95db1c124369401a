"""`sparkdl-bench list`: the variants that there are, and their keys."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from sparkdl_bench import catalogue
from sparkdl_bench.config import RunFile
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.nearest import suggestion

if TYPE_CHECKING:
    from sparkdl_bench._jvm import Api

ALL_KEYS = "keys"
_FILE_MODEL, _FILE_KEY = "file", "model.spec"


@click.command("list", short_help="List models, transports and all else there is to choose.")
@click.argument("axis", required=False)
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print model NAME as JSON (docs/reference/models.md).")
@click.option("--shape", metavar="C,H,W", help="With --json: of one row [default: the model's usual rows].")
@click.option("--classes", type=click.IntRange(1), help="With --json: number of classes [default: the usual].")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="With --json: set a key of the model.")
@click.option("--debug", is_flag=True, help="Show Spark's log and stack traces.")
def command(
    axis: str | None,
    name: str | None,
    as_json: bool,
    shape: str | None,
    classes: int | None,
    assignments: tuple[str, ...],
    debug: bool,
) -> None:
    """List the variants of every AXIS; of one axis, with their keys; one of them, by its NAME; or all keys
    (`list keys`)."""
    if as_json and (axis not in ("model", "models") or name is None):
        raise ConfigurationError("--json prints a model's specification: write `list model NAME --json`.")
    if not as_json and (shape or classes or assignments):
        raise ConfigurationError("--shape, --classes and --set say for which model `list model NAME --json` is asked.")
    if as_json and name is not None:
        with _started(debug) as api:
            known = _named(api.variants("model"), "model", name)
            click.echo(json.dumps(_specification(api, known, assignments, shape, classes), indent=1))
        return
    found = catalogue.load()
    if found:
        _show(_Found(found), axis, name)
        return
    with _started(debug) as api:
        _show(api, axis, name)


class _Lists(Protocol):
    def axes(self) -> list[str]: ...

    def variants(self, axis: str) -> list[dict[str, Any]]: ...

    def all_keys(self) -> list[dict[str, Any]]: ...


class _Found:
    """The lists of the jar's catalogue, without a JVM."""

    def __init__(self, found: catalogue.Catalogue) -> None:
        self._found = found

    def axes(self) -> list[str]:
        return list(self._found.variants)

    def variants(self, axis: str) -> list[dict[str, Any]]:
        return self._found.variants[axis]

    def all_keys(self) -> list[dict[str, Any]]:
        return [{**key, "valid": self._valid(key)} for key in self._found.keys.values()]

    def _valid(self, key: Mapping[str, Any]) -> str:
        """Of a key that chooses a variant their names; "any text" would hide them."""
        names = self._found.named_by.get(str(key["name"]))
        return ", ".join(dict.fromkeys([*names, str(key["default"])])) if names else str(key["valid"])


@contextmanager
def _started(debug: bool) -> Iterator[Api]:
    from sparkdl_bench import session

    with tempfile.TemporaryFile() as log:
        api, _ = session.start_jvm({"spark.master": "local"}, None if debug else log, natives=False)
        yield api


def _show(lists: _Lists, axis: str | None, name: str | None) -> None:
    axis = _axis(lists.axes(), axis)
    if axis == ALL_KEYS:
        keys = lists.all_keys()
        for key in [_named(keys, "key", catalogue.canonical(name, "")[0])] if name else keys:
            _show_key(key, indent="")
    elif axis is not None:
        variants = lists.variants(axis)
        _show_variants([_named(variants, axis, name)] if name else variants, with_keys=True)
    else:
        for each in lists.axes():
            click.secho(each, bold=True)
            _show_variants(lists.variants(each), with_keys=False, indent="  ")


def _axis(axes: Sequence[str], written: str | None) -> str | None:
    """What is asked for, of which the plural will do."""
    valid = [*axes, ALL_KEYS]
    if written is None or written in valid:
        return written
    singular = written.removesuffix("s")
    if singular in axes:
        return singular
    raise ConfigurationError(
        f"There is no axis called '{written}'.{suggestion(written, valid)} Valid: {', '.join(valid)}."
    )


def _named(variants: list[dict[str, Any]], axis: str, name: str) -> dict[str, Any]:
    for variant in variants:
        if variant["name"] == name:
            return variant
    names = [str(variant["name"]) for variant in variants]
    valid = "`sparkdl-bench list keys` describes all." if axis == "key" else f"Valid: {', '.join(names)}."
    raise ConfigurationError(
        f"There is no {axis} called '{name}'.{suggestion(name, names, by_parts=axis == 'key')} {valid}"
    )


def _specification(
    api: Api, model: dict[str, Any], assignments: Sequence[str], shape: str | None, classes: int | None
) -> dict[str, Any]:
    """Of the model for these rows, for those of the user's file, or for its usual ones."""
    settings = {**RunFile().with_settings(assignments).settings, "model.name": str(model["name"])}
    usual: tuple[Sequence[int], int] | None = None
    if "input_shape" in model:
        usual = (model["input_shape"], model["classes"])
    elif model["name"] == _FILE_MODEL and settings.get(_FILE_KEY):
        from sparkdl_bench import models

        read = models.read(Path(settings[_FILE_KEY]))
        usual = (read.input_shape, read.classes)
    rows = _sizes(shape) if shape else usual[0] if usual else None
    count = classes or (usual[1] if usual else None)
    if rows is None or count is None:
        hint = f" --set {_FILE_KEY}=my-net.toml names a file that says both." if model["name"] == _FILE_MODEL else ""
        raise ConfigurationError(
            f"The model '{model['name']}' has no usual rows: say for which with --shape (such as 3,32,32) and "
            f"--classes.{hint}"
        )
    return api.model(settings, rows, count)


def _sizes(text: str) -> list[int]:
    sizes = [int(part) for part in text.split(",") if part.strip().isdigit()]
    if len(sizes) != len(text.split(",")) or min(sizes) < 1:
        raise ConfigurationError(f"--shape '{text}' is not of the form 3,32,32: whole numbers of at least 1.")
    return sizes


def _show_variants(variants: list[dict[str, Any]], *, with_keys: bool, indent: str = "") -> None:
    width = max((len(variant["name"]) for variant in variants), default=0)
    for variant in variants:
        click.echo(f"{indent}{variant['name']:<{width}}  {variant['doc']}")
        if with_keys and "parameters" in variant:
            click.echo(f"{indent}  {_size(variant)}")
        for key in variant["keys"] if with_keys else ():
            _show_key(key, indent + "  ")


def _size(model: dict[str, Any]) -> str:
    """What a model of the usual rows takes. Bytes a step are what most topologies send, gradient and weights."""
    shape = "×".join(str(size) for size in model["input_shape"])
    return (
        f"{shape}, {model['classes']} classes: {model['parameters']:,} parameters, {_with_unit(model['flops'])}FLOP a "
        f"sample (forward; a training step about three times that), {_with_unit(model['gradient_bytes'])}B sent a step "
        "by each of 2 workers (of N: 2 - 2 / N times that)"
    )


def _with_unit(number: float) -> str:
    for unit in (" ", " k", " M", " G"):
        if number < 1000:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g} T"


def _show_key(key: dict[str, Any], indent: str) -> None:
    default = key["default"] if key["default"] != "" else "empty"
    click.echo(f"{indent}{key['name']}  {key['doc']}. Default: {default}. Valid: {key['valid']}.")
