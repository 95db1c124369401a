"""Comparison files: a base run, and what varies over it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkdl_bench import catalogue, runfiles, toml_depth
from sparkdl_bench.config import RunFile, as_text, flatten, load_run_file, snake_case
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.nearest import suggestion
from sparkdl_bench.redaction import is_secret

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

VARIANT = "variant"
_TOP = {
    "name": str,
    "title": str,
    "base": str,
    "trials": int,
    "seed": int,
    "seed_per_trial": bool,
    "fresh": bool,
    "warmup_trials": int,
    "warmup_steps": int,
    "target_accuracy": float,
    "price_per_core_hour": float,
    "currency": str,
    "timeout": float,
    "baseline": dict,
    "set": dict,
    "matrix": dict,
    "variant": list,
    "skip": list,
}
# What the names of quick comparisons begin with (`sparkdl-bench try`, `sparkdl_bench.compare`).
QUICK = "try-"
# What tells the two kinds of files apart.
_OF_COMPARISONS = {"base", "matrix", "variant", "set"}
_OF_RUNS = {"workers", "batch", "epochs", "model", "data", "optimizer", "transport", "spark"}
_VARIANT_KEYS = ("name", "peer", "tuned", "set")


@dataclass(frozen=True)
class Variant:
    """One named way to train.

    Attributes:
        peer: name of a peer that trains in place of Spark; empty for ours.
        settings: keys of a run that are its own. It does not vary over those.
        tuned: of a peer, whether it takes what its own guide recommends beyond its defaults.
    """

    name: str
    peer: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    tuned: bool = False


@dataclass(frozen=True)
class Plan:
    """What a comparison file says.

    Attributes:
        name: the file's, for folders.
        base: the run that everything is a change of.
        trials: measured runs of each combination.
        seed: of the order.
        seed_per_trial: trial t trains with the run's seed + t − 1, so that trials differ in more than the machine.
        fresh: a Spark application of its own for each run.
        warmup_trials: runs of each combination before the measured ones, kept apart.
        warmup_steps: steps at the start of each run that count for no time a step.
        target_accuracy: share of test rows, for time to accuracy; None: not asked.
        price_per_core_hour: money, 0 where none is given.
        timeout_s: of one run.
        baseline: factors and the values that the others are compared with.
        matrix: keys of a run and the values that each takes.
        skip: combinations to leave out: those to which all of an entry applies.
    """

    name: str
    title: str
    base: RunFile
    variants: tuple[Variant, ...]
    matrix: Mapping[str, tuple[str, ...]]
    trials: int = 5
    seed: int = 1
    seed_per_trial: bool = False
    fresh: bool = True
    warmup_trials: int = 0
    warmup_steps: int = 100
    target_accuracy: float | None = None
    price_per_core_hour: float = 0.0
    currency: str = "EUR"
    timeout_s: float = 900.0
    baseline: Mapping[str, str] = field(default_factory=dict)
    skip: tuple[Mapping[str, str], ...] = ()

    @property
    def factors(self) -> tuple[str, ...]:
        """What varies, `variant` first where there are several."""
        named = (VARIANT,) if len(self.variants) > 1 or self.variants[0].name else ()
        return (*named, *self.matrix)


def load_plan(path: Path, assignments: Iterable[str] = (), trials: int | None = None, base: Path | None = None) -> Plan:
    """Reads a comparison file.

    Args:
        assignments: `key=value` each, for every run; not of a key that varies.
        trials: in place of the file's.
        base: a run file in place of the one that the file names.

    Raises:
        ConfigurationError: the file cannot be read, or says what no comparison can have.
    """
    path = runfiles.find(path)
    document = _read(path)
    where = f"the comparison file '{path}'"
    _check_types(document, where)
    variants = _variants(document.get("variant", []), where)
    matrix = {_canonical(key): _values(key, values, where) for key, values in _flat_matrix(document, where).items()}
    chosen = _with_source(assignments)
    _refuse_varied(chosen, set(matrix) | {key for variant in variants for key in variant.settings}, where)
    if base is None and "base" not in document:
        raise ConfigurationError(
            f"{_begins(where)} has no 'base', the run file that it varies. Write base = \"digits-mlp.toml\", or give "
            "--base."
        )
    origin = base or path.parent / document["base"]
    run = load_run_file(origin, [*_assignments(document.get("set", {}), where), *chosen])
    plan = Plan(
        name=document.get("name", path.stem),
        title=document.get("title", document.get("name", path.stem)),
        base=run,
        variants=variants,
        matrix=matrix,
        trials=trials or document.get("trials", 5),
        seed=document.get("seed", 1),
        seed_per_trial=document.get("seed_per_trial", False),
        fresh=document.get("fresh", True),
        warmup_trials=document.get("warmup_trials", 0 if document.get("fresh", True) else 1),
        warmup_steps=document.get("warmup_steps", 100),
        target_accuracy=document.get("target_accuracy"),
        price_per_core_hour=float(document.get("price_per_core_hour", 0.0)),
        currency=document.get("currency", "EUR"),
        timeout_s=float(document.get("timeout", 900.0)),
        baseline=_point(document.get("baseline", {}), where),
        skip=tuple(_point(each, where) for each in document.get("skip", [])),
    )
    _check(plan, where)
    return plan


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors begin a file with a byte order mark
        toml_depth.check(text, str(path))
        document: dict[str, Any] = tomllib.loads(text)
    except OSError as error:
        raise ConfigurationError(
            f"The comparison file '{path}' cannot be read: {error.strerror}.{runfiles.nearby(path)} A comparison file "
            "is TOML, or the name of one that comes with sparkdl-bench, such as workers."
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"The comparison file '{path}' is not UTF-8 text: {error.reason}. A comparison file is TOML, or the name "
            "of one that comes with sparkdl-bench, such as workers."
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"The comparison file '{path}' is not valid TOML: {error}.") from error
    return document


def _begins(where: str) -> str:
    """As a sentence begins with it."""
    return where[0].upper() + where[1:]


def _check_types(document: Mapping[str, Any], where: str) -> None:
    if not set(document) & _OF_COMPARISONS and set(document) & _OF_RUNS:
        raise ConfigurationError(
            f"{_begins(where)} is a run file: it says how to train, and not what to compare. Train it "
            'with `sparkdl-bench run`; or write a comparison file, with base = "that-file.toml" and a table [matrix] '
            "such as workers = [1, 2], and give that one (docs/reference/compare.md)."
        )
    for key, value in document.items():
        if key not in _TOP:
            raise ConfigurationError(
                f"{_begins(where)} holds '{key}', which means nothing there.{suggestion(key, _TOP)} Valid: "
                f"{', '.join(_TOP)}. "
                "Keys of the run itself go in [set] (for all runs) or [matrix] (several values)."
            )
        wanted = _TOP[key]
        fits = isinstance(value, (int, float)) if wanted is float else isinstance(value, wanted)
        if not fits or (isinstance(value, bool) and wanted is not bool):
            raise ConfigurationError(f"'{key}' in {where} is {value!r}; it must be of type {wanted.__name__}.")


def _variants(entries: list[Any], where: str) -> tuple[Variant, ...]:
    variants = []
    for entry in entries:
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str) or not entry["name"]:
            raise ConfigurationError(f"A [[variant]] of {where} is {entry!r}; it needs a name.")
        unknown = set(entry) - set(_VARIANT_KEYS)
        if unknown:
            raise ConfigurationError(
                f"The variant '{entry['name']}' of {where} holds {', '.join(sorted(unknown))}; valid: "
                f"{', '.join(_VARIANT_KEYS)}. Keys of the run go in its 'set'."
            )
        given = {_canonical(key): value for key, value in flatten(entry.get("set", {}), where).items()}
        settings = {key: catalogue.canonical(key, value)[1] for key, value in given.items()}
        tuned = entry.get("tuned", False)
        if not isinstance(tuned, bool) or (tuned and not entry.get("peer")):
            raise ConfigurationError(
                f"The variant '{entry['name']}' of {where} has tuned = {tuned!r}; it is true or false, and of a peer."
            )
        variants.append(Variant(entry["name"], entry.get("peer", ""), settings, tuned))
    names = [variant.name for variant in variants]
    if len(set(names)) < len(names):
        raise ConfigurationError(f"Two variants of {where} have one name; their names: {', '.join(names)}.")
    return tuple(variants) or (Variant(""),)


def _flat_matrix(document: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Tables in the matrix make dotted keys, as everywhere; the lists stay."""
    flat: dict[str, Any] = {}

    def walk(table: Mapping[str, Any], prefix: str) -> None:
        for key, value in table.items():
            if isinstance(value, Mapping):
                walk(value, f"{prefix}{key}.")
            else:
                flat[prefix + key] = value

    walk(document.get("matrix", {}), "")
    if VARIANT in flat:
        raise ConfigurationError(f"[matrix] of {where} holds 'variant'; variants are [[variant]] tables.")
    return flat


