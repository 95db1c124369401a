"""DataFrames as data sets: the JVM is told their names, since only names and numbers cross."""

from __future__ import annotations

import math
import os
import re
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparkdl_bench import catalogue
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.nearest import listed, suggestion

# Columns of more values than this are no classes.
_MOST_CLASSES = 1000
_WHOLE = ("tinyint", "smallint", "int", "bigint", "float", "double", "boolean")
_CLASSES = "cross-entropy"
_OF_CONNECT = (
    "a DataFrame of a Spark Connect session, whose client has no JVM. Train in a classic session on the cluster, "
    "SparkSession.builder.master(…) in place of .remote(…) or a script for spark-submit, and save the model: its "
    "transform takes DataFrames of Spark Connect."
)
# Libraries whose rows people hand in, and how `createDataFrame` takes their kinds.
_LIBRARIES: dict[str, dict[str, str]] = {
    "pandas": {"Series": "data.to_frame()"},
    "numpy": {},
    "pyarrow": {"Table": "data.to_pandas()", "RecordBatch": "data.to_pandas()"},
    "polars": {"DataFrame": "data.to_pandas()", "LazyFrame": "data.collect().to_pandas()"},
    "dask": {"DataFrame": "data.compute()"},
}


@contextmanager
def named(data: Any) -> Iterator[str | Path | Mapping[str, Any]]:
    """`data` with a global temporary view's name in place of each DataFrame, while the context lasts.

    Args:
        data: a DataFrame, a dict with DataFrames among its values, or what `Trainer` takes besides.
    """
    given = {"table": data} if is_frame(data) else data
    if not isinstance(given, Mapping) or not any(is_frame(value) for value in given.values()):
        yield data
        return
    views: dict[str, Any] = {}
    try:
        yield {key: _view(value, views) if is_frame(value) else value for key, value in given.items()}
    finally:
        for name, spark in views.items():
            spark.catalog.dropGlobalTempView(name)


@contextmanager
def view_of(frame: Any) -> Iterator[str]:
    """A global temporary view of a DataFrame, by name, while the context lasts."""
    views: dict[str, Any] = {}
    try:
        yield _view(frame, views)
    finally:
        for name, spark in views.items():
            spark.catalog.dropGlobalTempView(name)


@contextmanager
def result_view(spark: Any) -> Iterator[str]:
    """A name for a global temporary view that somebody makes while the context lasts; then it is dropped."""
    name = f"sparkdl_{uuid.uuid4().hex}"
    try:
        yield f"{_database(spark)}.{name}"
    finally:
        spark.catalog.dropGlobalTempView(name)


def labelled(settings: dict[str, str], data: Any) -> dict[str, str]:
    """The settings with the label's column where `data` holds DataFrames: the column `label` where none is named.

    Raises:
        ConfigurationError: no label is named and no column has that name; or a frame has no columns besides.
    """
    table = _table(data)
    if table is None or settings.get("data.decoded_dir"):
        return settings
    columns = list(table.columns)
    shown = ", ".join(columns[:20]) + (", …" if len(columns) > 20 else "")
    label = settings.get("data.label")
    if label is not None:
        # Several labels of a row: the JVM looks for each.
        near = suggestion(label, columns) if label not in columns and "," not in label else ""
        if near:
            raise ConfigurationError(
                f"The DataFrame has no column '{label}', which label='{label}' names.{near} Its columns are {shown}."
            )
        return settings
    if "label" in columns:
        return {**settings, "data.label": "label"}
    raise ConfigurationError(
        "The DataFrame has no column 'label', and the call of Trainer does not say which column is the label. Add "
        f"label='…'. Its columns are {shown}."
    )


