"""DataFrames as data sets: the JVM is told their names, since only names and numbers cross."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparkdl_bench.errors import ConfigurationError

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
    table: Any = data if is_frame(data) else data.get("table") if isinstance(data, Mapping) else None
    if not is_frame(table) or "data.label" in settings or settings.get("data.decoded_dir"):
        return settings
    columns = list(table.columns)
    if "label" in columns:
        return {**settings, "data.label": "label"}
    shown = ", ".join(columns[:20]) + (", …" if len(columns) > 20 else "")
    raise ConfigurationError(
        "The DataFrame has no column 'label', and the call of Trainer does not say which column is the label. Add "
        f"label='…'. Its columns are {shown}."
    )


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
    if is_frame(value) and not _of_connect(value):
        return
    given = of_another_library(value) or _of_connect(value) or f"a {type(value).__name__}."
    raise ConfigurationError(f"{call} takes a DataFrame of a classic Spark session, and this is {given}{other}")


def _of_connect(value: Any) -> str | None:
    """The same of a DataFrame of Spark Connect."""
    if not type(value).__module__.startswith("pyspark.sql.connect."):
        return None
    return (
        "a DataFrame of a Spark Connect session, whose client has no JVM. Train in a classic session on the cluster, "
        "SparkSession.builder.master(…) in place of .remote(…) or a script for spark-submit, and save the model: its "
        "transform takes DataFrames of Spark Connect."
    )


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
