"""Looks at a table by Spark: `of_frame` at a DataFrame; as a program with a file of its question, at Parquet."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkdl_bench import frames
from sparkdl_bench.comparison import labels
from sparkdl_bench.errors import ConfigurationError, SparkDLError
from sparkdl_bench.nearest import listed, suggestion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "boolean")


def of_frame(frame: DataFrame, label: str | None) -> dict[str, Any]:
    """`settings`, `shape`, `classes`, `rows` and `told` of a table.

    Raises:
        ConfigurationError: it is empty, its label cannot be told or is no class, or it has no column of numbers.
    """
    frames.refuse_twins(frame)
    types = dict(frame.dtypes)
    column = _label(types, label)
    values = [name for name, kind in types.items() if name != column and _holds_numbers(kind)]
    if not values:
        raise ConfigurationError(
            f"Beside the label '{column}' the table has no column of numbers: "
            f"{listed([f'{name} ({kind})' for name, kind in types.items() if name != column], 6)}. Convert them first."
        )
    rows = frame.count()
    if rows == 0:
        raise ConfigurationError("The table has no rows. Look at its filters and at where it is read from.")
    rows_of_labels = frame.select(f"`{column}`").distinct().limit(labels.MOST_CLASSES + 1).collect()
    found = [row[0] for row in rows_of_labels]
    classes = labels.of_table(found, f"The label's column '{column}'")
    others = [name for name in types if name != column and name not in values]
    width = _width(frame, values, types)
    told = f"{rows:,} rows of {width} values; label: column '{column}', {len(found)} classes"
    if others:
        told += f"; left out, because they hold no numbers: {listed(others, 20)}"
    settings = {"data.label": column, "data.columns": ",".join(values), "data.normalize": "standard", **classes}
    return {"settings": settings, "shape": [width], "classes": len(found), "rows": rows, "told": told}


def _label(types: dict[str, str], label: str | None) -> str:
    names = list(types)
    if label is not None:
        if label not in types:
            raise ConfigurationError(
                f"The table has no column '{label}' for the label.{suggestion(label, names)} Columns: {listed(names)}."
            )
        return label
    lower = {name.lower(): name for name in names}
    found = next((lower[usual] for usual in labels.NAMES if usual in lower), None)
    if found is None:
        raise ConfigurationError(
            f'It is not clear which column is the label: {listed(names)}. Name it: --label COLUMN, or label="COLUMN" '
            "from Python."
        )
    return found


def _holds_numbers(kind: str) -> bool:
    inner = kind.removeprefix("array<").removesuffix(">")
    return kind == "vector" or inner in _NUMBERS or inner.startswith("decimal")


def _width(frame: DataFrame, values: list[str], types: dict[str, str]) -> int:
    row = frame.select(*(f"`{name}`" for name in values)).first()
    return sum(1 if types[name] in _NUMBERS else _length(value) for name, value in zip(values, row or (), strict=False))


def _length(value: Any) -> int:
    try:
        return len(value)
    except TypeError:
        return 1


def main(file: Path) -> dict[str, Any]:
    from pyspark.sql import SparkSession

    question = json.loads(file.read_text(encoding="utf-8"))
    local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}
    builder = SparkSession.builder.master("local[2]").appName("sparkdl-bench look")
    for name, value in local.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        return of_frame(spark.read.parquet(question["path"]), question["label"])
    except SparkDLError as error:
        return {"error": str(error)}
    finally:
        spark.stop()


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