def _values(key: str, values: Any, where: str) -> tuple[str, ...]:
    if is_secret(key):
        raise ConfigurationError(
            f"[matrix] of {where} varies '{key}', a secret by its name, and groups are named by their values, also in "
            "results and reports. Give each value a [[variant]] with a name of its own and the key in its 'set', which "
            "is kept redacted."
        )
    if not isinstance(values, list) or not values:
        raise ConfigurationError(
            f"'{key}' in [matrix] of {where} is {values!r}; it must be a list of the values that it takes."
        )
    texts = tuple(catalogue.canonical(_canonical(key), as_text(key, value, where))[1] for value in values)
    if len(set(texts)) < len(texts):
        raise ConfigurationError(f"'{key}' in [matrix] of {where} names a value twice: {', '.join(texts)}.")
    return texts


def _assignments(table: Mapping[str, Any], where: str) -> list[str]:
    return [f"{key}={value}" for key, value in flatten(table, where).items()]


def _with_source(assignments: Iterable[str]) -> list[str]:
    """A folder of data without a word about what it holds is a folder of IDX files."""
    given = list(assignments)
    keys = {assignment.partition("=")[0].strip() for assignment in given}
    return [*given, "data.source=idx"] if "data.path" in keys and "data.source" not in keys else given


def _refuse_varied(assignments: Iterable[str], varied: set[str], where: str) -> None:
    for assignment in assignments:
        if _canonical(assignment.partition("=")[0].strip()) in varied:
            raise ConfigurationError(
                f"--set {assignment}: {where} varies that key itself, so one value for all runs would empty the "
                "comparison. Change the file."
            )


