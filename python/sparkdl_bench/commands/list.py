"""`sparkdl-bench list`: the variants that there are, and their keys."""

from __future__ import annotations

import tempfile
from typing import Any

import click

from sparkdl_bench import session
from sparkdl_bench.errors import ConfigurationError

AXES = ("algorithm", "topology", "transport", "codec", "engine", "model", "data", "optimizer", "schedule")
PLURALS = {f"{axis}s": axis for axis in AXES}
ALL_KEYS = "keys"


@click.command("list")
@click.argument("axis", required=False)
@click.option("--debug", is_flag=True, help="Show Spark's log and stack traces.")
def command(axis: str | None, debug: bool) -> None:
    """List the variants of every AXIS; of one axis, with their keys; or all keys (`list keys`)."""
    axis = PLURALS.get(axis or "", axis)
    if axis is not None and axis not in (*AXES, ALL_KEYS):
        raise ConfigurationError(f"There is no axis called '{axis}'. Valid: {', '.join((*AXES, ALL_KEYS))}.")
    with tempfile.NamedTemporaryFile(prefix="sparkdl-bench-", suffix=".log") as log:
        api, _ = session.start_jvm({"spark.master": "local"}, None if debug else log.file, natives=False)
        if axis == ALL_KEYS:
            for key in api.all_keys():
                _show_key(key, indent="")
        elif axis is not None:
            _show_variants(api.variants(axis), with_keys=True)
        else:
            for name in AXES:
                click.secho(name, bold=True)
                _show_variants(api.variants(name), with_keys=False, indent="  ")


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