def classed(settings: dict[str, str], data: Any) -> dict[str, str]:
    """The settings with the classes of the label's column where `data` holds DataFrames and nothing says them: their
    names where they are words (in the order of the alphabet), else their number, the largest label and one.

    Raises:
        ConfigurationError: the words cannot be names of classes, or are too many.
    """
    table = _table(data)
    # Other words for keys and values, `loss="CrossEntropyLoss"`, say the same as the catalogue's.
    meant = dict(catalogue.canonical(key, value) for key, value in settings.items())
    told = {"data.classes", "data.label_names", "data.decoded_dir"} & set(meant)
    if table is None or told or meant.get("loss.name", _CLASSES) != _CLASSES:
        return settings
    column = meant.get("data.label", "")
    kind = dict(table.dtypes).get(column, "")
    ignored = ignored_label(meant.get("loss.ignore_label", ""))
    if kind == "string":
        # One more than there may be, and the ignored one.
        found = table.select(quoted(column)).distinct().limit(_MOST_CLASSES + 2).collect()
        return {**settings, **_of_words(column, sorted(row[0] for row in found if row[0] is not None), ignored)}
    if kind not in _WHOLE and not kind.startswith("decimal"):
        return settings
    counts = kind == "boolean" or ignored is None
    counted = table if counts else table.filter(f"{quoted(column)} != {ignored}")
    largest, present = counted.selectExpr(f"max({quoted(column)})", f"size({seen(quoted(column))})").first()
    if largest is None or not math.isfinite(largest) or not 0 <= largest < _MOST_CLASSES:
        return settings  # the JVM says which label of which row is none
    tell_gaps(column, present, int(largest))
    return {**settings, "data.classes": str(max(2, int(largest) + 1))}


def ignored_label(text: str) -> int | None:
    """The value of `loss.ignore_label`; None where there is none, or no whole number, which the JVM refuses."""
    return int(text) if re.fullmatch(r"[+-]?[0-9]+", text.strip()) else None


def seen(column: str, most: int = _MOST_CLASSES) -> str:
    """SQL: the set of a column's values that are classes below `most`; other values, ids say, are not collected."""
    value = f"cast({column} as double)"
    return f"collect_set(if({value} >= 0 and {value} < {most} and {value} = floor({value}), {value}, null))"


def tell_gaps(column: str, present: int, largest: int) -> None:
    """Says on the terminal that some classes have no row: labels that count from 1, or are numbers of something else.

    Args:
        present: how many different labels there are.
    """
    if present == largest + 1:
        return
    print(
        f"sparkdl-bench: the column '{column}' holds {present} different labels and the largest is {largest}, so "
        f"{largest + 1 - present} of the {largest + 1} classes, 0 to {largest}, have no row: the net learns never to "
        "answer them. Number the labels without gaps, for instance with StringIndexer of pyspark.ml.feature, if they "
        "are not meant.",
        file=sys.stderr,
    )


def _of_words(column: str, words: list[str], ignored: int | None) -> dict[str, str]:
    """The key of the classes that a column's texts are.

    Args:
        words: the different ones.
        ignored: `loss.ignore_label`, whose rows belong to no class.
    """
    numbers = {word: _whole(word) for word in words}
    words = [word for word in words if ignored is None or numbers[word] != ignored]
    whole = [number for word in words if (number := numbers[word]) is not None and number >= 0]
    if len(whole) == len(words):
        largest = max(whole, default=_MOST_CLASSES)
        return {"data.classes": str(max(2, largest + 1))} if largest < _MOST_CLASSES else {}
    if len(words) > _MOST_CLASSES:
        raise ConfigurationError(
            f"The label's column '{column}' holds more than {_MOST_CLASSES} different words, such as "
            f"{listed(words, 3)}, so it is no class. Name another column with label='…'."
        )
    wrong = [word for word in words if "," in word or word.strip() != word or not word]
    if wrong:
        raise ConfigurationError(
            f"The label's column '{column}' holds {wrong[0]!r}, which cannot be the name of a class: names are not "
            "empty and have no comma and no space at either end. Rename it, or number the words with StringIndexer of "
            "pyspark.ml.feature and name its output with label='…'."
        )
    if len(words) == 1:
        raise ConfigurationError(
            f"The label's column '{column}' holds one word only, {words[0]!r}, so there is nothing to tell apart. Name "
            "another column with label='…', or bring rows of another class."
        )
    return {"data.label_names": ",".join(words)}


def _whole(text: str) -> int | None:
    """A whole number in a text, also as 3.0, as the JVM reads it; None where it is none. `²` is none."""
    found = re.fullmatch(r"([+-]?[0-9]+)(\.0*)?", text.strip())
    return int(found[1]) if found else None