def _canonical(key: str) -> str:
    if key == "master":
        return "spark.master"
    return key if key.startswith("spark.") else catalogue.canonical(snake_case(key), "")[0]


def _point(table: Any, where: str) -> dict[str, str]:
    if not isinstance(table, Mapping):
        raise ConfigurationError(f"{table!r} in {where} must be a table of factors and values.")
    point = {key if key == VARIANT else _canonical(key): value for key, value in flatten(table, where).items()}
    return {key: value if key == VARIANT else catalogue.canonical(key, value)[1] for key, value in point.items()}


def _check(plan: Plan, where: str) -> None:
    for name, value, least in (
        ("trials", plan.trials, 1),
        ("warmup_trials", plan.warmup_trials, 0),
        ("warmup_steps", plan.warmup_steps, 0),
    ):
        if value < least:
            raise ConfigurationError(
                f"{name} = {value} in {where} is not valid; it is a whole number, at least {least}."
            )
    if plan.target_accuracy is not None and not 0 < plan.target_accuracy <= 1:
        raise ConfigurationError(
            f"target_accuracy = {plan.target_accuracy} in {where} is not valid; it is a share of the test rows, above "
            "0 and at most 1."
        )
    if not plan.factors:
        raise ConfigurationError(f"{where} varies nothing. Give it [[variant]] tables or a [matrix].")
    for what, points in (("baseline", [plan.baseline] if plan.baseline else []), ("skip", plan.skip)):
        for point in points:
            unknown = set(point) - set(plan.factors)
            if unknown:
                raise ConfigurationError(
                    f"{what} of {where} names {', '.join(sorted(unknown))}, which does not vary. What varies: "
                    f"{', '.join(plan.factors)}."
                )
    for factor, chosen in plan.baseline.items():
        values = [variant.name for variant in plan.variants] if factor == VARIANT else list(plan.matrix[factor])
        if chosen not in values:
            raise ConfigurationError(
                f"The baseline of {where} is {factor} = {chosen}, which is not one of its values: {', '.join(values)}."
            )