def _table(data: Any) -> Any:
    """The DataFrame that somebody trains on, if any."""
    table = data.get("table") if isinstance(data, Mapping) else data
    return table if is_frame(table) else None


def standardised(settings: dict[str, str], data: Any) -> dict[str, str]:
    """The settings with `data.normalize = standard` where `data` is a DataFrame alone and nothing else is chosen.

    Columns of a table have scales of their own (ages beside incomes), on which gradient descent learns the large ones
    first and the small ones hardly; Spark ML's estimators standardise by default for the same reason. A dict says
    itself what happens to its rows.
    """
    if not is_frame(data) or "data.normalize" in settings:
        return settings
    return {**settings, "data.normalize": "standard"}


def is_frame(value: Any) -> bool:
    """Whether `value` is a DataFrame of a classic session, on every supported Spark."""
    return hasattr(value, "createOrReplaceGlobalTempView") and hasattr(value, "sparkSession")


def is_local(master: str) -> bool:
    """True where driver and executors share this host: `local`, `local[…]`, `local-cluster[…]`."""
    return master == "local" or master.startswith(("local[", "local-cluster["))


# Of the session, which may plan several things at once.
_CHOOSING_PYTHON = threading.Lock()


@contextmanager
def own_python(context: Any) -> Iterator[None]:
    """Python workers of what is planned within take this Python, where the master is local and nobody chose another.

    Else Spark takes the python3 of the PATH, which need not be the one with this package and PyTorch.
    """
    with _CHOOSING_PYTHON:
        before = context.pythonExec
        if is_local(context.master) and not os.environ.get("PYSPARK_PYTHON"):
            context.pythonExec = sys.executable
        try:
            yield
        finally:
            context.pythonExec = before


def of_another_library(value: Any) -> str | None:
    """What somebody's rows are who gives pandas, NumPy, PyArrow or Polars where a DataFrame of Spark's belongs, with
    what to do, in two sentences; None where they are nothing of the kind."""
    library = type(value).__module__.partition(".")[0]
    if library not in _LIBRARIES:
        return None
    kind = type(value).__name__
    made = _LIBRARIES[library].get(kind, "data")
    return f"a {library} {kind}. Make it a DataFrame of Spark's first: spark.createDataFrame({made})."


def check(value: Any, call: str, other: str = "") -> None:
    """Refuses what is no DataFrame of a classic session.

    Args:
        call: what was called, as a sentence begins with it.
        other: a further sentence, of what else there is.
    """
    if is_frame(value) and not is_of_connect(value):
        return
    given = of_another_library(value) or (_OF_CONNECT if is_of_connect(value) else f"a {type(value).__name__}.")
    raise ConfigurationError(f"{call} takes a DataFrame of a classic Spark session, and this is {given}{other}")


def is_of_connect(value: Any) -> bool:
    """Whether `value` is a DataFrame of a Spark Connect session."""
    return any(each.__module__.startswith("pyspark.sql.connect.") for each in type(value).__mro__)


def quoted(column: str) -> str:
    """A column's name as Spark's expressions take it, whatever stands in it."""
    return "`" + column.replace("`", "``") + "`"


def refuse_twins(frame: Any) -> None:
    """Refuses a frame with two columns of one name, of which Spark can read neither.

    Raises:
        ConfigurationError: with the name.
    """
    exact = frame.sparkSession.conf.get("spark.sql.caseSensitive", "false") == "true"
    counted = Counter(name if exact else name.lower() for name in frame.columns)
    twins = [name for name, count in counted.items() if count > 1]
    if twins:
        raise ConfigurationError(
            f"The DataFrame has more than one column '{twins[0]}'{'' if exact else ' (Spark ignores case)'}, and Spark "
            "cannot tell them apart. Rename one: frame.toDF(…) takes new names for all columns."
        )


def _view(frame: Any, views: dict[str, Any]) -> str:
    refuse_twins(frame)
    name = f"sparkdl_{uuid.uuid4().hex}"
    frame.createOrReplaceGlobalTempView(name)
    views[name] = frame.sparkSession
    return f"{_database(frame.sparkSession)}.{name}"


def _database(spark: Any) -> str:
    """Where global temporary views are."""
    return str(spark.conf.get("spark.sql.globalTempDatabase", "global_temp"))
